//! Folds and unfolds contpte blocks (docs/behaviour C.1, C.1.1-C.1.3, L.12).
//!
//! Corresponds to: `contpte_set_ptes`, `contpte_convert`, `__contpte_try_fold`,
//! `__contpte_try_unfold`.
//!
//! C.1: C PTEs can carry the contiguous bit if the block is aligned in VA and PFN, all PTEs are
//! present with consecutive page frames and equal flags (ignoring accessed and dirty), none is
//! special, and one folio covers the block.

use std::ops::Range;

use crate::units::Vpn;

use super::directory::PmdSlot;
use super::pte::{FolioSpan, Pte, PteFlags};
use super::{PageTable, end_of};

impl PageTable {
    /// C.1.1: after a range of `nr` PTEs was set, folds each aligned whole block in it.
    pub(super) fn fold_whole_blocks(&mut self, vpn: Vpn, nr: u64) {
        let Some(order) = self.contpte_order else { return };
        let PmdSlot::Table(id) = self.slot(vpn) else { unreachable!("a PTE was set at {vpn}") };
        let first = Vpn(order.round_up(vpn.0));
        let nr_blocks = (vpn.0 + nr).saturating_sub(first.0) >> order.get();
        if nr_blocks == 0 {
            return;
        }
        let position = self.position(first);
        let pte = self.tables.pte(id, position);
        // Page frames are consecutive, so one block's PFN alignment holds for all.
        if !order.is_aligned(pte.pfn().0) || pte.flags().contains(PteFlags::SPECIAL) {
            return;
        }
        let len = (nr_blocks << order.get()) as usize;
        for pte in &mut self.tables.ptes_mut(id)[position..position + len] {
            *pte = pte.with_contpte();
        }
        self.count_folds(nr_blocks);
    }

    /// C.1.2: after one PTE was set, folds its block if the PTE is the block's last in VA, its page
    /// frame is the last of an aligned group, and all conditions of C.1 hold.
    pub(super) fn try_fold_last(&mut self, vpn: Vpn, folio: FolioSpan) {
        let Some(order) = self.contpte_order else { return };
        let (id, position) = self.present_at(vpn);
        let pte = self.tables.pte(id, position);
        let mask = order.nr_pages() - 1;
        let is_last = vpn.0 & mask == mask && pte.pfn().0 & mask == mask;
        if !is_last || pte.is_contpte() || pte.flags().contains(PteFlags::SPECIAL) {
            return;
        }
        let first = pte.retreated(mask);
        if !folio.covers(first.pfn(), order.nr_pages()) {
            return;
        }
        let block = position - mask as usize..position + 1;
        if !are_alike(first, &self.tables.ptes(id)[block.clone()]) {
            return;
        }
        self.fold(id, block);
    }

    fn fold(&mut self, id: u32, block: Range<usize>) {
        let ptes = &mut self.tables.ptes_mut(id)[block];
        let flags = ptes.iter().fold(PteFlags::NONE, |all, pte| all | pte.flags());
        for pte in ptes {
            *pte = pte.with_flags(flags).with_contpte();
        }
        self.count_folds(1);
    }

    fn count_folds(&mut self, nr_blocks: u64) {
        self.stats.nr_folds += nr_blocks;
        self.stats.nr_contpte_blocks += nr_blocks;
    }

    /// C.1.3: unfolds the block around `vpn`, if it is folded.
    pub(super) fn unfold_around(&mut self, vpn: Vpn) {
        let PmdSlot::Table(id) = self.slot(vpn) else { return };
        let position = self.position(vpn);
        if !self.tables.pte(id, position).is_contpte() {
            return;
        }
        let block = self.unit_around(id, position);
        for pte in &mut self.tables.ptes_mut(id)[block] {
            *pte = pte.without_contpte();
        }
        self.stats.nr_unfolds += 1;
        self.stats.nr_contpte_blocks -= 1;
    }

    pub(super) fn unfold_edges(&mut self, vpn: Vpn, nr: u64) {
        let Some(order) = self.contpte_order else { return };
        if nr == 0 {
            return;
        }
        let end = end_of(vpn, nr);
        if !order.is_aligned(vpn.0) {
            self.unfold_around(vpn);
        }
        if !order.is_aligned(end.0) {
            self.unfold_around(Vpn(end.0 - 1));
        }
    }

    pub(super) fn unit_around(&self, id: u32, position: usize) -> Range<usize> {
        match self.contpte_order {
            Some(order) if self.tables.pte(id, position).is_contpte() => {
                let first = order.round_down(position as u64) as usize;
                first..first + order.nr_pages() as usize
            }
            _ => position..position + 1,
        }
    }
}

fn are_alike(first: Pte, ptes: &[Pte]) -> bool {
    let ignored = PteFlags::ACCESSED_DIRTY;
    let alike = |(by, pte): (u64, &Pte)| pte.key(ignored) == first.advanced(by).key(ignored);
    (0..).zip(ptes).all(alike)
}
