//! The PMD slots of a sparse address space.
//!
//! Slots are grouped in regions of 512 (1 GiB of addresses with 4 KiB pages). Only regions with a
//! used slot exist. Owns the slots, not the PTE tables they name.
//!
//! Invariants:
//! - D1: a region exists if and only if one of its slots is used; `nr_used` counts the used slots.
//! - D2: an existing region has its table, which stays until no area is left around it.

use std::collections::{BTreeMap, BTreeSet};

use super::pte::Pte;

/// log2 of the slots per region: one page of 8-byte entries at 4 KiB, as in hardware.
const REGION_SHIFT: u32 = 9;
const REGION_SLOTS: usize = 1 << REGION_SHIFT;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PmdSlot {
    Empty,
    Table(u32),
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
    /// Used slots: 1 ..= 512 (D1).
    nr_used: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    regions: BTreeMap<u64, Box<Region>>,
    /// Regions with a table of slots, used or not (D2).
    tables: BTreeSet<u64>,
}

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

    pub(super) fn has_table(&self, slot_nr: u64) -> bool {
        self.tables.contains(&(slot_nr >> REGION_SHIFT))
    }

    pub(super) fn add_table(&mut self, slot_nr: u64) {
        self.tables.insert(slot_nr >> REGION_SHIFT);
    }

    pub(super) fn copy_tables(&self, child: &mut Self, from: u64, end: u64) {
        child.tables.extend(self.tables.range(from >> REGION_SHIFT..=end >> REGION_SHIFT));
    }

    pub(super) fn free_tables(&mut self, from: u64, end: u64) {
        let (first, last) = (from.div_ceil(REGION_SLOTS as u64), end >> REGION_SHIFT);
        let Self { regions, tables } = self;
        tables.retain(|number| !(first..last).contains(number) || regions.contains_key(number));
    }

    pub(super) fn nr_regions(&self) -> usize {
        self.regions.len()
    }

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

    pub(super) fn first_miscounted(&self) -> Option<u64> {
        let is_wrong = |region: &Region| {
            let nr_used = region.slots.iter().filter(|word| !word.is_none()).count();
            nr_used == 0 || nr_used != region.nr_used as usize
        };
        self.regions.iter().find(|(_, region)| is_wrong(region)).map(|(&number, _)| number)
    }
}
