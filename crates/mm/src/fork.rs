//! fork: a copy of an address space (BEHAVIOUR.md E.1, for base pages).
//!
//! Owns what is copied: every area, and the pages of areas that have anonymous ones (E.1.5); the
//! child faults the others in again.

use crate::memory::Memory;
use crate::pgtable::{Batch, Leaf, LeafKind, PteFlags};
use crate::ram::Ram;
use crate::space::MmId;
use crate::vma::{Sharing, Vma};

impl<R: Ram> Memory<R> {
    /// Copies the address space of `parent`; both sides keep their anonymous pages read-only.
    pub fn fork(&mut self, parent: MmId) -> MmId {
        let child = self.new_space();
        let vmas = self.space(parent).vmas.clone();
        let areas: Vec<Vma> = vmas.iter().copied().collect();
        self.space_mut(child).vmas = vmas;
        for vma in areas.iter().filter(|vma| vma.has_anon) {
            self.copy_area(parent, child, vma);
        }
        child
    }

    fn copy_area(&mut self, parent: MmId, child: MmId, vma: &Vma) {
        let nr_pages = vma.nr_pages();
        let leaves: Vec<Leaf> = self.space(parent).table.leaves(vma.start, nr_pages).collect();
        if vma.sharing == Sharing::Private {
            self.space_mut(parent).table.wrprotect_range(vma.start, nr_pages);
            self.flush(parent, vma.start, nr_pages);
        }
        for leaf in leaves.into_iter().filter(|leaf| leaf.kind != LeafKind::Pmd) {
            self.copy_leaf(child, vma, leaf);
        }
    }

    fn copy_leaf(&mut self, child: MmId, vma: &Vma, leaf: Leaf) {
        let vpn = leaf.first_vpn.max(vma.start);
        let nr = leaf.end_vpn().min(vma.end).0 - vpn.0;
        let pfn = leaf.pfn_of(vpn);
        let dropped = match vma.sharing {
            Sharing::Private => PteFlags::YOUNG | PteFlags::WRITABLE,
            Sharing::Shared => PteFlags::YOUNG | PteFlags::DIRTY,
        };
        let batch = Batch { vpn, pfn, nr, flags: leaf.flags.without(dropped) };
        let span = self.cache.folios.span_of(pfn);
        self.space_mut(child).table.map_ptes(batch, span);
        if let Some(id) = self.cache.folios.of_pfn(pfn) {
            self.cache.add_maps(id, nr);
        }
    }
}
