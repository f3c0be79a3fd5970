//! A system's settings, read once, as edits of a kernel.
//!
//! ```text
//!   KernelFacts --the model has a rule--> edits of a kernel
//!              |`----no rule, not the usual value--> a gap
//!              `-----not read--> a gap, with the value used instead
//! ```
//!
//! Owns the edit for each setting ([`edit`]), and the values that the model assumes for the others.

use crate::figures;
use largefolio_linux::kernel_facts::{DiskFacts, KernelFacts};
use largefolio_sim::gaps::{Gap, GapKind};
use largefolio_sim::kernel::{Kernel, overrides};

use super::features::Features;
use crate::{Error, Remark};

/// Settings with a rule that every kernel has, and what applies if they cannot be read.
const NAMES: [(&str, &str); 11] = [
    ("thp.enabled", "madvise"),
    ("thp.defrag", "madvise"),
    ("thp.use_zero_page", "on"),
    ("thp.shmem_enabled", "never"),
    ("khugepaged.defrag", "1"),
    ("khugepaged.max_ptes_none", "all but one"),
    ("khugepaged.max_ptes_swap", "an eighth"),
    ("khugepaged.max_ptes_shared", "half"),
    ("khugepaged.pages_to_scan", "8 blocks"),
    ("khugepaged.scan_sleep_millisecs", "10000"),
    ("khugepaged.alloc_sleep_millisecs", "60000"),
];
/// Settings with a rule that some kernels lack.
const OPTIONAL: [&str; 6] = [
    "thp.shrink_underused",
    "vm.dirty_background_ratio",
    "vm.compaction_proactiveness",
    "zswap.enabled",
    "zswap.max_pool_percent",
    "zswap.accept_threshold_percent",
];
/// Settings without a rule: the only value that the model has.
const ASSUMED: [(&str, &str); 7] = [
    ("ksm.run", "0"),
    ("vm.dirty_background_bytes", "0"),
    ("vm.overcommit_memory", "0"),
    ("vm.page-cluster", "3"),
    ("vm.swappiness", "60"),
    ("vm.watermark_scale_factor", "10"),
    ("vm.zone_reclaim_mode", "0"),
];
/// The kernel itself chooses at most this much.
const MIN_FREE_KIB_MAX: u64 = 256 << 10;
/// The kernel's default for a device's window and largest I/O (0.4), in KiB.
const DISK_KIB: u64 = 128;
const IGNORED: &str = "ignored";
const NR_NAMED: usize = 4;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    edits: Vec<String>,
    gaps: Vec<Gap>,
    remark: Option<Remark>,
}

impl Settings {
    pub(super) fn of(facts: &KernelFacts) -> Self {
        let mut settings = Self { remark: held_now(&facts.held), ..Self::default() };
        settings.add_values(facts);
        settings.add_disks(facts);
        settings.add_rest(facts);
        let Features { edits, ignored } = Features::of(&facts.settings);
        settings.edits.extend(edits);
        for what in ignored {
            settings.no_rule(what);
        }
        settings
    }

    fn add_values(&mut self, facts: &KernelFacts) {
        let page = facts.page_bytes;
        let sizes: Vec<String> =
            facts.sizes.iter().map(|bytes| format!("thp.{}", figures::size(*bytes))).collect();
        let named = NAMES.iter().map(|(name, _)| (*name).to_owned());
        let optional = OPTIONAL.iter().map(|name| (*name).to_owned());
        for name in named.chain(optional).chain(sizes.clone()) {
            match facts.settings.get(&name) {
                Some(value) if is_usual(&name, value, page) => {}
                Some(value) => match edit_on(&name, value, page) {
                    Some(edit) => self.edits.push(edit),
                    None => self.no_rule(format!("{name}={value}")),
                },
                None => {
                    if let Some((_, usual)) = NAMES.iter().find(|(known, _)| *known == name) {
                        self.unread(&name, usual);
                    }
                }
            }
        }
        for (bytes, size) in facts.sizes.iter().zip(sizes) {
            let usual = if *bytes == page * page / 8 { "inherit" } else { "never" };
            let name = format!("{size}.shmem");
            let value = facts.settings.get(&name).filter(|value| *value != usual);
            self.edits.extend(value.and_then(|value| edit(&name, value)));
        }
        for (name, assumed) in ASSUMED {
            if let Some(value) = facts.settings.get(name).filter(|value| *value != assumed) {
                self.gap(GapKind::Setting, format!("{name}={value}"), format!("as if {assumed}"));
            }
        }
        let min_free = facts.settings.get("vm.min_free_kbytes");
        if let Some(kib) =
            min_free.filter(|kib| kib.parse::<u64>().is_ok_and(|kib| kib > MIN_FREE_KIB_MAX))
        {
            self.gap(
                GapKind::Setting,
                format!("vm.min_free_kbytes={kib}"),
                "as the kernel chooses it",
            );
        }
    }

    /// Adds the limits of the usual device for all files, and those of other devices.
    fn add_disks(&mut self, facts: &KernelFacts) {
        let name = facts.usual_disk.as_deref().unwrap_or_default();
        let usual = facts.disks.get(name).copied().unwrap_or_default();
        let or_default = |kib: Option<u64>| kib.unwrap_or(DISK_KIB);
        let limits = |disk: &DiskFacts| [disk.readahead_kib, disk.io_kib];
        for (rule, file, kib) in [
            ("readahead", "read_ahead_kb", usual.readahead_kib),
            ("io", "max_sectors_kb", usual.io_kib),
        ] {
            match kib {
                Some(kib) => self.edits.push(format!("{rule}={kib}K")),
                None => self.unread(&format!("{file} of the disks"), &format!("{DISK_KIB}K")),
            }
        }
        for (name, disk) in facts.disks.iter().filter(|(disk, _)| *disk != name) {
            if disk.readahead_kib.is_none() {
                self.unread(&format!("read_ahead_kb of {name}"), &format!("{DISK_KIB}K"));
            }
            let rules = ["readahead", "io"].into_iter().zip(limits(disk)).zip(limits(&usual));
            for ((rule, own), usual) in rules {
                let (own, usual) = (or_default(own), or_default(usual));
                if own != usual {
                    self.edits.push(format!("{rule}-{name}={own}K"));
                }
            }
        }
    }

    fn add_rest(&mut self, facts: &KernelFacts) {
        match facts.fault_around_bytes {
            // The kernel rounds down to a power of two, and to at least a page.
            Some(bytes) => {
                let bytes = 1 << bytes.clamp(facts.page_bytes, 1 << 40).ilog2();
                self.edits.push(format!("fault-around={}", figures::size(bytes)));
            }
            None => self.unread("fault_around_bytes (debugfs, root only)", "64K"),
        }
        self.edits.extend(facts.preemption.iter().map(|word| format!("preemption={word}")));
        let lists = if facts.has_generations == Some(true) { "generations" } else { "lists" };
        self.edits.push(format!("lru={lists}"));
        let pools = facts.pools.iter().filter(|(_, nr)| **nr > 0);
        self.edits.extend(pools.map(|(kib, nr)| format!("hugepages.{kib}={nr}")));
        let on_disk = facts.swaps.iter().filter(|swap| !swap.contains("/zram")).count();
        if on_disk > 0 {
            self.edits.push("reclaim.swap_device=disk".to_owned());
        }
        if on_disk > 0 && on_disk < facts.swaps.len() {
            self.gap(GapKind::Setting, "swap space on zram and on disks", "all of it is on a disk");
        }
        for (point, huge) in &facts.huge_tmpfs {
            let what = format!("huge={huge} of {}", point.display());
            let remedy = format!("never; +tmpfs-huge={huge} sets it for every tmpfs");
            self.gap(GapKind::Setting, what, remedy);
        }
        if facts.nr_nodes > 1 {
            self.gap(GapKind::Setting, format!("{} NUMA nodes", facts.nr_nodes), "one node");
        }
        if let Some(bytes) = facts.limit_bytes {
            let size = figures::size(bytes);
            let what = format!("memory limit of {} here", figures::bytes(bytes));
            self.gap(GapKind::Setting, what, format!("no limit; --cgroup {size} sets it"));
        }
    }

    fn gap(&mut self, kind: GapKind, what: impl Into<String>, instead: impl Into<String>) {
        self.gaps.push(Gap::new(kind, what, instead));
    }

    fn no_rule(&mut self, what: String) {
        self.gap(GapKind::Setting, what, IGNORED);
    }

    fn unread(&mut self, what: &str, assumed: &str) {
        self.gap(GapKind::Unread, what, assumed);
    }

    #[must_use]
    pub fn remark(&self) -> Option<&Remark> {
        self.remark.as_ref()
    }

    /// Returns the kernel `base` with these settings.
    pub(super) fn on(&self, base: &str) -> Result<Kernel, Error> {
        let kernel = Kernel::parse(&self.with(base))?;
        let gaps = kernel.gaps.iter().chain(&self.gaps).cloned().collect();
        Ok(Kernel { gaps, ..kernel })
    }

    pub(super) fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Whether [`Self::with`] made the name `name`.
    pub(super) fn is_in(&self, name: &str) -> bool {
        let base = name.split('+').next().unwrap_or_default();
        let own = self.with(base);
        own != base && name.starts_with(&own)
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

/// Returns whether one of the edits sets what could not be read.
pub(super) fn is_given(gap: &Gap, edits: &[String]) -> bool {
    let name = gap.what.split(' ').next().unwrap_or_default();
    let rule = match name {
        "fault_around_bytes" => Some("fault_around_bytes=1".to_owned()),
        "read_ahead_kb" => Some("readahead_bytes=1".to_owned()),
        "max_sectors_kb" => Some("io_bytes=1".to_owned()),
        "khugepaged.pages_to_scan" => Some("collapse.ranges_to_scan=1".to_owned()),
        name => edit(name, "1"),
    };
    let sets = |rule: &String| edits.iter().any(|edit| overrides(edit, rule));
    gap.kind == GapKind::Unread && rule.as_ref().is_some_and(sets)
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

fn name_list(names: &[String]) -> String {
    let first = names.iter().take(NR_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NR_NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Returns whether `value` is the kernel's default, which the rules already have.
fn is_usual(setting: &str, value: &str, page_bytes: u64) -> bool {
    let pages_of_pmd = page_bytes / 8;
    match setting.strip_prefix("thp.") {
        Some(size) if size == figures::size(pages_of_pmd * page_bytes) => value == "inherit",
        Some(size) if size.starts_with(|first: char| first.is_ascii_digit()) => value == "never",
        _ => match setting {
            "khugepaged.max_ptes_none" => value == (pages_of_pmd - 1).to_string(),
            "khugepaged.max_ptes_swap" => value == (pages_of_pmd / 8).to_string(),
            "khugepaged.max_ptes_shared" => value == (pages_of_pmd / 2).to_string(),
            "khugepaged.pages_to_scan" => value == (8 * pages_of_pmd).to_string(),
            _ => false,
        },
    }
}

/// As [`edit`], for settings that count base pages too.
fn edit_on(setting: &str, value: &str, page_bytes: u64) -> Option<String> {
    if setting == "khugepaged.pages_to_scan" {
        let (pages, of_pmd) = (value.parse::<u64>().ok()?, page_bytes / 8);
        // The rule counts whole blocks.
        let is_whole = pages > 0 && pages.is_multiple_of(of_pmd);
        return is_whole.then(|| format!("collapse.ranges_to_scan={}", pages / of_pmd));
    }
    edit(setting, value)
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
        "khugepaged.defrag" => format!("collapse.defrag={}", value != "0"),
        "thp.shrink_underused" => {
            format!("shrink-underused={}", if value == "0" { "off" } else { "on" })
        }
        "zswap.enabled" => format!("zswap={}", if value == "Y" { "on" } else { "off" }),
        "zswap.max_pool_percent" | "zswap.accept_threshold_percent" => format!("{setting}={value}"),
        "vm.dirty_background_ratio" => format!("reclaim.dirty_background_ratio={value}"),
        "vm.compaction_proactiveness" => format!("reclaim.compaction_proactiveness={value}"),
        "thp.shmem_enabled" => format!("shmem={}", value.replace('_', "-")),
        _ => {
            if setting.starts_with("readahead.") {
                return Some(format!("readahead={value}K"));
            }
            let size = setting.strip_prefix("thp.")?;
            if !size.starts_with(|first: char| first.is_ascii_digit()) {
                return None;
            }
            match size.split_once('.') {
                Some((size, "shmem")) => format!("shmem-{size}={}", value.replace('_', "-")),
                Some(_) => return None,
                None => format!("anon-{size}={value}"),
            }
        }
    })
}

/// Returns khugepaged's pause in milliseconds, at least 1: the model's clock has no shorter one.
fn pause(value: &str) -> Option<u32> {
    Some(value.parse::<u32>().ok()?.max(1))
}

#[cfg(test)]
mod tests;
