//! khugepaged: collapses memory in the background (docs/behaviour H.6.4, H.6.5, D.2.9).
//!
//! Corresponds to: `khugepaged_do_scan`, `khugepaged_scan_mm_slot`, `khugepaged_enter_vma`,
//! `__khugepaged_exit`.
//!
//! ```text
//!   wake -- scan ranges_to_scan blocks, process after process --> sleep scan_sleep --> wake ..
//!              | no memory: sleep alloc_sleep once, continue
//! ```
//!
//! Scanning takes no time.

use super::file::FileRange;
use super::{CollapseTarget, Initiator};
use crate::core::khugepaged::Khugepaged;
use crate::core::observed::Observed;
use crate::counters::collapse::{CollapseRefusal, Done};
use crate::memory::Memory;
use crate::pgtable::Leaf;
use crate::policy::{Context, Point};
use crate::rules::anon::{Enabled, Orders, SizeMode};
use crate::rules::collapse::ScanCost;
use crate::units::{MmId, Order, Vpn};
use crate::units::{PageRange, VpnRange};
use crate::vma::{Backing, Vma};

const NS_PER_MS: u64 = 1_000_000;
const NEVER_NS: u64 = u64::MAX;

enum ScanEnd {
    More,
    NoMemory,
}

impl Khugepaged {
    const fn sleep(&mut self, ms: u64) {
        let ms = if ms == 0 { 1 } else { ms };
        self.wake_ns = self.wake_ns.saturating_add(ms.saturating_mul(NS_PER_MS));
    }
}

impl Memory {
    /// Runs khugepaged up to `until_ns` on its clock, which starts at 0 and never goes back.
    pub fn run_khugepaged(&mut self, until_ns: u64) {
        while self.khugepaged.wake_ns <= until_ns && self.khugepaged.wake_ns != NEVER_NS {
            self.khugepaged.now_ns = self.khugepaged.wake_ns;
            self.wake();
            for file in std::mem::take(&mut self.khugepaged.flushed) {
                self.write_back(file, PageRange { first: 0, end: u64::MAX });
            }
        }
        let now = &mut self.khugepaged.now_ns;
        *now = until_ns.max(*now);
    }

    /// Time on khugepaged's clock, in nanoseconds.
    #[must_use]
    pub const fn khugepaged_ns(&self) -> u64 {
        self.khugepaged.now_ns
    }

    /// Next wake-up on its clock, in nanoseconds.
    #[must_use]
    pub const fn khugepaged_wakes_ns(&self) -> u64 {
        self.khugepaged.wake_ns
    }

    /// Whether a process has joined the list of a khugepaged that a setting had started without
    /// any: it then wakes at once (H.6.5).
    #[must_use]
    pub const fn khugepaged_has_new_work(&self) -> bool {
        self.khugepaged.waits && !self.khugepaged.mms.is_empty()
    }

    pub(crate) fn khugepaged_enter(&mut self, mm: MmId) {
        let space = self.space_mut(mm);
        if !std::mem::replace(&mut space.is_scanned, true) {
            self.khugepaged.mms.push(mm);
        }
    }

    pub(crate) fn khugepaged_enter_areas(&mut self, mm: MmId, VpnRange { start, end }: VpnRange) {
        let vmas = &self.space(mm).vmas;
        let parts = vmas.overlapping(start, end);
        let areas: Vec<Vma> =
            parts.iter().filter_map(|part| vmas.find(part.start)).copied().collect();
        self.khugepaged_enter_for(mm, &areas);
    }

    pub(crate) fn khugepaged_enter_for(&mut self, mm: MmId, areas: &[Vma]) {
        if self.space(mm).is_scanned || !self.is_khugepaged_on() {
            return;
        }
        let who = Initiator::Khugepaged;
        let is_any = |vma| self.can_collapse(&self.thp_area(mm, vma, who), who);
        if areas.iter().any(is_any) {
            self.khugepaged_enter(mm);
        }
    }

    pub(crate) fn khugepaged_exit(&mut self, mm: MmId) {
        if !std::mem::take(&mut self.space_mut(mm).is_scanned) {
            return;
        }
        let khugepaged = &mut self.khugepaged;
        if let Some(place) = khugepaged.mms.iter().position(|&other| other == mm) {
            khugepaged.mms.remove(place);
            match khugepaged.at {
                Some(at) if place < at => khugepaged.at = Some(at - 1),
                Some(at) if place == at => khugepaged.next = Vpn(0),
                _ => {}
            }
        }
    }

    /// Whether the settings let khugepaged run (`hugepage_pmd_enabled`).
    #[must_use]
    pub fn is_khugepaged_on(&self) -> bool {
        let anon = &self.rules.anon;
        let is_on = |mode: &SizeMode| matches!(mode, SizeMode::Always | SizeMode::Madvise);
        anon.thp != Enabled::Never
            || anon.size_kib.values().any(is_on)
            || is_on(&anon.pmd)
            || self.rules.shmem.may_be_huge()
    }

    fn wake(&mut self) {
        let rules = self.rules.collapse;
        let nr_pages = rules.pages_to_scan(self.rules.page);
        self.khugepaged.waits &= self.khugepaged.mms.is_empty();
        while self.is_khugepaged_on() && self.may_go_on(nr_pages) {
            if let ScanEnd::NoMemory = self.scan_mm(nr_pages) {
                let khugepaged = &mut self.khugepaged;
                // Memory was short before this wake-up too: give the system its time.
                if khugepaged.has_slept {
                    break;
                }
                khugepaged.has_slept = true;
                khugepaged.sleep(rules.alloc_sleep_ms);
                return;
            }
        }
        let khugepaged = &mut self.khugepaged;
        khugepaged.sleep(rules.scan_sleep_ms);
        (khugepaged.nr_scanned, khugepaged.nr_passes, khugepaged.has_slept) = (0, 0, false);
    }

    fn may_go_on(&mut self, nr_pages: u64) -> bool {
        let khugepaged = &mut self.khugepaged;
        if khugepaged.mms.is_empty() || khugepaged.nr_scanned >= nr_pages {
            return false;
        }
        if khugepaged.at.is_none() {
            khugepaged.nr_passes += 1;
        }
        khugepaged.nr_passes < 2
    }

    fn scan_mm(&mut self, nr_pages: u64) -> ScanEnd {
        let khugepaged = &mut self.khugepaged;
        let at = *khugepaged.at.get_or_insert(0);
        let Some(&mm) = khugepaged.mms.get(at) else {
            self.end_pass();
            return ScanEnd::More;
        };
        let from = self.khugepaged.next;
        self.count_areas(self.space(mm).vmas.len(), 1);
        let areas: Vec<Vma> =
            self.space(mm).vmas.iter().filter(|vma| vma.end > from).copied().collect();
        for vma in areas {
            let vma = self.thp_area(mm, &vma, Initiator::Khugepaged);
            let pmd = self.rules.page.pmd_order();
            let last = Vpn(pmd.round_down(vma.end.0));
            let mut first = Vpn(pmd.round_up(vma.start.0.max(from.0)));
            if !self.can_collapse(&vma, Initiator::Khugepaged) || first >= last {
                self.khugepaged.nr_scanned += 1;
                continue;
            }
            while first < last {
                let target =
                    CollapseTarget { mm, vma, first, order: pmd, initiator: Initiator::Khugepaged };
                self.khugepaged.nr_examined = pmd.nr_pages();
                let outcome = self.collapse_remote(&target);
                self.count_outcome(Initiator::Khugepaged, outcome);
                let khugepaged = &mut self.khugepaged;
                first = first.plus(pmd.nr_pages());
                khugepaged.next = first;
                khugepaged.nr_scanned += match self.rules.collapse.scan_cost {
                    ScanCost::Block => pmd.nr_pages(),
                    ScanCost::Examined => khugepaged.nr_examined,
                };
                match outcome {
                    Err(CollapseRefusal::AllocHugePageFail) => return ScanEnd::NoMemory,
                    _ if khugepaged.nr_scanned >= nr_pages => return ScanEnd::More,
                    _ => {}
                }
            }
        }
        self.next_process();
        ScanEnd::More
    }

    fn next_process(&mut self) {
        let khugepaged = &mut self.khugepaged;
        khugepaged.next = Vpn(0);
        let next = khugepaged.at.map_or(0, |at| at + 1);
        khugepaged.at = Some(next);
        if next >= khugepaged.mms.len() {
            self.end_pass();
        }
    }

    fn end_pass(&mut self) {
        (self.khugepaged.at, self.khugepaged.next) = (None, Vpn(0));
        self.core.counters.collapse.full_scans += 1;
    }

    fn collapse_remote(&mut self, target: &CollapseTarget) -> Result<Done, CollapseRefusal> {
        let file = self.file_range(target);
        let orders = match file {
            Some(_) => Orders::NONE.with(target.order),
            None => self.collapse_orders(&target.vma),
        };
        let orders = self.decided_collapse(target, file.as_ref(), orders);
        if orders.is_empty() {
            self.khugepaged.nr_examined = 1;
            return Err(CollapseRefusal::VmaCheck);
        }
        let Some(range) = file else {
            let outcome = if is_pmd_alone(orders, target.order) {
                self.collapse_anon(target)
            } else {
                self.collapse_sizes(target, orders)
            };
            self.show(target, outcome);
            return outcome;
        };
        if !self.is_within_size(&target.vma, range.file, range.end()) {
            return Err(CollapseRefusal::VmaCheck);
        }
        let scanned = self.collapse_file(&range);
        self.show(target, scanned);
        match scanned {
            // Only its entry is missing. Counts as a collapse each time, even with nothing left to
            // do (H.6.5).
            Err(CollapseRefusal::PteMappedHugepage) => {
                // The page cache shows this without a scan (H.4.3).
                self.khugepaged.nr_examined = 1;
                if self.lacks_table(target) {
                    return Err(CollapseRefusal::NoPteTable);
                }
                self.retract_one(target).map(|_| Done::Collapsed)
            }
            collapsed => collapsed,
        }
    }

    fn decided_collapse(
        &mut self,
        target: &CollapseTarget,
        file: Option<&FileRange>,
        orders: Orders,
    ) -> Orders {
        if !self.policy_handles(Point::Collapse) {
            return orders;
        }
        let nr_present = if let Some(range) = file {
            self.nr_cached(range)
        } else {
            let space = self.space(target.mm);
            let end = target.first.plus(target.nr_pages());
            let is_there =
                |leaf: Leaf| leaf.end_vpn().min(end).0 - leaf.first_vpn.max(target.first).0;
            space.table.leaves(target.first, target.nr_pages()).map(is_there).sum()
        };
        let context =
            Context { page: target.first.0, nr_present, ..self.context_of(target.mm, &target.vma) };
        self.decided_among(Point::Collapse, &context, orders)
    }

    fn show(&mut self, target: &CollapseTarget, outcome: Result<Done, CollapseRefusal>) {
        let CollapseTarget { mm, first, .. } = *target;
        let is_anon = target.vma.backing == Backing::Anon;
        self.core.observe(Observed::Scanned { mm, first, is_anon, outcome });
    }
}

fn is_pmd_alone(orders: Orders, pmd: Order) -> bool {
    orders == Orders::NONE.with(pmd)
}
