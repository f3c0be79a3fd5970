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
//! Rules (docs/behaviour C says nothing about them; Intel SDM volume 3, 253668, 4.10.3 allows
//! them):
//! - A cache holds entries of one level that point to a table; a leaf is never in it.
//! - A walk asks the caches from the leaf upwards and stops at the first that knows its part of the
//!   address; it reads every entry below, and puts each that points to a table into the cache of
//!   its level. Both sides share the caches.
//! - Least recently used within a set, `set = (vpn >> bits below) mod nr_sets`.
//! - A flush of pages takes every entry that covers one of them.

use largefolio_mm::units::{PageSize, Vpn};
use serde::{Deserialize, Serialize};

use super::coalesce::LeafKind;
use super::ways::Ways;

/// User addresses have 48 bits: Linux gives larger ones only to those who ask for them.
const ADDRESS_BITS: u32 = 48;
/// log2 of the bytes of an entry.
const ENTRY_SHIFT: u32 = 3;

/// Most entries of one cache: sets are searched from end to end.
pub const MAX_WALK_ENTRIES: u32 = 1 << 10;

/// A level of the page table, by the kernel's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableLevel {
    /// Points to a table of PTEs.
    Pmd,
    /// Points to a table of PMD entries.
    Pud,
    /// The top of a page table of four levels.
    Pgd,
}

/// One cache of a machine file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkCacheConfig {
    /// What the manual calls it.
    pub name: String,
    /// Whose entries it holds. With three levels (64K pages) the top is the `pud` above PMD
    /// entries, and a cache for `pgd` is idle.
    pub level: TableLevel,
    /// Number of entries: `1..=MAX_WALK_ENTRIES`.
    pub entries: u32,
    /// Ways of a set; `full` is one set.
    pub ways: Ways,
    /// The document the numbers come from, or the reason for an assumption.
    pub source: String,
    /// Whether the numbers are assumed: no document was found.
    #[serde(default)]
    pub assumed: bool,
}

impl WalkCacheConfig {
    /// Ways of a set as a number.
    #[must_use]
    pub const fn nr_ways(&self) -> u32 {
        self.ways.of(self.entries)
    }
}

/// Levels of a page table with `page` as the base page, PTEs included: 4, or 3 with 64K pages.
#[must_use]
pub const fn nr_levels(page: PageSize) -> u32 {
    (ADDRESS_BITS - page.shift()).div_ceil(page.shift() - ENTRY_SHIFT)
}

/// Entries of one level, in sets; the least recently used of a set first.
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

    /// Whether `prefix` is cached; it is the most recently used one then.
    fn touch(&mut self, prefix: u64) -> bool {
        let set = self.set_of(prefix);
        let Some(at) = set.iter().position(|&cached| cached == prefix) else { return false };
        set[at..].rotate_left(1);
        true
    }

    /// Adds a prefix that is not cached.
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

/// Page-table entries that walks read, by level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Of the top of a table of four levels.
    pub pgd: u64,
    /// Of the level above PMD entries.
    pub pud: u64,
    /// PMD entries that walks read.
    pub pmd: u64,
    /// PTEs that walks read.
    pub pte: u64,
}

/// The caches of one hardware thread.
#[derive(Clone, Debug)]
pub struct WalkCaches {
    /// By [`TableLevel`]; `None` where the machine has no such cache.
    caches: [Option<Cache>; 3],
    /// log2 of the entries of a table.
    table_bits: u32,
    /// Levels above the PTEs.
    nr_upper: u32,
}

impl WalkCaches {
    /// Empty caches for base pages of `page`.
    #[must_use]
    pub fn new(configs: &[WalkCacheConfig], page: PageSize) -> Self {
        let mut caches = [None, None, None];
        for config in configs {
            caches[config.level as usize] = Some(Cache::new(config));
        }
        Self { caches, table_bits: page.shift() - ENTRY_SHIFT, nr_upper: nr_levels(page) - 1 }
    }

    /// What a walk for `vpn` reads that ends at `leaf`.
    pub fn walk(&mut self, vpn: Vpn, leaf: LeafKind) -> Steps {
        // Level k above the PTEs: 1 is the PMD, which has no table below when it is the leaf.
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

    /// Forgets every entry that covers one of `nr_pages` pages from `first`.
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

    /// Forgets everything.
    pub fn flush(&mut self) {
        for cache in self.caches.iter_mut().flatten() {
            cache.sets.iter_mut().for_each(Vec::clear);
        }
    }

    /// The part of an address that an entry `level` levels above the PTEs stands for.
    fn prefix(&self, vpn: Vpn, level: u32) -> u64 {
        vpn.0 >> (self.table_bits * level)
    }
}
