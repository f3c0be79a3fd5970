//! Gaps: whatever a prediction depends on that no rule or no recording covers.
//!
//! Owns the list that a result carries. A kernel brings gaps of its own (its rules were never
//! recorded, a setting has no rule or could not be read), a trace the others. Without a gap, a
//! prediction is judged: recordings cover the whole path. Does not own their text in a result.

use std::collections::BTreeMap;

use largefolio_mm::rules::Rules;
use largefolio_trace::{FileId, FileInfo, Meta, recorded};
use serde::{Deserialize, Serialize};

/// Filesystems whose folios and readahead recordings or observations show (A.8).
const RECORDED: [&str; 6] = ["ext4", "ext4-journal", "xfs", "btrfs", "erofs", "tmpfs"];
/// Recorders that leave nothing out: they define the program.
const GENERATOR: &str = "generator ";
/// The model's treatment of most calls without a rule.
pub(crate) const IGNORED: &str = "ignored";
/// The model's treatment of an overlay's copy to its upper layer.
pub(crate) const NO_COPY_UP: &str = "the file is written where it is, not copied";
/// [`FileInfo::through`] of a file in a lower layer.
pub(crate) const OVERLAY: &str = "overlay";
/// Advice by its number, if it can change folios and the model has no rule for it.
const ADVICE: [(u64, &str); 3] =
    [(12, "MADV_MERGEABLE"), (100, "MADV_HWPOISON"), (101, "MADV_SOFT_OFFLINE")];
/// Advice that changes no folio: `MADV_UNMERGEABLE`, `MADV_DONTDUMP`, `MADV_DODUMP`,
/// `MADV_GUARD_REMOVE`.
const WITHOUT_EFFECT: [u64; 4] = [13, 16, 17, 103];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapKind {
    /// No recording checks the kernel's rules.
    Kernel,
    /// A setting without a rule.
    Setting,
    /// A setting that could not be read.
    Unread,
    /// A filesystem without a rule or a recording.
    Filesystem,
    /// A call or advice without a rule.
    Call,
    /// Missing parts of the trace; also each of its warnings.
    Recording,
}

impl GapKind {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Setting => "setting",
            Self::Unread => "unread",
            Self::Filesystem => "filesystem",
            Self::Call => "call",
            Self::Recording => "recording",
        }
    }
}

/// Something that no rule or no recording covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    pub kind: GapKind,
    /// Its name: `squashfs`, `madvise(MADV_MERGEABLE)`, `vm.swappiness=10`.
    pub what: String,
    /// The model's behaviour instead, as the end of a sentence; empty for a warning of the trace.
    pub instead: String,
    /// References to such files; `None` if the gap does not concern single references.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nr_references: Option<u64>,
    /// Such calls, or calls on such files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nr_calls: Option<u64>,
}

impl Gap {
    #[must_use]
    pub fn new(kind: GapKind, what: impl Into<String>, instead: impl Into<String>) -> Self {
        let (what, instead) = (what.into(), instead.into());
        Self { kind, what, instead, nr_references: None, nr_calls: None }
    }
}

/// Returns the model's treatment of a file, if no recording covers its filesystem.
fn of_file(rules: &Rules, file: &FileInfo, filesystem: Option<&str>) -> Option<(String, String)> {
    let name = filesystem.unwrap_or(&file.filesystem);
    let pseudo = file.path.starts_with('[') || file.path.starts_with("/dev/");
    if RECORDED.contains(&name) || pseudo || filesystem.is_some_and(|name| name == "none") {
        return None;
    }
    let base_pages = "their page cache has base pages only";
    Some(match name {
        "" => ("files whose filesystem the trace does not name".to_owned(), base_pages.to_owned()),
        "overlayfs" => (
            "overlayfs above a filesystem that the trace does not name".to_owned(),
            format!("{base_pages}; --fs NAME sets that filesystem"),
        ),
        "squashfs" => (
            name.to_owned(),
            format!("{base_pages}, as in the kernel, which also reads whole blocks"),
        ),
        "btrfs-compressed" => (
            "btrfs with compression".to_owned(),
            format!("{base_pages}; reads end with the window, in the kernel with the extent"),
        ),
        "erofs-compressed" => (
            "EROFS with compression".to_owned(),
            "reads begin with the window, in the kernel with the compressed cluster".to_owned(),
        ),
        _ if rules.order_range(name).is_large() => {
            (name.to_owned(), "their folios follow the documented rule (A.8)".to_owned())
        }
        _ => (name.to_owned(), base_pages.to_owned()),
    })
}

/// Counts of everything without a rule in a replay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met {
    /// By call: its name, and the model's behaviour instead.
    calls: BTreeMap<(String, &'static str), u64>,
    /// By file; empty if every file's filesystem is covered.
    files: Vec<Option<Use>>,
    /// Whether one of them was mapped.
    is_any_mapped: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    nr_references: u64,
    nr_calls: u64,
}

impl Met {
    /// For a trace whose files are all on `filesystem`, if that is given.
    pub(crate) fn new(rules: &Rules, meta: &Meta, filesystem: Option<&str>) -> Self {
        let of = |file: &FileInfo| of_file(rules, file, filesystem).map(|_| Use::default());
        let files: Vec<_> = meta.files.iter().map(of).collect();
        let has_any = files.iter().any(Option::is_some);
        Self { files: if has_any { files } else { Vec::new() }, ..Self::default() }
    }

    /// Whether references to files have to be counted.
    pub(crate) fn counts_references(&self) -> bool {
        self.is_any_mapped
    }

    /// Notes that a file was mapped.
    pub(crate) fn mapped(&mut self, file: FileId) {
        self.is_any_mapped |= matches!(self.files.get(file as usize), Some(Some(_)));
    }

    pub(crate) fn call(&mut self, what: String, instead: &'static str) {
        *self.calls.entry((what, instead)).or_default() += 1;
    }

    /// Notes advice that the replay ignores.
    pub(crate) fn advice(&mut self, number: u64) {
        if WITHOUT_EFFECT.contains(&number) {
            return;
        }
        let known = ADVICE.iter().find(|(known, _)| *known == number);
        let name = known.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned());
        self.call(format!("madvise({name})"), IGNORED);
    }

    pub(crate) fn file_call(&mut self, file: FileId) {
        if let Some(Some(used)) = self.files.get_mut(file as usize) {
            used.nr_calls += 1;
        }
    }

    pub(crate) fn references(&mut self, file: FileId, nr: u64) {
        if let Some(Some(used)) = self.files.get_mut(file as usize) {
            used.nr_references += nr;
        }
    }

    /// Returns the trace's gaps on a machine with `nr_nodes` nodes, in a fixed order.
    pub(crate) fn gaps(
        &self,
        rules: &Rules,
        meta: &Meta,
        filesystem: Option<&str>,
        nr_nodes: usize,
    ) -> Vec<Gap> {
        let mut by_name: BTreeMap<(String, String), Use> = BTreeMap::new();
        for (file, used) in meta.files.iter().zip(&self.files) {
            if let (Some(used), Some(name)) = (used, of_file(rules, file, filesystem)) {
                let sum = by_name.entry(name).or_default();
                sum.nr_references += used.nr_references;
                sum.nr_calls += used.nr_calls;
            }
        }
        by_name.retain(|_, used| used.nr_references + used.nr_calls > 0);
        let files = by_name.into_iter().map(|((what, instead), used)| Gap {
            nr_references: Some(used.nr_references),
            nr_calls: Some(used.nr_calls),
            ..Gap::new(GapKind::Filesystem, what, instead)
        });
        let calls = self.calls.iter().map(|((what, instead), nr)| Gap {
            nr_calls: Some(*nr),
            ..Gap::new(GapKind::Call, what.clone(), *instead)
        });
        let warnings = meta.warnings.iter();
        let warnings = warnings.map(|warning| Gap::new(GapKind::Recording, warning.clone(), ""));
        files.chain(calls).chain(not_recorded(meta, nr_nodes)).chain(warnings).collect()
    }
}

/// Returns the parts that the trace lacks, whatever the program did.
fn not_recorded(meta: &Meta, nr_nodes: usize) -> Option<Gap> {
    if meta.recorder.starts_with(GENERATOR) {
        return None;
    }
    let matters = |name: &str| name != recorded::MEMPOLICY || nr_nodes > 1;
    let missing = recorded::ALL.iter().filter(|(name, _)| !meta.has_recorded(name));
    let missing = missing.filter(|(name, _)| matters(name));
    let missing: Vec<&str> = missing.map(|(_, what)| *what).collect();
    let instead = if meta.faults_only {
        "a recording without --live shows more"
    } else {
        "record the program again with this version of folio"
    };
    let what = missing.join(", ");
    (!missing.is_empty()).then(|| Gap::new(GapKind::Recording, what, instead))
}

#[cfg(test)]
mod tests;
