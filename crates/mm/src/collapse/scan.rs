//! Checking the PTEs of an anonymous block (docs/behaviour H.6.1).
//!
//! Corresponds to: `hpage_collapse_scan_pmd`, `__collapse_huge_page_isolate`.
//!
//! The checks run twice: before memory is allocated, and again when the pages can no longer change.

use super::{CollapseTarget, Initiator};
use crate::counters::collapse::CollapseRefusal;
use crate::memory::Memory;
use crate::pgtable::{Pte, PteFlags};
use crate::rules::collapse::{Lazyfree, ReadOnlyRange};
use crate::units::Vpn;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PteLimits {
    pub(super) none: u64,
    pub(super) swap: u64,
    pub(super) shared: u64,
}

impl PteLimits {
    /// `MADV_COLLAPSE` has no limits.
    pub(super) const OFF: Self = Self { none: u64::MAX, swap: u64::MAX, shared: u64::MAX };
}

#[derive(Default)]
struct PteCounts {
    nr_examined: u64,
    nr_none: u64,
    nr_swapped: u64,
    nr_shared: u64,
    nr_referenced: u64,
    has_writable: bool,
}

pub(super) const fn is_hole(pte: Pte) -> bool {
    pte.is_none() || pte.flags().contains(PteFlags::SPECIAL)
}

impl Memory {
    pub(super) fn limits(&self, target: &CollapseTarget) -> PteLimits {
        let limits = match target.initiator {
            Initiator::Advice => PteLimits::OFF,
            Initiator::Khugepaged => PteLimits {
                none: self.rules.anon.none_limit(self.rules.page),
                swap: self.rules.collapse.swap_limit(self.rules.page),
                shared: self.rules.collapse.shared_limit(self.rules.page),
            },
        };
        // A process that fills missing pages through userfaultfd must not find them filled (H.6.1).
        if target.vma.is_armed { PteLimits { none: 0, ..limits } } else { limits }
    }

    pub(super) fn examine_ptes(
        &mut self,
        target: &CollapseTarget,
        ptes: &[Pte],
        limits: PteLimits,
    ) -> Result<(), CollapseRefusal> {
        let mut counts = PteCounts::default();
        let checked = self.check_all(target, ptes, limits, &mut counts);
        self.khugepaged.nr_examined = counts.nr_examined;
        checked
    }

    pub(super) fn check_ptes(
        &self,
        target: &CollapseTarget,
        ptes: &[Pte],
        limits: PteLimits,
    ) -> Result<(), CollapseRefusal> {
        self.check_all(target, ptes, limits, &mut PteCounts::default())
    }

    fn check_all(
        &self,
        target: &CollapseTarget,
        ptes: &[Pte],
        limits: PteLimits,
        counts: &mut PteCounts,
    ) -> Result<(), CollapseRefusal> {
        let swapped = &self.space(target.mm).swapped;
        for (vpn, &pte) in (target.first.0..).map(Vpn).zip(ptes) {
            counts.nr_examined += 1;
            if swapped.get(vpn).is_some() {
                counts.nr_swapped += 1;
                // Reading many pages back costs more than a large folio saves.
                if counts.nr_swapped > limits.swap {
                    return Err(CollapseRefusal::ExceedSwapPte);
                }
                continue;
            }
            self.check_pte(target, pte, limits, counts)?;
        }
        // Up to 6.17, read-only memory was considered not worth a collapse (H.6.1).
        if !counts.has_writable && self.rules.collapse.read_only == ReadOnlyRange::Refused {
            return Err(CollapseRefusal::PageRo);
        }
        // Swapped pages must be worth reading back.
        let nr_wanted = if counts.nr_swapped > 0 { target.nr_pages() / 2 } else { 1 };
        // Memory that is not in use gains nothing from a large folio.
        if target.initiator == Initiator::Khugepaged && counts.nr_referenced < nr_wanted {
            return Err(CollapseRefusal::LackReferencedPage);
        }
        Ok(())
    }

    fn check_pte(
        &self,
        target: &CollapseTarget,
        pte: Pte,
        limits: PteLimits,
        counts: &mut PteCounts,
    ) -> Result<(), CollapseRefusal> {
        if is_hole(pte) {
            counts.nr_none += 1;
            let is_over = counts.nr_none > limits.none;
            return if is_over { Err(CollapseRefusal::ExceedNonePte) } else { Ok(()) };
        }
        let Some(id) = self.core.folios.of_pfn(pte.pfn()) else {
            unreachable!("I3: a PTE maps a folio or is special")
        };
        let folio = self.core.folios.get(id);
        let stops_at_lazyfree = target.initiator == Initiator::Khugepaged
            && self.rules.collapse.lazyfree == Lazyfree::Refused
            && !pte.flags().contains(PteFlags::DIRTY);
        // A collapse would keep pages that the program offered to free (7.2).
        if folio.is_lazyfree && stops_at_lazyfree {
            return Err(CollapseRefusal::PageLazyfree);
        }
        counts.has_writable |= pte.flags().contains(PteFlags::WRITABLE);
        // Reclaim clears the entry's bit and marks the folio instead (P.2.3).
        let is_referenced = self.core.folios.lru().marks(id).is_referenced;
        counts.nr_referenced += u64::from(pte.flags().contains(PteFlags::YOUNG) || is_referenced);
        counts.nr_shared += u64::from(self.maybe_mapped_shared(id));
        // The other processes keep their pages, so a copy would use memory twice.
        if counts.nr_shared > limits.shared {
            return Err(CollapseRefusal::ExceedSharedPte);
        }
        // Already isolated: it may be about to move.
        if !self.core.folios.lru().is_on_lru(id) {
            return Err(CollapseRefusal::PageLru);
        }
        if folio.is_locked {
            return Err(CollapseRefusal::PageLock);
        }
        // A device may write to the page during the copy.
        if folio.has_extra_refs() { Err(CollapseRefusal::PageCount) } else { Ok(()) }
    }

    pub(super) fn has_swapped(&self, target: &CollapseTarget) -> bool {
        self.space(target.mm).swapped.first_in(target.first, target.nr_pages()).is_some()
    }

    pub(super) fn ptes_of(&self, target: &CollapseTarget) -> Option<Vec<Pte>> {
        let table = &self.space(target.mm).table;
        let ptes = table.table_ptes(target.first)?;
        Some(ptes[position(target.first, ptes.len())..][..target.nr_pages() as usize].to_vec())
    }
}

pub(super) const fn position(vpn: Vpn, nr_ptes: usize) -> usize {
    vpn.0 as usize & (nr_ptes - 1)
}
