//! `meminfo` and `smaps` of the replayed program at the moment when most memory is mapped
//! (docs/behaviour F.5).
//!
//! Candidates are the moments when an address space ends, including the end of the trace; the first
//! wins among equals. The kernel's numbers come with exact ones, because a kernel with
//! `NO_PAGE_MAPCOUNT` counts a partially mapped folio as a whole, and a page as shared if its folio
//! is shared.

use largefolio_mm::counters::mapped::MappedCounters;
use largefolio_mm::memory::Memory;
use largefolio_mm::units::{MmId, PageSize};
use largefolio_mm::view::statistics::{CountedBy, Smaps};
use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    pub machine: MachineBytes,
    pub machine_exact: MachineBytes,
    pub total: ProcessBytes,
    pub total_exact: ProcessBytes,
    /// Each live process, in the order in which they started.
    pub processes: Vec<ProcessStatistics>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessStatistics {
    pub process: usize,
    pub kernel: ProcessBytes,
    pub exact: ProcessBytes,
}

/// `/proc/meminfo`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MachineBytes {
    pub anon_pages_bytes: u64,
    pub mapped_bytes: u64,
    pub anon_huge_pages_bytes: u64,
    pub shmem_pmd_mapped_bytes: u64,
    pub file_pmd_mapped_bytes: u64,
}

/// `smaps_rollup`, in bytes. PSS is rounded down for each process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessBytes {
    pub rss_bytes: u64,
    pub pss_bytes: u64,
    pub pss_anon_bytes: u64,
    pub pss_file_bytes: u64,
    pub pss_shmem_bytes: u64,
    /// USS: `Private_Clean` plus `Private_Dirty`.
    pub uss_bytes: u64,
    pub shared_clean_bytes: u64,
    pub shared_dirty_bytes: u64,
    pub private_clean_bytes: u64,
    pub private_dirty_bytes: u64,
}

impl MachineBytes {
    fn new(counters: &MappedCounters, page_bytes: u64) -> Self {
        Self {
            anon_pages_bytes: counters.nr_anon * page_bytes,
            mapped_bytes: counters.nr_file * page_bytes,
            anon_huge_pages_bytes: counters.nr_anon_by_pmd * page_bytes,
            shmem_pmd_mapped_bytes: counters.nr_shmem_by_pmd * page_bytes,
            file_pmd_mapped_bytes: counters.nr_file_by_pmd * page_bytes,
        }
    }
}

impl From<Smaps> for ProcessBytes {
    fn from(smaps: Smaps) -> Self {
        Self {
            rss_bytes: smaps.rss_bytes,
            pss_bytes: smaps.pss.bytes(),
            pss_anon_bytes: smaps.pss_anon.bytes(),
            pss_file_bytes: smaps.pss_file.bytes(),
            pss_shmem_bytes: smaps.pss_shmem.bytes(),
            uss_bytes: smaps.uss_bytes(),
            shared_clean_bytes: smaps.shared_clean_bytes,
            shared_dirty_bytes: smaps.shared_dirty_bytes,
            private_clean_bytes: smaps.private_clean_bytes,
            private_dirty_bytes: smaps.private_dirty_bytes,
        }
    }
}

impl std::ops::AddAssign for ProcessBytes {
    fn add_assign(&mut self, other: Self) {
        self.rss_bytes += other.rss_bytes;
        self.pss_bytes += other.pss_bytes;
        self.pss_anon_bytes += other.pss_anon_bytes;
        self.pss_file_bytes += other.pss_file_bytes;
        self.pss_shmem_bytes += other.pss_shmem_bytes;
        self.uss_bytes += other.uss_bytes;
        self.shared_clean_bytes += other.shared_clean_bytes;
        self.shared_dirty_bytes += other.shared_dirty_bytes;
        self.private_clean_bytes += other.private_clean_bytes;
        self.private_dirty_bytes += other.private_dirty_bytes;
    }
}

impl Statistics {
    /// Collects the statistics. `living` holds each address space with its first process.
    fn of(memory: &Memory, mut living: Vec<(usize, MmId)>) -> Self {
        let page_bytes = memory.rules().page.bytes();
        let maps = memory.page_maps();
        let mut statistics = Self {
            machine: MachineBytes::new(&memory.counters().mapped, page_bytes),
            machine_exact: MachineBytes::new(maps.mapped(), page_bytes),
            ..Self::default()
        };
        living.sort_unstable();
        for (process, mm) in living {
            let bytes_by = |by| ProcessBytes::from(memory.smaps_rollup(mm, by));
            let (kernel, exact) = (bytes_by(CountedBy::Kernel), bytes_by(CountedBy::Tables(&maps)));
            statistics.total += kernel;
            statistics.total_exact += exact;
            statistics.processes.push(ProcessStatistics { process, kernel, exact });
        }
        statistics
    }

    #[must_use]
    pub fn is_inexact(&self) -> bool {
        self.machine != self.machine_exact || self.total != self.total_exact
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Largest {
    nr_bytes: u64,
    pub(crate) statistics: Statistics,
    pub(crate) page_table_bytes: u64,
}

impl Largest {
    /// Keeps this moment if more is resident than ever before. Returns whether it looked.
    pub(crate) fn observe(
        &mut self,
        memory: &Memory,
        living: impl Iterator<Item = (usize, MmId)>,
    ) -> bool {
        // Mapped zero pages are not resident.
        let may_be_larger = mapped_bytes(memory) > self.nr_bytes;
        if may_be_larger {
            let living: Vec<(usize, MmId)> = living.collect();
            let page_table_bytes = page_table_bytes(memory, &living);
            let statistics = Statistics::of(memory, living);
            let nr_bytes = statistics.total.rss_bytes;
            if nr_bytes > self.nr_bytes {
                *self = Self { nr_bytes, statistics, page_table_bytes };
            }
        }
        may_be_larger
    }

    pub(crate) fn nr_pages(&self, page: PageSize) -> usize {
        usize::try_from(self.nr_bytes >> page.shift()).unwrap_or(usize::MAX)
    }
}

/// Returns the size of the last level of page tables. A PMD entry has a deposited table.
fn page_table_bytes(memory: &Memory, living: &[(usize, MmId)]) -> u64 {
    let nr_tables = living.iter().map(|&(_, mm)| {
        let stats = memory.space(mm).table.stats();
        stats.nr_tables + stats.nr_pmd_leaves
    });
    nr_tables.sum::<u64>() * memory.rules().page.bytes()
}

/// Returns the bytes that page tables map. A page mapped by two processes counts twice.
fn mapped_bytes(memory: &Memory) -> u64 {
    let (now, page) = (memory.counters(), memory.rules().page);
    let nr_pmds = now.nr_pmds_set.saturating_sub(now.nr_pmds_cleared);
    let nr_ptes = now.nr_ptes_set.saturating_sub(now.nr_ptes_cleared);
    (nr_ptes + nr_pmds * page.pmd_order().nr_pages()) << page.shift()
}
