//! Walks ranges: emptiness, present leaves, and batches of PTEs that map one folio.
//!
//! Corresponds to: `folio_pte_batch`.

use crate::units::{Order, Pfn, Vpn};

use super::directory::PmdSlot;
use super::leaf::{Leaf, LeafKind};
use super::pte::{FolioSpan, Pte, PteFlags};
use super::{PageTable, end_of};

/// Consecutive PTEs of one folio that are set, copied or cleared together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// First page.
    pub vpn: Vpn,
    /// Page frame of the first page; the others follow it.
    pub pfn: Pfn,
    /// Number of pages, at least 1.
    pub nr: u64,
    /// Flags of each PTE when setting; the OR of all when reading.
    pub flags: PteFlags,
}

impl PageTable {
    /// Whether none of the `nr` pages from `vpn` has a PTE or PMD leaf.
    #[must_use]
    pub fn is_none(&self, vpn: Vpn, nr: u64) -> bool {
        self.first_set_in(vpn, nr).is_none()
    }

    /// The first mapped page among the `nr` pages from `vpn`.
    #[must_use]
    pub fn first_set_in(&self, vpn: Vpn, nr: u64) -> Option<Vpn> {
        let end = end_of(vpn, nr);
        let mut at = vpn;
        while let Some(part) = self.next_part(at, end) {
            match part.slot {
                PmdSlot::Leaf(_) => return Some(part.vpn),
                PmdSlot::Table(id) if self.tables.nr_present(id) > 0 => {
                    if let Some(found) = self.first_present(id, &part) {
                        return Some(found);
                    }
                }
                _ => {}
            }
            at = part.end;
        }
        None
    }

    /// The present leaves that overlap the `nr` pages from `vpn`, in address order.
    #[must_use]
    pub fn leaves(&self, vpn: Vpn, nr: u64) -> Leaves<'_> {
        Leaves { table: self, at: vpn, end: end_of(vpn, nr), part: None }
    }

    /// The batch that starts at the present PTE of `vpn`: the following PTEs with consecutive page
    /// frames, up to `max_nr`, the end of `folio` and the end of the table, as in fork and zap
    /// (docs/behaviour E.1.1, G.1.1). Flags may differ, except those in `respect`. A special PTE is
    /// a batch of its own.
    ///
    /// # Panics
    /// If `vpn` has no present PTE (a PMD leaf does not count) or its page is not in `folio`.
    #[must_use]
    pub fn batch(&self, vpn: Vpn, max_nr: u64, folio: FolioSpan, respect: PteFlags) -> Batch {
        let (id, position) = self.present_at(vpn);
        let ptes = &self.tables.ptes(id)[position..];
        let first = ptes[0];
        assert!(folio.covers(first.pfn(), 1), "pfn {} is not in {folio:?}", first.pfn());
        let max_nr = max_nr.min(folio.nr_from(first.pfn())) as usize;
        let nr = batch_len(&ptes[..max_nr.min(ptes.len())], respect);
        let flags = ptes[..nr].iter().fold(PteFlags::NONE, |all, pte| all | pte.flags());
        Batch { vpn, pfn: first.pfn(), nr: nr as u64, flags }
    }

    /// The first page of the first used PMD slot that the `nr` pages from `vpn` overlap, or `vpn`
    /// if that is later.
    #[must_use]
    pub fn first_slot_in(&self, vpn: Vpn, nr: u64) -> Option<Vpn> {
        self.next_part(vpn, end_of(vpn, nr)).map(|part| part.vpn)
    }

    pub(super) fn next_part(&self, at: Vpn, end: Vpn) -> Option<Part> {
        if at >= end {
            return None;
        }
        let last_slot = self.pmd_order.round_up(end.0) >> self.pmd_order.get();
        let (slot_nr, slot) = self.directory.next_used(self.slot_nr(at), last_slot)?;
        let part_end = end.min(self.slot_vpn(slot_nr + 1));
        Some(Part { slot, vpn: at.max(self.slot_vpn(slot_nr)), end: part_end })
    }

    fn first_present(&self, id: u32, part: &Part) -> Option<Vpn> {
        let position = self.position(part.vpn);
        let ptes = &self.tables.ptes(id)[position..position + part.nr() as usize];
        let found = ptes.iter().position(|pte| pte.is_present())?;
        Some(part.vpn.plus(found as u64))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) slot: PmdSlot,
    pub(super) vpn: Vpn,
    pub(super) end: Vpn,
}

impl Part {
    pub(super) const fn nr(&self) -> u64 {
        self.end.0 - self.vpn.0
    }

    pub(super) const fn is_whole(&self, order: Order) -> bool {
        self.nr() == order.nr_pages()
    }
}

pub(super) fn batch_len(ptes: &[Pte], respect: PteFlags) -> usize {
    let first = ptes[0];
    if first.flags().contains(PteFlags::SPECIAL) {
        return 1;
    }
    let ignored = (PteFlags::WRITABLE | PteFlags::ACCESSED_DIRTY).without(respect);
    let unlike = |(by, pte): (u64, &Pte)| pte.key(ignored) != first.advanced(by).key(ignored);
    (0..).zip(ptes).position(unlike).unwrap_or(ptes.len())
}

/// Iterator over present leaves; see [`PageTable::leaves`].
#[derive(Clone, Debug)]
pub struct Leaves<'a> {
    table: &'a PageTable,
    at: Vpn,
    end: Vpn,
    part: Option<(u32, Vpn)>,
}

impl Leaves<'_> {
    fn next_in_table(&mut self, id: u32, part_end: Vpn) -> Option<Leaf> {
        let part = Part { slot: PmdSlot::Table(id), vpn: self.at, end: part_end };
        let vpn = self.table.first_present(id, &part)?;
        let leaf = self.table.pte_leaf(vpn, self.table.tables.pte(id, self.table.position(vpn)));
        self.at = leaf.end_vpn();
        Some(leaf)
    }
}

impl Iterator for Leaves<'_> {
    type Item = Leaf;

    fn next(&mut self) -> Option<Leaf> {
        loop {
            if let Some((id, part_end)) = self.part {
                if self.at < part_end
                    && let Some(leaf) = self.next_in_table(id, part_end)
                {
                    return Some(leaf);
                }
                self.at = part_end;
                self.part = None;
            }
            let part = self.table.next_part(self.at, self.end)?;
            match part.slot {
                PmdSlot::Table(id) => {
                    self.at = part.vpn;
                    self.part = Some((id, part.end));
                }
                PmdSlot::Leaf(pte) => {
                    let order = self.table.pmd_order;
                    let first_vpn = Vpn(order.round_down(part.vpn.0));
                    self.at = part.end;
                    return Some(Leaf::new(LeafKind::Pmd, order, first_vpn, pte));
                }
                PmdSlot::Empty => unreachable!("next_part returns used slots"),
            }
        }
    }
}
