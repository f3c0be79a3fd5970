//! Rules for anonymous memory, from fault to split (docs/behaviour D, E, F.5, G).
//!
//! Corresponds to: `thp_vma_allowable_orders`, `vma_thp_gfp_mask`.
//!
//! Owns the values and the set of orders they enable (D.1). `fault/{anon,orders,huge,cow}.rs`,
//! `fork.rs`, `unmap.rs` and `split/` follow them.
//!
//! Invariants:
//! - I1: a size is named at most once; it is a power of two in bytes and at least two base pages.
//! - I2: a kernel with [`Sizes::PmdOnly`] names no size.

mod orders;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::rmap::mapcount::{HugetlbOwners, MapcountRules, PmdCount};
use crate::rmap::owners::OwnerLayout;
use crate::units::{Order, PageSize};
use crate::vma::{AreaMerge, HugeAdvice};

pub use self::orders::Orders;

/// Smallest large anonymous order: order 1 has no room for the deferred-split list (D.1.3).
pub const MIN_LARGE_ORDER: Order = Order::new(2);

/// All differences between kernels for anonymous memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnonRules {
    /// `transparent_hugepage/enabled`.
    pub thp: Enabled,
    /// Which sizes have their own control.
    pub sizes: Sizes,
    /// `hugepages-<kB>kB/enabled` of the PMD size.
    pub pmd: SizeMode,
    /// `hugepages-<kB>kB/enabled` of other sizes, by size in KiB; `never` if absent.
    #[serde(default)]
    pub size_kib: BTreeMap<String, SizeMode>,
    /// `transparent_hugepage/defrag`.
    pub defrag: Defrag,
    /// `transparent_hugepage/use_zero_page`: a first read maps the huge zero folio.
    pub use_zero_page: bool,
    /// How a store to the huge zero folio is handled.
    pub huge_zero_write: HugeZeroWrite,
    /// Whether the deferred-split shrinker examines fully mapped PMD folios.
    pub shrink_underused: Underused,
    /// `khugepaged/max_ptes_none`.
    pub max_ptes_none: NonePtes,
    /// When a store can reuse a large folio that was shared.
    pub reuse: Reuse,
    /// How many PTEs fork and unmap handle at once.
    pub batching: Batching,
    /// Whether each page of a large folio has its own mapcount.
    pub mapcount: Mapcount,
    /// Above this many mappings, a folio's owners are no longer tracked; 0 = never (K.5.2).
    /// Differs: requested in the discussion of series 004, in no kernel.
    pub owners_max: u32,
    /// How much a PMD entry counts (K.5.2).
    pub pmd_counts: PmdCount,
    /// Owner layout of a 64-bit or 32-bit kernel (F.1.1).
    pub owner_layout: OwnerLayout,
    /// Whether hugetlb folios have owners (K.5.2).
    #[serde(default)]
    pub hugetlb_owners: HugetlbOwners,
    /// When the reservation of a huge page that its owner drops returns.
    #[serde(default)]
    pub hugetlb_drop: HugetlbDrop,
    /// Whether `MADV_DONTNEED` frees a PTE table that it empties.
    pub drop_tables: DropTables,
    /// How much one mremap moves.
    pub remap: Remap,
    /// The exclusive bit that pagemap reports for pages of a PMD entry.
    pub pmd_exclusive: PmdExclusive,
    /// How truncation and hole punch split a folio.
    pub truncate_split: TruncateSplit,
    /// How truncation handles a folio that cannot be split.
    pub unsplittable: Unsplittable,
    /// How a split of an anonymous folio handles zero-filled pages.
    pub split_zero_pages: SplitZeroPages,
    /// Which entries mprotect makes writable again.
    #[serde(default)]
    pub regain: Regain,
    /// Which neighbour an area with anonymous pages merges with.
    #[serde(default)]
    pub area_merge: AreaMerge,
    /// What becomes of a large folio that moves to another node.
    #[serde(default)]
    pub moved: MovedFolio,
    /// Whether a policy can have weights.
    #[serde(default)]
    pub weighted_policy: WeightedPolicy,
    /// Whether `MAP_STACK` keeps an area in base pages.
    #[serde(default)]
    pub map_stack: MapStack,
    /// The limits that `PR_SET_THP_DISABLE` can set.
    #[serde(default)]
    pub thp_disable: ThpDisable,
    /// The limit with which the program starts, as with `folio run --thp`.
    #[serde(default, skip_serializing_if = "ProgramThp::is_inherited")]
    pub program: ProgramThp,
}

/// D.1.2: the global setting, for sizes that inherit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enabled {
    /// Everywhere.
    Always,
    /// Only after `MADV_HUGEPAGE`.
    Madvise,
    /// Nowhere.
    Never,
}

/// D.1.1: the control of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeMode {
    /// In every area.
    Always,
    /// In areas with `MADV_HUGEPAGE`.
    Madvise,
    /// Follows the global setting.
    Inherit,
    /// Never.
    Never,
}

/// D.1.1: sizes of anonymous folios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// \[..6.7\] base pages and the PMD size.
    PmdOnly,
    /// \[6.8+\] every order from 2 to the PMD order.
    PerSize,
}

/// D.5: how hard a fault tries to get a large folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Defrag {
    /// Direct reclaim and compaction everywhere.
    Always,
    /// Background reclaim everywhere.
    Defer,
    /// Direct if advised, otherwise background.
    #[serde(rename = "defer+madvise")]
    DeferMadvise,
    /// Direct if advised, otherwise none.
    Madvise,
    /// Only free memory.
    Never,
}

/// D.5: the effort of one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Only free memory.
    None,
    /// Only free memory, but wakes background reclaim.
    Wake,
    /// One round of reclaim or compaction (`NORETRY`).
    Once,
    /// Reclaims and compacts before the allocation fails.
    Direct,
}

/// D.3.4: a store to memory mapped by the huge zero folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HugeZeroWrite {
    /// \[..6.12\] splits the mapping into zero pages and allocates one base page.
    Split,
    /// \[6.13+\] allocates a PMD folio in its place.
    Replace,
}

/// G.2.2: under-used PMD folios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Underused {
    /// \[..6.11\] only partially mapped folios are queued; or `shrink_underused` = 0.
    Ignored,
    /// \[6.12+\] PMD folios are queued when allocated.
    Queued,
}

/// `max_ptes_none`: how many pages of a block can be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NonePtes {
    /// All but one: the default, which disables the under-use test.
    AllButOne,
    /// This many.
    Exactly(u64),
}

/// E.3.3: reuse of a large folio after its other mappings are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reuse {
    /// \[..6.14\] only small folios: a page of a large one is copied.
    SmallOnly,
    /// \[6.15+\] if owner tracking proves that one process has all mappings.
    Tracked,
}

/// E.1.1, G.1.1: batching in fork and unmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Batching {
    /// \[..6.8\] page by page.
    PageByPage,
    /// \[6.9+\] consecutive PTEs of a folio together.
    Folio,
}

/// F.5: mapcounts within a large folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapcount {
    /// One per page.
    PerPage,
    /// `NO_PAGE_MAPCOUNT`: one per folio.
    PerFolio,
}

/// `MADV_DONTNEED` over a whole PTE table. A freed table allows a PMD folio again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropTables {
    /// The empty table stays until munmap.
    Kept,
    /// Freed on x86-64, kept elsewhere.
    FreedOnX86,
    /// Freed.
    Freed,
}

/// How much one mremap to a fixed address moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remap {
    /// \[..6.16\] pages of one area.
    OneArea,
    /// \[6.17+\] several areas in sequence, if the size stays the same.
    ManyAreas,
}

/// Which page decides the exclusive bit (56) of a PMD mapping's pagemap entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PmdExclusive {
    /// \[..6.14\] each page decides its own.
    EachPage,
    /// \[6.15+\] the first page decides all.
    FirstPage,
    /// \[7.3\] the same; no page of the huge zero folio is exclusive (F.5.10).
    FirstNormalPage,
}

/// G.3: how truncation and hole punch split a folio that they cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TruncateSplit {
    /// \[..6.14\] into folios of the smallest order.
    Uniform,
    /// \[6.15+\] into halves around the cut.
    NonUniform,
}

/// G.3.2, G.3.3: a folio that cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unsplittable {
    /// \[..6.17\] dirty: kept; clean: leaves the cache.
    Kept,
    /// \[6.18+\] the same, but a kept folio is unmapped everywhere (except shared memory).
    KeptUnmapped,
}

/// G.4.2: zero-filled pages of a split anonymous folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitZeroPages {
    /// \[..6.11\] kept.
    Kept,
    /// \[6.12+\] replaced with the shared zero page.
    Replaced,
}

/// E.5.1: entries that an mprotect to writable makes writable immediately (`map/protect.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regain {
    /// \[..5.19\] none: the next store faults.
    #[default]
    Never,
    /// \[6.0, 6.1\] dirty PTEs: of exclusive pages, or of a shared file.
    Dirty,
    /// \[6.2+\] PTEs and PMD entries of exclusive pages, and dirty ones of a shared file.
    Exclusive,
}

/// R.4.5: a folio that moved while PTEs mapped it (`numa/migrate.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MovedFolio {
    /// \[6.16 .. 6.19\] it leaves the queue of deferred splits.
    #[default]
    Whole,
    /// \[6.12.117, 7.0+\] it is queued as partially mapped, so its next move splits it.
    Queued,
}

/// O.2.5: the reservation of a private huge page that its owner drops (`hugetlb/unmap.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HugetlbDrop {
    /// \[6.1\] it does not return.
    #[default]
    Never,
    /// \[6.16..7.1\] the owner has it back, even if a child still maps the page.
    AtOnce,
    /// \[6.12.117, 7.2+\] it returns if nothing else maps the page.
    Unshared,
}

/// R.2.2: `MPOL_WEIGHTED_INTERLEAVE` (`numa.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightedPolicy {
    /// \[..6.8\] the call fails.
    #[default]
    Refused,
    /// \[6.9+\] as [`crate::mempolicy::PolicyMode::WeightedInterleave`].
    Taken,
}

/// D.1.6: `MAP_STACK`, which C libraries use for threads' stacks (`map.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MapStack {
    /// \[..6.6\] no effect.
    #[default]
    Ignored,
    /// \[6.7+\] as if advised with `MADV_NOHUGEPAGE`.
    Nohuge,
}

/// D.2.11: the limits of `PR_SET_THP_DISABLE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThpDisable {
    /// \[..6.17\] all THP; a call with flags fails.
    #[default]
    All,
    /// \[6.18+\] all, or all but `MADV_HUGEPAGE` areas (`PR_THP_DISABLE_EXCEPT_ADVISED`).
    ExceptAdvised,
}

/// D.2.11: the THP that a program may use from its start. Its own calls override this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramThp {
    /// All that the settings allow.
    #[default]
    Inherit,
    /// Only `MADV_HUGEPAGE` areas.
    Advised,
    /// None.
    Off,
}

impl ProgramThp {
    /// Whether only the settings limit it.
    #[must_use]
    pub const fn is_inherited(&self) -> bool {
        matches!(self, Self::Inherit)
    }
}

impl AnonRules {
    /// Linux 6.18 as it boots: the PMD size inherits `madvise`, all other sizes are off.
    #[must_use]
    pub fn stock() -> Self {
        Self {
            thp: Enabled::Madvise,
            sizes: Sizes::PerSize,
            pmd: SizeMode::Inherit,
            size_kib: BTreeMap::new(),
            defrag: Defrag::Madvise,
            use_zero_page: true,
            huge_zero_write: HugeZeroWrite::Replace,
            shrink_underused: Underused::Queued,
            max_ptes_none: NonePtes::AllButOne,
            reuse: Reuse::Tracked,
            batching: Batching::Folio,
            mapcount: Mapcount::PerPage,
            owners_max: 0,
            owner_layout: OwnerLayout::Bits64,
            hugetlb_owners: HugetlbOwners::Untracked,
            hugetlb_drop: HugetlbDrop::AtOnce,
            pmd_counts: PmdCount::One,
            drop_tables: DropTables::FreedOnX86,
            remap: Remap::ManyAreas,
            pmd_exclusive: PmdExclusive::FirstPage,
            truncate_split: TruncateSplit::NonUniform,
            unsplittable: Unsplittable::KeptUnmapped,
            split_zero_pages: SplitZeroPages::Replaced,
            regain: Regain::Exclusive,
            area_merge: AreaMerge::Any,
            moved: MovedFolio::Whole,
            weighted_policy: WeightedPolicy::Taken,
            map_stack: MapStack::Nohuge,
            thp_disable: ThpDisable::ExceptAdvised,
            program: ProgramThp::Inherit,
        }
    }

    /// Sets the control of one size in bytes. Returns `None` if no folio can have this size.
    pub fn set_size(&mut self, bytes: u64, mode: SizeMode) -> Option<()> {
        let is_size = bytes.is_power_of_two() && bytes >= PageSize::K4.bytes() << 2;
        if !is_size || self.sizes == Sizes::PmdOnly {
            return None;
        }
        self.size_kib.insert((bytes >> 10).to_string(), mode);
        Some(())
    }

    /// Bytes of the smallest and the largest anonymous folio with a control (D.1.1).
    #[must_use]
    pub const fn controlled_bytes(page: PageSize) -> [u64; 2] {
        [page.bytes() << MIN_LARGE_ORDER.get(), page.bytes() << page.pmd_order().get()]
    }

    /// Bytes of the first control that applies to no folio with base pages of `page`.
    #[must_use]
    pub fn idle_control(&self, page: PageSize) -> Option<u64> {
        let [min, max] = Self::controlled_bytes(page);
        let bytes = self.size_kib.keys().filter_map(|kib| Some(kib.parse::<u64>().ok()? << 10));
        bytes.into_iter().find(|bytes| !(min..=max).contains(bytes))
    }

    /// The control of `order` (D.1.1).
    #[must_use]
    pub fn mode_of(&self, order: Order, page: PageSize) -> SizeMode {
        let kib = (page.bytes() << order.get()) >> 10;
        let otherwise = if order == page.pmd_order() { self.pmd } else { SizeMode::Never };
        self.size_kib.get(&kib.to_string()).copied().unwrap_or(otherwise)
    }

    /// Orders that a fault in an area with this advice can use (D.1.2 .. D.1.4).
    ///
    /// ```
    /// use largefolio_mm::rules::anon::AnonRules;
    /// use largefolio_mm::units::{Order, PageSize};
    /// use largefolio_mm::vma::HugeAdvice;
    ///
    /// let rules = AnonRules::stock();
    /// let enabled = |advice| rules.enabled(PageSize::K4, advice).highest();
    /// assert_eq!(enabled(HugeAdvice::Default), None);
    /// assert_eq!(enabled(HugeAdvice::Huge), Some(Order::new(9)));
    /// ```
    #[must_use]
    pub fn enabled(&self, page: PageSize, advice: HugeAdvice) -> Orders {
        if advice == HugeAdvice::Nohuge {
            return Orders::NONE;
        }
        let is_advised = advice == HugeAdvice::Huge;
        let inherits = match self.thp {
            Enabled::Always => true,
            Enabled::Madvise => is_advised,
            Enabled::Never => false,
        };
        let first = match self.sizes {
            Sizes::PmdOnly => page.pmd_order(),
            Sizes::PerSize => MIN_LARGE_ORDER,
        };
        // Without controls of other sizes, only the PMD order can be enabled.
        let first = if self.size_kib.is_empty() { page.pmd_order() } else { first };
        let orders = (first.get()..=page.pmd_order().get()).map(Order::new);
        let is_enabled = |order: &Order| match self.mode_of(*order, page) {
            SizeMode::Always => true,
            SizeMode::Madvise => is_advised,
            SizeMode::Inherit => inherits,
            SizeMode::Never => false,
        };
        orders.filter(is_enabled).fold(Orders::NONE, Orders::with)
    }

    /// Allocation effort for an area with this advice (D.5).
    #[must_use]
    pub fn effort(&self, advice: HugeAdvice) -> Effort {
        let is_advised = advice == HugeAdvice::Huge;
        match self.defrag {
            Defrag::Always | Defrag::DeferMadvise | Defrag::Madvise if is_advised => Effort::Direct,
            Defrag::Always => Effort::Once,
            Defrag::Defer | Defrag::DeferMadvise => Effort::Wake,
            Defrag::Madvise | Defrag::Never => Effort::None,
        }
    }

    /// How mappings are counted (F).
    #[must_use]
    pub const fn mapcount_rules(&self) -> MapcountRules {
        let linux = match (self.mapcount, self.reuse) {
            (Mapcount::PerFolio, _) => MapcountRules::NO_PAGE_MAPCOUNT,
            (Mapcount::PerPage, Reuse::Tracked) => MapcountRules::LINUX_6_18,
            (Mapcount::PerPage, Reuse::SmallOnly) => MapcountRules::LINUX_6_12,
        };
        let stop_above = match self.owners_max {
            0 => None,
            nr => Some(nr),
        };
        let (pmd_counts, hugetlb, layout) =
            (self.pmd_counts, self.hugetlb_owners, self.owner_layout);
        MapcountRules { stop_above, pmd_counts, hugetlb, layout, ..linux }
    }

    /// A folio of `order` with more zero-filled pages than this is under-used (G.2.4).
    #[must_use]
    pub fn none_limit(&self, page: PageSize) -> u64 {
        match self.max_ptes_none {
            NonePtes::AllButOne => page.pmd_order().nr_pages() - 1,
            NonePtes::Exactly(nr) => nr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled(rules: &AnonRules, advice: HugeAdvice) -> Vec<u8> {
        rules.enabled(PageSize::K4, advice).descending().map(Order::get).collect()
    }

    #[test]
    fn a_size_is_enabled_by_its_own_control_or_by_the_global_one_d_1_2() {
        let mut rules = AnonRules::stock();
        for (kib, mode) in [
            ("16", SizeMode::Always),
            ("64", SizeMode::Madvise),
            ("128", SizeMode::Inherit),
            ("256", SizeMode::Never),
            ("8", SizeMode::Always),
        ] {
            rules.size_kib.insert(kib.to_owned(), mode);
        }
        assert_eq!(enabled(&rules, HugeAdvice::Default), [2]);
        assert_eq!(enabled(&rules, HugeAdvice::Huge), [9, 5, 4, 2]);
        assert_eq!(enabled(&rules, HugeAdvice::Nohuge), []);
        rules.thp = Enabled::Always;
        assert_eq!(enabled(&rules, HugeAdvice::Default), [9, 5, 2]);
        rules.thp = Enabled::Never;
        assert_eq!(enabled(&rules, HugeAdvice::Huge), [4, 2]);
        rules.sizes = Sizes::PmdOnly;
        assert_eq!(enabled(&rules, HugeAdvice::Huge), []);
    }

    #[test]
    fn effort_is_the_table_of_d_5() {
        let table = [
            (Defrag::Always, Effort::Once, Effort::Direct),
            (Defrag::Defer, Effort::Wake, Effort::Wake),
            (Defrag::DeferMadvise, Effort::Wake, Effort::Direct),
            (Defrag::Madvise, Effort::None, Effort::Direct),
            (Defrag::Never, Effort::None, Effort::None),
        ];
        for (defrag, plain, advised) in table {
            let rules = AnonRules { defrag, ..AnonRules::stock() };
            let efforts = [HugeAdvice::Default, HugeAdvice::Huge].map(|a| rules.effort(a));
            assert_eq!(efforts, [plain, advised], "{defrag:?}");
        }
    }
}
