//! The PMD slots of a sparse address space.
//!
//! Slots live in regions of 512 (1 GiB of addresses with 4 KiB pages); only regions with a used
//! slot exist. Owns the slots, not the PTE tables they name.
//!
//! Invariants:
//! - D1: a region exists iff at least one of its slots is used; `nr_used` counts them.
//! - D2: a region that exists has its table; the table stays until no area is left around it.

use std::collections::{BTreeMap, BTreeSet};

use super::pte::Pte;

/// log2 of the slots of a region: one page of 8-byte entries at 4 KiB, as in hardware.
const REGION_SHIFT: u32 = 9;
const REGION_SLOTS: usize = 1 << REGION_SHIFT;

/// What one PMD slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PmdSlot {
    /// Nothing: no table, no leaf.
    Empty,
    /// The PTE table with this id, possibly without any present PTE.
    Table(u32),
    /// A PMD leaf.
    Leaf(Pte),
}

impl PmdSlot {
    const fn of(word: Pte) -> Self {
        if word.is_none() {
            return Self::Empty;
        }
        match word.table_id() {
            Some(id) => Self::Table(id),
            None => Self::Leaf(word),
        }
    }

    const fn word(self) -> Pte {
        match self {
            Self::Empty => Pte::NONE,
            Self::Table(id) => Pte::table(id),
            Self::Leaf(pte) => pte,
        }
    }
}

#[derive(Clone, Debug)]
struct Region {
    slots: [Pte; REGION_SLOTS],
    /// Slots that are not empty: 1 ..= 512 (D1).
    nr_used: u32,
}

/// PMD slots by slot number (`vpn >> pmd_order`).
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    regions: BTreeMap<u64, Box<Region>>,
    /// Regions that have a table of slots, used or not (D2).
    tables: BTreeSet<u64>,
}

/// Position of a slot inside its region.
const fn position(slot_nr: u64) -> usize {
    slot_nr as usize & (REGION_SLOTS - 1)
}

impl Directory {
    #[inline]
    pub(super) fn get(&self, slot_nr: u64) -> PmdSlot {
        self.regions
            .get(&(slot_nr >> REGION_SHIFT))
            .map_or(PmdSlot::Empty, |region| PmdSlot::of(region.slots[position(slot_nr)]))
    }

    pub(super) fn set(&mut self, slot_nr: u64, slot: PmdSlot) {
        let number = slot_nr >> REGION_SHIFT;
        if slot == PmdSlot::Empty && !self.regions.contains_key(&number) {
            return;
        }
        let tables = &mut self.tables;
        let region = self.regions.entry(number).or_insert_with(|| {
            tables.insert(number);
            Box::new(Region { slots: [Pte::NONE; REGION_SLOTS], nr_used: 0 })
        });
        let place = &mut region.slots[position(slot_nr)];
        region.nr_used -= u32::from(!place.is_none());
        *place = slot.word();
        region.nr_used += u32::from(!place.is_none());
        if region.nr_used == 0 {
            self.regions.remove(&number);
        }
    }

    /// Whether the slot has a place: a table of its region.
    pub(super) fn has_table(&self, slot_nr: u64) -> bool {
        self.tables.contains(&(slot_nr >> REGION_SHIFT))
    }

    /// Makes that place.
    pub(super) fn add_table(&mut self, slot_nr: u64) {
        self.tables.insert(slot_nr >> REGION_SHIFT);
    }

    /// Gives a child the tables that it needs for the slots `from..=end`.
    pub(super) fn copy_tables(&self, child: &mut Self, from: u64, end: u64) {
        child.tables.extend(self.tables.range(from >> REGION_SHIFT..=end >> REGION_SHIFT));
    }

    /// Frees the tables without a used slot whose whole region lies in the slots `from..end`.
    pub(super) fn free_tables(&mut self, from: u64, end: u64) {
        let (first, last) = (from.div_ceil(REGION_SLOTS as u64), end >> REGION_SHIFT);
        let Self { regions, tables } = self;
        tables.retain(|number| !(first..last).contains(number) || regions.contains_key(number));
    }

    /// Regions that exist.
    pub(super) fn nr_regions(&self) -> usize {
        self.regions.len()
    }

    /// The first used slot in `from..end` and its number.
    pub(super) fn next_used(&self, from: u64, end: u64) -> Option<(u64, PmdSlot)> {
        if from >= end {
            return None;
        }
        let numbers = (from >> REGION_SHIFT)..=((end - 1) >> REGION_SHIFT);
        self.regions.range(numbers).find_map(|(&number, region)| {
            let base = number << REGION_SHIFT;
            let first = from.max(base);
            let last = (end - 1).min(base + REGION_SLOTS as u64 - 1);
            let found = region.slots[position(first)..=position(last)]
                .iter()
                .position(|word| !word.is_none())?;
            Some((first + found as u64, PmdSlot::of(region.slots[position(first) + found])))
        })
    }

    /// Number of the first region whose `nr_used` is wrong (D1).
    pub(super) fn first_miscounted(&self) -> Option<u64> {
        let is_wrong = |region: &Region| {
            let nr_used = region.slots.iter().filter(|word| !word.is_none()).count();
            nr_used == 0 || nr_used != region.nr_used as usize
        };
        self.regions.iter().find(|(_, region)| is_wrong(region)).map(|(&number, _)| number)
    }
}
