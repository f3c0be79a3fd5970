//! Exact hash index from a key to its entry's slot: one probe per resident order, for any number of
//! ways. Chains run through `next`; the table of heads has at least twice as many elements as the
//! level has slots.

use super::entry::Key;

const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Index {
    /// First slot of each chain. Its length is a power of two.
    heads: Box<[u32]>,
    next: Box<[u32]>,
    /// `64 - log2(heads.len())`.
    shift: u32,
}

impl Index {
    pub(super) fn new(nr_slots: usize) -> Self {
        let nr_heads = (nr_slots * 2).next_power_of_two().max(2);
        Self {
            heads: vec![NONE; nr_heads].into(),
            next: vec![NONE; nr_slots].into(),
            shift: 64 - nr_heads.trailing_zeros(),
        }
    }

    #[inline]
    pub(super) fn find(&self, keys: &[Key], key: Key) -> Option<usize> {
        let mut slot = self.heads[self.head_of(key)];
        while slot != NONE {
            if keys[slot as usize] == key {
                return Some(slot as usize);
            }
            slot = self.next[slot as usize];
        }
        None
    }

    pub(super) fn insert(&mut self, key: Key, slot: usize) {
        let head = self.head_of(key);
        self.next[slot] = self.heads[head];
        self.heads[head] = link(slot);
    }

    pub(super) fn remove(&mut self, key: Key, slot: usize) {
        let head = self.head_of(key);
        let after = std::mem::replace(&mut self.next[slot], NONE);
        let slot = link(slot);
        let mut at = self.heads[head];
        if at == slot {
            self.heads[head] = after;
            return;
        }
        while at != NONE {
            let following = self.next[at as usize];
            if following == slot {
                self.next[at as usize] = after;
                return;
            }
            at = following;
        }
        unreachable!("I3: a resident entry is in its chain");
    }

    pub(super) fn clear(&mut self) {
        self.heads.fill(NONE);
        self.next.fill(NONE);
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most log2(heads.len()) bits are left")]
    fn head_of(&self, key: Key) -> usize {
        (key.scattered() >> self.shift) as usize
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a level has at most 8 x 65,536 slots")]
const fn link(slot: usize) -> u32 {
    slot as u32
}
