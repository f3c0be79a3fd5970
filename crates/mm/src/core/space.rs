//! A process's address space: its areas, its page table and its swapped pages.
//!
//! Swapped pages are kept outside the page table, because the table is read far more often. A page
//! with an entry in [`Swapped`] has no page-table entry.

use std::collections::BTreeMap;

use crate::pgtable::PageTable;
use crate::units::{GroupId, MappingId, MmId, Order, Pfn, SwapSlot, Vpn};
use crate::vma::{Lock, VmaTree};

/// A process's address space.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts about a process: independent of each other"
)]
pub struct Space {
    /// Its areas.
    pub vmas: VmaTree,
    /// Its page table.
    pub table: PageTable,
    /// Its pages in swap space.
    pub swapped: Swapped,
    /// Its huge pages. Kept outside the page table, like swapped pages.
    pub huge: BTreeMap<Vpn, HugeEntry>,
    /// Its control group.
    pub group: GroupId,
    /// Whether the process has ended.
    pub is_dead: bool,
    /// Whether any of its pages was ever pinned (E.1.2).
    pub has_pinned: bool,
    /// Whether it holds a reference to the huge zero folio (D.3.1).
    pub uses_huge_zero: bool,
    /// Its executable, which no one can open for writing (H.2.1).
    pub exe: Option<MappingId>,
    /// The executable's name, at most 15 bytes and a 0: visible to policies.
    pub comm: [u8; 16],
    /// Whether khugepaged scans it (D.2.9).
    pub is_scanned: bool,
    /// THP that the process turned off.
    pub thp_off: ThpOff,
    /// Lock of later mappings (`MCL_FUTURE`).
    pub lock: Lock,
    pub(crate) measured_bytes: u64,
    pub(crate) aging: Aging,
}

/// What decides whether a walk for a new generation visits the process (P.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aging {
    /// It joined its group after the last walk, which did not look at it.
    pub(crate) is_new: bool,
    /// It ran after the last walk.
    pub(crate) has_run: bool,
}

impl Aging {
    pub(crate) const NEW: Self = Self { is_new: true, has_run: false };
}

/// `prctl(PR_SET_THP_DISABLE)`: THP that a process turned off (D.2.11). A child and the next
/// program inherit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThpOff {
    /// None.
    #[default]
    None,
    /// All but in `MADV_HUGEPAGE` areas.
    ExceptAdvised,
    /// All.
    All,
}

impl Space {
    pub(crate) fn is_none(&self, vpn: Vpn, nr: u64) -> bool {
        self.first_set_in(vpn, nr).is_none()
    }

    pub(crate) fn first_set_in(&self, vpn: Vpn, nr: u64) -> Option<Vpn> {
        let mapped = self.table.first_set_in(vpn, nr);
        if self.swapped.is_empty() {
            return mapped;
        }
        let swapped = self.swapped.first_in(vpn, nr).map(|(vpn, _)| vpn);
        mapped.into_iter().chain(swapped).min()
    }
}

/// A huge page's entry: a single leaf, at whatever level fits its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugeEntry {
    /// First frame.
    pub pfn: Pfn,
    /// The page's order.
    pub order: Order,
    /// Whether the process can write without a fault.
    pub is_writable: bool,
}

/// A TLB flush of one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// The process.
    pub mm: MmId,
    /// First page to flush.
    pub first: Vpn,
    /// Pages to flush.
    pub nr_pages: u64,
}

/// A process's swapped pages, with their slots.
#[derive(Clone, Debug, Default)]
pub struct Swapped {
    slots: BTreeMap<Vpn, SwapEntry>,
}

/// A swap entry: replaces a page-table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapEntry {
    /// The slot.
    pub slot: SwapSlot,
    /// Whether the page was exclusive to the process and no fork has shared it since.
    pub is_exclusive: bool,
}

impl Swapped {
    /// Returns a page's slot.
    #[must_use]
    pub fn get(&self, vpn: Vpn) -> Option<SwapSlot> {
        self.entry(vpn).map(|entry| entry.slot)
    }

    pub(crate) fn entry(&self, vpn: Vpn) -> Option<SwapEntry> {
        self.slots.get(&vpn).copied()
    }

    /// Whether `nr` pages have consecutive slots from that of `entry` and are as exclusive as it.
    pub(crate) fn is_run(&self, first: Vpn, nr: u64, entry: SwapEntry) -> bool {
        let next = |by| SwapEntry { slot: entry.slot.plus(by), ..entry };
        let entries = self.slots.range(first..first.plus(nr));
        let expected = (0..nr).map(|by| (first.plus(by), next(by)));
        entries.map(|(&vpn, &entry)| (vpn, entry)).eq(expected)
    }

    /// Clears the exclusive flag of the pages in `[start, end)`. Returns their slots.
    pub(crate) fn share(&mut self, start: Vpn, end: Vpn) -> Vec<(Vpn, SwapSlot)> {
        let entries = self.slots.range_mut(start..end);
        entries
            .map(|(&vpn, entry)| {
                entry.is_exclusive = false;
                (vpn, entry.slot)
            })
            .collect()
    }

    /// The first swapped page among the `nr` from `vpn`, with its slot.
    #[must_use]
    pub fn first_in(&self, vpn: Vpn, nr: u64) -> Option<(Vpn, SwapSlot)> {
        self.slots.range(vpn..vpn.plus(nr)).next().map(|(&vpn, entry)| (vpn, entry.slot))
    }

    /// Swapped pages of the process.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no page is swapped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// All swapped pages with their slots, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (Vpn, SwapSlot)> + '_ {
        self.slots.iter().map(|(&vpn, entry)| (vpn, entry.slot))
    }

    /// The swapped pages of `[start, end)` with their slots, in ascending order.
    pub fn range(&self, start: Vpn, end: Vpn) -> impl Iterator<Item = (Vpn, SwapSlot)> {
        self.slots.range(start..end).map(|(&vpn, entry)| (vpn, entry.slot))
    }

    pub(crate) fn remove(&mut self, vpn: Vpn) {
        self.slots.remove(&vpn);
    }

    pub(crate) fn insert(&mut self, vpn: Vpn, entry: SwapEntry) {
        self.slots.insert(vpn, entry);
    }

    pub(crate) fn take(&mut self, vpn: Vpn, nr: u64) -> BTreeMap<Vpn, SwapEntry> {
        let range = self.slots.range(vpn..vpn.plus(nr));
        let taken: BTreeMap<_, _> = range.map(|(&vpn, &entry)| (vpn, entry)).collect();
        for vpn in taken.keys() {
            self.slots.remove(vpn);
        }
        taken
    }
}
