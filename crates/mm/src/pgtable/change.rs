//! Clears, write-protects, protects and moves ranges.
//!
//! Corresponds to: `change_pte_range`, `move_ptes`.

use crate::units::{Pfn, Vpn};

use super::directory::PmdSlot;
use super::leaf::LeafKind;
use super::pte::{FolioSpan, Pte, PteFlags};
use super::walk::{Batch, Part, batch_len};
use super::{PageTable, end_of};

/// How a range change alters each entry's flags: `(flags - clear) + set`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// Flags to set.
    pub set: PteFlags,
    /// Flags to clear first.
    pub clear: PteFlags,
}

/// Entries removed by [`PageTable::clear_range`]: a batch of PTEs of one folio, or a PMD leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleared {
    /// [`LeafKind::Pmd`] for a PMD leaf, [`LeafKind::Pte`] for PTEs, even if they were folded.
    pub kind: LeafKind,
    /// First page.
    pub vpn: Vpn,
    /// Page frame of the first page; the others follow it.
    pub pfn: Pfn,
    /// Number of pages.
    pub nr: u64,
    /// OR of the flags of all removed entries.
    pub flags: PteFlags,
}

/// Receives the entries that a range loses, in address order.
pub trait Zap {
    /// Returns a page's folio, which limits the batch. Not called for special PTEs.
    fn folio_of(&mut self, pfn: Pfn) -> FolioSpan;
    /// Called for each removed batch of PTEs of one folio, special PTE or PMD leaf.
    fn cleared(&mut self, part: Cleared);
}

struct Closures<F, C>(F, C);

impl<F: FnMut(Pfn) -> FolioSpan, C: FnMut(Cleared)> Zap for Closures<F, C> {
    fn folio_of(&mut self, pfn: Pfn) -> FolioSpan {
        (self.0)(pfn)
    }

    fn cleared(&mut self, part: Cleared) {
        (self.1)(part);
    }
}

impl PageTable {
    /// Clears the `nr` pages from `vpn` and reports the removed entries in address order.
    ///
    /// A batch consists of PTEs of one folio with consecutive page frames, whatever their writable,
    /// accessed and dirty bits (docs/behaviour G.1.1). `folio_of` is not called for special PTEs.
    /// Blocks that the range covers only in part are unfolded (C.1.3). PTE tables stay.
    ///
    /// # Panics
    /// If the range covers only part of a PMD leaf. The caller must split or clear it first:
    /// anonymous and file memory do this differently.
    pub fn clear_range(
        &mut self,
        vpn: Vpn,
        nr: u64,
        folio_of: impl FnMut(Pfn) -> FolioSpan,
        cleared: impl FnMut(Cleared),
    ) {
        self.zap_range(vpn, nr, &mut Closures(folio_of, cleared));
    }

    /// [`PageTable::clear_range`] with one stateful listener.
    ///
    /// # Panics
    /// If the range covers only part of a PMD leaf.
    pub fn zap_range(&mut self, vpn: Vpn, nr: u64, zap: &mut impl Zap) {
        self.unfold_edges(vpn, nr);
        self.for_each_part(vpn, nr, |table, part| match part.slot {
            PmdSlot::Table(id) => table.clear_in_table(id, part, zap),
            PmdSlot::Leaf(pte) => zap.cleared(table.clear_leaf(part, pte)),
            PmdSlot::Empty => {}
        });
    }

    /// Unfolds every contpte block that overlaps the range, as when the folio is split.
    pub fn unfold_range(&mut self, vpn: Vpn, nr: u64) {
        let Some(order) = self.contpte_order else { return };
        let mut at = order.round_down(vpn.0);
        while at < end_of(vpn, nr).0 {
            self.unfold_around(Vpn(at));
            at += order.nr_pages();
        }
    }

    /// Makes the range's pages read-only, as fork does. Whole blocks stay folded, blocks that the
    /// range covers only in part are unfolded, and nothing is folded (docs/behaviour C.1.3, E.1.4).
    ///
    /// # Panics
    /// If the range covers only part of a PMD leaf.
    pub fn wrprotect_range(&mut self, vpn: Vpn, nr: u64) {
        let protection = Protection { set: PteFlags::NONE, clear: PteFlags::WRITABLE };
        self.unfold_edges(vpn, nr);
        self.for_each_part(vpn, nr, |table, part| table.protect_part(part, protection));
    }

    /// Changes the flags of every entry in the range, as mprotect does. Whole blocks stay folded,
    /// and blocks that the range covers only in part are unfolded. A block is folded if its last
    /// PTE is rewritten and all conditions of C.1 hold (docs/behaviour C.1.3, C.1.2, L.12).
    ///
    /// # Panics
    /// If the range covers only part of a PMD leaf.
    pub fn protect_range(
        &mut self,
        vpn: Vpn,
        nr: u64,
        protection: Protection,
        mut folio_of: impl FnMut(Pfn) -> FolioSpan,
    ) {
        self.unfold_edges(vpn, nr);
        self.for_each_part(vpn, nr, |table, part| {
            table.protect_part(part, protection);
            table.fold_ends(part, &mut folio_of);
        });
    }

    /// Moves the `nr` pages from `from` to `to`, as mremap does.
    ///
    /// A PMD slot moves as a whole, including folded blocks, if the range covers it, both sides are
    /// aligned to it and the target slot is empty. Otherwise, PTEs move one by one: blocks unfold,
    /// and fold again at the target if C.1.2 allows.
    ///
    /// # Panics
    /// If the ranges overlap, if the target maps a page, or if a PMD leaf cannot move as a whole
    /// (the caller must split or clear it first).
    pub fn move_range(
        &mut self,
        from: Vpn,
        to: Vpn,
        nr: u64,
        mut folio_of: impl FnMut(Pfn) -> FolioSpan,
    ) {
        assert!(end_of(from, nr) <= to || end_of(to, nr) <= from, "{from} and {to} overlap");
        assert!(self.is_none(to, nr), "the target of a move maps pages: {to}+{nr}");
        self.unfold_edges(from, nr);
        self.for_each_part(from, nr, |table, part| {
            let target = Vpn(to.0 + (part.vpn.0 - from.0));
            if !table.move_slot(part, target) {
                table.move_ptes(part, target, &mut folio_of);
            }
        });
    }

    /// Calls `each` for the range's part of each used PMD slot. `each` may change that slot.
    fn for_each_part(&mut self, vpn: Vpn, nr: u64, mut each: impl FnMut(&mut Self, Part)) {
        let end = end_of(vpn, nr);
        let mut at = vpn;
        while let Some(part) = self.next_part(at, end) {
            if matches!(part.slot, PmdSlot::Leaf(_)) {
                assert!(
                    part.is_whole(self.pmd_order),
                    "the range {}..{} cuts a PMD leaf",
                    part.vpn,
                    part.end
                );
            }
            each(self, part);
            at = part.end;
        }
    }

    fn clear_leaf(&mut self, part: Part, pte: Pte) -> Cleared {
        self.directory.set(self.slot_nr(part.vpn), PmdSlot::Empty);
        self.stats.nr_pmd_leaves -= 1;
        let (vpn, nr) = (part.vpn, part.nr());
        Cleared { kind: LeafKind::Pmd, vpn, pfn: pte.pfn(), nr, flags: pte.flags() }
    }

    fn clear_in_table(&mut self, id: u32, part: Part, zap: &mut impl Zap) {
        let mut at = self.position(part.vpn);
        let first = at;
        let end = at + part.nr() as usize;
        while let Some(ptes) = next_present(self.tables.ptes(id), &mut at, end) {
            let pfn = ptes[0].pfn();
            let is_special = ptes[0].flags().contains(PteFlags::SPECIAL);
            let span = if is_special { FolioSpan::single(pfn) } else { zap.folio_of(pfn) };
            let nr_max = span.nr_from(pfn).max(1) as usize;
            let nr = batch_len(&ptes[..nr_max.min(ptes.len())], PteFlags::NONE);
            let flags = ptes[..nr].iter().fold(PteFlags::NONE, |all, pte| all | pte.flags());
            self.clear_present(id, at, nr);
            let vpn = part.vpn.plus((at - first) as u64);
            zap.cleared(Cleared { kind: LeafKind::Pte, vpn, pfn, nr: nr as u64, flags });
            at += nr;
        }
    }

    fn clear_present(&mut self, id: u32, position: usize, nr: usize) {
        if let Some(order) = self.contpte_order {
            let ptes = &self.tables.ptes(id)[position..position + nr];
            let nr_folded = ptes.iter().filter(|pte| pte.is_contpte()).count() as u64;
            debug_assert!(order.is_aligned(nr_folded), "I1: a folded block was cut");
            self.stats.nr_contpte_blocks -= nr_folded >> order.get();
        }
        self.tables.clear(id, position, nr);
        self.stats.nr_ptes -= nr as u64;
    }

    fn protect_part(&mut self, part: Part, protection: Protection) {
        let apply =
            |pte: Pte| pte.with_flags(pte.flags().without(protection.clear).with(protection.set));
        match part.slot {
            PmdSlot::Empty => {}
            PmdSlot::Leaf(pte) => {
                self.directory.set(self.slot_nr(part.vpn), PmdSlot::Leaf(apply(pte)));
            }
            PmdSlot::Table(id) => {
                let position = self.position(part.vpn);
                let ptes = &mut self.tables.ptes_mut(id)[position..position + part.nr() as usize];
                for pte in ptes.iter_mut().filter(|pte| pte.is_present()) {
                    *pte = apply(*pte);
                }
            }
        }
    }

    /// Applies C.1.2 to each block that ends in `part`.
    fn fold_ends(&mut self, part: Part, folio_of: &mut impl FnMut(Pfn) -> FolioSpan) {
        let (Some(order), PmdSlot::Table(id)) = (self.contpte_order, part.slot) else { return };
        let mut last = order.round_down(part.vpn.0) + order.nr_pages() - 1;
        while last < part.end.0 {
            let pte = self.tables.pte(id, self.position(Vpn(last)));
            let can_fold = pte.is_present() && !pte.flags().contains(PteFlags::SPECIAL);
            if can_fold && !pte.is_contpte() {
                self.try_fold_last(Vpn(last), folio_of(pte.pfn()));
            }
            last += order.nr_pages();
        }
    }

    fn move_slot(&mut self, part: Part, target: Vpn) -> bool {
        let can_move = part.is_whole(self.pmd_order)
            && self.pmd_order.is_aligned(target.0)
            && self.slot(target) == PmdSlot::Empty;
        if can_move {
            self.directory.set(self.slot_nr(part.vpn), PmdSlot::Empty);
            self.directory.set(self.slot_nr(target), part.slot);
        }
        can_move
    }

    fn move_ptes(&mut self, part: Part, target: Vpn, folio_of: &mut impl FnMut(Pfn) -> FolioSpan) {
        let PmdSlot::Table(id) = part.slot else {
            panic!("PMD leaf at {} cannot move to {target}: split it first", part.vpn)
        };
        // The target gets its tables even if no PTE moves.
        self.table_for(target);
        self.table_for(target.plus(part.nr() - 1));
        for by in 0..part.nr() {
            let vpn = part.vpn.plus(by);
            self.unfold_around(vpn);
            let pte = self.tables.pte(id, self.position(vpn));
            if pte.is_present() {
                self.clear_present(id, self.position(vpn), 1);
                let folio = folio_at(pte, folio_of);
                let flags = pte.flags();
                let batch = Batch { vpn: target.plus(by), pfn: pte.pfn(), nr: 1, flags };
                self.map_ptes(batch, folio);
            }
        }
    }
}

fn folio_at(pte: Pte, folio_of: &mut impl FnMut(Pfn) -> FolioSpan) -> FolioSpan {
    if pte.flags().contains(PteFlags::SPECIAL) {
        return FolioSpan::single(pte.pfn());
    }
    folio_of(pte.pfn())
}

fn next_present<'a>(ptes: &'a [Pte], at: &mut usize, end: usize) -> Option<&'a [Pte]> {
    let found = ptes[*at..end].iter().position(|pte| pte.is_present())?;
    *at += found;
    Some(&ptes[*at..end])
}
