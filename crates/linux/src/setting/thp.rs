//! Temporary transparent huge page settings.

use super::{Setting, SettingError};
use crate::proc::thp::{self, THP, control, setting};
use crate::system::Live;

/// Returns the sizes that have a control, in KiB, ascending.
///
/// # Errors
/// If they cannot be listed. Linux 6.8 is the first with them.
pub fn sizes_kib() -> Result<Vec<u64>, SettingError> {
    thp::sizes_kib(&Live).map_err(|source| SettingError::Read { path: THP.into(), source })
}

/// Returns the sizes that have a control for shared memory, in KiB, ascending.
///
/// # Errors
/// If they cannot be listed. Linux 6.11 is the first with them.
pub fn shmem_sizes_kib() -> Result<Vec<u64>, SettingError> {
    thp::shmem_sizes_kib(&Live).map_err(|source| SettingError::Read { path: THP.into(), source })
}

#[must_use]
pub fn size_name(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{}M", bytes >> 20) } else { format!("{}K", bytes >> 10) }
}

/// Gives advised areas folios of exactly these sizes until the result is dropped.
///
/// # Errors
/// A control that cannot be changed. Those before it are restored.
pub fn enable_only(wanted_kib: &[u64]) -> Result<Vec<Setting>, SettingError> {
    let change = |kib: &u64| Setting::change(&control(*kib), value_of(*kib, wanted_kib));
    sizes_kib()?.iter().map(change).collect()
}

#[must_use]
pub fn value_of(kib: u64, wanted_kib: &[u64]) -> &'static str {
    if wanted_kib.contains(&kib) { "madvise" } else { "never" }
}

/// Longer than any run. Otherwise khugepaged would collapse pages during it.
const ASLEEP_MS: &str = "4000000";

/// Stops khugepaged until the result is dropped.
///
/// # Errors
/// A setting that cannot be changed. The one before it is restored.
pub fn send_khugepaged_to_sleep() -> Result<[Setting; 2], SettingError> {
    let asleep = |name| Setting::change(&setting(&format!("khugepaged/{name}")), ASLEEP_MS);
    Ok([asleep("scan_sleep_millisecs")?, asleep("alloc_sleep_millisecs")?])
}
