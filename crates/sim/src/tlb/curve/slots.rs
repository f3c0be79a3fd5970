//! The places in a stack, in time order. An entry that is used takes the next slot. Its depth is
//! the number of taken slots, counted from its own.
//!
//! ```text
//!   slot      0 1 2 3 4 5 6 7 8 9          taken  an entry or a place left free
//!   taken     x . x x . x x . x .          depth of slot 3: taken slots from 3 on = 4
//!   free            x                      next = 9; when it reaches the end, all move down
//! ```
//!
//! Invariants:
//! - I1: `nr_taken` bits of `taken` are set, and `nr_in_word` counts them by word.
//! - I2: every free place is taken: `free` is a subset of `taken`; `top_free` is the highest.
//! - I3: no slot from `next` on is taken.

const WORD_BITS: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct Slots {
    taken: Vec<u64>,
    free: Vec<u64>,
    nr_in_word: Vec<u8>,
    /// By slot: its node; stale if the slot is not taken or its place is free.
    nodes: Vec<u32>,
    next: usize,
    nr_taken: usize,
    top_free: Option<usize>,
}

impl Slots {
    /// Creates twice as many slots as places, so entries rarely have to move.
    pub(super) fn new(nr_places: usize) -> Self {
        let nr_slots = (2 * nr_places).next_multiple_of(WORD_BITS);
        let nr_words = nr_slots / WORD_BITS;
        Self {
            taken: vec![0; nr_words],
            free: vec![0; nr_words],
            nr_in_word: vec![0; nr_words],
            nodes: vec![0; nr_slots],
            next: 0,
            nr_taken: 0,
            top_free: None,
        }
    }

    pub(super) const fn nr_taken(&self) -> usize {
        self.nr_taken
    }

    pub(super) fn is_full(&self) -> bool {
        self.next == self.nodes.len()
    }

    pub(super) const fn has_free(&self) -> bool {
        self.top_free.is_some()
    }

    #[inline]
    pub(super) fn depth(&self, slot: usize) -> usize {
        let (word, bit) = (slot / WORD_BITS, slot % WORD_BITS);
        let last = self.next.saturating_sub(1) / WORD_BITS;
        let later = self.nr_in_word.get(word + 1..=last).unwrap_or_default();
        let sum: u32 = later.iter().map(|&nr| u32::from(nr)).sum();
        sum as usize + (self.taken[word] >> bit).count_ones() as usize
    }

    pub(super) fn push(&mut self, node: u32) -> usize {
        let slot = self.next;
        self.next += 1;
        self.nodes[slot] = node;
        self.take(slot);
        slot
    }

    /// Takes out the entry of `slot`, which goes to the top. Closes its place, or leaves it free
    /// and closes the uppermost free place above it.
    pub(super) fn leave(&mut self, slot: usize) {
        match self.top_free {
            Some(free) if free > slot => {
                self.leave_free(slot);
                self.close(free);
            }
            _ => self.give(slot),
        }
    }

    pub(super) fn leave_free(&mut self, slot: usize) {
        self.free[slot / WORD_BITS] |= 1 << (slot % WORD_BITS);
        self.top_free = self.top_free.max(Some(slot));
    }

    pub(super) fn close_free(&mut self) {
        if let Some(slot) = self.top_free {
            self.close(slot);
        }
    }

    /// Removes the lowest place and returns its node. No place may be free.
    pub(super) fn pop_lowest(&mut self) -> Option<u32> {
        let word = self.taken.iter().position(|&word| word != 0)?;
        let slot = word * WORD_BITS + self.taken[word].trailing_zeros() as usize;
        self.give(slot);
        Some(self.nodes[slot])
    }

    /// Moves all places down. Calls `moved` with the new slot of each node.
    pub(super) fn compact(&mut self, mut moved: impl FnMut(u32, usize)) {
        let (taken, free) = (self.taken.clone(), self.free.clone());
        let end = self.next;
        self.clear();
        for slot in (0..end).filter(|&slot| is_set(&taken, slot)) {
            let node = self.nodes[slot];
            let to = self.push(node);
            if is_set(&free, slot) {
                self.leave_free(to);
            } else {
                moved(node, to);
            }
        }
    }

    pub(super) fn grown(&self, nr_places: usize, mut moved: impl FnMut(u32, usize)) -> Self {
        let mut grown = Self::new(nr_places);
        for slot in (0..self.next).filter(|&slot| is_set(&self.taken, slot)) {
            let to = grown.push(self.nodes[slot]);
            if is_set(&self.free, slot) {
                grown.leave_free(to);
            } else {
                moved(self.nodes[slot], to);
            }
        }
        grown
    }

    pub(super) fn holds_entry(&self, slot: usize) -> bool {
        is_set(&self.taken, slot) && !is_set(&self.free, slot)
    }

    pub(super) fn is_valid(&self) -> bool {
        let words = || self.taken.iter().zip(&self.free).zip(&self.nr_in_word);
        let nr: u32 = self.taken.iter().map(|word| word.count_ones()).sum();
        let top_free = (0..self.nodes.len()).rev().find(|&slot| is_set(&self.free, slot));
        nr as usize == self.nr_taken
            && words().all(|((taken, _), &nr)| taken.count_ones() == u32::from(nr))
            && words().all(|((taken, free), _)| free & !taken == 0)
            && top_free == self.top_free
            && (self.next..self.nodes.len()).all(|slot| !is_set(&self.taken, slot))
    }

    fn clear(&mut self) {
        self.taken.fill(0);
        self.free.fill(0);
        self.nr_in_word.fill(0);
        (self.next, self.nr_taken, self.top_free) = (0, 0, None);
    }

    fn take(&mut self, slot: usize) {
        self.taken[slot / WORD_BITS] |= 1 << (slot % WORD_BITS);
        self.nr_in_word[slot / WORD_BITS] += 1;
        self.nr_taken += 1;
    }

    fn give(&mut self, slot: usize) {
        self.taken[slot / WORD_BITS] &= !(1 << (slot % WORD_BITS));
        self.nr_in_word[slot / WORD_BITS] -= 1;
        self.nr_taken -= 1;
    }

    fn close(&mut self, slot: usize) {
        self.give(slot);
        self.free[slot / WORD_BITS] &= !(1 << (slot % WORD_BITS));
        let mut words = (0..=slot / WORD_BITS).rev();
        let below = words.find(|&word| self.free[word] != 0);
        self.top_free = below.map(|word| {
            word * WORD_BITS + WORD_BITS - 1 - self.free[word].leading_zeros() as usize
        });
    }
}

fn is_set(words: &[u64], slot: usize) -> bool {
    words[slot / WORD_BITS] >> (slot % WORD_BITS) & 1 == 1
}
