//! Compaction: moves folios to create a large free block (docs/behaviour I.9, I.11).
//!
//! Corresponds to: `try_to_compact_pages`, `compaction_suitable`, `compact_zone`,
//! `isolate_migratepages`, `isolate_freepages`, `kcompactd`, `should_proactive_compact_node`,
//! `migrate_pages`, `migrate_folio`, `folio_mc_copy`, `remove_migration_ptes`.
//!
//! ```text
//!   pfn 0   migration scanner -->                     <-- free scanner   end
//!       | m m . m | . . m . | u u u u | m . . . | . m . . | . . . . |
//!         \___________________________________________________^
//! ```
//!
//! One scanner moves up the pageblocks and the other moves down, until they meet or the goal is
//! reached: a free block of the requested order or, for proactive compaction, a low enough
//! fragmentation.
//!
//! Moving a folio to other page frames (docs/behaviour I.11).
//!
//! The folio keeps its owner, references, map counts and list position. Its entries name the new
//! frames and keep their flags.

use std::ops::Range;

use crate::buddy::MigrateType;
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::pgtable::FolioSpan;
use crate::ram::StretchWork;
use crate::reclaim::effort::COSTLY_ORDER;
use crate::rules::anon::Effort;
use crate::units::{Order, Pfn};

/// `extfrag_threshold`: at or below it, memory is short rather than fragmented.
const INDEX_THRESHOLD: i32 = 500;

/// Interval of kcompactd's fragmentation checks.
pub const PROACTIVE_SLEEP_NS: u64 = 500_000_000;
/// Checks skipped after a proactive compaction without progress.
const NR_IDLE_LOOKS: u32 = 1 << 6;
/// Per cent between the scores at which proactive compaction starts and stops.
const PROACTIVE_LEEWAY: u32 = 10;
const SCORE_MIN: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Block(Order),
    Score(Order, u32),
}

impl Goal {
    const fn order(self) -> Order {
        match self {
            Self::Block(order) | Self::Score(order, _) => order,
        }
    }
}

/// Why memory is not compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactRefusal {
    /// Too few free pages to move folios to: the low watermark plus twice the block.
    TooLittleFree,
    /// The fragmentation index is in 0 ..= 500 (I.9).
    NotFragmented,
}

impl Memory {
    /// Whether compaction may produce a block of `order` (I.9).
    ///
    /// # Errors
    /// Returns the reason against compaction.
    pub fn can_compact(&self, order: Order) -> Result<(), CompactRefusal> {
        let buddy = &self.core.buddy;
        let marks = self.core.pressure.watermarks;
        let mark = if order > COSTLY_ORDER { marks.low } else { marks.min };
        if buddy.nr_free_pages() < mark + 2 * order.nr_pages() {
            return Err(CompactRefusal::TooLittleFree);
        }
        let index = buddy.fragmentation_index(order);
        // Memory is short rather than fragmented: reclaim helps, compaction does not (I.9).
        if order > COSTLY_ORDER && (0..=INDEX_THRESHOLD).contains(&index) {
            return Err(CompactRefusal::NotFragmented);
        }
        Ok(())
    }

    pub(super) fn compact_for(&mut self, order: Order, effort: Effort) -> bool {
        let is_possible = order <= self.core.buddy.max_order() && self.can_compact(order).is_ok();
        let is_urgent = effort == Effort::Direct && order <= COSTLY_ORDER;
        if !is_possible || (self.core.pressure.deferral.defers(order) && !is_urgent) {
            return false;
        }
        self.core.counters.reclaim.compact_stall += 1;
        let before = self.core.counters.reclaim;
        let is_done = self.compact(order);
        let counters = &mut self.core.counters.reclaim;
        counters.compact_stall_scanned += counters.compact_scanned() - before.compact_scanned();
        counters.compact_stall_moved += counters.pgmigrate_success - before.pgmigrate_success;
        if is_done {
            counters.compact_success += 1;
            self.core.pressure.deferral.succeeded(order);
        } else {
            counters.compact_fail += 1;
            self.core.pressure.deferral.failed(order);
        }
        true
    }

    pub(super) fn compact_in_background(&mut self, order: Order) {
        if self.can_compact(order).is_err() || self.core.pressure.deferral.defers(order) {
            return;
        }
        self.core.counters.reclaim.compact_daemon_wake += 1;
        if self.compact(order) {
            self.core.pressure.deferral.succeeded(order);
        } else {
            self.core.pressure.deferral.failed(order);
        }
    }

    /// Moves folios from low frames to high ones. Returns whether a block of `order` is free.
    ///
    /// Does not move folios of that order or larger. Skips unmovable pageblocks (I.11).
    pub fn compact(&mut self, order: Order) -> bool {
        self.compact_until(Goal::Block(order))
    }

    /// Checks the fragmentation as kcompactd does, and compacts proactively (I.11).
    pub fn compact_in_advance(&mut self) {
        let proactiveness = self.rules.reclaim.compaction_proactiveness;
        let order = self.rules.page.pmd_order().min(self.core.buddy.max_order());
        let low = 100_u32.saturating_sub(proactiveness).max(SCORE_MIN);
        let before = self.fragmentation_score(order);
        if proactiveness == 0 || before <= (low + PROACTIVE_LEEWAY).min(100) {
            return;
        }
        let pressure = &mut self.core.pressure;
        if pressure.nr_idle_looks > 0 {
            pressure.nr_idle_looks -= 1;
            return;
        }
        self.core.counters.reclaim.nr_compact_proactive += 1;
        self.compact_until(Goal::Score(order, low));
        if self.fragmentation_score(order) >= before {
            self.core.pressure.nr_idle_looks = NR_IDLE_LOOKS;
        }
    }

    fn fragmentation_score(&self, order: Order) -> u32 {
        self.core.buddy.unusable_index(order) / 10
    }

    fn is_met(&self, goal: Goal) -> bool {
        match goal {
            Goal::Block(order) => self.core.buddy.has_block(order),
            Goal::Score(order, score) => self.fragmentation_score(order) <= score,
        }
    }

    fn compact_until(&mut self, goal: Goal) -> bool {
        for span in self.core.buddy.spans() {
            self.compact_span(span, goal);
        }
        self.is_met(goal)
    }

    /// Compacts one node's memory.
    fn compact_span(&mut self, span: Range<u64>, goal: Goal) {
        let block = self.core.buddy.pageblock_order().nr_pages();
        let (mut at, mut free) = (span.start, span.end.div_ceil(block) * block);
        while at + block < free && !self.is_met(goal) {
            if self.core.buddy.pageblock_type(Pfn(at)) == MigrateType::Movable {
                free = self.empty_pageblock(at, at + block, free, goal);
            }
            at += block;
        }
    }

    fn empty_pageblock(&mut self, mut at: u64, end: u64, mut free: u64, goal: Goal) -> u64 {
        let order = goal.order();
        while at < end.min(self.core.buddy.nr_pages()) && !self.is_met(goal) {
            self.core.work.add(1);
            let Some(id) = self.core.folios.of_pfn(Pfn(at)) else {
                self.core.counters.reclaim.compact_migrate_scanned += 1;
                at += 1;
                continue;
            };
            let folio = self.core.folios.get(id);
            let (next, size) = (folio.end_pfn().0, folio.order);
            self.core.counters.reclaim.compact_migrate_scanned += next - at;
            at = next;
            // Moving a folio as large as the wanted block gains nothing.
            if size >= order || !self.can_migrate(id) {
                self.core.counters.reclaim.nr_migrate_refused += u64::from(size < order);
                continue;
            }
            if let Some(target) = self.free_block_below(&mut free, end, size, order) {
                self.migrate(id, target);
            } else {
                self.core.counters.reclaim.nr_migrate_refused += 1;
                break;
            }
        }
        free
    }

    fn free_block_below(
        &mut self,
        free: &mut u64,
        floor: u64,
        size: Order,
        order: Order,
    ) -> Option<Pfn> {
        let block = self.core.buddy.pageblock_order().nr_pages();
        let mut from = *free;
        while from >= floor + block {
            let first = from - block;
            self.core.work.add_cheap(block / 8);
            let is_movable = self.core.buddy.pageblock_type(Pfn(first)) == MigrateType::Movable;
            self.core.counters.reclaim.compact_free_scanned += block;
            if is_movable && let Some(pfn) = self.core.buddy.take_in(first, from, size, order) {
                return Some(pfn);
            }
            from = first;
            // Smaller folios may still fit where a large one did not.
            if size == Order::ZERO {
                *free = from;
            }
        }
        None
    }
}

impl Memory {
    pub(super) fn can_migrate(&self, id: FolioId) -> bool {
        let folio = self.core.folios.get(id);
        !folio.has_extra_refs()
            && folio.refs > 0
            && folio.pmd_maps() == 0
            && !folio.is_locked
            && self.core.folios.lru().is_on_lru(id)
    }

    pub(crate) fn migrate(&mut self, id: FolioId, to: Pfn) {
        let sites = self.sites_of(id);
        let folio = self.core.folios.get(id);
        let (from, order, nr) = (folio.pfn, folio.order, folio.nr_pages());
        let plan = self.rules.clear.move_plan(self.arch, self.rules.page, nr);
        self.core.ram.copy_folio(from, to, &plan);
        self.core.stretches.plan(StretchWork::Copy, &plan);
        self.core.folios.move_frames(id, to);
        let span = FolioSpan::new(to, order);
        for site in &sites {
            self.flush(site.mm, site.vpn, site.nr);
            let table = &mut self.space_mut(site.mm).table;
            if site.is_pmd {
                let Some(leaf) = table.clear_pmd(site.vpn) else {
                    unreachable!("a PMD entry maps the folio here")
                };
                table.map_pmd(leaf.first_vpn, to, leaf.flags);
                continue;
            }
            table.unfold_range(site.vpn, site.nr);
            for by in 0..site.nr {
                let vpn = site.vpn.plus(by);
                let flags = table.pte(vpn).flags();
                let pfn = to.plus(site.pfn.0 - from.0 + by);
                let _ = table.replace_pte(vpn, pfn, flags, span);
            }
        }
        self.reopen_sites(&sites);
        self.core.buddy.free(from, order);
        self.core.counters.reclaim.pgmigrate_success += nr;
    }
}
