//! Rules of collapse: what khugepaged and `MADV_COLLAPSE` may make a large folio of, and when they
//! give up (docs/behaviour H).
//!
//! Owns the values. The code that follows them is in `collapse/`; the limit of empty pages is that
//! of the under-use test ([`super::anon::AnonRules::max_ptes_none`]).

use serde::{Deserialize, Serialize};

use crate::units::PageSize;

/// Longest sleep of khugepaged in milliseconds, 50 days: what sysfs takes, an unsigned int. In
/// nanoseconds it is a number of 52 bits.
pub const SLEEP_MS_MAX: u64 = 1 << 32;

/// Everything in which kernels and settings differ for collapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollapseRules {
    /// Which file mappings may be collapsed.
    pub file: FileCollapse,
    /// `transparent_hugepage/shmem_enabled`, as far as khugepaged asks it.
    pub shmem: ShmemEnabled,
    /// Which folio sizes that khugepaged collapses anonymous memory to.
    pub sizes: CollapseSizes,
    /// A range without one writable page.
    pub read_only: ReadOnlyRange,
    /// What khugepaged does at a clean lazy-free folio.
    pub lazyfree: Lazyfree,
    /// Which area decides whether `MADV_HUGEPAGE` puts a process into khugepaged's list.
    pub advised: AdvisedArea,
    /// What a block costs khugepaged of the pages that it may scan.
    pub scan_cost: ScanCost,
    /// What `MADV_COLLAPSE` does with a dirty range of a file.
    pub dirty: DirtyRange,
    /// Whether khugepaged writes back a file that is open for writing.
    pub flush: DirtyFlush,
    /// What `MADV_COLLAPSE` answers where a filesystem keeps private data.
    pub private_data: PrivateData,
    /// What `MADV_COLLAPSE` does after a block of anonymous memory in which nothing is mapped.
    pub empty_block: EmptyBlock,
    /// What a process gets of a collapsed block of a file if it has no table for a PMD entry.
    pub pmd_table: PmdTable,
    /// What becomes of a file's range with large folios.
    pub large: LargeFolios,
    /// Whose tables go when a block of a file is collapsed on request.
    pub retract: Retract,
    /// What `MADV_COLLAPSE` answers to a request that holds no whole block.
    pub short_request: ShortRequest,
    /// `khugepaged/max_ptes_swap`.
    pub max_ptes_swap: SwapPtes,
    /// `khugepaged/max_ptes_shared`.
    pub max_ptes_shared: SharedPtes,
    /// `khugepaged/pages_to_scan` in PMD ranges: 8 of 512 pages are 4096.
    pub ranges_to_scan: u64,
    /// `khugepaged/scan_sleep_millisecs`, at most [`SLEEP_MS_MAX`].
    pub scan_sleep_ms: u64,
    /// `khugepaged/alloc_sleep_millisecs`, at most [`SLEEP_MS_MAX`].
    pub alloc_sleep_ms: u64,
    /// `khugepaged/defrag`: khugepaged reclaims before an allocation fails (D.5.1).
    pub defrag: bool,
}

/// H.1.3: the file rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileCollapse {
    /// `READ_ONLY_THP_FOR_FS` is not built: no file of a disk.
    Absent,
    /// \[5.4 .. 5.13\] the running executable, whose file cannot be written to.
    DenyWrite,
    /// Series 003, \[5.14 .. 6.1\] executable mappings of a file that is not open for writing.
    Exec,
    /// \[6.12 .. 7.1\] any mapping of a file that is not open for writing.
    Readers,
    /// \[7.2\] files whose folios may have the PMD order; writers do not matter.
    LargeFolios,
}

/// Shared memory and khugepaged; `MADV_COLLAPSE` does not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShmemEnabled {
    /// Never.
    Never,
    /// Where `MADV_HUGEPAGE` was given.
    Advise,
    /// Blocks that lie inside the file.
    WithinSize,
    /// Everywhere.
    Always,
}

/// H.6.4: sizes of what khugepaged makes of anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollapseSizes {
    /// The PMD size.
    PmdOnly,
    /// \[7.2\] every size that is enabled for the area.
    Enabled,
}

/// H.6.1: anonymous ranges in which no PTE is writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadOnlyRange {
    /// \[6.1, 6.12\] refused.
    Refused,
    /// \[6.18+\] collapsed like others (observed; docs/design/collapse.md).
    Collapsed,
}

/// H.6.1: clean folios after `MADV_FREE`, for khugepaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lazyfree {
    /// Collapsed like others.
    Collapsed,
    /// \[7.2\] left alone.
    Refused,
}

/// D.2.9: the area that `MADV_HUGEPAGE` looks at before a process enters khugepaged's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdvisedArea {
    /// The whole area before it is cut to the advised part, and what the part is merged into.
    Whole,
    /// \[7.2\] what it has become, if the advice changed anything.
    Changed,
}

/// H.6.5: pages that a block counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScanCost {
    /// All of its pages.
    Block,
    /// \[7.2\] the entries that were examined; 1 where there is no table, or the page cache has the
    /// large folio.
    Examined,
}

/// H.5.1: dirty or under writeback, for `MADV_COLLAPSE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirtyRange {
    /// \[6.1, 6.12\] a failure like any other.
    Fails,
    /// The caller is told to try again.
    Again,
    /// \[7.0+\] the range is written back, and tried once more.
    WrittenBack,
}

/// H.5 step 3: what khugepaged does about dirty pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirtyFlush {
    /// Their writeback is started.
    Always,
    /// \[7.2\] unless the file is open for writing.
    UnlessOpenForWrite,
}

/// H.5.1: private data that a filesystem does not release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrivateData {
    /// \[6.12\] `EINVAL`.
    Invalid,
    /// \[7.2\] `EAGAIN`.
    Again,
}

/// H.5.2: an empty PMD slot. That a table of PMD slots may be absent too, where the kernel goes on,
/// is not told apart here: an area with pages has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmptyBlock {
    /// \[6.1 .. 6.18\] the blocks after it are not tried.
    EndsWalk,
    /// \[6.19+\] they are.
    SteppedOver,
}

/// C.6.3: what a process has of the tables of a block of a file, or the block is collapsed and
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PmdTable {
    /// \[6.1\] a table of PTEs for the block, or a PMD entry.
    Block,
    /// \[6.12 .. 6.17\] the table that a PMD entry stands in, one for 512 of them.
    Needed,
    /// \[6.18+\] it is made.
    Made,
}

/// H.5 step 6: which areas of a block lose their tables when `MADV_COLLAPSE` collapses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Retract {
    /// \[6.1\] the one that was asked for.
    Own,
    /// \[6.12+\] all.
    All,
}

/// H.4.1: folios of a file that are large and smaller than a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LargeFolios {
    /// \[6.1\] refused.
    Refused,
    /// \[6.12+\] collapsed like base pages.
    Collapsed,
}

/// H.5.1: a request without a whole aligned block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShortRequest {
    /// \[6.1 .. 6.18\] refused, unless it holds exactly one border between blocks.
    Refused,
    /// \[7.2\] there is nothing to do.
    Done,
}

/// `max_ptes_swap`: pages of a block that are in swap space or, of a file, evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwapPtes {
    /// An eighth of the block: the default.
    Eighth,
    /// This many.
    Exactly(u64),
}

/// `max_ptes_shared`: pages of a block that other processes may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedPtes {
    /// Half of the block: the default.
    Half,
    /// This many.
    Exactly(u64),
}

impl CollapseRules {
    /// Linux 6.18 as distributions build it.
    #[must_use]
    pub const fn stock() -> Self {
        Self {
            file: FileCollapse::Absent,
            shmem: ShmemEnabled::Never,
            sizes: CollapseSizes::PmdOnly,
            read_only: ReadOnlyRange::Collapsed,
            lazyfree: Lazyfree::Collapsed,
            advised: AdvisedArea::Whole,
            scan_cost: ScanCost::Block,
            dirty: DirtyRange::Fails,
            flush: DirtyFlush::Always,
            private_data: PrivateData::Invalid,
            empty_block: EmptyBlock::EndsWalk,
            pmd_table: PmdTable::Made,
            large: LargeFolios::Collapsed,
            retract: Retract::All,
            short_request: ShortRequest::Refused,
            max_ptes_swap: SwapPtes::Eighth,
            max_ptes_shared: SharedPtes::Half,
            ranges_to_scan: 8,
            scan_sleep_ms: 10_000,
            alloc_sleep_ms: 60_000,
            defrag: true,
        }
    }

    /// Pages of a block that may be swapped out (0.4: 64 of 512).
    #[must_use]
    pub const fn swap_limit(&self, page: PageSize) -> u64 {
        match self.max_ptes_swap {
            SwapPtes::Eighth => page.pmd_order().nr_pages() / 8,
            SwapPtes::Exactly(nr) => nr,
        }
    }

    /// Pages of a block that may be mapped by others (0.4: 256 of 512).
    #[must_use]
    pub const fn shared_limit(&self, page: PageSize) -> u64 {
        match self.max_ptes_shared {
            SharedPtes::Half => page.pmd_order().nr_pages() / 2,
            SharedPtes::Exactly(nr) => nr,
        }
    }

    /// Pages that khugepaged scans before it sleeps (0.4).
    #[must_use]
    pub const fn pages_to_scan(&self, page: PageSize) -> u64 {
        self.ranges_to_scan.saturating_mul(page.pmd_order().nr_pages())
    }
}
