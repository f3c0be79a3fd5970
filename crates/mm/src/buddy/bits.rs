//! One bit per page frame.

use crate::units::Order;

const WORD_BITS: u64 = u64::BITS as u64;

#[derive(Clone, Debug)]
pub(super) struct PageBits {
    words: Vec<u64>,
}

impl PageBits {
    pub(super) fn new(nr_pages: u64) -> Self {
        Self { words: vec![0; nr_pages.div_ceil(WORD_BITS) as usize] }
    }

    pub(super) fn get(&self, pfn: u64) -> bool {
        self.words[(pfn / WORD_BITS) as usize] >> (pfn % WORD_BITS) & 1 == 1
    }

    pub(super) fn set(&mut self, pfn: u64, order: Order) {
        let first = (pfn / WORD_BITS) as usize;
        match mask_of(pfn, order) {
            Some(mask) => self.words[first] |= mask,
            None => self.words[first..][..nr_words(order)].fill(u64::MAX),
        }
    }

    pub(super) fn clear(&mut self, pfn: u64, order: Order) {
        let first = (pfn / WORD_BITS) as usize;
        match mask_of(pfn, order) {
            Some(mask) => self.words[first] &= !mask,
            None => self.words[first..][..nr_words(order)].fill(0),
        }
    }

    pub(super) fn is_all_set(&self, pfn: u64, order: Order) -> bool {
        let first = (pfn / WORD_BITS) as usize;
        match mask_of(pfn, order) {
            Some(mask) => self.words[first] & mask == mask,
            None => self.words[first..][..nr_words(order)].iter().all(|&word| word == u64::MAX),
        }
    }

    pub(super) fn count(&self, pfn: u64, order: Order) -> u64 {
        let first = (pfn / WORD_BITS) as usize;
        let count = |word: u64| u64::from(word.count_ones());
        match mask_of(pfn, order) {
            Some(mask) => count(self.words[first] & mask),
            None => self.words[first..][..nr_words(order)].iter().copied().map(count).sum(),
        }
    }
}

const fn mask_of(pfn: u64, order: Order) -> Option<u64> {
    let nr = order.nr_pages();
    if nr >= WORD_BITS { None } else { Some(((1 << nr) - 1) << (pfn % WORD_BITS)) }
}

const fn nr_words(order: Order) -> usize {
    (order.nr_pages() / WORD_BITS) as usize
}
