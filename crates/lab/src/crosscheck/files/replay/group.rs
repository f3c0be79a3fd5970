//! A cgroup with a limit: the model reclaims, and its counters are compared.

use largefolio_mm::core::groups::GroupLimits;
use largefolio_mm::folio::lru::{Age, ListId, LruKind};
use largefolio_mm::memory::Memory;
use largefolio_mm::rules::reclaim::LruRule;
use largefolio_mm::units::{GroupId, MmId};

use super::FileReplay;

/// Creates a cgroup with this limit in pages and moves the process into it. Calls are charged to it
/// too.
pub(super) fn with_limit(memory: &mut Memory, mm: MmId, max_pages: u64) -> (GroupId, u64) {
    let group = memory.add_group(GroupLimits::max(max_pages));
    memory.join_group(mm, group);
    memory.enter_group(group);
    (group, max_pages)
}

impl FileReplay {
    /// Flushes the cgroup's statistics and drops batched pages of zeros, as the probe did before
    /// each step (`probe/pressure.h`).
    pub(super) fn refresh(&mut self) {
        if let Some((group, _)) = self.group {
            self.memory.flush_group_stats(group);
            self.memory.zap_batches();
        }
    }

    /// Lowers the limit by the recorded kernel memory, which the model does not have.
    pub(super) fn charge_kernel(&mut self, nr_pages: u64) {
        let Some((group, max_pages)) = self.group else { return };
        let limits = GroupLimits::max(max_pages.saturating_sub(nr_pages));
        self.memory.set_group_limits(group, limits);
    }

    pub(in super::super) fn counted(&mut self) -> Vec<(&'static str, u64)> {
        let Some((group, _)) = self.group else { return Vec::new() };
        // The kernel's counters were read long after its batches had drained.
        self.memory.drain_batches();
        let vec = self.memory.group(group).vec;
        let (page, counters) = (self.page_bytes(), &vec.counters);
        let file = LruKind::File as usize;
        let mut counted = vec![
            ("workingset_refault_file", counters.refaults[file]),
            ("workingset_activate_file", counters.activated[file]),
            ("workingset_restore_file", counters.restored[file]),
            ("pgscan", counters.pgscan),
            ("pgsteal", counters.pgsteal),
        ];
        if self.memory.rules().reclaim.lru == LruRule::Lists {
            let bytes = |age| vec.nr_pages(ListId::new(LruKind::File, age)) * page;
            counted.push(("inactive_file", bytes(Age::Inactive)));
            counted.push(("active_file", bytes(Age::Active)));
        }
        counted
    }
}
