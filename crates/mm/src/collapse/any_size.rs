//! Collapse on request to any size, as proposed in the discussion of series 000 (docs/behaviour
//! K.1.4).
//!
//! Differs: no kernel has this. A process often wants its text in 64 KiB folios, which a PMD
//! mapping cannot provide; here, the process can request that size later.
//!
//! Anonymous memory is copied and mapped by `2^order` PTEs. In a file, one page-cache folio
//! replaces the pages and is mapped wherever the caller had mapped one of them. A file allows the
//! orders that its filesystem supports. On a filesystem without large folios, any order is allowed
//! if the file rule permits collapse (H.1.3), and the gate keeps writers away from the folio (H.3).

use super::advise::CollapseError;
use super::scan::PteLimits;
use super::{CollapseTarget, Initiator};
use crate::counters::collapse::{CollapseRefusal, Done};
use crate::memory::Memory;
use crate::pgtable::{Batch, PmdState, Pte, PteFlags};
use crate::rules::anon::MIN_LARGE_ORDER;
use crate::units::VpnRange;
use crate::units::{MmId, Order, PageIndex, Vaddr, Vpn};
use crate::vma::{HugeAdvice, Vma};

impl Memory {
    /// Collapses every whole block of `2^order` pages of `[at, at + len_bytes)`. Skips blocks that
    /// have no page and blocks that already have a folio this large.
    ///
    /// # Errors
    /// Returns the last refusal. The other blocks are still collapsed, unless the whole area cannot
    /// have this size.
    pub fn madvise_collapse_to(
        &mut self,
        mm: MmId,
        at: Vaddr,
        len_bytes: u64,
        order: Order,
    ) -> Result<(), CollapseError> {
        if order == self.rules.page.pmd_order() {
            return self.madvise_collapse(mm, at, len_bytes);
        }
        self.each_area(mm, at, len_bytes, |memory, vma, range| {
            memory.collapse_area_to(mm, vma, range, order)
        })
    }

    fn collapse_area_to(
        &mut self,
        mm: MmId,
        vma: &Vma,
        VpnRange { start, end }: VpnRange,
        order: Order,
    ) -> Result<(), CollapseRefusal> {
        let vma = &self.thp_area(mm, vma, Initiator::Advice);
        if !self.can_collapse_to(vma, order) {
            self.count_outcome(Initiator::Advice, Err(CollapseRefusal::VmaCheck));
            return Err(CollapseRefusal::VmaCheck);
        }
        let (mut next, last) = (order.round_up(start.0), order.round_down(end.0));
        let mut refused = Ok(());
        while next < last && !self.core.work.is_spent() {
            self.core.work.add(1);
            let Some(set) = self.space(mm).first_set_in(Vpn(next), last - next) else { break };
            let first = Vpn(order.round_down(set.0));
            next = first.0 + order.nr_pages();
            let target =
                CollapseTarget { mm, vma: *vma, first, order, initiator: Initiator::Advice };
            let outcome = self.collapse_part_of(&target);
            self.count_outcome(Initiator::Advice, outcome);
            if let Err(refusal) = outcome {
                refused = Err(refusal);
            }
        }
        refused
    }

    fn can_collapse_to(&self, vma: &Vma, order: Order) -> bool {
        let is_below = order < self.rules.page.pmd_order();
        let target = CollapseTarget {
            mm: MmId(0),
            vma: *vma,
            first: vma.start,
            order,
            initiator: Initiator::Advice,
        };
        let fits = match self.file_range(&target) {
            None => vma.has_anon() && order >= MIN_LARGE_ORDER,
            Some(range) => {
                let mapping = self.core.mapping(range.file);
                let is_congruent = order.is_aligned(vma.start.0.wrapping_sub(range.first));
                let is_known = mapping.orders.min <= order && order <= mapping.orders.max;
                let is_let_in = order >= MIN_LARGE_ORDER
                    && mapping.is_gated(order)
                    && self.file_rule(vma, mapping);
                is_congruent && (is_known || is_let_in)
            }
        };
        is_below && fits && vma.advice.huge != HugeAdvice::Nohuge
    }

    fn collapse_part_of(&mut self, target: &CollapseTarget) -> Result<Done, CollapseRefusal> {
        if self.space(target.mm).table.pmd(target.first) == PmdState::Leaf {
            return Ok(Done::Already);
        }
        let Some(range) = self.file_range(target) else { return self.collapse_anon_to(target) };
        if self.has_private_copy(target) {
            return Err(CollapseRefusal::Fail);
        }
        match self.collapse_file_or_dirty(&range) {
            Ok(done) => {
                self.map_block(target);
                Ok(done)
            }
            Err(CollapseRefusal::PteMappedHugepage) => Ok(Done::Already),
            Err(refusal) => Err(refusal),
        }
    }

    fn collapse_anon_to(&mut self, target: &CollapseTarget) -> Result<Done, CollapseRefusal> {
        let Some(ptes) = self.ptes_of(target) else { return Err(CollapseRefusal::NoPteTable) };
        if self.has_folio(target) {
            return Ok(Done::Already);
        }
        let none = if target.vma.is_armed { 0 } else { u64::MAX };
        let limits = PteLimits { none, ..PteLimits::OFF };
        self.check_ptes(target, &ptes, limits)?;
        self.collapse_scanned(target, limits)?;
        Ok(Done::Collapsed)
    }

    fn has_private_copy(&self, target: &CollapseTarget) -> bool {
        let ptes = self.ptes_of(target).unwrap_or_default();
        let is_private = |pte: &Pte| pte.is_present() && !self.is_file_page(pte.pfn());
        self.has_swapped(target) || ptes.iter().any(is_private)
    }

    fn map_block(&mut self, target: &CollapseTarget) {
        let Some(range) = self.file_range(target) else { return };
        let Some(entry) = self.core.find(range.file, PageIndex(range.first)) else { return };
        let nr_file_pages = self.core.mapping(range.file).nr_file_pages(self.rules.page);
        let nr = target.nr_pages().min(nr_file_pages.saturating_sub(range.first));
        let pfn = self.core.folios.get(entry.folio).pfn;
        if nr > 0 {
            let batch = Batch { vpn: target.first, pfn, nr, flags: PteFlags::YOUNG };
            self.map_file(target.mm, entry.folio, batch);
        }
    }
}
