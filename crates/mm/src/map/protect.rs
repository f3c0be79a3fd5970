//! mprotect (docs/behaviour E.5).
//!
//! Corresponds to: `mprotect_fixup`, `change_protection`, `can_change_pte_writable`,
//! `vma_wants_writenotify`.
//!
//! ```text
//!   stores no longer allowed --> all entries become read-only
//!   stores allowed again ------> needs no notice of a store: writable
//!                                shared memory: every entry
//!                                private: an exclusive anonymous page     (rule `regain`)
//!                                shared file: a dirty entry               (rule `regain`)
//!                                other entries: read-only until a store faults, or at once if the
//!                                memory is locked
//! ```

use super::MapError;
use crate::folio::Folio;
use crate::memory::Memory;
use crate::pgtable::{Leaf, LeafKind, Protection, PteFlags};
use crate::rules::anon::Regain;
use crate::units::{MmId, Vaddr, Vpn, VpnRange};
use crate::vma::{Backing, Lock, Prot, Sharing, Vma};

const NO_CHANGE: Protection = Protection { set: PteFlags::NONE, clear: PteFlags::NONE };

impl Memory {
    /// Changes the protection of a range.
    ///
    /// # Errors
    /// Fails if the range is invalid, or stores would reach a file that a process runs.
    pub fn mprotect(
        &mut self,
        mm: MmId,
        addr: Vaddr,
        len_bytes: u64,
        prot: Prot,
    ) -> Result<(), MapError> {
        let range = self.checked_range(addr, len_bytes)?;
        let VpnRange { start, end } = range;
        let areas = self.space(mm).vmas.overlapping(start, end);
        if let Some(part) = areas.iter().find(|part| part.cuts_huge_page() && part.prot != prot) {
            // Areas before the one that cannot be split have already changed (O.5.1).
            if start < part.start {
                let len_bytes = (part.start.0 - start.0) << self.rules.page.shift();
                self.mprotect(mm, addr, len_bytes, prot)?;
            }
            self.split_huge_area(mm, part.start);
            return Err(MapError::HugeCut(addr.0));
        }
        self.count_walk(mm, range, areas.len());
        for vma in &areas {
            self.write_through_mapping(vma.backing, vma.sharing, prot)?;
        }
        self.change_areas(mm, range, |vma| vma.protect(prot));
        for vma in areas.iter().filter(|vma| vma.prot != prot) {
            self.protect_entries(mm, &Vma { prot, ..*vma });
        }
        self.protect_huge(mm, start, end, prot);
        // Locked private memory that becomes writable gets its own pages at once.
        let is_copied = |vma: &&Vma| {
            vma.advice.lock == Lock::All && vma.sharing == Sharing::Private && !vma.prot.can_write
        };
        for vma in areas.iter().filter(|_| prot.can_write).filter(is_copied) {
            let page = self.rules.page;
            let len_bytes = vma.nr_pages() << page.shift();
            // Without memory, later stores fault.
            let _ = self.populate(mm, vma.start.vaddr(page), len_bytes);
        }
        Ok(())
    }

    /// Whether the kernel maps the area's pages writable without waiting for a store: shared memory
    /// needs no notice of the first one (B.6.6).
    pub(crate) fn is_store_unnoticed(&self, vma: &Vma) -> bool {
        let Backing::File { open, .. } = vma.backing else { return false };
        vma.sharing == Sharing::Shared
            && vma.prot.can_write
            && self.core.mapping(self.open_file(open).mapping).is_shmem
    }

    /// Changes the entries of an area, or part of one, that has a new protection.
    fn protect_entries(&mut self, mm: MmId, vma: &Vma) {
        let range = VpnRange { start: vma.start, end: vma.end };
        let protection = match vma.prot {
            Prot::NONE => Protection { set: PteFlags::NO_ACCESS, clear: PteFlags::WRITABLE },
            _ if self.is_store_unnoticed(vma) => {
                Protection { set: PteFlags::WRITABLE, clear: PteFlags::NO_ACCESS }
            }
            Prot { can_write: true, .. } => Protection { clear: PteFlags::NO_ACCESS, ..NO_CHANGE },
            _ => Protection { clear: PteFlags::WRITABLE.with(PteFlags::NO_ACCESS), ..NO_CHANGE },
        };
        if self.would_change(mm, range, protection) {
            self.cut_pmds(mm, range.start, range.end);
            self.protect_pages(mm, range, protection);
        }
        if vma.prot.can_write {
            self.regain(mm, vma);
        }
    }

    /// Makes entries writable again whose next store needs no fault (E.5.1).
    pub(crate) fn regain(&mut self, mm: MmId, vma: &Vma) {
        let regained: Vec<VpnRange> = match self.rules.anon.regain {
            Regain::Never => return,
            Regain::Dirty | Regain::Exclusive => self.regained(mm, vma),
        };
        let writable = Protection { set: PteFlags::WRITABLE, ..NO_CHANGE };
        for range in regained {
            self.protect_pages(mm, range, writable);
        }
    }

    fn regained(&self, mm: MmId, vma: &Vma) -> Vec<VpnRange> {
        let mut regained: Vec<VpnRange> = Vec::new();
        let table = &self.space(mm).table;
        let closed = table.leaves(vma.start, vma.nr_pages());
        for leaf in closed.filter(|leaf| !leaf.flags.contains(PteFlags::WRITABLE)) {
            let mut first = leaf.first_vpn.max(vma.start);
            let end = leaf.end_vpn().min(vma.end);
            while first < end {
                let nr = if leaf.kind == LeafKind::Pmd { end.0 - first.0 } else { 1 };
                let next = first.plus(nr);
                if self.regains(vma, &leaf, first) {
                    match regained.last_mut() {
                        Some(last) if last.end == first => last.end = next,
                        _ => regained.push(VpnRange { start: first, end: next }),
                    }
                }
                first = next;
            }
        }
        regained
    }

    fn regains(&self, vma: &Vma, leaf: &Leaf, vpn: Vpn) -> bool {
        let is_dirty = leaf.flags.contains(PteFlags::DIRTY);
        let is_allowed = match self.rules.anon.regain {
            Regain::Never => false,
            Regain::Dirty => is_dirty && leaf.kind != LeafKind::Pmd,
            Regain::Exclusive => true,
        };
        if !is_allowed || leaf.flags.contains(PteFlags::SPECIAL) {
            return false;
        }
        match vma.sharing {
            // The file was notified when the entry became dirty.
            Sharing::Shared => is_dirty,
            Sharing::Private => {
                let pfn = leaf.pfn_of(vpn);
                let folio = self.core.folios.of_pfn(pfn).map(|id| self.core.folios.get(id));
                folio.is_some_and(Folio::is_anon) && self.core.folios.is_exclusive(pfn)
            }
        }
    }

    fn would_change(&self, mm: MmId, VpnRange { start, end }: VpnRange, how: Protection) -> bool {
        let table = &self.space(mm).table;
        let mut leaves = table.leaves(start, end.0 - start.0);
        leaves.any(|leaf| leaf.flags.without(how.clear).with(how.set) != leaf.flags)
    }

    pub(crate) fn protect_pages(
        &mut self,
        mm: MmId,
        VpnRange { start, end }: VpnRange,
        how: Protection,
    ) {
        let nr_pages = end.0 - start.0;
        let (space, folios) = self.space_and_folios(mm);
        space.table.protect_range(start, nr_pages, how, |pfn| folios.span_of(pfn));
        self.flush(mm, start, nr_pages);
    }
}
