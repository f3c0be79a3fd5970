//! Naive page-walk caches: a second implementation of the rules of `sim::tlb::walk_cache`. An entry
//! is the range of pages it covers; a walk starts at the top and checks every entry.

/// Entries of the level whose table covers `2^shift` pages.
#[derive(Clone, Debug)]
pub struct NaiveWalkCache {
    shift: u32,
    /// First pages, least recently used of a set first.
    sets: Vec<Vec<u64>>,
    ways: usize,
}

impl NaiveWalkCache {
    #[must_use]
    pub fn new(shift: u32, nr_sets: usize, ways: usize) -> Self {
        Self { shift, sets: vec![Vec::new(); nr_sets], ways }
    }

    fn find(&self, vpn: u64) -> Option<(usize, usize)> {
        let covers = |first: &u64| *first <= vpn && vpn - *first < 1 << self.shift;
        (0..).zip(&self.sets).find_map(|(set, firsts)| Some((set, firsts.iter().position(covers)?)))
    }

    fn use_again(&mut self, (set, at): (usize, usize)) {
        let first = self.sets[set].remove(at);
        self.sets[set].push(first);
    }

    fn add(&mut self, vpn: u64) {
        let size = 1_u64 << self.shift;
        let nr_sets = self.sets.len() as u64;
        #[expect(clippy::cast_possible_truncation, reason = "a remainder of a length")]
        let set = &mut self.sets[(vpn / size % nr_sets) as usize];
        if set.len() == self.ways {
            set.remove(0);
        }
        set.push(vpn / size * size);
    }
}

#[derive(Clone, Debug)]
pub struct NaiveWalker {
    pub table_bits: u32,
    pub nr_levels: u32,
    pub caches: Vec<NaiveWalkCache>,
}

impl NaiveWalker {
    /// Reads per level of a walk: `[PTE, PMD, above it, top]`.
    pub fn walk(&mut self, vpn: u64, is_pmd: bool) -> [u64; 4] {
        let leaf = u32::from(is_pmd);
        let mut known = None;
        for level in (leaf + 1)..self.nr_levels {
            let shift = level * self.table_bits;
            let cache = self.caches.iter_mut().find(|cache| cache.shift == shift);
            if let Some(cache) = cache
                && let Some(at) = cache.find(vpn)
            {
                cache.use_again(at);
                known = Some(level);
                break;
            }
        }
        let mut reads = [0; 4];
        for level in (leaf..self.nr_levels).rev() {
            if known.is_some_and(|known| level >= known) {
                continue;
            }
            reads[level as usize] = 1;
            let shift = level * self.table_bits;
            if level > leaf
                && let Some(cache) = self.caches.iter_mut().find(|cache| cache.shift == shift)
            {
                cache.add(vpn);
            }
        }
        reads
    }

    pub fn invalidate(&mut self, first: u64, nr_pages: u64) {
        let end = first.saturating_add(nr_pages);
        for cache in &mut self.caches {
            let size = 1_u64 << cache.shift;
            for set in &mut cache.sets {
                set.retain(|&own| first == end || own >= end || first >= own + size);
            }
        }
    }

    pub fn flush(&mut self) {
        self.caches.iter_mut().for_each(|cache| cache.sets.iter_mut().for_each(Vec::clear));
    }
}
