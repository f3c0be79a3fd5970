//! Rules for zswap: what it takes in place of the swap device, and when it writes that out
//! (docs/behaviour P.7).
//!
//! Corresponds to: `zswap_load`, `zswap_check_limits`.
//!
//! Owns the values. `core/zswap.rs` has the pool, and `reclaim/zswap.rs` follows the rules.

use serde::{Deserialize, Serialize};

use crate::units::PageSize;

/// All differences between kernels and settings for zswap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZswapRules {
    /// `/sys/module/zswap/parameters/enabled`.
    pub enabled: bool,
    /// `max_pool_percent`: the pool's largest share of memory.
    pub max_pool_percent: u32,
    /// `accept_threshold_percent`: a pool that was full takes pages again below this share of its
    /// largest size.
    pub accept_threshold_percent: u32,
    /// How well pages compress: 300 = three to one, 100 = not at all.
    pub ratio_percent: u32,
    /// Per cent of the pages that do not compress.
    pub incompressible_percent: u32,
    /// `memory.zswap.writeback` of every cgroup: whether pages may go to the device.
    pub writeback: bool,
    /// `memory.zswap.max` of every cgroup, in bytes; `None` = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_max_bytes: Option<u64>,
    /// Whether a cgroup pays for its compressed pages and for kernel memory (off with the boot option
    /// `cgroup.memory=nokmem`).
    pub charged: bool,
    /// Which folios it takes.
    pub folios: ZswapFolios,
    /// What happens to the compressed page when a folio in the swap cache is read from it.
    pub load: ZswapLoad,
    /// Pages that do not compress.
    pub incompressible: Incompressible,
    /// How compressed pages share memory.
    pub pool: ZswapPool,
    /// Which pages a full pool writes to the device.
    pub shrink: ZswapShrink,
}

/// P.7.2: folios that zswap takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZswapFolios {
    /// \[..6.12\] base pages; a large folio goes to the device as a whole.
    BasePages,
    /// \[6.13+\] all, page by page; if one page is refused, the whole folio goes to the device.
    All,
}

/// P.7.5: reads into the swap cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZswapLoad {
    /// \[6.1\] the compressed page stays until its slot is free.
    Kept,
    /// \[6.12+\] the compressed page is freed, and the folio is dirty.
    Exclusive,
}

/// P.7.4: pages that do not compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Incompressible {
    /// \[..6.12\] they go to the device.
    Refused,
    /// \[6.18+\] they are stored as they are, if the cgroup may write to the device.
    Stored,
}

/// P.7.6: the allocator of compressed pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZswapPool {
    /// \[6.1\] zbud: at most two compressed pages per page.
    Pairs,
    /// \[6.8+\] zsmalloc: groups of pages, each for compressed pages of similar sizes.
    #[default]
    SizeClasses,
}

/// P.7.7, P.7.8: writeback at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZswapShrink {
    /// \[6.1\] a full pool writes back its two oldest pages; a cgroup at its limit writes none.
    Oldest,
    /// \[6.12+\] one page per look, except that each page is passed over once.
    SecondChance,
    /// \[7.3\] 32 pages per look, with the same exception.
    Batch,
}

/// A group of pages for compressed pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zspage {
    pub(crate) nr_pages: u64,
    pub(crate) nr_objects: u64,
}

impl Default for ZswapRules {
    /// Off, with the packages' settings and the newest rules.
    fn default() -> Self {
        Self {
            enabled: false,
            max_pool_percent: 20,
            accept_threshold_percent: 90,
            ratio_percent: 300,
            incompressible_percent: 0,
            writeback: true,
            group_max_bytes: None,
            charged: true,
            folios: ZswapFolios::All,
            load: ZswapLoad::Exclusive,
            incompressible: Incompressible::Stored,
            pool: ZswapPool::SizeClasses,
            shrink: ZswapShrink::Batch,
        }
    }
}

impl ZswapRules {
    /// Bytes of a page that compresses.
    pub(crate) fn compressed_bytes(&self, page: PageSize) -> u64 {
        (page.bytes() * 100 / u64::from(self.ratio_percent.max(100))).max(1)
    }

    /// Whether the page `index` is one of those that do not compress.
    pub(crate) fn is_incompressible(&self, index: u64) -> bool {
        let mixed = (index ^ index >> 17).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed >> 32) * 100) >> 32 < u64::from(self.incompressible_percent)
    }
}

impl ZswapPool {
    /// zsmalloc keeps its own word in front of each compressed page.
    const HANDLE_BYTES: u64 = 8;
    /// zsmalloc's smallest size.
    const BYTES_MIN: u64 = 32;
    /// Sizes in which zsmalloc allocates differ by this share of a page.
    const NR_SIZES: u64 = 256;
    /// Largest number of pages per group (`ZSMALLOC_CHAIN_SIZE`).
    const CHAIN_PAGES_MAX: u64 = 8;
    /// zbud's header, and the unit of its sizes.
    const CHUNK_BYTES: u64 = 64;

    /// The group for compressed pages of `bytes`.
    pub(crate) fn zspage(self, page: PageSize, bytes: u64) -> Zspage {
        let page = page.bytes();
        if self == Self::Pairs {
            let is_half = bytes.next_multiple_of(Self::CHUNK_BYTES) * 2 + Self::CHUNK_BYTES <= page;
            return Zspage { nr_pages: 1, nr_objects: if is_half { 2 } else { 1 } };
        }
        let size = (bytes + Self::HANDLE_BYTES).max(Self::BYTES_MIN);
        let size = size.next_multiple_of(page / Self::NR_SIZES).min(page);
        if size.is_power_of_two() {
            return Zspage { nr_pages: 1, nr_objects: page / size };
        }
        let chains = 1..=Self::CHAIN_PAGES_MAX;
        let nr_pages = chains.min_by_key(|nr_pages| nr_pages * page % size).unwrap_or(1);
        Zspage { nr_pages, nr_objects: nr_pages * page / size }
    }

    /// Whether a pool of `nr_pages` is full.
    pub(crate) const fn is_full(self, nr_pages: u64, nr_pages_max: u64) -> bool {
        match self {
            Self::Pairs => nr_pages > nr_pages_max,
            Self::SizeClasses => nr_pages >= nr_pages_max,
        }
    }

    /// Whether it has a place for a page that compresses to so many bytes.
    pub(crate) const fn takes(self, page: PageSize, bytes: u64) -> bool {
        match self {
            Self::Pairs => bytes + 2 * Self::CHUNK_BYTES <= page.bytes(),
            Self::SizeClasses => bytes <= page.bytes(),
        }
    }
}

impl ZswapShrink {
    /// Pages that one look at a cgroup's oldest pages covers.
    pub(crate) const fn nr_seen(self) -> u64 {
        match self {
            Self::Oldest => 2,
            Self::SecondChance => 1,
            Self::Batch => 32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_pages_waste_as_little_as_possible() {
        let of = |pool: ZswapPool, bytes| {
            let Zspage { nr_pages, nr_objects } = pool.zspage(PageSize::K4, bytes);
            (nr_pages, nr_objects)
        };
        let classes = |bytes| of(ZswapPool::SizeClasses, bytes);
        // 11 objects of 2208 bytes in 6 pages: 7.2 stores 969 of them in 534 pages (recorded).
        assert_eq!(classes(2190), (6, 11));
        assert_eq!(classes(40), (3, 256));
        assert_eq!(classes(4096), (1, 1));
        assert_eq!(classes(1016), (1, 4), "1024 bytes with the handle");
        assert_eq!(of(ZswapPool::Pairs, 1365), (1, 2));
        assert_eq!(of(ZswapPool::Pairs, 2190), (1, 1));
    }

    #[test]
    fn a_share_of_the_pages_does_not_compress() {
        let rules = ZswapRules { incompressible_percent: 25, ..ZswapRules::default() };
        let nr = (0..10_000).filter(|&index| rules.is_incompressible(index)).count();
        assert!((2_300..2_700).contains(&nr), "{nr}");
        assert!(!(0..10_000).any(|index| ZswapRules::default().is_incompressible(index)));
    }
}
