//! Readahead from swap space (docs/behaviour P.5.5).
//!
//! Corresponds to: `swapin_readahead`, `swap_vma_readahead`, `swap_vma_ra_win`,
//! `__swapin_nr_pages`.
//!
//! ```text
//!   hits of the last window 0: this page, or two if it is next to the last
//!                           n: n + 2 pages, rounded up to a power of two, at most 8
//!   after the last page:  [*......]      before it: [......*]      elsewhere: [...*....]
//! ```

use super::{Fault, FaultError};
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::route::Place;
use crate::rules::anon::Effort;
use crate::units::{Order, SwapSlot, Vpn, VpnRange};
use crate::vma::SwapAhead;

const WINDOW_MAX: u64 = 8;
const HITS_FIRST: u64 = 4;
/// The kernel's `SWAP_RA_HITS_MAX`.
const HITS_MAX: u64 = 63;

impl Memory {
    pub(super) fn swap_in_ahead(
        &mut self,
        fault: &Fault,
        slot: SwapSlot,
    ) -> Result<FolioId, FaultError> {
        let VpnRange { start, end } = self.swap_window(fault);
        let nr = if end.0 - start.0 > 1 { end.0 - start.0 } else { 0 };
        for vpn in (0..nr).map(|by| start.plus(by)) {
            let Some(slot) = self.space(fault.mm).swapped.get(vpn) else { continue };
            if self.core.cached_in(slot).is_some() {
                continue;
            }
            let Some(id) = self.swap_in_page(fault, vpn, slot) else { break };
            // A later fault on a marked page shows that readahead paid off.
            self.core.folios.get_mut(id).is_marked = vpn != fault.vpn;
        }
        self.core.drain_lru();
        // Reading the later pages may have reclaimed the first.
        let cached = self.core.cached_in(slot);
        cached
            .or_else(|| self.swap_in_page(fault, fault.vpn, slot))
            .ok_or_else(|| fault.error(FaultError::OutOfMemory, self.rules.page.shift()))
    }

    fn swap_in_page(&mut self, fault: &Fault, vpn: Vpn, slot: SwapSlot) -> Option<FolioId> {
        let place = Place { mm: fault.mm, vma: &fault.vma, first: vpn };
        let id = self.alloc_swapped(Order::ZERO, Effort::None, place)?;
        self.core.add_to_swap_cache(id, slot);
        self.read_slots(id, slot);
        Some(id)
    }

    fn swap_window(&mut self, fault: &Fault) -> VpnRange {
        let vma = self.space(fault.mm).vmas.find(fault.vpn);
        let before = vma.and_then(|vma| vma.ahead);
        let before = before.unwrap_or(SwapAhead { last: Vpn(0), window: 0, nr_hits: HITS_FIRST });
        let (at, last) = (fault.vpn.0, before.last.0);
        let window = window_after(before, at);
        let ahead = SwapAhead { last: fault.vpn, window, nr_hits: 0 };
        self.space_mut(fault.mm).vmas.set_ahead(fault.vpn, ahead);
        let (start, end) = if at == last.wrapping_add(1) {
            (at, at + window)
        } else if last == at.wrapping_add(1) {
            ((at + 1).saturating_sub(window), at + 1)
        } else {
            let left = (window - 1) / 2;
            (at.saturating_sub(left), at + window - left)
        };
        let pmd = self.rules.page.pmd_order();
        let table = pmd.round_down(at);
        let first = fault.vma.start.0.max(table);
        let last = fault.vma.end.0.min(table + pmd.nr_pages());
        VpnRange { start: Vpn(start.max(first)), end: Vpn(end.min(last)) }
    }

    pub(super) fn note_ahead_used(&mut self, fault: &Fault, id: FolioId) {
        let folio = self.core.folios.get_mut(id);
        if folio.is_large() {
            return;
        }
        let is_hit = std::mem::take(&mut folio.is_marked);
        let vma = self.space(fault.mm).vmas.find(fault.vpn);
        let before = vma.and_then(|vma| vma.ahead);
        let before = before.unwrap_or(SwapAhead { last: Vpn(0), window: 0, nr_hits: HITS_FIRST });
        let nr_hits = (before.nr_hits + u64::from(is_hit)).min(HITS_MAX);
        let ahead = SwapAhead { last: fault.vpn, nr_hits, ..before };
        self.space_mut(fault.mm).vmas.set_ahead(fault.vpn, ahead);
    }
}

fn window_after(before: SwapAhead, at: u64) -> u64 {
    let last = before.last.0;
    let is_next = at == last.wrapping_add(1) || last == at.wrapping_add(1);
    let nr = match before.nr_hits {
        0 if is_next => 2,
        0 => 1,
        nr_hits => (nr_hits + 2).next_power_of_two().max(4),
    };
    // The window shrinks by at most half.
    nr.min(WINDOW_MAX).max(before.window / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_with_its_hits_and_shrinks_by_half() {
        let ahead = |last, window, nr_hits| SwapAhead { last: Vpn(last), window, nr_hits };
        assert_eq!(window_after(ahead(0, 0, HITS_FIRST), 100), 8);
        assert_eq!(window_after(ahead(100, 8, 0), 200), 4);
        assert_eq!(window_after(ahead(200, 4, 0), 300), 2);
        assert_eq!(window_after(ahead(300, 2, 0), 400), 1);
        assert_eq!(window_after(ahead(400, 1, 0), 401), 2);
        assert_eq!(window_after(ahead(400, 1, 0), 399), 2);
        assert_eq!(window_after(ahead(400, 2, 1), 401), 4);
        assert_eq!(window_after(ahead(400, 4, 3), 401), 8);
    }
}
