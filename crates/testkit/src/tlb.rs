//! A naive TLB: a second implementation of the rules of `sim::tlb`, as lists searched from end to
//! end, least recently used first. It shares no code and no types with the TLB it checks.

/// `2^order` pages from `first`, which is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NaiveEntry {
    pub first: u64,
    pub order: u8,
    pub pfn: u64,
    pub is_writable: bool,
}

impl NaiveEntry {
    fn covers(&self, vpn: u64) -> bool {
        vpn >= self.first && vpn - self.first < 1 << self.order
    }

    fn overlaps(&self, first: u64, nr_pages: u64) -> bool {
        (0..nr_pages).any(|page| self.covers(first + page))
            || (self.first >= first && self.first - first < nr_pages)
    }
}

#[derive(Clone, Debug)]
pub struct NaiveStructure {
    sets: Vec<Vec<NaiveEntry>>,
    ways: usize,
    orders: Vec<u8>,
}

impl NaiveStructure {
    #[must_use]
    pub fn new(nr_sets: usize, ways: usize, orders: Vec<u8>) -> Self {
        Self { sets: vec![Vec::new(); nr_sets], ways, orders }
    }
}

/// Result of a lookup; the names match `sim::tlb::Lookup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NaiveLookup {
    L1,
    L2,
    Miss,
    Permission,
}

pub type NaiveLevel = Vec<NaiveStructure>;

/// A TLB of two sides, each with its own level 1.
#[derive(Clone, Debug)]
pub struct NaiveTlb {
    pub l1: [NaiveLevel; 2],
    pub l2: Vec<NaiveLevel>,
    pub l2_of: [Option<usize>; 2],
}

impl NaiveTlb {
    pub fn lookup(&mut self, side: usize, vpn: u64, wants_write: bool) -> NaiveLookup {
        if let Some(entry) = find(&self.l1[side], vpn) {
            if wants_write && !entry.is_writable {
                self.invalidate(vpn, 1);
                return NaiveLookup::Permission;
            }
            touch(&mut self.l1[side], vpn);
            return NaiveLookup::L1;
        }
        let Some(nr) = self.l2_of[side] else { return NaiveLookup::Miss };
        let Some(entry) = find(&self.l2[nr], vpn) else { return NaiveLookup::Miss };
        if wants_write && !entry.is_writable {
            self.invalidate(vpn, 1);
            return NaiveLookup::Permission;
        }
        touch(&mut self.l2[nr], vpn);
        add(&mut self.l1[side], vpn, entry);
        NaiveLookup::L2
    }

    pub fn fill(&mut self, side: usize, vpn: u64, entry: NaiveEntry, is_pmd: bool) {
        if let Some(nr) = self.l2_of[side] {
            let level = &mut self.l2[nr];
            let is_held = level.iter().any(|structure| structure.orders.contains(&entry.order));
            if is_held || !is_pmd {
                add(level, vpn, entry);
            }
        }
        add(&mut self.l1[side], vpn, entry);
    }

    pub fn invalidate(&mut self, first: u64, nr_pages: u64) {
        for level in self.l1.iter_mut().chain(&mut self.l2) {
            drop_overlapping(level, first, nr_pages);
        }
    }

    pub fn flush(&mut self) {
        for level in self.l1.iter_mut().chain(&mut self.l2) {
            for structure in level {
                structure.sets.iter_mut().for_each(Vec::clear);
            }
        }
    }

    #[must_use]
    pub fn peek(&self, side: usize, vpn: u64) -> Option<NaiveEntry> {
        find(&self.l1[side], vpn)
            .or_else(|| self.l2_of[side].and_then(|nr| find(&self.l2[nr], vpn)))
    }
}

fn find(level: &NaiveLevel, vpn: u64) -> Option<NaiveEntry> {
    let mut covering = level
        .iter()
        .flat_map(|structure| structure.sets.iter().flatten())
        .filter(|entry| entry.covers(vpn));
    let entry = covering.next().copied();
    assert!(covering.next().is_none(), "two entries cover page {vpn}");
    entry
}

fn touch(level: &mut NaiveLevel, vpn: u64) {
    for set in level.iter_mut().flat_map(|structure| &mut structure.sets) {
        if let Some(at) = set.iter().position(|entry| entry.covers(vpn)) {
            let entry = set.remove(at);
            set.push(entry);
        }
    }
}

fn drop_overlapping(level: &mut NaiveLevel, first: u64, nr_pages: u64) {
    for set in level.iter_mut().flat_map(|structure| &mut structure.sets) {
        set.retain(|entry| !entry.overlaps(first, nr_pages));
    }
}

fn add(level: &mut NaiveLevel, vpn: u64, entry: NaiveEntry) {
    let mut best: Option<(u8, usize)> = None;
    for (nr, structure) in level.iter().enumerate() {
        for &order in structure.orders.iter().filter(|&&order| order <= entry.order) {
            if best.is_none_or(|(largest, _)| order > largest) {
                best = Some((order, nr));
            }
        }
    }
    let Some((order, nr)) = best else { return };
    let size = 1 << order;
    let first = vpn / size * size;
    let piece = NaiveEntry { first, order, pfn: entry.pfn + (first - entry.first), ..entry };
    drop_overlapping(level, first, size);
    let structure = &mut level[nr];
    let nr_sets = structure.sets.len() as u64;
    #[expect(clippy::cast_possible_truncation, reason = "a remainder of a length")]
    let set = &mut structure.sets[(first / size % nr_sets) as usize];
    if set.len() == structure.ways {
        set.remove(0);
    }
    set.push(piece);
}
