//! Stores that need a page of their own (BEHAVIOUR.md B.1.2, B.6.1, E.3 for base pages).

use super::{Fault, FaultError, Outcome};
use crate::folio::{FolioId, Owner};
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::pgtable::{Batch, FolioSpan, PteFlags};
use crate::ram::Ram;
use crate::units::{PageIndex, Pfn};
use crate::vma::Sharing;

/// Flags of a page its process may store to.
const OWN_PAGE: PteFlags = PteFlags::YOUNG.with(PteFlags::WRITABLE).with(PteFlags::DIRTY);

impl<R: Ram> Memory<R> {
    /// First store to a page of a private file mapping: a copy, one PTE.
    pub(super) fn copy_file_page(&mut self, fault: &Fault, entry: Entry) -> Result<(), FaultError> {
        let from = self.cache.folios.get(entry.folio).pfn_at(PageIndex(fault.index()));
        let (id, pfn) = self.own_copy(fault, Some(from))?;
        self.cache.add_maps(id, 1);
        let batch = Batch { vpn: fault.vpn, pfn, nr: 1, flags: OWN_PAGE };
        self.space_mut(fault.mm).table.map_ptes(batch, FolioSpan::single(pfn));
        self.mark_anon(fault.mm, fault.vpn);
        self.cache.counters.nr_cow += 1;
        Ok(())
    }

    /// A store to a page that is mapped read-only.
    pub(super) fn write_protect_fault(&mut self, fault: Fault) -> Result<Outcome, FaultError> {
        let vpn = fault.vpn;
        let pte = self.space(fault.mm).table.pte(vpn);
        let pfn = pte.pfn();
        let is_zero = pte.flags().contains(PteFlags::SPECIAL);
        let holder = (!is_zero).then(|| self.cache.folios.of_pfn(pfn)).flatten();
        if let Some(id) = holder
            && self.may_reuse(&fault, id)
        {
            if matches!(self.cache.folios.get(id).owner, Owner::File { .. }) {
                self.cache.folios.get_mut(id).is_dirty = true;
            }
            self.flush(fault.mm, vpn, 1);
            self.space_mut(fault.mm).table.add_flags(vpn, OWN_PAGE);
            self.cache.counters.nr_wp_reuse += 1;
            return Ok(Outcome::Minor);
        }
        // Its other pages fault again.
        self.drop_pmd(fault.mm, vpn);
        let (id, own) = self.own_copy(&fault, holder.map(|_| pfn))?;
        self.cache.add_maps(id, 1);
        self.flush(fault.mm, vpn, 1);
        let table = &mut self.space_mut(fault.mm).table;
        if table.pte(vpn).is_present() {
            table.replace_pte(vpn, own, OWN_PAGE, FolioSpan::single(own));
            if let Some(old) = holder {
                self.cache.drop_maps(old, 1);
            }
        } else {
            let batch = Batch { vpn, pfn: own, nr: 1, flags: OWN_PAGE };
            table.map_ptes(batch, FolioSpan::single(own));
        }
        self.mark_anon(fault.mm, vpn);
        if is_zero {
            self.cache.counters.nr_anon += 1;
        } else {
            self.cache.counters.nr_cow += 1;
        }
        Ok(Outcome::Minor)
    }

    /// A page of a shared mapping, or an anonymous page nobody else refers to (E.3.2).
    fn may_reuse(&self, fault: &Fault, id: FolioId) -> bool {
        let folio = self.cache.folios.get(id);
        match folio.owner {
            Owner::File { .. } => fault.vma.sharing == Sharing::Shared,
            Owner::Anon => folio.refs == 1,
        }
    }

    /// A new anonymous page with the content of `from`, or zeroes.
    fn own_copy(&mut self, fault: &Fault, from: Option<Pfn>) -> Result<(FolioId, Pfn), FaultError> {
        let (id, pfn) = self
            .cache
            .alloc_anon()
            .ok_or_else(|| fault.error(FaultError::OutOfMemory, self.rules.page.shift()))?;
        match from {
            Some(from) => self.cache.ram.copy_page(from, pfn),
            None => self.cache.ram.zero(pfn, 1),
        }
        Ok((id, pfn))
    }
}
