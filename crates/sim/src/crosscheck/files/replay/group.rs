//! A group with a limit: the model reclaims by itself, and what it counts is compared.

use largefolio_mm::core::groups::GroupLimits;
use largefolio_mm::folio::lru::{Age, ListId, LruKind};
use largefolio_mm::memory::Memory;
use largefolio_mm::rules::reclaim::LruRule;
use largefolio_mm::units::{GroupId, MmId};

use super::FileReplay;

/// A group of that limit in pages, with the process in it; calls are charged to it too.
pub(super) fn with_limit(memory: &mut Memory, mm: MmId, max_pages: u64) -> (GroupId, u64) {
    let group = memory.add_group(GroupLimits::max(max_pages));
    memory.join_group(mm, group);
    memory.enter_group(group);
    (group, max_pages)
}

impl FileReplay {
    /// The kernel had added up what it counts when a step began, and the probe had dropped pages of
    /// zeroes (`probe/pressure.h`).
    pub(super) fn refresh(&mut self) {
        if let Some((group, _)) = self.group {
            self.memory.flush_group_stats(group);
            self.memory.zap_batches();
        }
    }

    /// The model has no memory of the kernel's own: what is recorded of it makes the limit smaller.
    pub(super) fn charge_kernel(&mut self, nr_pages: u64) {
        let Some((group, max_pages)) = self.group else { return };
        let limits = GroupLimits::max(max_pages.saturating_sub(nr_pages));
        self.memory.set_group_limits(group, limits);
    }

    /// What the model counted in the group, in the kernel's words; nothing where there is no group.
    pub(in super::super) fn counted(&mut self) -> Vec<(&'static str, u64)> {
        let Some((group, _)) = self.group else { return Vec::new() };
        // Long before the kernel was asked.
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
