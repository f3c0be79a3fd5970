//! The workload set: the accesses recorded on each kernel.
//!
//! Owns names and words. A workload is a name, `FS_raKB_PROT_ADVICE_PATTERN_sSEED`, and the probe's
//! `key=value` words (`recordings/README.md`). The same set is recorded on packaged kernels
//! (`scripts/recordings`) and, as far as it needs no system settings, on the running kernel.
//!
//! Invariant W1: workload names are unique within a filesystem.

mod rows;

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter, Result as FmtResult};

pub(super) use rows::OF_LISTS;
use rows::Row;

const MIB: u64 = 1 << 20;

/// Windows with the whole grid on packaged kernels, in KiB.
const PACKAGED_KB: [u64; 3] = [128, 512, 2048];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Filesystem {
    /// ext4 with blocks of 4 KiB.
    Ext4,
    Xfs,
    /// ext4 with the encrypt feature: its files never have large folios.
    Ext4Encrypt,
    /// ext4 on an emulated device so slow that reads are in flight at the next touch.
    Ext4Slow,
    /// btrfs, with the window and largest request of its own device.
    Btrfs,
}

impl Filesystem {
    pub const ALL: [Self; 5] =
        [Self::Ext4, Self::Xfs, Self::Ext4Encrypt, Self::Ext4Slow, Self::Btrfs];
    /// Filesystems that a loop device can hold.
    pub const LIVE: [Self; 4] = [Self::Ext4, Self::Xfs, Self::Ext4Encrypt, Self::Btrfs];
    /// Filesystems that use the block device's window, as in recordings of real programs.
    pub const PROGRAMS: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Ext4Encrypt];
    /// Filesystems for random workloads.
    pub const RANDOM: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Ext4Encrypt => "ext4-encrypt",
            Self::Ext4Slow => "ext4-slow",
            Self::Btrfs => "btrfs",
        }
    }

    #[must_use]
    pub(crate) const fn driver(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            _ => "ext4",
        }
    }

    /// Finds a filesystem by name.
    ///
    /// ```
    /// use largefolio_lab::crosscheck::record::Filesystem;
    /// assert_eq!(Filesystem::named("xfs"), Some(Filesystem::Xfs));
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

impl Display for Filesystem {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.write_str(self.name())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSpec {
    pub name: &'static str,
    pub bytes: u64,
    /// A hole: reading it needs no I/O, so its folios are never locked.
    pub is_sparse: bool,
}

#[must_use]
pub fn files(filesystem: Filesystem, page: u64) -> Vec<FileSpec> {
    let full = |name, bytes| FileSpec { name, bytes, is_sparse: false };
    let hole = |name, bytes| FileSpec { name, bytes, is_sparse: true };
    let (long, exact) = if page == 4096 { (64 * MIB, 4 * MIB) } else { (192 * MIB, 64 * MIB) };
    if filesystem == Filesystem::Ext4Slow {
        return [full("data", 64 * MIB)].into_iter().chain(holes(page, hole, long)).collect();
    }
    let full = [
        full("data", long),
        // Ends inside a page.
        full("odd", 3 * MIB + 13 * page + 100),
        // Ends inside a folio.
        full("tail", 2 * MIB + 37 * page),
        full("exact", exact),
    ];
    full.into_iter().chain(holes(page, hole, long)).collect()
}

fn holes(page: u64, hole: impl Fn(&'static str, u64) -> FileSpec, long: u64) -> Vec<FileSpec> {
    let mut files = vec![
        // Room for a hundred forced windows.
        hole("sparse", 320 * MIB),
        hole("holes", long),
        hole("p12", 12 * page),
        hole("p13", 13 * page),
    ];
    // Grow by write(2).
    files.extend(["made0", "made1", "made2", "made3", "made4", "made5"].map(|at| hole(at, page)));
    files
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// `FS_raKB_PROT_ADVICE_PATTERN_sSEED`.
    pub name: String,
    pub filesystem: Filesystem,
    pub window_kb: u64,
    /// The probe's arguments, in order, each key once.
    pub settings: Vec<(String, String)>,
    /// The length of its own file; 0 if it uses a shared file.
    pub own_bytes: u64,
}

impl Workload {
    fn of(filesystem: Filesystem, window_kb: u64, row: Row) -> Self {
        let name = format!("{filesystem}_ra{window_kb}_{}", row.label());
        let settings =
            row.settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Self { name, filesystem, window_kb, settings, own_bytes: 0 }
    }

    #[must_use]
    pub fn word(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    #[must_use]
    pub fn file(&self) -> &str {
        self.word("file").unwrap_or("data")
    }

    /// Returns the words for `folio-lab crosscheck record --`, if it has its own file.
    #[must_use]
    pub fn typed(&self) -> Option<String> {
        let own = format!("file={}", self.own_bytes);
        let rest = self.settings.iter().filter(|(key, _)| key != "file");
        let settings = rest.map(|(key, value)| format!("{key}={value}"));
        let all: Vec<String> = std::iter::once(own).chain(settings).collect();
        (self.own_bytes > 0).then(|| all.join(" "))
    }

    #[must_use]
    pub fn is_huge(&self) -> bool {
        let has_huge = |key| self.word(key).is_some_and(|value| value.contains("huge"));
        let all_nohuge = self.word("advice") == Some("nohuge") && self.word("also").is_none();
        !all_nohuge && ["advice", "also", "ops"].into_iter().any(has_huge)
    }
}

#[must_use]
pub fn with_window(filesystem: Filesystem, window_kb: u64, page: u64) -> Vec<Workload> {
    let rows = match (filesystem, window_kb) {
        (Filesystem::Ext4Slow, _) => vec![rows::in_flight(page)],
        (Filesystem::Ext4Encrypt, _) => rows::without_large_folios(page),
        (Filesystem::Btrfs, _) => rows::on_btrfs(window_kb),
        (_, 0) => rows::no_window(),
        _ => {
            let mut rows = if window_kb >= 8192 { rows::long_window() } else { Vec::new() };
            rows.extend(rows::mapped(window_kb));
            rows.extend(rows::reads(window_kb));
            if window_kb == 128 {
                rows.extend(rows::special(page));
                if page == 4096 {
                    rows.extend(rows::around_off(page));
                    rows.extend(rows::gates());
                }
                rows.extend(rows::decisive(page));
            }
            rows
        }
    };
    let mut seen = BTreeSet::new();
    rows.into_iter()
        .map(|row| Workload::of(filesystem, window_kb, row))
        .filter(|workload| seen.insert(workload.name.clone()))
        .collect()
}

/// Returns the workloads in a memory cgroup with a limit, each with its own window, for base pages
/// of 4 KiB. `limit=` is the group's size in bytes; the recorder makes the group and passes it in
/// `group=`.
#[must_use]
pub fn limited(filesystem: Filesystem, page: u64) -> Vec<Workload> {
    let is_recorded =
        matches!(filesystem, Filesystem::Ext4Encrypt | Filesystem::Ext4 | Filesystem::Xfs);
    if !is_recorded || page != 4096 {
        return Vec::new();
    }
    let rows = rows::limited(filesystem).into_iter();
    rows.map(|(window_kb, row)| Workload::of(filesystem, window_kb, row)).collect()
}

#[must_use]
pub fn packaged(filesystem: Filesystem, page: u64) -> Vec<Workload> {
    let of = |window_kb, rows: Vec<Row>| {
        rows.into_iter().map(move |row| Workload::of(filesystem, window_kb, row))
    };
    match filesystem {
        Filesystem::Ext4Slow => with_window(filesystem, 256, page),
        Filesystem::Ext4Encrypt => with_window(filesystem, 128, page),
        Filesystem::Btrfs => [128, 4096]
            .into_iter()
            .flat_map(|window_kb| with_window(filesystem, window_kb, page))
            .collect(),
        Filesystem::Ext4 | Filesystem::Xfs => PACKAGED_KB
            .into_iter()
            .flat_map(|window_kb| with_window(filesystem, window_kb, page))
            .chain(of(8192, rows::long_window()))
            .chain(of(0, rows::no_window()))
            .chain(of(2 * page / 1024, rows::short_windows()))
            .collect(),
    }
}
