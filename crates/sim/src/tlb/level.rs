//! One TLB level: its structures, and how entries are found, placed and removed.

use std::ops::Range;

use largefolio_mm::units::{Order, PageSize, Pfn, Vpn};

use super::access::Access;
use super::config::StructureConfig;
use super::entry::{Entry, Key, NR_ORDERS, Use};
use super::index::Index;
use super::resident::{Orders, Resident};
use super::structure::Structure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    structure: usize,
    pub(super) order: Order,
}

#[derive(Clone, Debug)]
pub(super) struct Level {
    structures: Vec<Structure>,
    /// By translation order. The first structure that holds the largest order wins.
    homes: [Option<Home>; NR_ORDERS],
    /// By slot; [`Key::EMPTY`] if free. `uses[slot] == Use::FREE` means the same.
    keys: Box<[Key]>,
    uses: Box<[Use]>,
    /// By slot: the first page's frame; stale if free.
    pfns: Box<[Pfn]>,
    index: Index,
    resident: Resident,
}

impl Level {
    pub(super) fn new(configs: &[StructureConfig], page: PageSize) -> Self {
        let mut structures: Vec<Structure> = Vec::with_capacity(configs.len());
        for config in configs {
            let offset = structures.last().map_or(0, |structure| structure.slots().end);
            structures.push(Structure::new(config, page, offset));
        }
        let nr_slots = structures.last().map_or(0, |structure| structure.slots().end);
        Self {
            homes: homes(&structures),
            structures,
            keys: vec![Key::EMPTY; nr_slots].into(),
            uses: vec![Use::FREE; nr_slots].into(),
            pfns: vec![Pfn(0); nr_slots].into(),
            index: Index::new(nr_slots),
            resident: Resident::new(page.pmd_order().get()),
        }
    }

    /// Returns the home for translations of this order; `None` if no structure holds even a part.
    pub(super) fn home(&self, order: Order) -> Option<Home> {
        self.homes[usize::from(order.get())]
    }

    /// Returns the slot of the entry that covers `vpn`. By I1 there is at most one.
    #[inline]
    pub(super) fn find(&self, vpn: Vpn) -> Option<usize> {
        for order in self.resident.orders() {
            let slot = self.index.find(&self.keys, Key::covering(vpn.0, order));
            if slot.is_some() {
                return slot;
            }
        }
        None
    }

    /// Returns keys and uses by slot. The caller may only update uses of existing entries.
    #[inline]
    pub(super) fn slots_mut(&mut self) -> (&[Key], &mut [Use]) {
        (&self.keys, &mut self.uses)
    }

    #[inline]
    pub(super) fn key(&self, slot: usize) -> Key {
        self.keys[slot]
    }

    #[inline]
    pub(super) fn is_writable(&self, slot: usize) -> bool {
        self.uses[slot].is_writable()
    }

    pub(super) fn entry(&self, slot: usize) -> Entry {
        let key = self.key(slot);
        Entry {
            first_vpn: Vpn(key.first_vpn()),
            order: Order::new(key.order()),
            pfn: self.pfns[slot],
            is_writable: self.is_writable(slot),
        }
    }

    #[inline]
    pub(super) fn touch(&mut self, slot: usize, clock: u64) {
        let used = &mut self.uses[slot];
        *used = used.again(clock);
    }

    /// Touches `slot` if it still holds `key` and allows the access. This is the whole fast path.
    #[inline]
    pub(super) fn touch_hinted(
        &mut self,
        slot: usize,
        key: Key,
        access: Access,
        clock: u64,
    ) -> bool {
        if self.keys.get(slot) != Some(&key) {
            return false;
        }
        let Some(used) = self.uses.get_mut(slot) else { return false };
        if access == Access::Write && !used.is_writable() {
            return false;
        }
        *used = used.again(clock);
        true
    }

    /// Inserts an entry and returns its slot. Removes overlapping entries, or the LRU one if full.
    pub(super) fn insert(&mut self, entry: &Entry, home: Home, clock: u64) -> usize {
        let order = entry.order.get();
        let key = Key::covering(entry.first_vpn.0, order);
        self.remove_range(entry.first_vpn, entry.order.nr_pages());
        let slot = self.victim(self.structures[home.structure].set_of(key.block()));
        if self.keys[slot] != Key::EMPTY {
            self.remove(slot);
        }
        self.keys[slot] = key;
        self.uses[slot] = Use::at(clock, entry.is_writable);
        self.pfns[slot] = entry.pfn;
        self.index.insert(key, slot);
        self.resident.add(key);
        slot
    }

    pub(super) fn remove_range(&mut self, first: Vpn, nr_pages: u64) {
        let Some(last) = nr_pages.checked_sub(1).map(|more| first.0.saturating_add(more)) else {
            return;
        };
        if !self.resident.may_cover(first.0, last) {
            return;
        }
        if self.resident.nr_keys(first.0, last) > self.keys.len() as u64 {
            return self.remove_by_scan(first.0, last);
        }
        for order in self.resident.orders() {
            for block in first.0 >> order..=last >> order {
                if let Some(slot) = self.index.find(&self.keys, Key::of_block(block, order)) {
                    self.remove(slot);
                }
            }
        }
    }

    pub(super) fn clear(&mut self) {
        if self.resident.nr_entries() == 0 {
            return;
        }
        self.keys.fill(Key::EMPTY);
        self.uses.fill(Use::FREE);
        self.index.clear();
        self.resident.clear();
    }

    fn remove_by_scan(&mut self, first: u64, last: u64) {
        for slot in 0..self.keys.len() {
            let key = self.keys[slot];
            if key == Key::EMPTY {
                continue;
            }
            if key.overlaps(first, last) {
                self.remove(slot);
            }
        }
    }

    fn remove(&mut self, slot: usize) {
        let key = std::mem::replace(&mut self.keys[slot], Key::EMPTY);
        self.uses[slot] = Use::FREE;
        self.index.remove(key, slot);
        self.resident.sub(key);
    }

    fn victim(&self, set: Range<usize>) -> usize {
        set.start + oldest(&self.uses[set])
    }

    pub(super) fn validate(&self) -> Result<(), Violation> {
        let mut ranges = Vec::new();
        for (slot, &key) in self.keys.iter().enumerate() {
            if (key == Key::EMPTY) != (self.uses[slot] == Use::FREE) {
                return Err(Violation::Free { slot });
            }
            if key == Key::EMPTY {
                continue;
            }
            let in_place = self.structures.iter().any(|structure| {
                structure.holds(key.order()) && structure.set_of(key.block()).contains(&slot)
            });
            if !in_place {
                return Err(Violation::I2 { slot });
            }
            if self.index.find(&self.keys, key) != Some(slot) {
                return Err(Violation::I3 { slot });
            }
            ranges.push((key.first_vpn(), key.first_vpn() + (1 << key.order())));
        }
        ranges.sort_unstable();
        if let Some(pair) = ranges.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            return Err(Violation::I1 { first_vpn: Vpn(pair[1].0) });
        }
        let used = self.keys.iter().copied().filter(|&key| key != Key::EMPTY);
        if self.resident.counts(used) { Ok(()) } else { Err(Violation::Sums) }
    }
}

/// Returns the index of the first minimum. Computes four minima in parallel and then searches,
/// because a single minimum with its index is a chain of 48 dependent steps for a fully associative
/// level 1.
fn oldest(uses: &[Use]) -> usize {
    let (fours, rest) = uses.as_chunks::<4>();
    let mut minima = [Use::NEWEST; 4];
    for four in fours {
        for (minimum, used) in minima.iter_mut().zip(four) {
            *minimum = (*minimum).min(*used);
        }
    }
    let oldest = minima.iter().chain(rest).min();
    uses.iter().position(|used| Some(used) == oldest).unwrap_or_default()
}

fn homes(structures: &[Structure]) -> [Option<Home>; NR_ORDERS] {
    let mut homes = [None; NR_ORDERS];
    for order in Orders(u32::MAX >> (32 - NR_ORDERS)) {
        let mut home: Option<Home> = None;
        for (nr, structure) in structures.iter().enumerate() {
            let Some(held) = structure.largest_within(order) else { continue };
            let held = Order::new(held);
            if home.is_none_or(|best| best.order < held) {
                home = Some(Home { structure: nr, order: held });
            }
        }
        homes[usize::from(order)] = home;
    }
    homes
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("I1: two entries cover page {first_vpn}")]
    I1 { first_vpn: Vpn },
    /// An entry is outside its set or in a structure that does not hold its order.
    #[error("I2: the entry in slot {slot} is out of place")]
    I2 { slot: usize },
    #[error("I3: slot {slot} is missing from the index")]
    I3 { slot: usize },
    /// A slot's key and use disagree about whether it is free.
    #[error("slot {slot} is half free")]
    Free { slot: usize },
    #[error("the counts of resident entries are wrong")]
    Sums,
}
