//! Exact event counts, with vmstat's names if vmstat has them.

pub mod collapse;
pub mod hugetlb;
pub mod mapcounts;
pub mod mapped;
pub mod numa;
pub mod policy;
pub mod reclaim;
pub mod split;
pub mod writers;

use crate::units::Order;
use collapse::CollapseCounters;
use hugetlb::HugetlbCounters;
use mapcounts::MapcountUpdates;
use mapped::MappedCounters;
use numa::NumaCounters;
use policy::PolicyCounters;
use reclaim::ReclaimCounters;
use split::SplitRefusal;
use writers::WriterCounters;

/// Number of orders a folio can have (0 ..= 13).
pub const NR_ORDERS: usize = 14;

/// Events since the memory manager was made. All are counts; pages are base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Faults (`pgfault`); a retried fault counts once.
    pub pgfault: u64,
    /// Faults counted major in the task (B.2.5).
    pub pgmajfault: u64,
    /// Faults on pages absent from the page cache (B.2.3).
    pub nr_cold: u64,
    /// Faults that fault-around resolved (B.5.10).
    pub nr_around: u64,
    /// Faults resolved by the finishing step for a page-cache page (B.6).
    pub nr_finish: u64,
    /// First touches of anonymous memory that got a folio.
    pub nr_anon_faults: u64,
    /// First reads of anonymous memory, served by the shared zero page or the huge zero folio.
    pub nr_zero_page: u64,
    /// Writes that copied a page (private file pages, shared anonymous pages).
    pub nr_cow: u64,
    /// Writes that made an existing page writable.
    pub nr_wp_reuse: u64,
    /// Faults that swapped a page in and needed no copy of it.
    pub nr_swap_in: u64,
    /// Writes that copied a page of a large anonymous folio.
    pub nr_cow_large: u64,
    /// PTEs and PMD entries that fork copied.
    pub nr_forked: u64,
    /// PMD entries among `nr_forked`.
    pub nr_pmds_forked: u64,
    /// Batches in which fork copied PTEs: pages of one folio at a time (E.1.1).
    pub nr_batches_forked: u64,
    /// Batches of large folios among `nr_batches_forked`.
    pub nr_large_batches_forked: u64,
    /// Pinned pages that fork copied for the child immediately (E.1.3).
    pub nr_fork_copied: u64,
    /// PMD folios allocated by faults.
    pub thp_fault_alloc: u64,
    /// PMD folios that faults failed to allocate (D.3.2).
    pub thp_fault_fallback: u64,
    /// PMD folios of shared memory allocated (Q.2).
    pub thp_file_alloc: u64,
    /// PMD folios of shared memory that could not be allocated or charged (Q.2.3).
    pub thp_file_fallback: u64,
    /// Huge zero folios allocated.
    pub thp_zero_page_alloc: u64,
    /// Huge zero folios that could not be allocated.
    pub thp_zero_page_alloc_failed: u64,
    /// PMD mappings of anonymous memory split into PTEs.
    pub thp_split_pmd: u64,
    /// Under-used folios that the shrinker split (G.2.4).
    pub thp_underused_split_page: u64,
    /// Zero-filled pages replaced by the shared zero page when their folio was split.
    pub nr_split_zero_pages: u64,
    /// Anonymous memory by folio order.
    pub sizes: [SizeCounters; NR_ORDERS],
    /// Refused splits, by [`SplitRefusal`].
    pub split_refused: [u64; SplitRefusal::ALL.len()],
    /// Collapse by khugepaged and by advice.
    pub collapse: CollapseCounters,
    /// Pages written back to files.
    pub nr_written: u64,
    /// Times a fault dropped its lock for I/O and was retried (B.2.5).
    pub nr_retry: u64,
    /// PTEs set for page-cache pages.
    pub nr_file_ptes: u64,
    /// PMD entries set for page-cache folios.
    pub nr_file_pmds: u64,
    /// PTEs set to map a page of a folio, including by fork.
    pub nr_ptes_set: u64,
    /// Batches in which PTEs were set, including by fork: pages of one folio at a time (B.5.7).
    pub nr_batches_set: u64,
    /// PMD entries set to map a folio, including by fork.
    pub nr_pmds_set: u64,
    /// PTEs of folios that were cleared.
    pub nr_ptes_cleared: u64,
    /// PMD entries of folios that were cleared.
    pub nr_pmds_cleared: u64,
    /// Batches in which PTEs were cleared: pages of one folio at a time (G.1.1).
    pub nr_batches_cleared: u64,
    /// Batches of large folios among `nr_batches_cleared`.
    pub nr_large_batches_cleared: u64,
    /// Folios freed when their last entry was cleared.
    pub nr_unmapped_freed: u64,
    /// Pages of `nr_unmapped_freed`.
    pub nr_unmapped_freed_pages: u64,
    /// Mapcount updates for entries that were set, including by fork.
    pub mapcounts_set: MapcountUpdates,
    /// Mapcount updates by fork, among `mapcounts_set`.
    pub mapcounts_forked: MapcountUpdates,
    /// Mapcount updates for entries that were cleared, or for a PMD entry split into PTEs.
    pub mapcounts_cleared: MapcountUpdates,
    /// Windows that readahead filled, in folios of any size.
    pub nr_windows: u64,
    /// Windows started by the marker (A.4).
    pub nr_async: u64,
    /// Cold faults denied readahead by the miss counter (L.4).
    pub nr_gated: u64,
    /// Pages read from files.
    pub nr_read: u64,
    /// Large folios that could not be allocated: the rest was read in the smallest folios.
    pub large_folio_fallback: u64,
    /// Folios that page caches tried to allocate, by order.
    pub nr_file_tried: [u64; NR_ORDERS],
    /// Failed allocations among `nr_file_tried`, by order.
    pub nr_file_denied: [u64; NR_ORDERS],
    /// Folios inserted into the page cache, by order.
    pub nr_inserted: [u64; NR_ORDERS],
    /// Memory pressure.
    pub reclaim: ReclaimCounters,
    /// PMD mappings refused although the folio's order allowed one, by [`PmdRefusal`].
    pub pmd_refused: [u64; PmdRefusal::ALL.len()],
    /// Opens for writing, and program executions.
    pub writers: WriterCounters,
    /// Hugetlb pages.
    pub hugetlb: HugetlbCounters,
    /// Nodes of machines that have several.
    pub numa: NumaCounters,
    /// Pages that are mapped now.
    pub mapped: MappedCounters,
    /// Questions to a policy, and their outcome.
    pub policy: PolicyCounters,
}

/// Counts of one folio size, named as in `transparent_hugepage/hugepages-<kB>kB/stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeCounters {
    /// Faults that got a folio of this size.
    pub anon_fault_alloc: u64,
    /// Faults that found no free folio of this size and tried a smaller one (D.2.5).
    pub anon_fault_fallback: u64,
    /// Folios of shared memory of this size (Q.2).
    pub shmem_alloc: u64,
    /// Folios of shared memory of this size that could not be allocated or charged (Q.2.3).
    pub shmem_fallback: u64,
    /// Folios that were split.
    pub split: u64,
    /// Folios that could not be split.
    pub split_failed: u64,
    /// Folios that became partially mapped and were queued (G.2.1).
    pub split_deferred: u64,
    /// Anonymous folios that exist now.
    pub nr_anon: u64,
    /// Partially mapped folios among `nr_anon`.
    pub nr_anon_partially_mapped: u64,
}

impl Counters {
    /// Returns the counts of one size.
    #[must_use]
    pub fn size(&self, order: Order) -> &SizeCounters {
        &self.sizes[usize::from(order.get())]
    }

    pub(crate) fn size_mut(&mut self, order: Order) -> &mut SizeCounters {
        &mut self.sizes[usize::from(order.get())]
    }

    pub(crate) fn count_inserted(&mut self, order: Order) {
        self.nr_inserted[usize::from(order.get())] += 1;
    }
}

/// Why a folio of PMD order was not mapped by a PMD entry (B.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmdRefusal {
    /// Address and file offset differ modulo the PMD size.
    Misaligned,
    /// The PMD range does not fit inside the VMA.
    VmaTooSmall,
    /// `MADV_NOHUGEPAGE`.
    Nohugepage,
    /// The folio reaches the end of the file (B.5.6).
    EndOfFile,
    /// A PTE table is already there.
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

    /// Name in JSON and tables.
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
