//! khugepaged: the kernel thread that collapses memory in the background (docs/behaviour H.6.4,
//! H.6.5, D.2.9), on its own clock.
//!
//! Answers to: `khugepaged_do_scan`, `khugepaged_scan_mm_slot`, `khugepaged_enter_vma`,
//! `__khugepaged_exit`.
//!
//! ```text
//!   wake -- scan ranges_to_scan blocks, process after process --> sleep scan_sleep --> wake ..
//!              | no memory: sleep alloc_sleep once, go on
//! ```
//!
//! Owns the list of processes, where the scan stands and when it wakes. Scanning takes no time.

use super::{CollapseTarget, Done, Who};
use crate::counters::collapse::CollapseRefusal;
use crate::memory::Memory;
use crate::ram::Ram;
use crate::rules::anon::{Enabled, Orders, SizeMode};
use crate::rules::collapse::ShmemEnabled;
use crate::units::VpnRange;
use crate::units::{MmId, Order, Vpn};
use crate::vma::Vma;

/// Nanoseconds of a millisecond.
const NS_PER_MS: u64 = 1_000_000;

/// How a look at some pages ended.
enum Look {
    /// There is more to scan.
    More,
    /// A block could not be collapsed because memory was short.
    NoMemory,
}

impl<R: Ram> Memory<R> {
    /// Runs khugepaged up to `until_ns` on its clock, which starts at 0 and never goes back.
    pub fn run_khugepaged(&mut self, until_ns: u64) {
        while self.khugepaged.wake_ns <= until_ns {
            self.khugepaged.now_ns = self.khugepaged.wake_ns;
            self.wake();
        }
        let now = &mut self.khugepaged.now_ns;
        *now = until_ns.max(*now);
    }

    /// Time on khugepaged's clock, in nanoseconds.
    #[must_use]
    pub const fn khugepaged_ns(&self) -> u64 {
        self.khugepaged.now_ns
    }

    /// When it wakes next on its clock.
    #[must_use]
    pub const fn khugepaged_wakes_ns(&self) -> u64 {
        self.khugepaged.wake_ns
    }

    /// khugepaged scans a process from now on.
    pub(crate) fn khugepaged_enter(&mut self, mm: MmId) {
        let space = self.space_mut(mm);
        if !std::mem::replace(&mut space.is_scanned, true) {
            self.khugepaged.mms.push(mm);
        }
    }

    /// The same, if one of the areas of a range may be collapsed.
    pub(crate) fn khugepaged_enter_areas(&mut self, mm: MmId, VpnRange { start, end }: VpnRange) {
        if self.space(mm).is_scanned || !self.is_khugepaged_on() {
            return;
        }
        let starts = self.space(mm).vmas.overlapping(start, end);
        let can_collapse = |vma: &Vma| {
            let whole = self.space(mm).vmas.find(vma.start);
            whole.is_some_and(|whole| self.can_collapse(whole, Who::Khugepaged))
        };
        if starts.iter().any(can_collapse) {
            self.khugepaged_enter(mm);
        }
    }

    /// A process has ended.
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

    /// H.1.2: whether any setting gives it work.
    fn is_khugepaged_on(&self) -> bool {
        let anon = &self.rules.anon;
        let is_on = |mode: &SizeMode| matches!(mode, SizeMode::Always | SizeMode::Madvise);
        anon.thp != Enabled::Never
            || anon.size_kib.values().any(is_on)
            || is_on(&anon.pmd)
            || self.rules.collapse.shmem != ShmemEnabled::Never
    }

    /// One waking: scans as many pages as it may, then sleeps.
    fn wake(&mut self) {
        let rules = self.rules.collapse;
        let nr_pages = rules.pages_to_scan(self.rules.page);
        while self.is_khugepaged_on() && self.may_go_on(nr_pages) {
            if let Look::NoMemory = self.look(nr_pages) {
                let khugepaged = &mut self.khugepaged;
                // Memory was short before this waking too: give the system its time.
                if khugepaged.has_slept {
                    break;
                }
                khugepaged.has_slept = true;
                khugepaged.wake_ns += rules.alloc_sleep_ms.max(1) * NS_PER_MS;
                return;
            }
        }
        let khugepaged = &mut self.khugepaged;
        khugepaged.wake_ns += rules.scan_sleep_ms.max(1) * NS_PER_MS;
        (khugepaged.nr_scanned, khugepaged.nr_passes, khugepaged.has_slept) = (0, 0, false);
    }

    /// Begins a pass where none is under way: the rest of one and a whole one before it sleeps.
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

    /// Looks at the areas of one process, until one collapse was tried, the pages are used
    /// up, or the process is through.
    fn look(&mut self, nr_pages: u64) -> Look {
        let khugepaged = &mut self.khugepaged;
        let at = *khugepaged.at.get_or_insert(0);
        let Some(&mm) = khugepaged.mms.get(at) else {
            self.end_pass();
            return Look::More;
        };
        let from = self.khugepaged.next;
        self.count_areas(self.space(mm).vmas.len(), 1);
        let areas: Vec<Vma> =
            self.space(mm).vmas.iter().filter(|vma| vma.end > from).copied().collect();
        for vma in areas {
            let pmd = self.rules.page.pmd_order();
            let last = Vpn(pmd.round_down(vma.end.0));
            let mut first = Vpn(pmd.round_up(vma.start.0.max(from.0)));
            if !self.can_collapse(&vma, Who::Khugepaged) || first >= last {
                self.khugepaged.nr_scanned += 1;
                continue;
            }
            while first < last {
                let target = CollapseTarget { mm, vma, first, order: pmd, who: Who::Khugepaged };
                let outcome = self.collapse_behind(&target);
                self.count_outcome(Who::Khugepaged, outcome);
                let khugepaged = &mut self.khugepaged;
                first = first.plus(pmd.nr_pages());
                khugepaged.next = first;
                // What is collapsed already is seen in the page cache, without a scan (H.4.3).
                let is_cheap =
                    outcome == Ok(Done::Already) && vma.backing != crate::vma::Backing::Anon;
                khugepaged.nr_scanned += if is_cheap { 1 } else { pmd.nr_pages() };
                match outcome {
                    Err(CollapseRefusal::AllocHugePageFail) => return Look::NoMemory,
                    _ if khugepaged.nr_scanned >= nr_pages => return Look::More,
                    _ => {}
                }
            }
        }
        self.next_process();
        Look::More
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

    /// Collapses one block of another process.
    fn collapse_behind(&mut self, target: &CollapseTarget) -> Result<Done, CollapseRefusal> {
        let Some(range) = self.file_range(target) else {
            let orders = self.collapse_orders(&target.vma);
            return if is_pmd_alone(orders, target.order) {
                self.collapse_anon(target)
            } else {
                self.collapse_sizes(target, orders)
            };
        };
        if !self.is_within_size(&target.vma, range.file, range.end()) {
            return Err(CollapseRefusal::VmaCheck);
        }
        match self.collapse_file(&range) {
            // The folio is there: what is missing is its entry.
            Err(CollapseRefusal::PteMappedHugepage) => self.retract_one(target),
            collapsed => collapsed,
        }
    }
}

fn is_pmd_alone(orders: Orders, pmd: Order) -> bool {
    orders == Orders::NONE.with(pmd)
}
