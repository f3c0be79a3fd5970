//! Transparent huge pages of the running kernel: where their settings are, and which sizes it has.
//!
//! Owns the paths. Changing a setting for a while is [`crate::setting`].

use std::fs;
use std::path::{Path, PathBuf};

use crate::setting::{Setting, SettingError};

/// Where the settings are.
pub(crate) const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// What a PMD entry maps where the kernel does not say: 512 base pages of 4 KiB.
const PMD_BYTES: u64 = 2 << 20;

/// Bytes that one PMD entry maps.
pub(crate) fn pmd_bytes() -> u64 {
    let text = fs::read_to_string(setting("hpage_pmd_size")).unwrap_or_default();
    // At least a page and at most 512 MiB, which 64K pages have: it is used to align addresses.
    let is_sane = |bytes: &u64| bytes.is_power_of_two() && (1 << 16..=1 << 29).contains(bytes);
    text.trim().parse().ok().filter(is_sane).unwrap_or(PMD_BYTES)
}

/// The setting `name`, such as `enabled` or `khugepaged/scan_sleep_millisecs`.
pub(crate) fn setting(name: &str) -> PathBuf {
    Path::new(THP).join(name)
}

/// The control of anonymous folios of one size.
pub(crate) fn control(kib: u64) -> PathBuf {
    setting(&format!("hugepages-{kib}kB/enabled"))
}

/// Sizes that have a control, in KiB, ascending.
///
/// # Errors
/// When they cannot be listed: Linux 6.8 is the first with them.
pub(crate) fn sizes_kib() -> Result<Vec<u64>, SettingError> {
    let entries = fs::read_dir(THP)
        .map_err(|source| SettingError::Read { path: PathBuf::from(THP), source })?;
    let mut sizes: Vec<u64> = entries
        .filter_map(|entry| size_of(entry.ok()?.file_name().to_str()?))
        .filter(|kib| control(*kib).exists())
        .collect();
    sizes.sort_unstable();
    Ok(sizes)
}

/// Gives advised areas folios of exactly these sizes until the result is dropped.
///
/// # Errors
/// A control that cannot be changed; those before it are put back.
pub(crate) fn enable_only(wanted_kib: &[u64]) -> Result<Vec<Setting>, SettingError> {
    let change = |kib: &u64| Setting::change(&control(*kib), value_of(*kib, wanted_kib));
    sizes_kib()?.iter().map(change).collect()
}

/// The control of a size where exactly these are enabled.
pub(crate) fn value_of(kib: u64, wanted_kib: &[u64]) -> &'static str {
    if wanted_kib.contains(&kib) { "madvise" } else { "never" }
}

/// Longer than any run: khugepaged would collapse pages behind a program's back.
const ASLEEP_MS: &str = "4000000";

/// Keeps khugepaged from working until the result is dropped.
///
/// # Errors
/// A setting that cannot be changed; the one before it is put back.
pub(crate) fn send_khugepaged_to_sleep() -> Result<[Setting; 2], SettingError> {
    let asleep = |name| Setting::change(&setting(&format!("khugepaged/{name}")), ASLEEP_MS);
    Ok([asleep("scan_sleep_millisecs")?, asleep("alloc_sleep_millisecs")?])
}

/// `hugepages-64kB` is 64.
fn size_of(folder: &str) -> Option<u64> {
    folder.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_names_its_size() {
        assert_eq!(size_of("hugepages-64kB"), Some(64));
        assert_eq!(size_of("khugepaged"), None);
        assert_eq!(size_of("hugepages-xkB"), None);
    }
}
