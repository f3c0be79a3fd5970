//! Assigns dictionary numbers to a column's values: the counterpart of [`super::unpack`].
//!
//! Owns the number of each value. A recording waits for this four times per row, so the common
//! cases (a small value, or a large one without a hash collision) cost one table lookup.
//!
//! Invariant D1: numbers are dense, in the order in which their values first appeared.

/// Smaller values have their own table: op, flags, thread, file and most counts.
const NR_SMALL: usize = 4096;
const NO_NUMBER: u32 = u32::MAX;

const NR_SLOTS_MIN: usize = 1 << 12;

/// Fibonacci hashing multiplier: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug)]
pub(super) struct Dictionary {
    values: Vec<u64>,
    small: Box<[u32]>,
    slots: Vec<u32>,
    nr_slots_used: usize,
}

impl Default for Dictionary {
    fn default() -> Self {
        let small = vec![NO_NUMBER; NR_SMALL].into_boxed_slice();
        let slots = vec![NO_NUMBER; NR_SLOTS_MIN];
        Self { values: Vec::new(), small, slots, nr_slots_used: 0 }
    }
}

impl Dictionary {
    pub(super) fn clear(&mut self) {
        for &value in &self.values {
            if let Some(number) = self.small.get_mut(index(value)) {
                *number = NO_NUMBER;
            }
        }
        self.values.clear();
        self.slots.clear();
        self.slots.resize(NR_SLOTS_MIN, NO_NUMBER);
        self.nr_slots_used = 0;
    }

    pub(super) fn values(&self) -> &[u64] {
        &self.values
    }

    #[inline]
    pub(super) fn number(
        &mut self,
        values: impl ExactSizeIterator<Item = u64>,
        numbers: &mut Vec<u32>,
    ) {
        numbers.extend(values.map(|value| self.number_of(value)));
    }

    #[inline]
    pub(super) fn number_of(&mut self, value: u64) -> u32 {
        match self.small.get(index(value)) {
            Some(&number) if number != NO_NUMBER => number,
            Some(_) => self.add_small(value),
            None => self.number_of_large(value),
        }
    }

    #[cold]
    fn add_small(&mut self, value: u64) -> u32 {
        let number = self.add(value);
        self.small[index(value)] = number;
        number
    }

    #[inline]
    fn number_of_large(&mut self, value: u64) -> u32 {
        let mask = self.slots.len() - 1;
        let mut slot = hash(value, mask);
        loop {
            let number = self.slots[slot];
            if number == NO_NUMBER {
                break;
            }
            if self.values[number as usize] == value {
                return number;
            }
            slot = (slot + 1) & mask;
        }
        self.add_large(value, slot)
    }

    #[cold]
    fn add_large(&mut self, value: u64, slot: usize) -> u32 {
        let number = self.add(value);
        self.slots[slot] = number;
        self.nr_slots_used += 1;
        if 2 * self.nr_slots_used > self.slots.len() {
            self.grow();
        }
        number
    }

    fn add(&mut self, value: u64) -> u32 {
        // A chunk has fewer rows than 2^32.
        let number = u32::try_from(self.values.len()).unwrap_or(NO_NUMBER - 1);
        self.values.push(value);
        number
    }

    fn grow(&mut self) {
        let nr_slots = 2 * self.slots.len();
        self.slots.clear();
        self.slots.resize(nr_slots, NO_NUMBER);
        let mask = nr_slots - 1;
        for (number, &value) in (0_u32..).zip(&self.values) {
            if index(value) < NR_SMALL {
                continue;
            }
            let mut slot = hash(value, mask);
            while self.slots[slot] != NO_NUMBER {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = number;
        }
    }
}

#[inline]
fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[inline]
fn hash(value: u64, mask: usize) -> usize {
    (value.wrapping_mul(SPREAD) >> 32) as usize & mask
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_those_of_a_map(pages in pages()) {
            let mut dictionary = Dictionary::default();
            for _ in 0..2 {
                dictionary.clear();
                let mut known = BTreeMap::new();
                for page in &pages {
                    let expected: Vec<u32> = page.iter().map(|&value| {
                        let number = u32::try_from(known.len()).unwrap();
                        *known.entry(value).or_insert(number)
                    }).collect();
                    let mut numbers = Vec::new();
                    dictionary.number(page.iter().copied(), &mut numbers);
                    prop_assert_eq!(numbers, expected);
                    let mut values: Vec<_> = known.iter().map(|(&value, &nr)| (nr, value)).collect();
                    values.sort_unstable();
                    let values: Vec<u64> = values.into_iter().map(|(_, value)| value).collect();
                    prop_assert_eq!(dictionary.values(), values);
                }
            }
        }
    }

    fn pages() -> impl Strategy<Value = Vec<Vec<u64>>> {
        let value = prop_oneof![0..5_u64, 4000..4200_u64, any::<u64>(), Just(u64::MAX)];
        prop::collection::vec(prop::collection::vec(value, 0..5000), 0..4)
    }
}
