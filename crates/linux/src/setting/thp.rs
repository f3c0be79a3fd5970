//! Transparent huge pages set for a while.

use super::{Setting, SettingError};
use crate::proc::thp::{self, THP, control, setting};
use crate::system::Live;

/// Sizes that have a control, in KiB, ascending.
///
/// # Errors
/// When they cannot be listed: Linux 6.8 is the first with them.
pub(crate) fn sizes_kib() -> Result<Vec<u64>, SettingError> {
    thp::sizes_kib(&Live).map_err(|source| SettingError::Read { path: THP.into(), source })
}

/// `64K`, `2M`: as the catalogue of settings has it.
pub(crate) fn size_name(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{}M", bytes >> 20) } else { format!("{}K", bytes >> 10) }
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
