//! The stack of one side of one thread.
//!
//! Its first places are a short list that is searched from end to end, which serves most references;
//! below them lie the slots.
//!
//! Invariants:
//! - I1: no two entries cover the same page.
//! - I2: an entry lies in the slot it names, and every slot with an entry is named by one.
//! - I3: the index and the sums find exactly the entries.
//! - I4: at most `nr_max` places are taken, free ones included; slots are taken only while the front
//!   is full.

use largefolio_mm::units::{PageSize, Vpn};

use super::slots::Slots;
use crate::tlb::access::Access;
use crate::tlb::coalesce::Translation;
use crate::tlb::entry::Key;
use crate::tlb::index::Index;
use crate::tlb::resident::Resident;

/// Places at first: most threads of most programs need few.
const NR_PLACES_MIN: usize = 64;

/// Places of the front: it serves four of five references of a compiler that are not to the entry
/// on top.
const NR_FRONT: usize = 8;
/// Slot of entries in the front.
const IN_FRONT: usize = usize::MAX;

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

/// The uppermost places.
#[derive(Clone, Debug)]
struct Front {
    /// The last used entry first; [`Key::EMPTY`] where a place is free.
    keys: [Key; NR_FRONT],
    /// By place: its node.
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

    /// The uppermost free place above `end`.
    fn free_above(&self, end: usize) -> Option<usize> {
        self.keys[..end].iter().position(|&key| key == Key::EMPTY)
    }

    /// Puts an entry on top; those above place `at` move down onto it.
    #[inline]
    fn put(&mut self, at: usize, key: Key, node: u32) {
        self.keys.copy_within(..at, 1);
        self.nodes.copy_within(..at, 1);
        (self.keys[0], self.nodes[0]) = (key, node);
    }
}

/// LRU buffers of 1 to `nr_max` entries at once.
#[derive(Clone, Debug)]
pub struct LruStack {
    /// By node; [`Key::EMPTY`] if there is none.
    keys: Vec<Key>,
    /// By node: whether stores may use it.
    is_writable: Vec<bool>,
    /// By node: its slot, or [`IN_FRONT`].
    slot_of: Vec<usize>,
    /// Nodes without an entry.
    unused: Vec<u32>,
    index: Index,
    resident: Resident,
    front: Front,
    slots: Slots,
    /// Places of the front and below.
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
            front: Front::EMPTY,
            slots: Slots::new(nr_places),
            nr_max,
        }
    }

    /// Whether the last used entry serves the reference: buffers of any size hit, nothing changes.
    #[inline]
    #[must_use]
    pub fn is_top(&self, vpn: Vpn, access: Access) -> bool {
        let key = self.front.keys[0];
        let is_writable = || self.is_writable[self.front.nodes[0] as usize];
        key == Key::covering(vpn.0, key.order()) && (access == Access::Read || is_writable())
    }

    /// Looks a reference up.
    pub fn lookup(&mut self, vpn: Vpn, access: Access, then: Then) -> Found {
        let (node, depth) = match self.front.find(vpn) {
            Some(at) => (self.front.nodes[at] as usize, at + 1),
            None => match self.find(vpn) {
                Some(node) => (node, self.front.len + self.slots.depth(self.slot_of[node])),
                None => return Found::Nothing,
            },
        };
        if access == Access::Write && !self.is_writable[node] {
            self.remove(node);
            return Found::ReadOnly { depth };
        }
        if then == Then::Use {
            self.use_again(node, depth);
        }
        Found::Entry { depth }
    }

    /// The entry of `node` goes on top: the place it leaves closes, or stays free instead of the
    /// uppermost free one above it.
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

    /// Puts what a walk found on top, in place of what it overlaps.
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

    /// A place for a new entry: the uppermost free one, or another, or that of the least recently
    /// used entry; where those above it move down to in the front.
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

    /// The last entry of the full front gets the next slot.
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
        let mut keys = self.resident.orders().map(|order| Key::covering(vpn.0, order));
        keys.find_map(|key| self.index.find(&self.keys, key))
    }

    /// The entry goes, its place stays free.
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

    /// The least recently used entry of the largest buffer goes.
    fn evict(&mut self) {
        if let Some(node) = self.slots.pop_lowest() {
            self.forget(node as usize);
        } else {
            // Buffers as small as the front.
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

    /// Whether each entry is in a place of its own, and the front holds no other.
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
