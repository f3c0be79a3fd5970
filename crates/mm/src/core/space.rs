//! One process's address space: its areas, its page table, its pages in swap space.
//!
//! Swapped pages are kept beside the page table, which is asked far more often: a page that has an
//! entry in [`Swapped`] has none in the table.

use std::collections::BTreeMap;

use crate::pgtable::PageTable;
use crate::units::{GroupId, MappingId, MmId, Order, Pfn, SwapSlot, Vpn};
use crate::vma::VmaTree;

/// The address space of a process.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts about a process: independent of each other"
)]
pub struct Space {
    /// What is mapped where.
    pub vmas: VmaTree,
    /// What its present pages are mapped by.
    pub table: PageTable,
    /// Pages in swap space.
    pub swapped: Swapped,
    /// What its huge pages are mapped by: they stand beside the page table, like swapped pages.
    pub huge: BTreeMap<Vpn, HugeEntry>,
    /// The control group it is in.
    pub group: GroupId,
    /// Whether the process has ended.
    pub is_dead: bool,
    /// Whether a page of it was ever pinned (E.1.2).
    pub has_pinned: bool,
    /// Whether it holds a reference to the huge zero folio (D.3.1).
    pub uses_huge_zero: bool,
    /// The program it runs: nobody opens that for write (H.2.1).
    pub exe: Option<MappingId>,
    /// Name of the program it runs, at most 15 bytes and a 0: what a policy sees.
    pub comm: [u8; 16],
    /// Whether khugepaged looks at it (D.2.9).
    pub is_scanned: bool,
    /// Bytes of it when it was last measured ([`crate::core::work`]).
    pub(crate) measured_bytes: u64,
}

impl Space {
    /// Whether none of the `nr` pages from `vpn` is mapped or swapped.
    pub(crate) fn is_none(&self, vpn: Vpn, nr: u64) -> bool {
        self.first_set_in(vpn, nr).is_none()
    }

    /// The first mapped or swapped page among the `nr` from `vpn`.
    pub(crate) fn first_set_in(&self, vpn: Vpn, nr: u64) -> Option<Vpn> {
        let mapped = self.table.first_set_in(vpn, nr);
        if self.swapped.is_empty() {
            return mapped;
        }
        let swapped = self.swapped.first_in(vpn, nr).map(|(vpn, _)| vpn);
        mapped.into_iter().chain(swapped).min()
    }
}

/// The entry of a huge page: one leaf, of whatever level its size has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugeEntry {
    /// First frame.
    pub pfn: Pfn,
    /// Size of the page.
    pub order: Order,
    /// Whether a store goes through without a fault.
    pub is_writable: bool,
}

/// Translations of one address space that must leave the TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// Process whose translations they are.
    pub mm: MmId,
    /// First page that leaves.
    pub first: Vpn,
    /// Pages that leave.
    pub nr_pages: u64,
}

/// Pages of a process that are in swap space: their slots by page.
#[derive(Clone, Debug, Default)]
pub struct Swapped {
    slots: BTreeMap<Vpn, SwapEntry>,
}

/// What names a slot instead of a page-table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapEntry {
    /// The slot.
    pub slot: SwapSlot,
    /// The page was the process's own, and no child has it since.
    pub is_exclusive: bool,
}

impl Swapped {
    /// The slot that holds a page.
    #[must_use]
    pub fn get(&self, vpn: Vpn) -> Option<SwapSlot> {
        self.entry(vpn).map(|entry| entry.slot)
    }

    /// The entry of a page.
    pub(crate) fn entry(&self, vpn: Vpn) -> Option<SwapEntry> {
        self.slots.get(&vpn).copied()
    }

    /// Whether `nr` pages from `first` on have slots side by side, the first of them `entry`'s, and
    /// are all one process's own or none.
    pub(crate) fn is_run(&self, first: Vpn, nr: u64, entry: SwapEntry) -> bool {
        let next = |by| SwapEntry { slot: entry.slot.plus(by), ..entry };
        let entries = self.slots.range(first..first.plus(nr));
        let expected = (0..nr).map(|by| (first.plus(by), next(by)));
        entries.map(|(&vpn, &entry)| (vpn, entry)).eq(expected)
    }

    /// The pages of `[start, end)` are no longer the process's own; their slots.
    pub(crate) fn share(&mut self, start: Vpn, end: Vpn) -> Vec<(Vpn, SwapSlot)> {
        let entries = self.slots.range_mut(start..end);
        entries
            .map(|(&vpn, entry)| {
                entry.is_exclusive = false;
                (vpn, entry.slot)
            })
            .collect()
    }

    /// The first swapped page among the `nr` from `vpn`, and its slot.
    #[must_use]
    pub fn first_in(&self, vpn: Vpn, nr: u64) -> Option<(Vpn, SwapSlot)> {
        self.slots.range(vpn..vpn.plus(nr)).next().map(|(&vpn, entry)| (vpn, entry.slot))
    }

    /// Pages of the process that are in swap space.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// All pages with their slots, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (Vpn, SwapSlot)> + '_ {
        self.slots.iter().map(|(&vpn, entry)| (vpn, entry.slot))
    }

    /// Pages of `[start, end)` with their slots, in ascending order.
    pub fn range(&self, start: Vpn, end: Vpn) -> impl Iterator<Item = (Vpn, SwapSlot)> {
        self.slots.range(start..end).map(|(&vpn, entry)| (vpn, entry.slot))
    }

    pub(crate) fn remove(&mut self, vpn: Vpn) {
        self.slots.remove(&vpn);
    }

    pub(crate) fn insert(&mut self, vpn: Vpn, entry: SwapEntry) {
        self.slots.insert(vpn, entry);
    }

    /// Takes the entries of `nr` pages out.
    pub(crate) fn take(&mut self, vpn: Vpn, nr: u64) -> BTreeMap<Vpn, SwapEntry> {
        let range = self.slots.range(vpn..vpn.plus(nr));
        let taken: BTreeMap<_, _> = range.map(|(&vpn, &entry)| (vpn, entry)).collect();
        for vpn in taken.keys() {
            self.slots.remove(vpn);
        }
        taken
    }
}
