//! A naive LRU buffer: a list searched from end to end.

/// `2^order` pages from `first`, which is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NaiveLruEntry {
    pub first: u64,
    pub order: u8,
    pub is_writable: bool,
}

impl NaiveLruEntry {
    fn overlaps(&self, first: u64, nr_pages: u64) -> bool {
        let (end, own_end) = (first.saturating_add(nr_pages), self.first + (1 << self.order));
        nr_pages > 0 && self.first < end && first < own_end
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NaiveHit {
    Hit(NaiveLruEntry),
    ReadOnly,
    Miss,
}

/// A buffer of `nr_max` entries, most recently used first.
#[derive(Clone, Debug)]
pub struct NaiveLru {
    nr_max: usize,
    entries: Vec<NaiveLruEntry>,
    pub nr_misses: u64,
}

impl NaiveLru {
    #[must_use]
    pub const fn new(nr_max: usize) -> Self {
        Self { nr_max, entries: Vec::new(), nr_misses: 0 }
    }

    pub fn refer(&mut self, vpn: u64, is_write: bool) -> NaiveHit {
        let Some(nr) = self.entries.iter().position(|entry| entry.overlaps(vpn, 1)) else {
            self.nr_misses += 1;
            return NaiveHit::Miss;
        };
        let entry = self.entries.remove(nr);
        if is_write && !entry.is_writable {
            return NaiveHit::ReadOnly;
        }
        self.entries.insert(0, entry);
        NaiveHit::Hit(entry)
    }

    /// Adds an entry, replacing the ones it overlaps; may evict the least recently used.
    pub fn fill(&mut self, entry: NaiveLruEntry) {
        self.invalidate(entry.first, 1 << entry.order);
        self.entries.insert(0, entry);
        self.entries.truncate(self.nr_max);
    }

    pub fn invalidate(&mut self, first: u64, nr_pages: u64) {
        self.entries.retain(|entry| !entry.overlaps(first, nr_pages));
    }
}
