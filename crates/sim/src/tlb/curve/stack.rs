//! The stack of one side of one thread.
//!
//! Invariants:
//! - I1: no two entries cover the same page.
//! - I2: an entry lies in the slot it names, and every slot with an entry is named by one.
//! - I3: the index and the sums find exactly the entries.
//! - I4: at most `nr_max` places are taken, free ones included.

use largefolio_mm::units::{PageSize, Vpn};

use super::slots::Slots;
use crate::tlb::coalesce::Translation;
use crate::tlb::entry::Key;
use crate::tlb::hierarchy::Access;
use crate::tlb::index::Index;
use crate::tlb::resident::Resident;

/// Places at first: most threads of most programs need few.
const NR_PLACES_MIN: usize = 64;

/// Where a reference found its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a reference is counted, and filled where it found nothing it may use"]
pub enum Found {
    /// The buffers of `depth` and more entries had it.
    Entry {
        /// 1 for the last used one.
        depth: usize,
    },
    /// They had it for reading only, and it is wanted for a write: it is gone. Fill.
    ReadOnly {
        /// As above.
        depth: usize,
    },
    /// No buffer had it. Fill.
    Nothing,
}

impl Found {
    /// Whether the largest buffer walks.
    #[must_use]
    pub const fn needs_walk(self) -> bool {
        !matches!(self, Self::Entry { .. })
    }
}

/// What follows a lookup that finds its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The entry is used as it is: it goes on top.
    Use,
    /// The machine walks: [`LruStack::fill`] puts on top what it finds, which may cover more.
    Fill,
}

/// The entry on top, which most references are to.
#[derive(Clone, Copy, Debug)]
struct Top {
    key: Key,
    is_writable: bool,
}

impl Top {
    const NONE: Self = Self { key: Key::EMPTY, is_writable: false };
}

/// LRU buffers of 1 to `nr_max` entries at once.
#[derive(Clone, Debug)]
pub struct LruStack {
    /// By node; [`Key::EMPTY`] where there is none.
    keys: Vec<Key>,
    /// By node: whether stores may use it.
    is_writable: Vec<bool>,
    /// By node: its place.
    slot_of: Vec<usize>,
    /// Nodes without an entry.
    unused: Vec<u32>,
    index: Index,
    resident: Resident,
    slots: Slots,
    top: Top,
    nr_max: usize,
}

impl LruStack {
    /// Empty buffers of up to `nr_max >= 1` entries.
    #[must_use]
    pub fn new(page: PageSize, nr_max: usize) -> Self {
        let nr_places = NR_PLACES_MIN.min(nr_max);
        Self {
            keys: vec![Key::EMPTY; nr_places],
            is_writable: vec![false; nr_places],
            slot_of: vec![0; nr_places],
            unused: nodes(0, nr_places),
            index: Index::new(nr_places),
            resident: Resident::new(page.pmd_order().get()),
            slots: Slots::new(nr_places),
            top: Top::NONE,
            nr_max,
        }
    }

    /// Whether the last used entry serves the reference: buffers of any size hit, nothing changes.
    #[inline]
    #[must_use]
    pub fn is_top(&self, vpn: Vpn, access: Access) -> bool {
        let Top { key, is_writable } = self.top;
        key == Key::covering(vpn.0, key.order()) && (is_writable || access == Access::Read)
    }

    /// Looks a reference up.
    pub fn lookup(&mut self, vpn: Vpn, access: Access, then: Then) -> Found {
        if self.is_top(vpn, access) {
            return Found::Entry { depth: 1 };
        }
        let Some(node) = self.find(vpn) else { return Found::Nothing };
        let depth = self.slots.depth(self.slot_of[node]);
        let is_writable = self.is_writable[node];
        if access == Access::Write && !is_writable {
            self.remove(node);
            return Found::ReadOnly { depth };
        }
        if then == Then::Use {
            self.make_slot();
            self.slot_of[node] = self.slots.again(self.slot_of[node]);
            self.top = Top { key: self.keys[node], is_writable };
        }
        Found::Entry { depth }
    }

    /// Puts what a walk found on top, in place of what it overlaps.
    pub fn fill(&mut self, walked: &Translation) {
        let key = Key::covering(walked.first_vpn.0, walked.order.get());
        if key == self.top.key && walked.is_writable == self.top.is_writable {
            return;
        }
        self.invalidate(walked.first_vpn, walked.order.nr_pages());
        if self.slots.has_free() {
            self.slots.close_free();
        } else if self.slots.nr_taken() == self.nr_max {
            self.evict();
        } else if self.slots.nr_taken() == self.keys.len() {
            self.grow();
        }
        self.make_slot();
        let Some(node) = self.unused.pop() else { unreachable!("I4: a place is left") };
        let nr = node as usize;
        self.keys[nr] = key;
        self.is_writable[nr] = walked.is_writable;
        self.slot_of[nr] = self.slots.push(node);
        self.index.insert(key, nr);
        self.resident.add(key);
        self.top = Top { key, is_writable: walked.is_writable };
    }

    /// Removes what covers one of `nr_pages` pages from `first`; its places stay free.
    pub fn invalidate(&mut self, first: Vpn, nr_pages: u64) {
        let Some(last) = nr_pages.checked_sub(1).map(|more| first.0.saturating_add(more)) else {
            return;
        };
        if !self.resident.may_cover(first.0, last) {
            return;
        }
        if self.resident.nr_keys(first.0, last) > self.keys.len() as u64 {
            for node in 0..self.keys.len() {
                if self.keys[node] != Key::EMPTY && self.keys[node].overlaps(first.0, last) {
                    self.remove(node);
                }
            }
            return;
        }
        for order in self.resident.orders() {
            for block in first.0 >> order..=last >> order {
                if let Some(node) = self.index.find(&self.keys, Key::of_block(block, order)) {
                    self.remove(node);
                }
            }
        }
    }

    #[inline]
    fn find(&self, vpn: Vpn) -> Option<usize> {
        let keys = self.resident.orders().map(|order| Key::covering(vpn.0, order));
        keys.filter_map(|key| self.index.find(&self.keys, key)).next()
    }

    /// Makes sure of a slot for the next that is used.
    fn make_slot(&mut self) {
        if self.slots.is_full() {
            let slot_of = &mut self.slot_of;
            self.slots.compact(|node, slot| slot_of[node as usize] = slot);
        }
    }

    fn remove(&mut self, node: usize) {
        self.slots.leave_free(self.slot_of[node]);
        self.forget(node);
    }

    /// The least recently used entry of the largest buffer goes.
    fn evict(&mut self) {
        if let Some(node) = self.slots.pop_lowest() {
            self.forget(node as usize);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a node is below nr_max, which fits")]
    fn forget(&mut self, node: usize) {
        let key = std::mem::replace(&mut self.keys[node], Key::EMPTY);
        if key == self.top.key {
            self.top = Top::NONE;
        }
        self.index.remove(key, node);
        self.resident.sub(key);
        self.unused.push(node as u32);
    }

    /// Twice the places, but not more than `nr_max`.
    fn grow(&mut self) {
        let (old, new) = (self.keys.len(), (2 * self.keys.len()).min(self.nr_max));
        self.keys.resize(new, Key::EMPTY);
        self.is_writable.resize(new, false);
        self.slot_of.resize(new, 0);
        self.unused.extend(nodes(old, new));
        self.index = Index::new(new);
        for (node, &key) in self.keys.iter().enumerate().filter(|(_, key)| **key != Key::EMPTY) {
            self.index.insert(key, node);
        }
        let slot_of = &mut self.slot_of;
        self.slots = self.slots.grown(new, |node, slot| slot_of[node as usize] = slot);
    }

    /// Checks I1 to I4.
    ///
    /// # Errors
    /// The first broken one.
    pub fn validate(&self) -> Result<(), Violation> {
        let held: Vec<(usize, Key)> =
            (0..).zip(self.keys.iter().copied()).filter(|(_, key)| *key != Key::EMPTY).collect();
        let mut ranges: Vec<(u64, u64)> =
            held.iter().map(|(_, key)| (key.first_vpn(), key.last_vpn())).collect();
        ranges.sort_unstable();
        if ranges.windows(2).any(|pair| pair[0].1 >= pair[1].0) {
            return Err(Violation::I1);
        }
        let mut slots: Vec<usize> = held.iter().map(|&(node, _)| self.slot_of[node]).collect();
        slots.sort_unstable();
        slots.dedup();
        let is_placed = slots.iter().all(|&slot| self.slots.holds_entry(slot));
        if slots.len() != held.len() || !is_placed || !self.slots.is_valid() {
            return Err(Violation::I2);
        }
        let is_found = |&(node, key): &(usize, Key)| self.index.find(&self.keys, key) == Some(node);
        if !held.iter().all(is_found) || !self.resident.counts(held.iter().map(|&(_, key)| key)) {
            return Err(Violation::I3);
        }
        let nr_places = held.len() + self.unused.len();
        if self.slots.nr_taken() > self.nr_max || nr_places != self.keys.len() {
            return Err(Violation::I4);
        }
        Ok(())
    }
}

/// Node numbers, the lowest to be used first.
#[expect(clippy::cast_possible_truncation, reason = "nr_max is far below 2^32")]
fn nodes(first: usize, end: usize) -> Vec<u32> {
    (first..end).rev().map(|node| node as u32).collect()
}

/// A broken invariant of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Two entries overlap.
    #[error("I1: two entries cover the same page")]
    I1,
    /// Entries and slots disagree.
    #[error("I2: an entry is not where it says")]
    I2,
    /// The index or the sums are off.
    #[error("I3: the index or the sums miss an entry")]
    I3,
    /// Too many places.
    #[error("I4: more places are taken than the largest buffer has entries")]
    I4,
}
