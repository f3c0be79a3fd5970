//! Transparent huge pages: where their settings are, and which sizes this kernel has.

use std::io;
use std::path::{Path, PathBuf};

use super::choice::Choice;
use super::number;
use crate::system::System;

/// Where the settings are.
pub(crate) const THP: &str = "/sys/kernel/mm/transparent_hugepage";
/// The same of Red Hat Enterprise Linux 6 and its relatives.
pub(crate) const RED_HAT_THP: &str = "/sys/kernel/mm/redhat_transparent_hugepage";

/// The setting `name`, such as `enabled` or `khugepaged/scan_sleep_millisecs`.
pub(crate) fn setting(name: &str) -> PathBuf {
    Path::new(THP).join(name)
}

/// A file of one size: `enabled`, `shmem_enabled`, a counter.
pub(crate) fn of_size(kib: u64, name: &str) -> PathBuf {
    setting(&format!("hugepages-{kib}kB/{name}"))
}

/// The control of anonymous folios of one size.
pub(crate) fn control(kib: u64) -> PathBuf {
    of_size(kib, "enabled")
}

/// The word that is chosen in a setting; `None` where there is no such setting.
pub(crate) fn chosen(system: &dyn System, path: &Path) -> Option<String> {
    let text = String::from_utf8(system.text(path).ok()?).ok()?;
    let choice = Choice::parse(&text);
    (!choice.choices.is_empty()).then_some(choice.value)
}

/// Anonymous folios of one size that page faults got since the beginning; 0 where nothing counts.
pub(crate) fn nr_given(system: &dyn System, kib: u64) -> u64 {
    number(system, &of_size(kib, "stats/anon_fault_alloc")).unwrap_or(0)
}

/// Sizes that have a control, in KiB, ascending; Linux 6.8 is the first with them.
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

/// `hugepages-64kB` is 64.
fn kib_of(folder: &str) -> Option<u64> {
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
}
