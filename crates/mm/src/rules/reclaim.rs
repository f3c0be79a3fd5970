//! Rules for reclaim: a kernel's LRU lists and generations (docs/behaviour P).
//!
//! Owns the values; `reclaim/` and `folio/` follow them.

use serde::{Deserialize, Serialize};

use crate::vma::AccessAdvice;

/// All differences between kernels and settings for reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReclaimRules {
    /// `/sys/kernel/mm/lru_gen/enabled`: which lists folios are on.
    pub lru: LruRule,
    /// How generations work if enabled.
    pub generations: GenerationRule,
    /// Folios per batch before the lists (`PAGEVEC_SIZE`).
    pub folio_batch: u64,
    /// Areas whose accesses do not count as use.
    pub recency: Recency,
    /// When reclaim flushes a group's counters.
    pub group_stats: GroupStats,
    /// Whether `MADV_DONTNEED` drains the batches.
    pub zap: ZapRule,
    /// What follows if a request frees nothing at any priority.
    #[serde(default)]
    pub failed_scan: FailedScan,
    /// Which reclaim scans the queue of deferred splits.
    #[serde(default)]
    pub deferred_queue: DeferredQueue,
    /// How `MADV_COLD` and `MADV_PAGEOUT` handle a large folio in their range.
    pub advised: AdvisedFolios,
    /// In which order reclaim sees the parts of a split folio.
    #[serde(default)]
    pub split_parts: SplitParts,
    /// The cost of scanning a list.
    pub cost: CostRule,
    /// The device that holds swap space.
    pub swap_device: SwapDevice,
    /// How pages return from a synchronous swap device.
    pub swap_in: SwapIn,
    /// Whether a store to a cached page that was exclusive frees its slot.
    #[serde(default)]
    pub store_frees: StoreFrees,
    /// Whether a fault on a cached page drains the batches.
    #[serde(default)]
    pub fault_drains: FaultDrains,
    /// What becomes of a folio that holds only zeroes.
    #[serde(default)]
    pub zero_pages: ZeroPages,
    /// Which cluster of swap slots is used next.
    #[serde(default)]
    pub slot_choice: SlotChoice,
    /// When a freed slot counts as free.
    pub freed_slots: FreedSlots,
    /// `vm.dirty_background_ratio`: per cent of the dirty limit above which writeback starts.
    pub dirty_background_ratio: u32,
    /// `vm.compaction_proactiveness`: how early proactive compaction starts; 0 = off.
    pub compaction_proactiveness: u32,
}

/// P.2, P.3: the kind of LRU lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LruRule {
    /// One active and one inactive list per kind of memory.
    Lists,
    /// \[packages from 6.12 on\] up to four generations per kind.
    Generations,
}

/// P.3: how generations work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GenerationRule {
    /// \[6.1\] a folio read by descriptor starts in the second oldest of four generations. A scan
    /// continues after it adds a generation, and moves dirty folios to a younger generation.
    First,
    /// \[6.8 .. 6.12\] a scan ends after it adds a generation, and isolates dirty folios.
    Protected,
    /// \[6.16+\] a folio read by descriptor starts in the oldest generation. Refaults count by age
    /// instead of generation, and the priority limits how much is isolated.
    Reworked,
    /// \[7.2+\] the same, but a use before the folio reached the list counts as the first use. Of the
    /// uses through page tables, the second is counted and the third makes it part of the working
    /// set. Adjacent entries of a folio are checked at once, and a scan ends once enough is freed.
    FirstUse,
}

impl GenerationRule {
    /// Whether uses through page tables need a second access, and uses through descriptors precede
    /// the workingset mark (6.16+).
    #[must_use]
    pub const fn is_reworked(self) -> bool {
        matches!(self, Self::Reworked | Self::FirstUse)
    }
}

/// P.2.3: advice that excludes an area's accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recency {
    /// \[6.1\] `MADV_SEQUENTIAL`.
    Sequential,
    /// \[6.3+\] also `MADV_RANDOM`.
    RandomToo,
}

impl Recency {
    /// Whether accesses to an area with this advice count.
    #[must_use]
    pub fn counts(self, advice: AccessAdvice) -> bool {
        match advice {
            AccessAdvice::Normal => true,
            AccessAdvice::Random => self == Self::Sequential,
            AccessAdvice::Sequential => false,
        }
    }
}

/// P.2.5: the group counters that reclaim uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupStats {
    /// \[6.1\] flushed at each check, if enough has changed.
    AtThreshold,
    /// \[7.2\] used as they are: flushed periodically.
    Periodic,
}

/// P.2.1: how removing page-table entries affects the batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZapRule {
    /// \[6.1, 6.12\] drains them first.
    Drains,
    /// \[6.18\] leaves them alone.
    Keeps,
}

/// P.2.2: a request that has freed nothing at any priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailedScan {
    /// \[..6.9\] scans again, and the active lists too.
    #[default]
    Forces,
    /// \[6.10+\] scans once more before that, with unchanged rules for the active lists.
    Repeats,
}

/// P.2.9: the queue of deferred splits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeferredQueue {
    /// \[..6.19\] each cgroup's own.
    #[default]
    OfGroup,
    /// \[7.2\] a list that cgroups have only if they are charged for kernel memory: with the boot
    /// option `cgroup.memory=nokmem`, reclaim in a cgroup does not scan it.
    Listed,
}

/// P.4.2: a PTE-mapped large folio in the range of `MADV_COLD` or `MADV_PAGEOUT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdvisedFolios {
    /// \[6.1\] split and handled page by page.
    Split,
    /// \[6.10+\] handled as a whole.
    Whole,
}

/// P.2.8: a split folio's pages, oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitParts {
    /// \[..6.14\] by index.
    Ascending,
    /// \[6.15+\] the first page, then the others from the last one down.
    #[default]
    Descending,
}

/// P.2.7: the cost of reclaiming a kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostRule {
    /// \[6.1\] pages written or read back.
    Writes,
    /// \[6.2 .. 6.16\] 32 per page written or read back, plus 1 per page scanned without reclaiming it.
    WritesAndRotations,
    /// \[6.17+\] the same, but a batch without cost does not halve the costs.
    #[default]
    Nonzero,
    /// \[7.3\] the same, taken from the group's counters as last summed, before each pass. A page that
    /// `MADV_PAGEOUT` writes counts too. Costs are halved until they are small enough.
    Counters,
}

/// P.5: the device that holds swap space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwapDevice {
    /// A synchronous device (`SWP_SYNCHRONOUS_IO`): zram, a RAM disk.
    Zram,
    /// Any other device without seek time: pages read stay in the swap cache, with readahead.
    Disk,
}

/// P.5.3: how pages return from a synchronous device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwapIn {
    /// \[6.1\] a page with one user skips the swap cache; others return as from a disk.
    Pages,
    /// \[6.12+\] the same, but a large folio returns as a whole.
    Folios,
    /// \[7.0+\] all pages pass the swap cache without readahead, and slots are freed immediately.
    Cached,
}

/// P.5.4: a store fault to a page in the swap cache of a device that is not synchronous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreFrees {
    /// Frees the slot if nothing else refers to the folio.
    #[default]
    Alone,
    /// \[7.2\] the same, but not if the page was exclusive: the store needs no copy anyway.
    NotExclusive,
}

/// P.5.4: what a fault on a cached page does if the folio is in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultDrains {
    /// \[..7.2\] a store drains them, because a batch's reference would prevent the reuse.
    #[default]
    ForStores,
    /// \[7.3\] no fault drains them.
    Never,
}

/// P.7.3: a folio that holds only zeroes and is swapped out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroPages {
    /// \[..6.11\] written like any other.
    Written,
    /// \[6.12+\] noted in a bitmap of the swap space; nothing is written or read.
    #[default]
    Noted,
}

/// P.5.1: the next cluster of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotChoice {
    /// \[..6.17\] a free cluster, else a used cluster with this order.
    #[default]
    FreeFirst,
    /// \[6.18+\] a used cluster with this order, else a free cluster. Base pages begin after the header.
    UsedFirst,
}

/// P.5.6: slots without users. The model frees them immediately, whatever the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FreedSlots {
    /// \[..6.14\] freed 64 at a time per processor.
    Batched,
    /// \[6.15+\] freed immediately.
    AtOnce,
}

impl ReclaimRules {
    /// Two lists, as in every kernel recorded before.
    #[must_use]
    pub const fn stock() -> Self {
        Self {
            lru: LruRule::Lists,
            generations: GenerationRule::Reworked,
            folio_batch: 31,
            recency: Recency::RandomToo,
            group_stats: GroupStats::Periodic,
            zap: ZapRule::Keeps,
            failed_scan: FailedScan::Repeats,
            deferred_queue: DeferredQueue::Listed,
            advised: AdvisedFolios::Whole,
            split_parts: SplitParts::Descending,
            cost: CostRule::Nonzero,
            swap_device: SwapDevice::Zram,
            swap_in: SwapIn::Cached,
            store_frees: StoreFrees::Alone,
            fault_drains: FaultDrains::ForStores,
            zero_pages: ZeroPages::Noted,
            slot_choice: SlotChoice::UsedFirst,
            freed_slots: FreedSlots::AtOnce,
            dirty_background_ratio: 10,
            compaction_proactiveness: 20,
        }
    }
}
