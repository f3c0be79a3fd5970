//! Settings that an administrator changes while the system runs: `thp=always`.
//!
//! Owns the list of the rules that are such settings. The edits' syntax belongs to [`super::edit`].

use super::edit::{self, parts};
use super::{Kernel, KernelError};

/// Rules that are settings of a running system, or tables of them.
const SETTINGS: [&str; 20] = [
    // /sys/kernel/mm/transparent_hugepage
    "anon.thp",
    "anon.pmd",
    "anon.size_kib",
    "anon.defrag",
    "anon.use_zero_page",
    "anon.shrink_underused",
    "shmem.enabled",
    "shmem.pmd",
    "shmem.size_kib",
    // its folder khugepaged
    "anon.max_ptes_none",
    "collapse.max_ptes_swap",
    "collapse.max_ptes_shared",
    "collapse.ranges_to_scan",
    "collapse.scan_sleep_ms",
    "collapse.alloc_sleep_ms",
    "collapse.defrag",
    // /sys/block/DISK/queue
    "readahead_bytes",
    "io_bytes",
    "disks",
    // /sys/kernel/debug
    "fault_around_bytes",
];

/// Settings on which the model's state is built: it cannot change them during a run.
const FIXED: [&str; 5] = [
    "reclaim.lru",
    "reclaim.dirty_background_ratio",
    "reclaim.compaction_proactiveness",
    "clear.preemption",
    "hugepages",
];

impl Kernel {
    /// Returns the kernel after its settings were changed while it ran: `thp=always`, or several
    /// edits with `+` between them. Its name stays the same.
    ///
    /// ```
    /// use largefolio_sim::kernel::Kernel;
    /// let kernel = Kernel::parse("6.18").unwrap();
    /// assert_ne!(kernel.after_setting("thp=always").unwrap().rules, kernel.rules);
    /// assert!(kernel.after_setting("exec-block=64K").is_err());
    /// ```
    ///
    /// # Errors
    /// Bad edits, and edits of other rules than settings of a running system.
    pub fn after_setting(&self, edits: &str) -> Result<Self, KernelError> {
        let mut kernel = self.clone();
        let joined = format!("+{edits}");
        for one in parts(&joined).1 {
            kernel = kernel.after_one(&one)?;
        }
        Ok(kernel)
    }

    fn after_one(&self, edit: &str) -> Result<Self, KernelError> {
        let is_named = |known: &[&str]| edit::paths(edit).iter().any(|path| is_in(path, known));
        if is_named(&FIXED) {
            return Err(KernelError::FixedSetting(edit.to_owned()));
        }
        let mut after = self.clone();
        edit::apply(&mut after, edit)?;
        if is_named(&SETTINGS) && self.differs_only_in_settings(&after)? {
            return Ok(after);
        }
        Err(KernelError::NoSetting(edit.to_owned()))
    }

    fn differs_only_in_settings(&self, after: &Self) -> Result<bool, KernelError> {
        let (before, after) = (self.leaves()?, after.leaves()?);
        let mut paths = before.keys().chain(after.keys());
        Ok(paths
            .all(|path| before.get(path) == after.get(path) || is_in(&path.join("."), &SETTINGS)))
    }
}

fn is_in(path: &str, tables: &[&str]) -> bool {
    tables.iter().any(|table| {
        path.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(edits: &str) -> Result<Kernel, String> {
        Kernel::parse("6.18").unwrap().after_setting(edits).map_err(|error| error.to_string())
    }

    #[test]
    fn a_setting_changes_the_rules_and_keeps_the_name() {
        for edits in [
            "thp=always",
            "anon.thp=always",
            "anon-64K=always",
            "defrag=defer+madvise",
            "huge-zero=off",
            "max-ptes-none=0",
            "khugepaged-scan-sleep=1",
            "collapse.ranges_to_scan=64",
            "readahead=1M",
            "readahead-vda=1M",
            "fault-around=4K",
        ] {
            let after = after(edits).unwrap();
            assert_eq!(after.name, "6.18");
            assert_ne!(after.rules, Kernel::parse("6.18").unwrap().rules, "{edits}");
        }
        let both = after("thp=always+defrag=defer+madvise+anon-64K=inherit").unwrap();
        let whole = Kernel::parse("6.18+thp=always+defrag=defer+madvise+anon-64K=inherit").unwrap();
        assert_eq!(both.rules, whole.rules);
    }

    #[test]
    fn code_build_options_and_fixed_settings_are_refused() {
        let fixed = after("lru=lists").unwrap_err();
        assert!(fixed.ends_with("for the whole run, as in 6.18+lru=lists"), "{fixed}");
        for edit in [
            "exec-block=64K",
            // Also where it is the kernel's own value.
            "exec-miss=counted",
            "page=64K",
            "fault-around=contpte",
            "sizes=64K:always",
            "policy=exec-order",
            "mapcount=folio",
        ] {
            let refused = after(edit).unwrap_err();
            assert!(refused.contains("not a setting of a running system"), "{edit}: {refused}");
        }
        assert!(after("thp=allways").unwrap_err().contains("always, madvise or never"));
        assert!(after("tph=always").unwrap_err().contains("there is no rule"));
        assert!(after("").is_err());
    }
}
