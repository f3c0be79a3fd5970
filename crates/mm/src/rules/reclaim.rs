//! Rules of reclaim: which lists a kernel has, and how its generations work (docs/behaviour P).
//!
//! Owns the values. The code that follows them is in `reclaim/` and `folio/`.

use serde::{Deserialize, Serialize};

use crate::vma::AccessAdvice;

/// Everything in which kernels and settings differ for reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReclaimRules {
    /// `/sys/kernel/mm/lru_gen/enabled`: which lists folios are on.
    pub lru: LruRule,
    /// How generations work where they are on.
    pub generations: GenerationRule,
    /// Folios that fill a batch in front of the lists (`PAGEVEC_SIZE`).
    pub folio_batch: u64,
    /// Which areas' entries say nothing of use.
    pub recency: Recency,
    /// When reclaim sums up the counters of a group.
    pub group_stats: GroupStats,
    /// Whether `MADV_DONTNEED` empties the batches in front of the lists.
    pub zap: ZapRule,
    /// What `MADV_COLD` and `MADV_PAGEOUT` do with a large folio that lies in their range.
    pub advised: AdvisedFolios,
    /// What a look at a list costs.
    pub cost: CostRule,
    /// What swap space is on.
    pub swap_device: SwapDevice,
    /// How pages come back from a device that reads within the call.
    pub swap_in: SwapIn,
    /// When a freed slot counts as free.
    pub freed_slots: FreedSlots,
    /// `vm.dirty_background_ratio`: per cent of what may be dirty above which it is written.
    pub dirty_background_ratio: u32,
    /// `vm.compaction_proactiveness`: how little fragmentation is compacted in advance; 0 = none is.
    pub compaction_proactiveness: u32,
}

/// P.2, P.3: which lists there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LruRule {
    /// An active and an inactive list of each kind of memory.
    Lists,
    /// \[packages from 6.12 on\] up to four generations of each kind.
    Generations,
}

/// P.3: how generations work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GenerationRule {
    /// \[6.1\] what is read by descriptor starts in the second oldest generation while there are
    /// four; a look goes on after it has added one, and moves on what is dirty.
    First,
    /// \[6.8 .. 6.12\] it ends with that, and isolates what is dirty.
    Protected,
    /// \[6.16+\] what is read starts in the oldest; refaults count by age, not by generation, and no more is isolated
    /// than the priority asks for.
    Reworked,
    /// \[7.2+\] the same, but a use before it reached the list counts as a first one, uses through
    /// page tables are counted, and a look ends when enough is freed.
    FirstUse,
}

impl GenerationRule {
    /// Whether uses through page tables need a second sighting, and descriptors' uses come before
    /// the mark of the working set (6.16+).
    #[must_use]
    pub const fn is_reworked(self) -> bool {
        matches!(self, Self::Reworked | Self::FirstUse)
    }
}

/// P.2.3: advice that takes an area's entries out of the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recency {
    /// \[6.1\] `MADV_SEQUENTIAL`.
    Sequential,
    /// \[6.3+\] `MADV_RANDOM` too.
    RandomToo,
}

impl Recency {
    /// Whether entries of an area with this advice count.
    #[must_use]
    pub fn counts(self, advice: AccessAdvice) -> bool {
        match advice {
            AccessAdvice::Normal => true,
            AccessAdvice::Random => self == Self::Sequential,
            AccessAdvice::Sequential => false,
        }
    }
}

/// P.2.5: counters of a group that reclaim goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupStats {
    /// \[6.1\] summed up at each look, if enough has changed.
    AtThreshold,
    /// \[7.2\] as they are: somebody sums them up from time to time.
    Periodic,
}

/// P.2.1: what taking pages out of page tables does to the batches in front of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZapRule {
    /// \[6.1, 6.12\] empties them first.
    Drains,
    /// \[6.18\] leaves them alone.
    Keeps,
}

/// P.4.2: a large folio that PTEs map and `MADV_COLD` or `MADV_PAGEOUT` covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdvisedFolios {
    /// \[6.1\] it is split, and its pages go one by one.
    Split,
    /// \[6.10+\] it goes as a whole.
    Whole,
}

/// P.2.7: what makes a kind of memory dear to reclaim from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostRule {
    /// \[6.1\] pages written.
    Writes,
    /// \[6.2+\] each page written 32, and each that was examined for nothing 1.
    WritesAndRotations,
}

/// P.5: what swap space is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwapDevice {
    /// A device that reads within the call (`SWP_SYNCHRONOUS_IO`): zram, a RAM disk.
    Zram,
    /// Any other without moving parts: what is read stays in the swap cache, and more is read with it.
    Disk,
}

/// P.5.3: how pages come back from a device that reads within the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwapIn {
    /// \[6.1\] a page with one user comes back without the swap cache; others as from a disk.
    Pages,
    /// \[6.12+\] the same, and a large folio comes back as one.
    Folios,
    /// \[7.0+\] all pass the swap cache, nothing is read ahead, and slots are given up at once.
    Cached,
}

/// P.5.6: slots that nobody uses any more. The memory manager frees them at once; comparisons with
/// kernels that do not leave them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FreedSlots {
    /// \[..6.14\] a processor hands in 64 at a time.
    Batched,
    /// \[6.15+\] free at once.
    AtOnce,
}

impl ReclaimRules {
    /// Two lists, as every kernel has that was recorded before.
    #[must_use]
    pub const fn stock() -> Self {
        Self {
            lru: LruRule::Lists,
            generations: GenerationRule::Reworked,
            folio_batch: 31,
            recency: Recency::RandomToo,
            group_stats: GroupStats::Periodic,
            zap: ZapRule::Keeps,
            advised: AdvisedFolios::Whole,
            cost: CostRule::WritesAndRotations,
            swap_device: SwapDevice::Zram,
            swap_in: SwapIn::Cached,
            freed_slots: FreedSlots::AtOnce,
            dirty_background_ratio: 10,
            compaction_proactiveness: 20,
        }
    }
}
