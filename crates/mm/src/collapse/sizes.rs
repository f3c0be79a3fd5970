//! Smaller sizes in khugepaged: which parts of a PMD block it collapses (docs/behaviour H.6.4).
//!
//! ```text
//!   occupied   ##......#.......########........     k starts at the PMD order, p at 0
//!   order 9    no: too few                          k goes down at the same p
//!   order 4    [--- yes -------]                    p moves on, k = what p is aligned to
//! ```

use super::CollapseTarget;
use super::scan::{PteLimits, is_hole};
use crate::counters::collapse::{CollapseRefusal, Done};
use crate::memory::Memory;
use crate::pgtable::Pte;
use crate::rules::anon::{MIN_LARGE_ORDER, NonePtes, Orders};
use crate::units::Order;

#[derive(Default)]
struct Walked {
    has_collapsed: bool,
    has_alloc_failed: bool,
    last: Option<CollapseRefusal>,
}

impl Walked {
    /// Success if any range was collapsed; otherwise a lack of memory takes precedence (H.6.4 f).
    fn result(self) -> Result<Done, CollapseRefusal> {
        match self.last {
            _ if self.has_collapsed => Ok(Done::Collapsed),
            _ if self.has_alloc_failed => Err(CollapseRefusal::AllocHugePageFail),
            Some(refusal) => Err(refusal),
            None => Err(CollapseRefusal::Fail),
        }
    }
}

impl Memory {
    pub(super) fn collapse_sizes(
        &mut self,
        block: &CollapseTarget,
        orders: Orders,
    ) -> Result<Done, CollapseRefusal> {
        let ptes = match self.table_of(block) {
            Ok(ptes) => ptes,
            Err(refused) => return refused,
        };
        // One page in the block is enough to continue (H.6.4 b).
        let limits = PteLimits { none: block.nr_pages() - 1, ..self.limits(block) };
        self.examine_ptes(block, &ptes, limits)?;
        let swapped = &self.space(block.mm).swapped;
        let is_there = |(at, &pte)| !is_hole(pte) || swapped.get(block.first.plus(at)).is_some();
        let occupied: Vec<bool> = (0..).zip(&ptes).map(is_there).collect();
        let (mut walked, mut at, mut order) = (Walked::default(), 0, block.order);
        while at < block.nr_pages() {
            let target = CollapseTarget { first: block.first.plus(at), order, ..*block };
            let found = &occupied[at as usize..][..order.nr_pages() as usize];
            let nr_found = found.iter().filter(|&&is_there| is_there).count() as u64;
            let is_worth =
                orders.contains(order) && nr_found + self.none_of(order) >= order.nr_pages();
            let step = if is_worth { self.collapse_part(&target) } else { Err(None) };
            match step {
                Ok(Done::Collapsed) => walked.has_collapsed = true,
                Ok(Done::Already) => walked.last = Some(CollapseRefusal::PteMappedHugepage),
                Err(refusal) => {
                    walked.last = refusal.or(walked.last);
                    walked.has_alloc_failed |= refusal == Some(CollapseRefusal::AllocHugePageFail);
                    // No smaller size avoids this: the block is done (H.6.4 d).
                    if refusal.is_some_and(|refusal| !smaller_may_help(refusal)) {
                        break;
                    }
                    if order > MIN_LARGE_ORDER && !orders.below(order).is_empty() {
                        order = Order::new(order.get() - 1);
                        continue;
                    }
                }
            }
            at += order.nr_pages();
            order = Order::alignment_of(at).min(block.order);
        }
        walked.result()
    }

    fn none_of(&self, order: Order) -> u64 {
        let page = self.rules.page;
        let all_but_one = page.pmd_order().nr_pages() - 1;
        let limit = self.rules.anon.none_limit(page);
        if order == page.pmd_order() {
            return limit;
        }
        // Below the PMD order it is all or nothing, or sizes would grow step by step (H.6.4 c).
        let is_off = self.rules.anon.max_ptes_none == NonePtes::AllButOne || limit == all_but_one;
        if is_off { order.nr_pages() - 1 } else { 0 }
    }

    fn collapse_part(&mut self, target: &CollapseTarget) -> Result<Done, Option<CollapseRefusal>> {
        let pmd = self.rules.page.pmd_order();
        if target.order < pmd && self.has_folio(target) {
            return Ok(Done::Already);
        }
        let none = if target.vma.is_armed { 0 } else { self.none_of(target.order) };
        // Below the PMD order, shared pages are never copied (H.6.4 e).
        let shared = if target.order == pmd { self.limits(target).shared } else { 0 };
        let limits = PteLimits { none, shared, ..self.limits(target) };
        // Not worth reading back for a small folio (H.6.4 e).
        if target.order < pmd && self.has_swapped(target) {
            return Err(Some(CollapseRefusal::PteNonPresent));
        }
        let ptes = self.ptes_of(target).ok_or(Some(CollapseRefusal::NoPteTable))?;
        self.check_ptes(target, &ptes, limits).map_err(Some)?;
        self.collapse_scanned(target, limits).map_err(Some)?;
        Ok(Done::Collapsed)
    }

    pub(super) fn has_folio(&self, target: &CollapseTarget) -> bool {
        let pte: Pte = self.space(target.mm).table.pte(target.first);
        let id = (!is_hole(pte)).then(|| self.core.folios.of_pfn(pte.pfn())).flatten();
        id.is_some_and(|id| self.core.folios.get(id).order >= target.order)
    }
}

const fn smaller_may_help(refusal: CollapseRefusal) -> bool {
    matches!(
        refusal,
        CollapseRefusal::AllocHugePageFail
            | CollapseRefusal::ExceedNonePte
            | CollapseRefusal::ExceedSwapPte
            | CollapseRefusal::ExceedSharedPte
            | CollapseRefusal::PteNonPresent
            | CollapseRefusal::PageLock
            | CollapseRefusal::PageCount
            | CollapseRefusal::PageLru
            | CollapseRefusal::DelPageLru
            | CollapseRefusal::LackReferencedPage
            | CollapseRefusal::PageLazyfree
    )
}
