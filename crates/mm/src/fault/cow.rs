//! Stores that may need a private copy of the page (docs/behaviour B.1.2, B.6.1, E.3).
//!
//! Corresponds to: `do_wp_page`, `wp_can_reuse_anon_folio`, `__wp_can_reuse_large_anon_folio`,
//! `wp_page_copy`, `wp_page_reuse`.
//!
//! ```text
//!   read-only PMD entry of a file --> drop it, fault as if nothing were mapped
//!   another PMD entry --> reuse it (E.3.6), or split it and continue:
//!   read-only PTE ---> exclusive page ------------------------> reuse
//!                      small folio, one reference ------------> reuse, exclusive
//!                      large folio, all mappings one process's> reuse, this page exclusive (E.3.3)
//!                      else: copy one base page, map it, drop the old mapping
//! ```

use super::huge::HugeWrite;
use super::{Fault, FaultError, FaultOutcome};
use crate::core::mapped::Level;
use crate::folio::frames::Flag;
use crate::folio::{FolioId, HintedBy, Owner};
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::pgtable::{Batch, FolioSpan, LeafKind, PteFlags};
use crate::route::Place;
use crate::rules::anon::{Effort, Reuse};
use crate::units::{Order, PageIndex, Pfn};
use crate::vma::Sharing;

const OWN_PAGE: PteFlags = PteFlags::YOUNG.with(PteFlags::WRITABLE).with(PteFlags::DIRTY);

/// References other than a batch's with which a store still looks whether it can reuse the folio.
const NR_OTHERS_MAX: u64 = 2;

/// How a fault holds the page that it copies while it allocates the copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Reclaim can unmap the page, and the fault starts again.
    Reference,
    /// Reclaim does not touch the page, so that a fault starts again only once.
    Lock,
}

impl Memory {
    pub(super) fn copy_file_page(&mut self, fault: &Fault, entry: Entry) -> Result<(), FaultError> {
        let from = self.core.folios.get(entry.folio).pfn_at(PageIndex(fault.index()));
        let id = self.own_copy(fault, Some(from), Hold::Reference)?;
        self.map_own(fault, id);
        self.core.counters.nr_cow += 1;
        Ok(())
    }

    pub(crate) fn write_protect_fault(
        &mut self,
        fault: &Fault,
    ) -> Result<FaultOutcome, FaultError> {
        self.write_protect_fault_holding(fault, Hold::Reference)
    }

    pub(super) fn write_protect_fault_holding(
        &mut self,
        fault: &Fault,
        hold: Hold,
    ) -> Result<FaultOutcome, FaultError> {
        let Some(leaf) = self.space(fault.mm).table.leaf(fault.vpn) else {
            unreachable!("a write-protect fault's page is mapped")
        };
        let is_file = self.is_file_page(leaf.pfn);
        if leaf.kind == LeafKind::Pmd && is_file {
            self.split_pmd(fault.mm, fault.vpn);
            return self.file_fault(*fault);
        }
        // One entry maps the whole folio: reuse it as a whole, or continue page by page (E.3.6).
        if leaf.kind == LeafKind::Pmd && !is_file {
            match self.huge_write(fault, &leaf) {
                HugeWrite::Done => return Ok(FaultOutcome::Minor),
                HugeWrite::Split => {}
            }
        }
        let pte = self.space(fault.mm).table.pte(fault.vpn);
        let pfn = pte.pfn();
        let is_zero = pte.flags().contains(PteFlags::SPECIAL);
        let holder = (!is_zero).then(|| self.core.folios.of_pfn(pfn)).flatten();
        if let Some(id) = holder {
            self.drain_for_reuse(id, pfn);
            self.give_slots_up(id, pfn);
        }
        if let Some(id) = holder {
            let may_reuse = self.may_reuse(fault, id, pfn);
            if self.decided_reuse(fault, id, may_reuse) {
                self.reuse(fault, id, pfn);
                return Ok(FaultOutcome::Minor);
            }
        }
        let own = self.own_copy(fault, holder.map(|_| pfn), hold)?;
        if let Some(slot) = self.space(fault.mm).swapped.get(fault.vpn) {
            self.core.free_unused(own);
            return self.swap_fault_again(fault, slot);
        }
        self.flush(fault.mm, fault.vpn, 1);
        self.replace_by_own(fault, own, holder);
        if is_zero {
            self.core.counters.nr_anon_faults += 1;
        } else {
            self.core.counters.nr_cow += 1;
        }
        Ok(FaultOutcome::Minor)
    }

    /// A batch refers to its folios, so it is drained if the store may reuse one (P.2.1).
    fn drain_for_reuse(&mut self, id: FolioId, pfn: Pfn) {
        let folio = self.core.folios.get(id);
        let is_candidate = folio.is_anon() && !folio.is_large() && folio.refs <= NR_OTHERS_MAX;
        let is_listed = self.core.folios.lru().list_of(id).is_some();
        if is_candidate && !is_listed && !self.core.folios.is_exclusive(pfn) {
            self.core.drain_lru();
        }
    }

    fn replace_by_own(&mut self, fault: &Fault, own: FolioId, old: Option<FolioId>) {
        self.core.map_new_anon(own, fault.mm, Level::Ptes);
        let pfn = self.core.folios.get(own).pfn;
        let table = &mut self.space_mut(fault.mm).table;
        let before = table.replace_pte(fault.vpn, pfn, OWN_PAGE, FolioSpan::single(pfn));
        self.mark_anon(fault.mm, fault.vpn);
        if let Some(old) = old {
            let folio = self.core.folios.get(old);
            self.core.counters.nr_cow_large += u64::from(folio.is_anon() && folio.is_large());
            self.core.remove_ptes(old, fault.mm, before.pfn(), 1);
        }
    }

    fn map_own(&mut self, fault: &Fault, own: FolioId) {
        self.core.map_new_anon(own, fault.mm, Level::Ptes);
        let pfn = self.core.folios.get(own).pfn;
        let batch = Batch { vpn: fault.vpn, pfn, nr: 1, flags: OWN_PAGE };
        self.space_mut(fault.mm).table.map_ptes(batch, FolioSpan::single(pfn));
        self.mark_anon(fault.mm, fault.vpn);
    }

    /// Whether the mapped page is shared, exclusive or without other references (E.3.1 .. E.3.3).
    pub(crate) fn may_reuse(&self, fault: &Fault, id: FolioId, pfn: Pfn) -> bool {
        let folio = self.core.folios.get(id);
        match folio.owner {
            Owner::File { .. } | Owner::Detached => fault.vma.sharing == Sharing::Shared,
            Owner::Anon { .. } if self.core.folios.is_exclusive(pfn) => true,
            // This mapping holds the only reference: the process that shared it is gone (E.3.2).
            Owner::Anon { .. } if !folio.is_large() => folio.refs == 1,
            Owner::Anon { .. } => match self.rules.anon.reuse {
                // Without owner tracking, a large folio may be shared: copy (E.3.3).
                Reuse::SmallOnly => false,
                Reuse::Tracked => {
                    let shape = self.core.shape(folio.order);
                    let owner = self.core.processes.of(fault.mm);
                    folio.mapcount.try_exclusive(&shape, owner, folio.refs).is_ok()
                }
            },
        }
    }

    fn give_slots_up(&mut self, id: FolioId, pfn: Pfn) {
        let folio = self.core.folios.get(id);
        if folio.slot().is_none() || self.core.folios.is_exclusive(pfn) {
            return;
        }
        let is_alone = if folio.is_large() {
            let is_tracked = self.rules.anon.reuse == Reuse::Tracked;
            is_tracked && folio.maps() > 1 && !self.maybe_mapped_shared(id)
        } else {
            folio.refs == 1 + folio.cache_refs()
        };
        if is_alone {
            let _ = self.core.free_swap_cache(id);
        }
    }

    fn reuse(&mut self, fault: &Fault, id: FolioId, pfn: Pfn) {
        let folio = self.core.folios.get_mut(id);
        folio.is_lazyfree = false;
        folio.hinted_by = HintedBy::default();
        if folio.is_anon() {
            self.core.folios.frames_mut().set(Flag::Exclusive, pfn, 1);
        } else {
            self.store_through_mapping(id);
        }
        self.flush(fault.mm, fault.vpn, 1);
        self.space_mut(fault.mm).table.add_flags(fault.vpn, OWN_PAGE);
        self.core.counters.nr_wp_reuse += 1;
    }

    fn own_copy(
        &mut self,
        fault: &Fault,
        from: Option<Pfn>,
        hold: Hold,
    ) -> Result<FolioId, FaultError> {
        let Some(from) = from else { return self.alloc_base_page(fault) };
        let place = Place { mm: fault.mm, vma: &fault.vma, first: fault.vpn };
        // Hold the old page: the allocation may start reclaim.
        let old = self.core.folios.of_pfn(from);
        if let Some(old) = old {
            let folio = self.core.folios.get_mut(old);
            folio.refs += 1;
            folio.is_locked |= hold == Hold::Lock;
        }
        let id = self.alloc_in_area(place, Order::ZERO, Effort::None);
        if let Some(old) = old {
            let folio = self.core.folios.get_mut(old);
            folio.refs -= 1;
            folio.is_locked &= hold != Hold::Lock;
        }
        let id = id.ok_or_else(|| fault.error(FaultError::OutOfMemory, self.rules.page.shift()))?;
        self.core.copy_page(from, self.core.folios.get(id).pfn);
        Ok(id)
    }

    pub(crate) fn is_file_page(&self, pfn: Pfn) -> bool {
        let id = self.core.folios.of_pfn(pfn);
        id.is_some_and(|id| matches!(self.core.folios.get(id).owner, Owner::File { .. }))
    }
}
