//! A naive LRU buffer: a list searched from end to end. A curve of misses over sizes is checked
//! against one list for each size.

/// One entry: `2^order` pages from `first`, which is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NaiveLruEntry {
    /// First page.
    pub first: u64,
    /// log2 of the number of pages.
    pub order: u8,
    /// Whether a store may use it.
    pub is_writable: bool,
}

impl NaiveLruEntry {
    fn overlaps(&self, first: u64, nr_pages: u64) -> bool {
        let (end, own_end) = (first.saturating_add(nr_pages), self.first + (1 << self.order));
        nr_pages > 0 && self.first < end && first < own_end
    }
}

/// What a reference found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NaiveFound {
    /// An entry, which is the last used one now.
    Hit(NaiveLruEntry),
    /// A read-only entry, which is gone.
    ReadOnly,
    /// Nothing.
    Miss,
}

/// A buffer of `nr_max` entries, the last used one first.
#[derive(Clone, Debug)]
pub struct NaiveLru {
    nr_max: usize,
    entries: Vec<NaiveLruEntry>,
    /// References that found nothing.
    pub nr_misses: u64,
}

impl NaiveLru {
    /// An empty one.
    #[must_use]
    pub const fn new(nr_max: usize) -> Self {
        Self { nr_max, entries: Vec::new(), nr_misses: 0 }
    }

    /// Looks up a page.
    pub fn refer(&mut self, vpn: u64, is_write: bool) -> NaiveFound {
        let Some(nr) = self.entries.iter().position(|entry| entry.overlaps(vpn, 1)) else {
            self.nr_misses += 1;
            return NaiveFound::Miss;
        };
        let entry = self.entries.remove(nr);
        if is_write && !entry.is_writable {
            return NaiveFound::ReadOnly;
        }
        self.entries.insert(0, entry);
        NaiveFound::Hit(entry)
    }

    /// Adds an entry in place of what it overlaps; the least recently used one may have to go.
    pub fn fill(&mut self, entry: NaiveLruEntry) {
        self.invalidate(entry.first, 1 << entry.order);
        self.entries.insert(0, entry);
        self.entries.truncate(self.nr_max);
    }

    /// Removes what covers one of `nr_pages` pages from `first`.
    pub fn invalidate(&mut self, first: u64, nr_pages: u64) {
        self.entries.retain(|entry| !entry.overlaps(first, nr_pages));
    }
}
