//! Rules for collapse: what khugepaged and `MADV_COLLAPSE` can collapse (docs/behaviour H).
//!
//! Owns the values; `collapse/` follows them. The limit on empty pages belongs to the under-use
//! test ([`super::anon::AnonRules::max_ptes_none`]).

use serde::{Deserialize, Serialize};

use crate::units::PageSize;

/// Longest sleep of khugepaged in milliseconds, 50 days: sysfs takes an unsigned int.
pub const SLEEP_MS_MAX: u64 = 1 << 32;

/// All differences between kernels and settings for collapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollapseRules {
    /// Which file mappings can be collapsed.
    pub file: FileCollapse,
    /// Folio sizes to which khugepaged collapses anonymous memory.
    pub sizes: CollapseSizes,
    /// Whether a range without a writable page is collapsed.
    pub read_only: ReadOnlyRange,
    /// How khugepaged handles a clean lazy-free folio.
    pub lazyfree: Lazyfree,
    /// Which area decides whether `MADV_HUGEPAGE` registers a process with khugepaged.
    pub advised: AdvisedArea,
    /// How many pages of its scan budget a block costs khugepaged.
    pub scan_cost: ScanCost,
    /// How `MADV_COLLAPSE` handles a dirty range of a file.
    pub dirty: DirtyRange,
    /// Whether khugepaged writes back a file that is open for writing.
    pub flush: DirtyFlush,
    /// The error of `MADV_COLLAPSE` if a filesystem keeps private data.
    pub private_data: PrivateData,
    /// How `MADV_COLLAPSE` continues after a block of anonymous memory without mappings.
    pub empty_block: EmptyBlock,
    /// How a process maps a collapsed block of a file if it has no table for a PMD entry.
    pub pmd_table: PmdTable,
    /// Whether a file's range with large folios is collapsed.
    pub large: LargeFolios,
    /// Whose page tables are removed when a block of a file is collapsed on request.
    pub retract: Retract,
    /// The result of `MADV_COLLAPSE` for a request without a whole block.
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
    /// Built without `READ_ONLY_THP_FOR_FS`: no disk files.
    Absent,
    /// \[5.4 .. 5.13\] a running executable, whose file cannot be written.
    DenyWrite,
    /// Series 003, \[5.14 .. 6.1\] executable mappings of a file that is not open for writing.
    Exec,
    /// \[6.12 .. 7.1\] any mapping of a file that is not open for writing.
    Readers,
    /// \[7.2\] files that can have folios of the PMD order; writers do not matter.
    LargeFolios,
}

/// H.6.4: sizes to which khugepaged collapses anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollapseSizes {
    /// The PMD size.
    PmdOnly,
    /// \[7.2\] every size that is enabled for the area.
    Enabled,
}

/// H.6.1: anonymous ranges without a writable PTE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadOnlyRange {
    /// \[6.1, 6.12\] refused.
    Refused,
    /// \[6.18+\] collapsed like others (docs/behaviour N.20).
    Collapsed,
}

/// H.6.1: clean folios after `MADV_FREE`, in khugepaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lazyfree {
    /// Collapsed like others.
    Collapsed,
    /// \[7.2\] left alone.
    Refused,
}

/// D.2.9: the area that `MADV_HUGEPAGE` checks before it registers a process with khugepaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdvisedArea {
    /// The area before it is cut to the advised part, and the area that the part merges into.
    Whole,
    /// \[7.2\] the resulting area, if the advice changed anything.
    Changed,
}

/// H.6.5: pages that a block costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScanCost {
    /// All of its pages.
    Block,
    /// \[7.2\] the entries examined; 1 if there is no table or the large folio is already cached.
    Examined,
}

/// H.5.1: a dirty range or one under writeback, in `MADV_COLLAPSE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirtyRange {
    /// \[6.1, 6.12\] fails like any other.
    Fails,
    /// Fails with `EAGAIN`.
    Again,
    /// \[7.0+\] is written back and tried again.
    WrittenBack,
}

/// H.5 step 3: how khugepaged handles dirty pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirtyFlush {
    /// Starts their writeback.
    Always,
    /// \[7.2\] starts it unless the file is open for writing.
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

/// H.5.2: an empty PMD slot. The kernel also continues if the whole table of PMD slots is missing.
/// The model ignores that case: an area with pages has a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmptyBlock {
    /// \[6.1 .. 6.18\] ends the walk: later blocks are not tried.
    EndsWalk,
    /// \[6.19+\] continues with the next block.
    SteppedOver,
}

/// C.6.3: the tables that a process needs for a collapsed block of a file. Without them, the
/// request is refused after the collapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PmdTable {
    /// \[6.1\] a PTE table for the block, or a PMD entry.
    Block,
    /// \[6.12 .. 6.17\] the table that holds 512 PMD entries.
    Needed,
    /// \[6.18+\] none: it is created.
    Made,
}

/// H.5 step 6: which areas lose their tables when `MADV_COLLAPSE` collapses a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Retract {
    /// \[6.1\] only the requested area.
    Own,
    /// \[6.12+\] all areas.
    All,
}

/// H.4.1: large file folios that are smaller than a block.
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
    /// \[6.1 .. 6.18\] refused, unless it contains exactly one block boundary.
    Refused,
    /// \[7.2\] succeeds without doing anything.
    Done,
}

/// `max_ptes_swap`: pages of a block that can be in swap space or, in a file, evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwapPtes {
    /// An eighth of the block: the default.
    Eighth,
    /// This many.
    Exactly(u64),
}

/// `max_ptes_shared`: pages of a block that other processes can map.
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

    /// Pages of a block that can be in swap space (0.4: 64 of 512).
    #[must_use]
    pub const fn swap_limit(&self, page: PageSize) -> u64 {
        match self.max_ptes_swap {
            SwapPtes::Eighth => page.pmd_order().nr_pages() / 8,
            SwapPtes::Exactly(nr) => nr,
        }
    }

    /// Pages of a block that other processes can map (0.4: 256 of 512).
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
