//! Checking the PTEs of an anonymous block (docs/behaviour H.6.1).
//!
//! Answers to: `hpage_collapse_scan_pmd`, `__collapse_huge_page_isolate`.
//!
//! Owns which state of a page refuses a collapse, and the order of the tests. The same tests run
//! twice: before memory is allocated, and again when nobody can change the pages any more.

use super::{CollapseTarget, Who};
use crate::counters::collapse::CollapseRefusal;
use crate::memory::Memory;
use crate::pgtable::{Pte, PteFlags};
use crate::rules::collapse::{Lazyfree, ReadOnlyRange};
use crate::units::Vpn;

/// What a block may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PteLimits {
    /// Empty pages and zero pages.
    pub(super) none: u64,
    /// Pages in swap space.
    pub(super) swap: u64,
    /// Pages that other processes may map.
    pub(super) shared: u64,
}

impl PteLimits {
    /// What `MADV_COLLAPSE` tolerates: anything.
    pub(super) const OFF: Self = Self { none: u64::MAX, swap: u64::MAX, shared: u64::MAX };
}

/// What the pages examined so far are.
#[derive(Default)]
struct PtesSeen {
    nr_examined: u64,
    nr_none: u64,
    nr_swapped: u64,
    nr_shared: u64,
    nr_referenced: u64,
    has_writable: bool,
}

/// Whether a PTE stands for zeroes: empty, or the shared zero page.
pub(super) const fn is_hole(pte: Pte) -> bool {
    pte.is_none() || pte.flags().contains(PteFlags::SPECIAL)
}

impl Memory {
    /// Limits for one PMD block (H.6.1).
    pub(super) fn limits(&self, target: &CollapseTarget) -> PteLimits {
        let limits = match target.who {
            Who::Advice => PteLimits::OFF,
            Who::Khugepaged => PteLimits {
                none: self.rules.anon.none_limit(self.rules.page),
                swap: self.rules.collapse.swap_limit(self.rules.page),
                shared: self.rules.collapse.shared_limit(self.rules.page),
            },
        };
        // Whoever fills missing pages himself must not find them filled (H.6.1).
        if target.vma.is_armed { PteLimits { none: 0, ..limits } } else { limits }
    }

    /// Tests the PTEs of a target for the first time, and counts those it looked at (H.6.5).
    pub(super) fn examine_ptes(
        &mut self,
        target: &CollapseTarget,
        ptes: &[Pte],
        limits: PteLimits,
    ) -> Result<(), CollapseRefusal> {
        let mut seen = PtesSeen::default();
        let checked = self.check_all(target, ptes, limits, &mut seen);
        self.khugepaged.nr_examined = seen.nr_examined;
        checked
    }

    /// Tests the PTEs of a target.
    pub(super) fn check_ptes(
        &self,
        target: &CollapseTarget,
        ptes: &[Pte],
        limits: PteLimits,
    ) -> Result<(), CollapseRefusal> {
        self.check_all(target, ptes, limits, &mut PtesSeen::default())
    }

    fn check_all(
        &self,
        target: &CollapseTarget,
        ptes: &[Pte],
        limits: PteLimits,
        seen: &mut PtesSeen,
    ) -> Result<(), CollapseRefusal> {
        let swapped = &self.space(target.mm).swapped;
        for (vpn, &pte) in (target.first.0..).map(Vpn).zip(ptes) {
            seen.nr_examined += 1;
            if swapped.get(vpn).is_some() {
                seen.nr_swapped += 1;
                // Reading back much costs more than a large folio saves.
                if seen.nr_swapped > limits.swap {
                    return Err(CollapseRefusal::ExceedSwapPte);
                }
                continue;
            }
            self.check_pte(target, pte, limits, seen)?;
        }
        // Memory that nobody writes was taken for not worth it, up to 6.17 (H.6.1).
        if !seen.has_writable && self.rules.collapse.read_only == ReadOnlyRange::Refused {
            return Err(CollapseRefusal::PageRo);
        }
        // What has to be read back must be worth it.
        let nr_wanted = if seen.nr_swapped > 0 { target.nr_pages() / 2 } else { 1 };
        // Memory that nobody uses gains nothing from a large folio.
        if target.who == Who::Khugepaged && seen.nr_referenced < nr_wanted {
            return Err(CollapseRefusal::LackReferencedPage);
        }
        Ok(())
    }

    fn check_pte(
        &self,
        target: &CollapseTarget,
        pte: Pte,
        limits: PteLimits,
        seen: &mut PtesSeen,
    ) -> Result<(), CollapseRefusal> {
        if is_hole(pte) {
            seen.nr_none += 1;
            let is_over = seen.nr_none > limits.none;
            return if is_over { Err(CollapseRefusal::ExceedNonePte) } else { Ok(()) };
        }
        let Some(id) = self.core.folios.of_pfn(pte.pfn()) else {
            unreachable!("I3: a PTE maps a folio or is special")
        };
        let folio = self.core.folios.get(id);
        let stops_at_lazyfree = target.who == Who::Khugepaged
            && self.rules.collapse.lazyfree == Lazyfree::Refused
            && !pte.flags().contains(PteFlags::DIRTY);
        // It would be kept from being thrown away: what the program asked for (7.2).
        if folio.is_lazyfree && stops_at_lazyfree {
            return Err(CollapseRefusal::PageLazyfree);
        }
        seen.has_writable |= pte.flags().contains(PteFlags::WRITABLE);
        seen.nr_referenced += u64::from(pte.flags().contains(PteFlags::YOUNG));
        seen.nr_shared += u64::from(self.maybe_mapped_shared(id));
        // A copy for one process leaves the others their pages: memory is used twice.
        if seen.nr_shared > limits.shared {
            return Err(CollapseRefusal::ExceedSharedPte);
        }
        // Somebody else has isolated it and may be moving it.
        if !self.core.folios.lru().is_on_lru(id) {
            return Err(CollapseRefusal::PageLru);
        }
        // It is being read or written.
        if folio.is_locked {
            return Err(CollapseRefusal::PageLock);
        }
        // A device may write to the page while it is copied.
        if folio.has_extra_refs() { Err(CollapseRefusal::PageCount) } else { Ok(()) }
    }

    /// Whether a page of a target is in swap space.
    pub(super) fn has_swapped(&self, target: &CollapseTarget) -> bool {
        self.space(target.mm).swapped.first_in(target.first, target.nr_pages()).is_some()
    }

    /// PTEs of a target, copied; `None` when its slot holds no table.
    pub(super) fn ptes_of(&self, target: &CollapseTarget) -> Option<Vec<Pte>> {
        let table = &self.space(target.mm).table;
        let ptes = table.table_ptes(target.first)?;
        Some(ptes[position(target.first, ptes.len())..][..target.nr_pages() as usize].to_vec())
    }
}

/// Position of a page in its PTE table.
pub(super) const fn position(vpn: Vpn, nr_ptes: usize) -> usize {
    vpn.0 as usize & (nr_ptes - 1)
}
