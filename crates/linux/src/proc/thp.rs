//! Transparent huge pages: the paths of the settings, and the sizes that this kernel supports.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::choice::Choice;
use super::number;
use crate::geometry::Geometry;
use crate::system::System;

pub const THP: &str = "/sys/kernel/mm/transparent_hugepage";
/// The path on Red Hat Enterprise Linux 6 and its relatives.
pub(crate) const RED_HAT_THP: &str = "/sys/kernel/mm/redhat_transparent_hugepage";

/// Returns the path of setting `name`, such as `enabled` or `khugepaged/scan_sleep_millisecs`.
#[must_use]
pub fn setting(name: &str) -> PathBuf {
    Path::new(THP).join(name)
}

/// Returns a file of one size: `enabled`, `shmem_enabled`, a counter.
#[must_use]
pub fn of_size(kib: u64, name: &str) -> PathBuf {
    setting(&format!("hugepages-{kib}kB/{name}"))
}

#[must_use]
pub fn control(kib: u64) -> PathBuf {
    of_size(kib, "enabled")
}

/// Returns the active word of a setting; `None` if the setting does not exist.
pub fn chosen(system: &dyn System, path: &Path) -> Option<String> {
    let text = String::from_utf8(system.text(path).ok()?).ok()?;
    let choice = Choice::parse(&text);
    (!choice.choices.is_empty()).then_some(choice.value)
}

/// Returns how many folios of one size page faults allocated since boot; 0 without a counter.
pub(crate) fn nr_given(system: &dyn System, kib: u64) -> u64 {
    number(system, &of_size(kib, "stats/anon_fault_alloc")).unwrap_or(0)
}

/// Returns how often the kernel collapsed memory into a folio or split one since boot; `None`
/// without the counters.
pub(crate) fn nr_changed(system: &dyn System) -> Option<u64> {
    let text = system.text(Path::new("/proc/vmstat")).ok()?;
    let text = String::from_utf8(text).ok()?;
    let counter = |name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    };
    let sizes = sizes_kib(system).unwrap_or_default();
    let splits = sizes.iter().filter_map(|kib| number(system, &of_size(*kib, "stats/split")));
    let all = counter("thp_collapse_alloc")?.wrapping_add(counter("thp_split_page")?);
    Some(splits.fold(all, u64::wrapping_add))
}

/// Lists the sizes with a control, in KiB, ascending. They exist since Linux 6.8.
pub(crate) fn sizes_kib(system: &dyn System) -> io::Result<Vec<u64>> {
    let names = system.names(Path::new(THP))?;
    let mut sizes: Vec<u64> = names
        .iter()
        .filter_map(|name| kib_of(name.to_str()?))
        .filter(|kib| system.text(&control(*kib)).is_ok())
        .collect();
    sizes.sort_unstable();
    Ok(sizes)
}

/// Lists the sizes with a control for shared memory, in KiB, ascending. They exist since Linux
/// 6.11.
pub(crate) fn shmem_sizes_kib(system: &dyn System) -> io::Result<Vec<u64>> {
    let names = system.names(Path::new(THP))?;
    let sizes = names.iter().filter_map(|name| kib_of(name.to_str()?));
    let mut sizes: Vec<u64> =
        sizes.filter(|kib| system.text(&of_size(*kib, "shmem_enabled")).is_ok()).collect();
    sizes.sort_unstable();
    Ok(sizes)
}

/// Returns the orders that faults and collapses may get: a PMD entry's, and each size's that is
/// not off for private or shared memory.
pub(crate) fn orders(system: &dyn System, geometry: Geometry) -> BTreeSet<u32> {
    let is_on = |path: &Path| chosen(system, path).is_some_and(|word| word != "never");
    let sizes = sizes_kib(system).unwrap_or_default().into_iter();
    let on = sizes.filter(|kib| is_on(&control(*kib)) || is_on(&of_size(*kib, "shmem_enabled")));
    let pages = on.map(|kib| kib.saturating_mul(1 << 10) / geometry.page_bytes);
    pages.filter_map(u64::checked_ilog2).chain([geometry.pmd_order]).collect()
}

/// Parses `hugepages-64kB` to 64.
pub(crate) fn kib_of(folder: &str) -> Option<u64> {
    folder.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_names_its_size() {
        assert_eq!(kib_of("hugepages-64kB"), Some(64));
        assert_eq!(kib_of("khugepaged"), None);
        assert_eq!(kib_of("hugepages-xkB"), None);
    }

    #[test]
    fn orders_are_those_of_sizes_that_are_on() {
        let dir = tempfile::tempdir().unwrap();
        for (kib, enabled, shmem) in
            [(16, "[never]", "[never]"), (32, "[never]", "never [advise]"), (64, "[inherit]", "")]
        {
            let folder = dir.path().join(&THP[1..]).join(format!("hugepages-{kib}kB"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("enabled"), format!("always {enabled}\n")).unwrap();
            std::fs::write(folder.join("shmem_enabled"), format!("always {shmem}\n")).unwrap();
        }
        let system = crate::system::MemSystem::from_dir(dir.path());
        let of = |page_bytes| orders(&system, Geometry::of(page_bytes));
        assert_eq!(of(4096), [3, 4, 9].into());
    }
}
