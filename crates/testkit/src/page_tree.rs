//! A naive model of the page cache's tree: a sorted map, searched from end to end.

use std::collections::BTreeMap;

/// A folio: first index, order, and a unique number.
pub type NaiveEntry = (u64, u8, u32);

#[derive(Clone, Debug, Default)]
pub struct NaivePageTree {
    folios: BTreeMap<u64, (u8, u32)>,
}

impl NaivePageTree {
    #[must_use]
    pub fn get(&self, index: u64) -> Option<NaiveEntry> {
        self.iter().find(|&(first, order, _)| first <= index && index - first < 1 << order)
    }

    #[must_use]
    pub fn first_in(&self, first: u64, last: u64) -> Option<NaiveEntry> {
        self.iter().find(|&(start, order, _)| start <= last && start + ((1 << order) - 1) >= first)
    }

    pub fn iter(&self) -> impl Iterator<Item = NaiveEntry> + '_ {
        self.folios.iter().map(|(&first, &(order, nr))| (first, order, nr))
    }

    /// Stores a folio; `false` if one of its pages is cached.
    pub fn insert(&mut self, (first, order, nr): NaiveEntry) -> bool {
        let is_free = self.first_in(first, first + ((1 << order) - 1)).is_none();
        if is_free {
            self.folios.insert(first, (order, nr));
        }
        is_free
    }

    pub fn remove(&mut self, index: u64) -> Option<NaiveEntry> {
        let entry = self.get(index)?;
        self.folios.remove(&entry.0);
        Some(entry)
    }

    /// The first absent index at or after `start`, at most `start + nr_pages`.
    #[must_use]
    pub fn hole_from(&self, start: u64, nr_pages: u64) -> u64 {
        (start..start + nr_pages)
            .find(|&index| self.get(index).is_none())
            .unwrap_or(start + nr_pages)
    }

    /// The first absent index at or before `start`, at least `start - nr_pages`; wraps below 0.
    #[must_use]
    pub fn hole_before(&self, start: u64, nr_pages: u64) -> u64 {
        (0..nr_pages)
            .map(|by| start.wrapping_sub(by))
            .find(|&index| self.get(index).is_none())
            .unwrap_or(start.wrapping_sub(nr_pages))
    }

    #[must_use]
    pub fn nr_pages(&self) -> u64 {
        self.iter().map(|(_, order, _)| 1 << order).sum()
    }
}
