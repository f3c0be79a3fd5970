//! Sets entries: PTE ranges, single PTEs, PMD leaves and flag upgrades.
//!
//! Corresponds to: `set_ptes`, `set_pmd_at`.

use crate::units::{Pfn, Vpn};

use super::directory::PmdSlot;
use super::pte::{FolioSpan, Pte, PteFlags};
use super::walk::Batch;
use super::{PageTable, end_of};

impl PageTable {
    /// Maps consecutive pages of `folio`. Allocates the table if the slot is empty.
    ///
    /// A range folds each aligned whole block in it (docs/behaviour C.1.1). A single PTE folds its
    /// block only if it is the block's last (C.1.2).
    ///
    /// # Panics
    /// If a PTE is already set, if the range crosses a table or leaves the folio, or if the slot is
    /// a PMD leaf.
    pub fn map_ptes(&mut self, batch: Batch, folio: FolioSpan) {
        let Batch { vpn, pfn, nr, flags } = batch;
        let table_end = self.pmd_order.round_down(vpn.0) + self.pmd_order.nr_pages();
        assert!(
            nr > 0 && end_of(vpn, nr).0 <= table_end,
            "{nr} pages from {vpn} cross a PTE table"
        );
        assert!(folio.covers(pfn, nr), "{nr} pages from pfn {pfn} are not all in {folio:?}");
        let id = self.table_for(vpn);
        let position = self.position(vpn);
        let targets = &self.tables.ptes(id)[position..position + nr as usize];
        assert!(targets.iter().all(|pte| pte.is_none()), "mapping over a set PTE in {vpn}+{nr}");

        self.stats.nr_ptes += nr;
        let first = Pte::new(pfn, flags);
        self.tables.fill(id, position, (0..nr).map(|by| first.advanced(by)));
        if nr == 1 {
            self.try_fold_last(vpn, folio);
        } else {
            self.fold_whole_blocks(vpn, nr);
        }
    }

    /// Points a present PTE at another page, as copy-on-write does: unfolds the block around it,
    /// then sets one PTE (C.1.3, C.1.2, L.12). Returns the old entry.
    ///
    /// # Panics
    /// If `vpn` has no present PTE or the page is not in `folio`.
    pub fn replace_pte(&mut self, vpn: Vpn, pfn: Pfn, flags: PteFlags, folio: FolioSpan) -> Pte {
        assert!(folio.covers(pfn, 1), "pfn {pfn} is not in {folio:?}");
        self.unfold_around(vpn);
        let (id, position) = self.present_at(vpn);
        let old = std::mem::replace(&mut self.tables.ptes_mut(id)[position], Pte::new(pfn, flags));
        self.try_fold_last(vpn, folio);
        old
    }

    /// Adds `flags` to the leaf of `vpn` in place, as a fault that only upgrades access does, or
    /// hardware that marks a page accessed or dirty. Returns whether anything changed.
    ///
    /// Accessed and dirty are set in the whole contpte block, which stays folded (C.1.3: they are
    /// reported as the OR). A change of writability unfolds the block and does not fold it again,
    /// because no PTE is set anew (C.1.2).
    ///
    /// # Panics
    /// If nothing is mapped at `vpn`.
    pub fn add_flags(&mut self, vpn: Vpn, flags: PteFlags) -> bool {
        match self.slot(vpn) {
            PmdSlot::Empty => panic!("no entry at {vpn}"),
            PmdSlot::Leaf(pte) => {
                let changed = pte.with_flags(pte.flags() | flags);
                self.directory.set(self.slot_nr(vpn), PmdSlot::Leaf(changed));
                changed != pte
            }
            PmdSlot::Table(_) => self.add_pte_flags(vpn, flags),
        }
    }

    fn add_pte_flags(&mut self, vpn: Vpn, flags: PteFlags) -> bool {
        let (id, position) = self.present_at(vpn);
        let before = self.tables.pte(id, position).flags();
        if before.contains(flags) {
            return false;
        }
        if !before.contains(PteFlags::WRITABLE) && flags.contains(PteFlags::WRITABLE) {
            self.unfold_around(vpn);
        }
        self.rewrite_unit(id, position, |before| before | flags);
        true
    }

    /// Tests and clears the accessed bit of the leaf of `vpn`; `false` if nothing is mapped.
    pub fn test_and_clear_young(&mut self, vpn: Vpn) -> bool {
        let Some(leaf) = self.leaf(vpn) else { return false };
        if !leaf.flags.contains(PteFlags::YOUNG) {
            return false;
        }
        match self.slot(vpn) {
            PmdSlot::Table(id) => {
                self.rewrite_unit(id, self.position(vpn), |old| old.without(PteFlags::YOUNG));
            }
            PmdSlot::Leaf(pte) => {
                let old = pte.with_flags(pte.flags().without(PteFlags::YOUNG));
                self.directory.set(self.slot_nr(vpn), PmdSlot::Leaf(old));
            }
            PmdSlot::Empty => unreachable!("leaf() found an entry"),
        }
        true
    }

    /// Maps a whole PMD with one leaf. The slot must be empty.
    ///
    /// # Panics
    /// If the slot holds a leaf or a table, even an empty one (docs/behaviour B.6.3 requires an
    /// empty PMD), or if `vpn` or `pfn` is not aligned to the PMD order (I3).
    pub fn map_pmd(&mut self, vpn: Vpn, pfn: Pfn, flags: PteFlags) {
        let _ = end_of(vpn, self.pmd_order.nr_pages());
        let is_aligned = self.pmd_order.is_aligned(vpn.0) && self.pmd_order.is_aligned(pfn.0);
        assert!(is_aligned, "I3: PMD leaf {vpn} -> {pfn} is not aligned");
        assert_eq!(self.slot(vpn), PmdSlot::Empty, "PMD slot of {vpn} is in use");
        self.directory.set(self.slot_nr(vpn), PmdSlot::Leaf(Pte::new(pfn, flags)));
        self.stats.nr_pmd_leaves += 1;
    }

    pub(super) fn table_for(&mut self, vpn: Vpn) -> u32 {
        match self.slot(vpn) {
            PmdSlot::Table(id) => id,
            PmdSlot::Leaf(_) => panic!("{vpn} is mapped by a PMD leaf"),
            PmdSlot::Empty => {
                let id = self.tables.alloc();
                self.directory.set(self.slot_nr(vpn), PmdSlot::Table(id));
                id
            }
        }
    }

    pub(super) fn present_at(&self, vpn: Vpn) -> (u32, usize) {
        let position = self.position(vpn);
        match self.slot(vpn) {
            PmdSlot::Table(id) if self.tables.pte(id, position).is_present() => (id, position),
            _ => panic!("no present PTE at {vpn}"),
        }
    }

    fn rewrite_unit(&mut self, id: u32, position: usize, to: impl Fn(PteFlags) -> PteFlags) {
        let range = self.unit_around(id, position);
        for pte in &mut self.tables.ptes_mut(id)[range] {
            *pte = pte.with_flags(to(pte.flags()));
        }
    }
}
