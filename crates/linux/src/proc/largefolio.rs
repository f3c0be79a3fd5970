//! Features of a kernel that is built with `kernel/`: the names and paths of their settings.

use std::path::{Path, PathBuf};

/// Absent in other kernels.
pub(crate) const LARGEFOLIO: &str = "/sys/kernel/mm/largefolio";
/// Settings that can be read and written; [`FILE_SIZES`] has more. A kernel lacks some of them.
pub(crate) const NAMES: [&str; 13] = [
    "exec_order",
    "exec_order_bytes",
    "exec_miss",
    "forced",
    "forced_gate",
    "clear",
    "size_advice",
    "owners_max",
    "pmd_counts",
    "mapcount_max",
    "file_collapse",
    "collapse_sizes",
    "copy",
];
/// One file per folio size.
pub(crate) const FILE_SIZES: &str = "file_sizes";

pub(crate) fn setting(name: &str) -> PathBuf {
    Path::new(LARGEFOLIO).join(name)
}

/// Returns the path of the setting for files in folios of one size.
pub(crate) fn of_size(kib: u64) -> PathBuf {
    setting(FILE_SIZES).join(format!("hugepages-{kib}kB"))
}
