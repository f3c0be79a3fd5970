//! Handles whole PMD slots: reads their state, splits and removes leaves, and frees tables.
//!
//! Corresponds to: `__split_huge_pmd_locked`.

use crate::units::{Pfn, Vpn};

use super::directory::PmdSlot;
use super::leaf::{Leaf, LeafKind};
use super::pte::{Pte, PteFlags};
use super::{PageTable, end_of};

/// The state of a PMD slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmdState {
    /// Empty: can hold a PMD leaf (docs/behaviour B.6.3, D.3).
    Empty,
    /// A PTE table, possibly without present PTEs.
    Table {
        /// Present PTEs, 0 ..= `2^pmd_order`.
        nr_present: u32,
    },
    /// A PMD leaf.
    Leaf,
}

/// A PTE table removed from its slot.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a table that is not reattached loses its pages"]
pub struct DetachedTable {
    id: u32,
    slot_nr: u64,
}

impl PageTable {
    /// The state of the PMD slot of `vpn`.
    #[must_use]
    pub fn pmd(&self, vpn: Vpn) -> PmdState {
        match self.slot(vpn) {
            PmdSlot::Empty => PmdState::Empty,
            PmdSlot::Leaf(_) => PmdState::Leaf,
            PmdSlot::Table(id) => PmdState::Table { nr_present: self.tables.nr_present(id) },
        }
    }

    /// Replaces the PMD leaf of `vpn` with a PTE table with the same pages and flags. Returns
    /// `false` if the slot holds no leaf. All PTEs are set as one range, so whole blocks fold
    /// (C.1.1).
    ///
    /// Only anonymous memory is split this way. A file leaf is removed ([`PageTable::clear_pmd`]),
    /// and its pages fault again.
    pub fn split_pmd(&mut self, vpn: Vpn) -> bool {
        let PmdSlot::Leaf(first) = self.slot(vpn) else { return false };
        let nr = self.pmd_order.nr_pages();
        let id = self.tables.alloc();
        self.directory.set(self.slot_nr(vpn), PmdSlot::Table(id));
        self.tables.fill(id, 0, (0..nr).map(|by| first.advanced(by)));
        self.stats.nr_pmd_leaves -= 1;
        self.stats.nr_ptes += nr;
        self.fold_whole_blocks(Vpn(self.pmd_order.round_down(vpn.0)), nr);
        true
    }

    /// Replaces the PMD leaf of the huge zero folio with PTEs of the shared zero page `zero`.
    pub fn split_zero_pmd(&mut self, vpn: Vpn, zero: Pfn) {
        let Some(leaf) = self.clear_pmd(vpn) else { return };
        let nr = self.pmd_order.nr_pages();
        let id = self.tables.alloc();
        self.directory.set(self.slot_nr(vpn), PmdSlot::Table(id));
        let is_closed = leaf.flags.contains(PteFlags::NO_ACCESS);
        let closed = if is_closed { PteFlags::NO_ACCESS } else { PteFlags::NONE };
        let pte = Pte::new(zero, PteFlags::YOUNG | PteFlags::SPECIAL | closed);
        self.tables.fill(id, 0, (0..nr).map(|_| pte));
        self.stats.nr_ptes += nr;
    }

    /// Removes the PMD leaf of `vpn` and leaves the slot empty. Returns `None` if there is no leaf.
    pub fn clear_pmd(&mut self, vpn: Vpn) -> Option<Leaf> {
        let leaf = self.leaf(vpn).filter(|leaf| leaf.kind == LeafKind::Pmd)?;
        self.directory.set(self.slot_nr(vpn), PmdSlot::Empty);
        self.stats.nr_pmd_leaves -= 1;
        Some(leaf)
    }

    /// Removes the PTE table of `vpn` from its slot, which is then empty. Until it is put back, its
    /// entries cannot be used. Returns `None` if there is no table.
    pub fn detach_table(&mut self, vpn: Vpn) -> Option<DetachedTable> {
        let PmdSlot::Table(id) = self.slot(vpn) else { return None };
        self.directory.set(self.slot_nr(vpn), PmdSlot::Empty);
        Some(DetachedTable { id, slot_nr: self.slot_nr(vpn) })
    }

    /// The PTEs of a detached table.
    #[must_use]
    pub fn detached_ptes(&self, table: &DetachedTable) -> &[Pte] {
        self.tables.ptes(table.id)
    }

    /// Puts a table back.
    ///
    /// # Panics
    /// If its slot was used in the meantime.
    #[expect(clippy::needless_pass_by_value, reason = "a table is reattached once")]
    pub fn attach_table(&mut self, table: DetachedTable) {
        let slot = self.directory.get(table.slot_nr);
        assert_eq!(slot, PmdSlot::Empty, "the slot of a detached table is in use");
        self.directory.set(table.slot_nr, PmdSlot::Table(table.id));
    }

    /// The PTEs of the table of `vpn`; `None` if its slot holds no table.
    #[must_use]
    pub fn table_ptes(&self, vpn: Vpn) -> Option<&[Pte]> {
        let PmdSlot::Table(id) = self.slot(vpn) else { return None };
        Some(self.tables.ptes(id))
    }

    /// Whether the table for the PMD entry of `vpn` exists: a page in its region of 512 entries was
    /// faulted since an area was mapped there (C.6.3).
    #[must_use]
    pub fn has_pmd_table(&self, vpn: Vpn) -> bool {
        self.directory.has_table(self.slot_nr(vpn))
    }

    /// Creates that table, as the first step of a fault.
    pub fn add_pmd_table(&mut self, vpn: Vpn) {
        self.directory.add_table(self.slot_nr(vpn));
    }

    /// Frees such tables in `floor..ceiling`, a range without areas.
    pub fn free_pmd_tables(&mut self, floor: Vpn, ceiling: Vpn) {
        self.directory.free_tables(self.slot_nr(floor), self.slot_nr(ceiling));
    }

    /// Frees the empty PTE tables entirely in the `nr` pages from `vpn`. Returns how many.
    ///
    /// munmap passes the range between the neighbouring VMAs, collapse one PMD block.
    pub fn free_empty_tables(&mut self, vpn: Vpn, nr: u64) -> u64 {
        let end = end_of(vpn, nr);
        let mut at = Vpn(self.pmd_order.round_up(vpn.0));
        let mut nr_freed = 0;
        while let Some(part) = self.next_part(at, end) {
            at = part.end;
            let PmdSlot::Table(id) = part.slot else { continue };
            if part.is_whole(self.pmd_order) && self.tables.nr_present(id) == 0 {
                self.directory.set(self.slot_nr(part.vpn), PmdSlot::Empty);
                self.tables.free(id);
                nr_freed += 1;
            }
        }
        nr_freed
    }
}
