//! Exact counts of events, with vmstat's names if it has one.

pub mod collapse;
pub mod hugetlb;
pub mod mapcounts;
pub mod mapped;
pub mod policy;
pub mod reclaim;
pub mod split;
pub mod writers;

use crate::units::Order;
use collapse::CollapseCounters;
use hugetlb::HugetlbCounters;
use mapcounts::MapcountUpdates;
use mapped::MappedCounters;
use policy::PolicyCounters;
use reclaim::ReclaimCounters;
use split::SplitRefusal;
use writers::WriterCounters;

/// Number of orders a folio can have (0 ..= 13).
pub const NR_ORDERS: usize = 14;

/// Events since the memory manager was made. All are counts; pages are base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Faults (`pgfault`), a retried fault counted once.
    pub pgfault: u64,
    /// Faults counted major in the task (B.2.5).
    pub pgmajfault: u64,
    /// Faults that found their page absent from the page cache (B.2.3).
    pub nr_cold: u64,
    /// Faults ended by fault-around (B.5.10).
    pub nr_around: u64,
    /// Faults ended by the finishing step for a page-cache page (B.6).
    pub nr_finish: u64,
    /// First touches of anonymous memory that got a folio.
    pub nr_anon_faults: u64,
    /// First reads of anonymous memory, served by the shared zero page or the huge zero folio.
    pub nr_zero_page: u64,
    /// Writes that copied a page (private file pages, shared anonymous pages).
    pub nr_cow: u64,
    /// Writes that made an existing page writable.
    pub nr_wp_reuse: u64,
    /// Faults that brought a page back from swap space and needed no copy of it.
    pub nr_swap_in: u64,
    /// Writes that copied a page of a large anonymous folio.
    pub nr_cow_large: u64,
    /// PTEs and PMD entries that fork copied.
    pub nr_forked: u64,
    /// Of these, PMD entries.
    pub nr_pmds_forked: u64,
    /// Batches in which fork copied PTEs: pages of one folio at a time (E.1.1).
    pub nr_batches_forked: u64,
    /// Of these, batches of large folios.
    pub nr_large_batches_forked: u64,
    /// Pinned pages that fork copied for the child at once (E.1.3).
    pub nr_fork_copied: u64,
    /// PMD folios that faults got.
    pub thp_fault_alloc: u64,
    /// PMD folios that faults wanted and did not get (D.3.2).
    pub thp_fault_fallback: u64,
    /// Huge zero folios made.
    pub thp_zero_page_alloc: u64,
    /// Huge zero folios that could not be made.
    pub thp_zero_page_alloc_failed: u64,
    /// PMD mappings of anonymous memory that became PTEs.
    pub thp_split_pmd: u64,
    /// Under-used folios that the shrinker split (G.2.4).
    pub thp_underused_split_page: u64,
    /// Zero-filled pages that gave way to the shared zero page when their folio was split.
    pub nr_split_zero_pages: u64,
    /// Anonymous memory by order of its folios.
    pub sizes: [SizeCounters; NR_ORDERS],
    /// Splits that were refused, by [`SplitRefusal`].
    pub split_refused: [u64; SplitRefusal::ALL.len()],
    /// Collapse by khugepaged and by advice.
    pub collapse: CollapseCounters,
    /// Pages written back to files.
    pub nr_written: u64,
    /// Times a fault dropped its lock for I/O and was repeated (B.2.5).
    pub nr_retry: u64,
    /// PTEs set for page-cache pages.
    pub nr_file_ptes: u64,
    /// PMD entries set for page-cache folios.
    pub nr_file_pmds: u64,
    /// PTEs that came to map a page of a folio, fork included.
    pub nr_ptes_set: u64,
    /// Batches in which PTEs were set, fork included: pages of one folio at a time (B.5.7).
    pub nr_batches_set: u64,
    /// PMD entries that came to map a folio, fork included.
    pub nr_pmds_set: u64,
    /// PTEs of folios that were taken away.
    pub nr_ptes_cleared: u64,
    /// PMD entries of folios that were taken away.
    pub nr_pmds_cleared: u64,
    /// Batches in which PTEs were taken away: pages of one folio at a time (G.1.1).
    pub nr_batches_cleared: u64,
    /// Of these, batches of large folios.
    pub nr_large_batches_cleared: u64,
    /// Folios that were freed when their last entry was taken away.
    pub nr_unmapped_freed: u64,
    /// Their pages.
    pub nr_unmapped_freed_pages: u64,
    /// Updates of map counts by entries that came, fork included.
    pub mapcounts_set: MapcountUpdates,
    /// Of these, by fork.
    pub mapcounts_forked: MapcountUpdates,
    /// Updates of map counts by entries that went, or by a PMD entry that became PTEs.
    pub mapcounts_cleared: MapcountUpdates,
    /// Windows that readahead filled, in folios of any size.
    pub nr_windows: u64,
    /// Windows started by the marker (A.4).
    pub nr_async: u64,
    /// Cold faults that were refused readahead by the miss counter (L.4).
    pub nr_gated: u64,
    /// Pages read from files.
    pub nr_read: u64,
    /// Large folios that could not be allocated: the rest was read in the smallest folios.
    pub large_folio_fallback: u64,
    /// Folios that page caches asked for, by order.
    pub nr_file_asked: [u64; NR_ORDERS],
    /// Those of them that were not free.
    pub nr_file_denied: [u64; NR_ORDERS],
    /// Folios inserted into the page cache, by order.
    pub nr_inserted: [u64; NR_ORDERS],
    /// What memory pressure did.
    pub reclaim: ReclaimCounters,
    /// PMD mappings that were possible by order and refused, by [`PmdRefusal`].
    pub pmd_refused: [u64; PmdRefusal::ALL.len()],
    /// Opens for writing and runs.
    pub writers: WriterCounters,
    /// Huge pages of pools.
    pub hugetlb: HugetlbCounters,
    /// Pages that are mapped now.
    pub mapped: MappedCounters,
    /// What a policy was asked and what came of it.
    pub policy: PolicyCounters,
}

/// Counts of one folio size, named as in `transparent_hugepage/hugepages-<kB>kB/stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeCounters {
    /// Faults that got a folio of this size.
    pub anon_fault_alloc: u64,
    /// Faults that found none free and went on with a smaller size (D.2.5).
    pub anon_fault_fallback: u64,
    /// Folios that were split.
    pub split: u64,
    /// Folios that could not be split.
    pub split_failed: u64,
    /// Folios that became partially mapped and were queued (G.2.1).
    pub split_deferred: u64,
    /// Anonymous folios that exist now.
    pub nr_anon: u64,
    /// Those of them that are partially mapped.
    pub nr_anon_partially_mapped: u64,
}

impl Counters {
    /// The counts of one size.
    #[must_use]
    pub fn size(&self, order: Order) -> &SizeCounters {
        &self.sizes[usize::from(order.get())]
    }

    pub(crate) fn size_mut(&mut self, order: Order) -> &mut SizeCounters {
        &mut self.sizes[usize::from(order.get())]
    }

    /// Counts a folio that entered a page cache.
    pub(crate) fn count_inserted(&mut self, order: Order) {
        self.nr_inserted[usize::from(order.get())] += 1;
    }
}

/// Why a folio of PMD order was not mapped by a PMD entry (B.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmdRefusal {
    /// Address and file offset differ mod the PMD size.
    Misaligned,
    /// The PMD range does not lie inside the VMA.
    VmaTooSmall,
    /// `MADV_NOHUGEPAGE`.
    Nohugepage,
    /// The folio reaches the end of the file (B.5.6).
    EndOfFile,
    /// A PTE table is there already.
    TablePresent,
}

impl PmdRefusal {
    /// Every refusal, in the order of [`Counters::pmd_refused`].
    pub const ALL: [Self; 5] = [
        Self::Misaligned,
        Self::VmaTooSmall,
        Self::Nohugepage,
        Self::EndOfFile,
        Self::TablePresent,
    ];

    /// Name as JSON and tables write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Misaligned => "misaligned",
            Self::VmaTooSmall => "vma_too_small",
            Self::Nohugepage => "nohugepage",
            Self::EndOfFile => "end_of_file",
            Self::TablePresent => "table_present",
        }
    }
}
