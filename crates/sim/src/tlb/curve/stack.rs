//! The LRU stack for one side of one thread: a short list with a linear search, then the slots
//! below.
//!
//! Invariants:
//! - I1: no two entries cover the same page.
//! - I2: an entry is in the slot it names, and every slot with an entry is named by exactly one.
//! - I3: the index and the sums find exactly the entries.
//! - I4: at most `nr_max` places are taken, free ones included. Slots are taken only while the
//!   front is full.

use largefolio_mm::units::{PageSize, Vpn};

use super::slots::Slots;
use crate::tlb::access::Access;
use crate::tlb::coalesce::Translation;
use crate::tlb::entry::Key;
use crate::tlb::index::Index;
use crate::tlb::resident::Resident;

const NR_PLACES_MIN: usize = 64;

/// Places of the front. Of a compiler's references that miss the top entry, it serves four of five.
const NR_FRONT: usize = 8;
const IN_FRONT: usize = usize::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a reference is counted, and filled where it found nothing it may use"]
pub enum StackHit {
    /// Buffers with at least `depth` entries had it.
    Entry { depth: usize },
    /// The entry was read-only, but the access is a write: it is removed. Fill.
    ReadOnly { depth: usize },
    /// No buffer had it. Fill.
    Nothing,
}

impl StackHit {
    #[must_use]
    pub const fn needs_walk(self) -> bool {
        !matches!(self, Self::Entry { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The entry is used unchanged and moves to the top.
    Use,
    /// The machine walks: [`LruStack::fill`] puts the result on top, which may cover more pages.
    Fill,
}

#[derive(Clone, Debug)]
struct Front {
    /// Most recently used first; [`Key::EMPTY`] for a free place.
    keys: [Key; NR_FRONT],
    nodes: [u32; NR_FRONT],
    len: usize,
}

impl Front {
    const EMPTY: Self = Self { keys: [Key::EMPTY; NR_FRONT], nodes: [0; NR_FRONT], len: 0 };

    #[inline]
    fn find(&self, vpn: Vpn) -> Option<usize> {
        let covers = |key: &Key| *key == Key::covering(vpn.0, key.order());
        self.keys[..self.len].iter().position(covers)
    }

    fn free_above(&self, end: usize) -> Option<usize> {
        self.keys[..end].iter().position(|&key| key == Key::EMPTY)
    }

    #[inline]
    fn put(&mut self, at: usize, key: Key, node: u32) {
        self.keys.copy_within(..at, 1);
        self.nodes.copy_within(..at, 1);
        (self.keys[0], self.nodes[0]) = (key, node);
    }
}

#[derive(Clone, Debug)]
pub struct LruStack {
    keys: Vec<Key>,
    is_writable: Vec<bool>,
    slot_of: Vec<usize>,
    unused: Vec<u32>,
    index: Index,
    resident: Resident,
    front: Front,
    slots: Slots,
    nr_max: usize,
}

impl LruStack {
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
            front: Front::EMPTY,
            slots: Slots::new(nr_places),
            nr_max,
        }
    }

    /// Returns whether the last used entry serves the reference. Buffers of any size then hit.
    #[inline]
    #[must_use]
    pub fn is_top(&self, vpn: Vpn, access: Access) -> bool {
        let key = self.front.keys[0];
        let is_writable = || self.is_writable[self.front.nodes[0] as usize];
        key == Key::covering(vpn.0, key.order()) && (access == Access::Read || is_writable())
    }

    pub fn lookup(&mut self, vpn: Vpn, access: Access, then: Then) -> StackHit {
        let (node, depth) = match self.front.find(vpn) {
            Some(at) => (self.front.nodes[at] as usize, at + 1),
            None => match self.find(vpn) {
                Some(node) => (node, self.front.len + self.slots.depth(self.slot_of[node])),
                None => return StackHit::Nothing,
            },
        };
        if access == Access::Write && !self.is_writable[node] {
            self.remove(node);
            return StackHit::ReadOnly { depth };
        }
        if then == Then::Use {
            self.use_again(node, depth);
        }
        StackHit::Entry { depth }
    }

    /// Moves the entry of `node` to the top. Closes its place, or leaves it free and closes the
    /// uppermost free place above it.
    #[expect(clippy::cast_possible_truncation, reason = "a node is below nr_max, which fits")]
    fn use_again(&mut self, node: usize, depth: usize) {
        let key = self.keys[node];
        let free = self.front.free_above(self.front.len.min(depth - 1));
        match self.slot_of[node] {
            IN_FRONT => {
                self.front.put(free.unwrap_or(depth - 1), key, node as u32);
                if free.is_some() {
                    self.front.keys[depth - 1] = Key::EMPTY;
                }
            }
            slot => {
                self.slot_of[node] = IN_FRONT;
                if let Some(free) = free {
                    self.slots.leave_free(slot);
                    self.front.put(free, key, node as u32);
                } else {
                    self.slots.leave(slot);
                    self.push_down();
                    self.front.put(NR_FRONT - 1, key, node as u32);
                }
            }
        }
    }

    pub fn fill(&mut self, walked: &Translation) {
        let key = Key::covering(walked.first_vpn.0, walked.order.get());
        let is_top = key == self.front.keys[0];
        if is_top && walked.is_writable == self.is_writable[self.front.nodes[0] as usize] {
            return;
        }
        self.invalidate(walked.first_vpn, walked.order.nr_pages());
        let at = self.make_place();
        let Some(node) = self.unused.pop() else { unreachable!("I4: a place is left") };
        let nr = node as usize;
        self.keys[nr] = key;
        self.is_writable[nr] = walked.is_writable;
        self.slot_of[nr] = IN_FRONT;
        self.front.put(at, key, node);
        self.index.insert(key, nr);
        self.resident.add(key);
    }

    /// Makes room for a new entry and returns the place in the front that the entries above move
    /// down to. Uses the uppermost free place, then an unused one, then the least recently used
    /// entry's.
    fn make_place(&mut self) -> usize {
        if let Some(free) = self.front.free_above(self.front.len) {
            return free;
        }
        if self.slots.has_free() {
            self.slots.close_free();
        } else if self.nr_taken() == self.nr_max {
            self.evict();
        } else if self.nr_taken() == self.keys.len() {
            self.grow();
        }
        if self.front.len < NR_FRONT {
            self.front.len += 1;
        } else {
            self.push_down();
        }
        self.front.len - 1
    }

    fn push_down(&mut self) {
        if self.slots.is_full() {
            let slot_of = &mut self.slot_of;
            self.slots.compact(|node, slot| slot_of[node as usize] = slot);
        }
        let node = self.front.nodes[NR_FRONT - 1];
        self.slot_of[node as usize] = self.slots.push(node);
    }

    const fn nr_taken(&self) -> usize {
        self.front.len + self.slots.nr_taken()
    }

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
        let mut keys = self.resident.orders().map(|order| Key::covering(vpn.0, order));
        keys.find_map(|key| self.index.find(&self.keys, key))
    }

    fn remove(&mut self, node: usize) {
        match self.slot_of[node] {
            IN_FRONT => {
                let nr_front = self.front.len;
                let mut keys = self.front.keys[..nr_front].iter_mut();
                if let Some(key) = keys.find(|key| **key == self.keys[node]) {
                    *key = Key::EMPTY;
                }
            }
            slot => self.slots.leave_free(slot),
        }
        self.forget(node);
    }

    fn evict(&mut self) {
        if let Some(node) = self.slots.pop_lowest() {
            self.forget(node as usize);
        } else {
            self.front.len -= 1;
            self.forget(self.front.nodes[self.front.len] as usize);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a node is below nr_max, which fits")]
    fn forget(&mut self, node: usize) {
        let key = std::mem::replace(&mut self.keys[node], Key::EMPTY);
        self.index.remove(key, node);
        self.resident.sub(key);
        self.unused.push(node as u32);
    }

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
    /// The first broken invariant.
    pub fn validate(&self) -> Result<(), Violation> {
        let held: Vec<(usize, Key)> =
            (0..).zip(self.keys.iter().copied()).filter(|(_, key)| *key != Key::EMPTY).collect();
        let mut ranges: Vec<(u64, u64)> =
            held.iter().map(|(_, key)| (key.first_vpn(), key.last_vpn())).collect();
        ranges.sort_unstable();
        if ranges.windows(2).any(|pair| pair[0].1 >= pair[1].0) {
            return Err(Violation::I1);
        }
        if !self.is_placed(&held) || !self.slots.is_valid() {
            return Err(Violation::I2);
        }
        let is_found = |&(node, key): &(usize, Key)| self.index.find(&self.keys, key) == Some(node);
        if !held.iter().all(is_found) || !self.resident.counts(held.iter().map(|&(_, key)| key)) {
            return Err(Violation::I3);
        }
        let nr_places = held.len() + self.unused.len();
        let is_in_order = self.front.len == NR_FRONT || self.slots.nr_taken() == 0;
        if self.nr_taken() > self.nr_max || nr_places != self.keys.len() || !is_in_order {
            return Err(Violation::I4);
        }
        Ok(())
    }

    fn is_placed(&self, held: &[(usize, Key)]) -> bool {
        let (front, below): (Vec<_>, Vec<_>) =
            held.iter().partition(|&&(node, _)| self.slot_of[node] == IN_FRONT);
        let mut slots: Vec<usize> = below.iter().map(|&(node, _)| self.slot_of[node]).collect();
        slots.sort_unstable();
        slots.dedup();
        let places = self.front.keys.iter().zip(&self.front.nodes).take(self.front.len);
        let mut in_front: Vec<(usize, Key)> = places
            .filter(|(key, _)| **key != Key::EMPTY)
            .map(|(&key, &node)| (node as usize, key))
            .collect();
        in_front.sort_unstable_by_key(|&(node, _)| node);
        slots.len() == below.len()
            && slots.iter().all(|&slot| self.slots.holds_entry(slot))
            && in_front == front
    }
}

#[expect(clippy::cast_possible_truncation, reason = "nr_max is far below 2^32")]
fn nodes(first: usize, end: usize) -> Vec<u32> {
    (first..end).rev().map(|node| node as u32).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("I1: two entries cover the same page")]
    I1,
    #[error("I2: an entry is not at the position that it records")]
    I2,
    #[error("I3: an entry is missing from the index or the sums")]
    I3,
    #[error("I4: more places are taken than the largest buffer has entries")]
    I4,
}
