//! A system's settings, read once, as edits of a kernel.
//!
//! ```text
//!   /sys --read once--> name, value --the model has a rule--> edits of a kernel
//!                              |`----no rule, not the usual value--> a remark
//!                              `-----missing--> a remark
//! ```
//!
//! Owns the list of settings, the edit for each ([`edit`]), and the remarks on settings that the
//! model ignores.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::figures;
use largefolio_linux::tune::catalog::Catalog;
use largefolio_sim::kernel::Kernel;

use crate::Remark;

const NAMES: [&str; 9] = [
    "thp.enabled",
    "thp.defrag",
    "thp.use_zero_page",
    "thp.shmem_enabled",
    "khugepaged.max_ptes_none",
    "khugepaged.max_ptes_swap",
    "khugepaged.max_ptes_shared",
    "khugepaged.scan_sleep_millisecs",
    "khugepaged.alloc_sleep_millisecs",
];
/// Folio sizes with a setting: 8K to 512M.
const SIZE_ORDERS: RangeInclusive<u32> = 13..=29;
const NR_NAMED: usize = 4;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    edits: Vec<String>,
    remarks: Vec<Remark>,
}

impl Settings {
    pub(super) fn read(catalog: &Catalog) -> Self {
        let read = |name: &str| catalog.read(name).ok().map(|current| current.value);
        let sizes = || SIZE_ORDERS.map(|order| format!("thp.{}", figures::size(1 << order)));
        let (mut edits, mut unread, mut unmodelled) = (Vec::new(), Vec::new(), Vec::new());
        for name in NAMES.map(str::to_owned).into_iter().chain(sizes()) {
            match read(&name) {
                Some(value) if is_usual(&name, &value) => {}
                Some(value) => edits.extend(edit(&name, &value)),
                None if NAMES.contains(&name.as_str()) => unread.push(name),
                None => {}
            }
        }
        for name in sizes().map(|size| format!("{size}.shmem")) {
            let value = read(&name).filter(|value| !["never", "inherit"].contains(&value.as_str()));
            unmodelled.extend(value.map(|value| format!("{name}={value}")));
        }
        let disks = catalog.disks();
        // The model has one disk: it uses the value that all disks share.
        let windows: BTreeSet<_> =
            disks.iter().map(|disk| read(&format!("readahead.{disk}"))).collect();
        match one(windows) {
            Ok(Some(window)) => edits.extend(edit("readahead.", &window)),
            Ok(None) => unread.push("readahead of the disks".to_owned()),
            Err(()) => unmodelled.push("disks with different readahead".to_owned()),
        }
        let largest: BTreeSet<_> = disks.iter().map(|disk| catalog.io_kib(disk)).collect();
        match one(largest) {
            Ok(Some(kib)) => edits.push(format!("io={kib}K")),
            Ok(None) => unread.push("max_sectors_kb of the disks".to_owned()),
            Err(()) => unmodelled.push("disks with different max_sectors_kb".to_owned()),
        }
        match blocks(&catalog.block_bytes(), rustix::param::page_size() as u64) {
            Ok(edit) => edits.extend(edit),
            Err(what) => unmodelled.push(what),
        }
        let lists = catalog.has_generations().map(|has| if has { "generations" } else { "lists" });
        edits.push(format!("lru={}", lists.unwrap_or("lists")));
        let held = NAMES.map(str::to_owned).into_iter().chain(sizes());
        let held: Vec<String> = held.filter(|name| catalog.is_held(name)).collect();
        let remarks = [held_now(&held), not_read(&unread), not_modelled(&unmodelled)];
        Self { edits, remarks: remarks.into_iter().flatten().collect() }
    }

    #[must_use]
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    pub(super) fn with(&self, base: &str) -> String {
        let mut name = base.to_owned();
        for edit in &self.edits {
            let edited = format!("{name}+{edit}");
            // Skips a folio size that this version's rules lack.
            if let (Ok(plain), Ok(kernel)) = (Kernel::parse(&name), Kernel::parse(&edited))
                && kernel.rules != plain.rules
            {
                name = edited;
            }
        }
        name
    }
}

/// Returns the common value: `None` if one cannot be read or the set is empty; an error if they
/// differ.
fn one<T: Ord>(all: BTreeSet<Option<T>>) -> Result<Option<T>, ()> {
    if all.len() > 1 { Err(()) } else { Ok(all.into_iter().next().flatten()) }
}

/// Returns the smallest file folio as an edit if all filesystems agree and it is larger than a
/// page. Otherwise an error says what to add to `this` for the others.
fn blocks(filesystems: &[(PathBuf, u64)], page_bytes: u64) -> Result<Option<String>, String> {
    let edit = |bytes: u64| format!("min-folio={}", figures::size(bytes));
    let Some((point, bytes)) = filesystems.iter().find(|(_, bytes)| *bytes > page_bytes) else {
        return Ok(None);
    };
    if filesystems.iter().all(|(_, other)| other == bytes) {
        return Ok(Some(edit(*bytes)));
    }
    let size = figures::size(*bytes);
    Err(format!("blocks of {size} in {} (this+{})", point.display(), edit(*bytes)))
}

fn held_now(names: &[String]) -> Option<Remark> {
    (!names.is_empty()).then(|| {
        Remark::Warning(format!(
            "another folio command (verify, run or bench) has changed {} temporarily, and `this` \
             includes that change; run this again after that command has ended",
            name_list(names)
        ))
    })
}

fn not_read(names: &[String]) -> Option<Remark> {
    (!names.is_empty()).then(|| {
        Remark::Warning(format!(
            "folio cannot read {} here, so `this` uses the kernel's defaults for them",
            name_list(names)
        ))
    })
}

fn not_modelled(names: &[String]) -> Option<Remark> {
    (!names.is_empty()).then(|| {
        Remark::Warning(format!(
            "`this` omits settings that the model does not know: {}",
            name_list(names)
        ))
    })
}

fn name_list(names: &[String]) -> String {
    let first = names.iter().take(NR_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NR_NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Returns whether `value` is the kernel's default, which the rules already have.
fn is_usual(setting: &str, value: &str) -> bool {
    let page_bytes = rustix::param::page_size() as u64;
    let pages_of_pmd = page_bytes / 8;
    match setting.strip_prefix("thp.") {
        Some(size) if size == figures::size(pages_of_pmd * page_bytes) => value == "inherit",
        Some(size) if size.starts_with(|first: char| first.is_ascii_digit()) => value == "never",
        _ => match setting {
            "khugepaged.max_ptes_none" => value == (pages_of_pmd - 1).to_string(),
            "khugepaged.max_ptes_swap" => value == (pages_of_pmd / 8).to_string(),
            "khugepaged.max_ptes_shared" => value == (pages_of_pmd / 2).to_string(),
            _ => false,
        },
    }
}

/// Returns the kernel edit for a setting of `folio tune`; `None` if the model does not have the
/// setting.
#[must_use]
pub fn edit(setting: &str, value: &str) -> Option<String> {
    Some(match setting {
        "thp.enabled" => format!("thp={value}"),
        "thp.defrag" => format!("defrag={}", value.replace('+', "-")),
        "thp.use_zero_page" => format!("huge-zero={}", if value == "0" { "off" } else { "on" }),
        "khugepaged.max_ptes_none" => format!("max-ptes-none={value}"),
        "khugepaged.max_ptes_swap" => format!("max-ptes-swap={value}"),
        "khugepaged.max_ptes_shared" => format!("max-ptes-shared={value}"),
        "khugepaged.scan_sleep_millisecs" => format!("collapse.scan_sleep_ms={}", pause(value)?),
        "khugepaged.alloc_sleep_millisecs" => format!("collapse.alloc_sleep_ms={}", pause(value)?),
        "thp.shmem_enabled" => format!("shmem-collapse={}", shmem(value)),
        _ => {
            if setting.starts_with("readahead.") {
                return Some(format!("readahead={value}K"));
            }
            let size = setting.strip_prefix("thp.")?;
            if !size.starts_with(|first: char| first.is_ascii_digit()) || size.contains('.') {
                return None;
            }
            format!("anon-{size}={value}")
        }
    })
}

/// Returns khugepaged's pause in milliseconds, at least 1: the model's clock has no shorter one.
fn pause(value: &str) -> Option<u32> {
    Some(value.parse::<u32>().ok()?.max(1))
}

/// Returns `shmem_enabled` as khugepaged interprets it.
fn shmem(value: &str) -> &str {
    match value {
        "within_size" => "within-size",
        "deny" => "never",
        "force" => "always",
        value => value,
    }
}

#[cfg(test)]
mod tests;
