//! Which counters a kernel keeps and how it interprets them.

use serde::{Deserialize, Serialize};

use crate::rmap::owners::OwnerLayout;
use crate::units::Order;

/// How kernels count the mappings of a large folio (F.1, F.2, F.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MapcountRule {
    /// \[..6.14\] one count per page; the kernel guesses sharing from the first page (F.2.3).
    PerPageLikely,
    /// \[6.15+\] one count per page, and two tracked owners (F.4).
    PerPageTracked,
    /// \[6.15+\], `NO_PAGE_MAPCOUNT`: tracked owners and no counts per page (F.5).
    NoPageMapcount,
}

/// How much a PMD entry adds to the large mapcount (F.1, K.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PmdCount {
    /// One mapping and one reference, as in every kernel up to 7.2.
    One,
    /// One mapping and one reference per page. Differs: announced by the series, in no kernel.
    /// [`MapcountRule::PerPageLikely`] always uses [`Self::One`]: its guess reads a mapcount of 1
    /// as one PMD entry.
    AllPages,
}

/// Whether hugetlb folios have owners (E.3.8, K.5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HugetlbOwners {
    /// No: shared means mapped more than once.
    #[default]
    Untracked,
    /// Yes. Differs: in no kernel, because a shared page table can map through one mm and unmap
    /// through another. Do not use it with shared page tables.
    Tracked,
}

/// How mappings are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapcountRules {
    /// Which counters are kept.
    pub counts: MapcountRule,
    /// More mappings end owner tracking (K.5.2); `None` = never. Differs: in no kernel.
    #[serde(default)]
    pub stop_above: Option<u32>,
    /// How much a PMD entry counts.
    pub pmd_counts: PmdCount,
    /// Whether hugetlb folios have owners.
    pub hugetlb: HugetlbOwners,
    /// Layout of the owner ids and counts.
    #[serde(default)]
    pub layout: OwnerLayout,
}

impl MapcountRules {
    /// \[..6.14\].
    pub const LINUX_6_12: Self = Self::linux(MapcountRule::PerPageLikely);
    /// \[6.15+\] as distributions build it.
    pub const LINUX_6_18: Self = Self::linux(MapcountRule::PerPageTracked);
    /// \[6.15+\] with `NO_PAGE_MAPCOUNT`.
    pub const NO_PAGE_MAPCOUNT: Self = Self::linux(MapcountRule::NoPageMapcount);

    const fn linux(counts: MapcountRule) -> Self {
        Self {
            counts,
            stop_above: None,
            pmd_counts: PmdCount::One,
            hugetlb: HugetlbOwners::Untracked,
            layout: OwnerLayout::Bits64,
        }
    }
}

/// The kind of a large folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapcountKind {
    /// Page cache, shmem or anonymous memory.
    Normal,
    /// hugetlb: only mapped as a whole, and not in the mapped statistics (F.1.4).
    Hugetlb,
}

/// A folio's properties that its counters depend on. The counters keep no copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The folio's order; constant while it is mapped.
    pub order: Order,
    /// The folio's kind.
    pub kind: MapcountKind,
    /// The kernel's rules; constant for the folio's life.
    pub rules: MapcountRules,
}

impl Shape {
    /// A folio that is not hugetlb.
    #[must_use]
    pub const fn new(order: Order, rules: MapcountRules) -> Self {
        Self { order, kind: MapcountKind::Normal, rules }
    }

    /// A hugetlb folio.
    #[must_use]
    pub const fn hugetlb(order: Order, rules: MapcountRules) -> Self {
        Self { order, kind: MapcountKind::Hugetlb, rules }
    }

    /// Pages in the folio.
    #[must_use]
    pub const fn nr_pages(&self) -> u32 {
        1 << self.order.get()
    }

    /// Mappings that a PMD entry counts, and references that it must hold.
    ///
    /// The two must be equal. If an entry counted more mappings than references, other references
    /// could pass for mappings, and comparing the two (E.3.7) would prove nothing.
    #[must_use]
    pub const fn pmd_refs(&self) -> u32 {
        match (self.rules.pmd_counts, self.rules.counts, self.kind) {
            (
                PmdCount::AllPages,
                MapcountRule::PerPageTracked | MapcountRule::NoPageMapcount,
                MapcountKind::Normal,
            ) => self.nr_pages(),
            _ => 1,
        }
    }

    pub(crate) const fn has_page_counts(&self) -> bool {
        let by_rule = !matches!(self.rules.counts, MapcountRule::NoPageMapcount);
        by_rule && matches!(self.kind, MapcountKind::Normal)
    }

    /// Whether owners are tracked.
    #[must_use]
    pub const fn is_tracked(&self) -> bool {
        match self.kind {
            _ if matches!(self.rules.counts, MapcountRule::PerPageLikely) => false,
            MapcountKind::Normal => self.order.get() > 0,
            MapcountKind::Hugetlb => matches!(self.rules.hugetlb, HugetlbOwners::Tracked),
        }
    }
}
