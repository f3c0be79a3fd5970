//! Page-walk caches: which entries of the page table a walk has to read.
//!
//! ```text
//!  vpn    │ pgd index │ pud index │ pmd index │ pte index │      48-bit addresses, 4K pages
//!              │           │           │           │
//!   caches   PML4E       PDPTE        PDE          -            an entry of a level covers what
//!              │           │           │                        its table covers
//!   a walk starts below the deepest cached entry and reads the rest, the leaf included
//! ```
//!
//! Rules (assumptions that Intel SDM volume 3, 253668, 4.10.3 allows; docs/behaviour C has none):
//! - A cache holds entries of one level that point to a table, never a leaf.
//! - A walk checks the caches from the leaf upwards and stops at the first hit. It reads every
//!   entry below, and inserts each that points to a table into its level's cache. Both sides share
//!   the caches.
//! - Replacement is LRU within a set, `set = (vpn >> bits below) mod nr_sets`.
//! - A flush of pages removes every entry that covers one of them.

use largefolio_mm::units::{PageSize, Vpn};
use serde::{Deserialize, Serialize};

use super::coalesce::LeafKind;
use super::ways::Ways;

/// User addresses have 48 bits. Linux uses larger ones only if a program asks for them.
const ADDRESS_BITS: u32 = 48;
const ENTRY_SHIFT: u32 = 3;

/// Maximum entries of one cache, because sets are searched linearly.
pub const MAX_WALK_ENTRIES: u32 = 1 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TlbLevel {
    Pmd,
    Pud,
    /// The top of a four-level page table.
    Pgd,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkCacheConfig {
    pub name: String,
    /// With three levels (64K pages) the top is the `pud`, and a `pgd` cache is idle.
    pub level: TlbLevel,
    pub entries: u32,
    pub ways: Ways,
    pub source: String,
    #[serde(default)]
    pub assumed: bool,
}

impl WalkCacheConfig {
    #[must_use]
    pub const fn nr_ways(&self) -> u32 {
        self.ways.of(self.entries)
    }
}

/// Returns the levels of a page table, PTEs included: 4, or 3 with 64K pages.
#[must_use]
pub const fn nr_levels(page: PageSize) -> u32 {
    (ADDRESS_BITS - page.shift()).div_ceil(page.shift() - ENTRY_SHIFT)
}

#[derive(Clone, Debug)]
struct Cache {
    sets: Vec<Vec<u64>>,
    ways: usize,
}

impl Cache {
    fn new(config: &WalkCacheConfig) -> Self {
        let ways = config.nr_ways() as usize;
        Self { sets: vec![Vec::new(); config.entries as usize / ways], ways }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder of a length")]
    fn set_of(&mut self, prefix: u64) -> &mut Vec<u64> {
        let nr_sets = self.sets.len() as u64;
        &mut self.sets[(prefix % nr_sets) as usize]
    }

    fn touch(&mut self, prefix: u64) -> bool {
        let set = self.set_of(prefix);
        let Some(at) = set.iter().position(|&cached| cached == prefix) else { return false };
        set[at..].rotate_left(1);
        true
    }

    fn insert(&mut self, prefix: u64) {
        let ways = self.ways;
        let set = self.set_of(prefix);
        if set.len() == ways {
            set.remove(0);
        }
        set.push(prefix);
    }

    fn remove_range(&mut self, first: u64, last: u64) {
        for set in &mut self.sets {
            set.retain(|&prefix| prefix < first || last < prefix);
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    pub pgd: u64,
    pub pud: u64,
    pub pmd: u64,
    pub pte: u64,
}

#[derive(Clone, Debug)]
pub struct WalkCaches {
    caches: [Option<Cache>; 3],
    table_bits: u32,
    nr_upper: u32,
}

impl WalkCaches {
    #[must_use]
    pub fn new(configs: &[WalkCacheConfig], page: PageSize) -> Self {
        let mut caches = [None, None, None];
        for config in configs {
            caches[config.level as usize] = Some(Cache::new(config));
        }
        Self { caches, table_bits: page.shift() - ENTRY_SHIFT, nr_upper: nr_levels(page) - 1 }
    }

    /// Returns the entries that a walk for `vpn` reads if it ends at `leaf`.
    pub fn walk(&mut self, vpn: Vpn, leaf: LeafKind) -> Steps {
        // Level k above the PTEs: 1 is the PMD, which has no table below if it is the leaf.
        let lowest = if leaf == LeafKind::Pmd { 2 } else { 1 };
        let hit = (lowest..=self.nr_upper).find(|&level| {
            let prefix = self.prefix(vpn, level);
            self.caches[level as usize - 1].as_mut().is_some_and(|cache| cache.touch(prefix))
        });
        let end = hit.unwrap_or(self.nr_upper + 1);
        for level in lowest..end {
            let prefix = self.prefix(vpn, level);
            if let Some(cache) = &mut self.caches[level as usize - 1] {
                cache.insert(prefix);
            }
        }
        let reads = |level: u32| u64::from(level < end && level <= self.nr_upper);
        Steps { pte: u64::from(lowest == 1), pmd: reads(1), pud: reads(2), pgd: reads(3) }
    }

    pub fn invalidate(&mut self, first: Vpn, nr_pages: u64) {
        let Some(more) = nr_pages.checked_sub(1) else { return };
        let last = first.0.saturating_add(more);
        for (level, cache) in (1..).zip(&mut self.caches) {
            let shift = self.table_bits * level;
            if let Some(cache) = cache {
                cache.remove_range(first.0 >> shift, last >> shift);
            }
        }
    }

    pub fn flush(&mut self) {
        for cache in self.caches.iter_mut().flatten() {
            cache.sets.iter_mut().for_each(Vec::clear);
        }
    }

    fn prefix(&self, vpn: Vpn, level: u32) -> u64 {
        vpn.0 >> (self.table_bits * level)
    }
}
