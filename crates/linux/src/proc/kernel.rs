//! Paths of settings and states of the whole kernel.

/// Present if `SELinux` decides what programs may execute; below a root directory.
pub(crate) const SELINUX: &str = "sys/fs/selinux/enforce";
/// 1 while KSM merges pages.
pub(crate) const KSM: &str = "/sys/kernel/mm/ksm/run";
/// Settings that `folio tune` does not have, by name.
pub(crate) const OTHERS: [(&str, &str); 14] = [
    ("thp.shrink_underused", "/sys/kernel/mm/transparent_hugepage/shrink_underused"),
    ("ksm.run", KSM),
    ("zswap.accept_threshold_percent", "/sys/module/zswap/parameters/accept_threshold_percent"),
    ("zswap.enabled", "/sys/module/zswap/parameters/enabled"),
    ("zswap.max_pool_percent", "/sys/module/zswap/parameters/max_pool_percent"),
    ("vm.compaction_proactiveness", "/proc/sys/vm/compaction_proactiveness"),
    ("vm.dirty_background_bytes", "/proc/sys/vm/dirty_background_bytes"),
    ("vm.dirty_background_ratio", "/proc/sys/vm/dirty_background_ratio"),
    ("vm.min_free_kbytes", "/proc/sys/vm/min_free_kbytes"),
    ("vm.overcommit_memory", "/proc/sys/vm/overcommit_memory"),
    ("vm.page-cluster", "/proc/sys/vm/page-cluster"),
    ("vm.swappiness", "/proc/sys/vm/swappiness"),
    ("vm.watermark_scale_factor", "/proc/sys/vm/watermark_scale_factor"),
    ("vm.zone_reclaim_mode", "/proc/sys/vm/zone_reclaim_mode"),
];
pub(crate) const DEBUGFS: &str = "/sys/kernel/debug";
pub(crate) const NODES: &str = "/sys/devices/system/node/online";
pub(crate) const SWAPS: &str = "/proc/swaps";
