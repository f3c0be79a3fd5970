//! `meminfo` and `smaps` of the replayed program at the moment when most memory is mapped
//! (docs/behaviour F.5).
//!
//! Candidates are the moments when an address space ends, including the end of the trace, and those
//! before shared memory is unmapped; the first wins among equals. The kernel's numbers come with
//! exact ones, because a kernel with `NO_PAGE_MAPCOUNT` counts a partially mapped folio as a whole,
//! and a page as shared if its folio is shared.

use std::collections::BTreeMap;

use largefolio_mm::counters::Counters;
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
    /// Page cache in folios of the PMD size or more.
    pub file_huge_pages_bytes: u64,
    /// The same of shared memory and tmpfs.
    pub shmem_huge_pages_bytes: u64,
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
    /// Bit 56 of pagemap: pages that only one entry maps.
    pub exclusive_bytes: u64,
    /// Pages whose `kpagecount` is 1.
    pub mapped_once_bytes: u64,
    /// `mapmax` of `numa_maps`: the most entries that map a page. Of several processes, the largest.
    pub mapmax: u64,
}

/// The page cache, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct CachedBytes {
    /// Files in memory included.
    all: u64,
    shmem: u64,
    file_huge: u64,
    shmem_huge: u64,
}

impl CachedBytes {
    fn of(memory: &Memory) -> Self {
        let page = memory.rules().page;
        let mut cached = Self::default();
        for (_, mapping) in memory.core().mappings() {
            for entry in mapping.tree.iter() {
                let bytes = entry.order.nr_pages() << page.shift();
                let huge_bytes = if entry.order >= page.pmd_order() { bytes } else { 0 };
                cached.all += bytes;
                if mapping.is_shmem {
                    cached.shmem += bytes;
                    cached.shmem_huge += huge_bytes;
                } else {
                    cached.file_huge += huge_bytes;
                }
            }
        }
        cached
    }
}

/// Amounts in a cgroup's `memory.stat`, in bytes, if it holds the whole program.
pub(crate) type MemoryStat = BTreeMap<&'static str, u64>;

fn memory_stat(machine: &MachineBytes, cached: &CachedBytes) -> MemoryStat {
    BTreeMap::from([
        ("anon", machine.anon_pages_bytes),
        ("file", cached.all),
        ("shmem", cached.shmem),
        ("file_mapped", machine.mapped_bytes),
        ("anon_thp", machine.anon_huge_pages_bytes),
        ("file_thp", cached.file_huge),
        ("shmem_thp", cached.shmem_huge),
    ])
}

/// Returns events in `memory.stat` between two counts.
pub(crate) fn memory_events(base: &Counters, now: &Counters) -> MemoryStat {
    let of = |counters: &Counters| {
        let reclaim = &counters.reclaim;
        [
            ("pgfault", counters.pgfault),
            ("pgmajfault", counters.pgmajfault),
            ("thp_fault_alloc", counters.thp_fault_alloc),
            ("thp_collapse_alloc", counters.collapse.thp_collapse_alloc),
            ("workingset_refault_anon", reclaim.workingset_refault_anon),
            ("workingset_refault_file", reclaim.workingset_refault_file),
            ("workingset_activate_anon", reclaim.workingset_activate_anon),
            ("workingset_activate_file", reclaim.workingset_activate_file),
            ("workingset_restore_anon", reclaim.workingset_restore_anon),
            ("workingset_restore_file", reclaim.workingset_restore_file),
        ]
    };
    let pairs = of(now).into_iter().zip(of(base));
    pairs.map(|((name, now), (_, base))| (name, now - base)).collect()
}

impl MachineBytes {
    fn new(counters: &MappedCounters, cached: &CachedBytes, page_bytes: u64) -> Self {
        Self {
            anon_pages_bytes: counters.nr_anon * page_bytes,
            mapped_bytes: counters.nr_file * page_bytes,
            anon_huge_pages_bytes: counters.nr_anon_by_pmd * page_bytes,
            shmem_pmd_mapped_bytes: counters.nr_shmem_by_pmd * page_bytes,
            file_pmd_mapped_bytes: counters.nr_file_by_pmd * page_bytes,
            file_huge_pages_bytes: cached.file_huge,
            shmem_huge_pages_bytes: cached.shmem_huge,
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
            exclusive_bytes: smaps.exclusive_bytes,
            mapped_once_bytes: smaps.mapped_once_bytes,
            mapmax: smaps.mapmax.into(),
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
        self.exclusive_bytes += other.exclusive_bytes;
        self.mapped_once_bytes += other.mapped_once_bytes;
        self.mapmax = self.mapmax.max(other.mapmax);
    }
}

impl Statistics {
    /// Collects the statistics. `living` holds each address space with its first process.
    fn of(memory: &Memory, cached: &CachedBytes, mut living: Vec<(usize, MmId)>) -> Self {
        let page_bytes = memory.rules().page.bytes();
        let maps = memory.page_maps();
        let mut statistics = Self {
            machine: MachineBytes::new(&memory.counters().mapped, cached, page_bytes),
            machine_exact: MachineBytes::new(maps.mapped(), cached, page_bytes),
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
    pub(crate) memory_stat: MemoryStat,
    /// Mapped pages near the CPU and on other nodes; zero on a machine with one node.
    pub(crate) near_and_far: [u64; 2],
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
            let cached = CachedBytes::of(memory);
            let near_and_far = near_and_far(memory, &living);
            let statistics = Statistics::of(memory, &cached, living);
            let nr_bytes = statistics.total.rss_bytes;
            if nr_bytes > self.nr_bytes {
                let memory_stat = memory_stat(&statistics.machine, &cached);
                *self = Self { nr_bytes, statistics, page_table_bytes, memory_stat, near_and_far };
            }
        }
        may_be_larger
    }

    pub(crate) fn nr_pages(&self, page: PageSize) -> usize {
        usize::try_from(self.nr_bytes >> page.shift()).unwrap_or(usize::MAX)
    }
}

fn near_and_far(memory: &Memory, living: &[(usize, MmId)]) -> [u64; 2] {
    if memory.core().buddy.is_single() {
        return [0; 2];
    }
    let each = living.iter().map(|&(_, mm)| memory.mapped_near_and_far(mm));
    each.fold([0; 2], |[near, far], [more_near, more_far]| [near + more_near, far + more_far])
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
pub(crate) fn mapped_bytes(memory: &Memory) -> u64 {
    let (now, page) = (memory.counters(), memory.rules().page);
    let nr_pmds = now.nr_pmds_set.saturating_sub(now.nr_pmds_cleared);
    let nr_ptes = now.nr_ptes_set.saturating_sub(now.nr_ptes_cleared);
    (nr_ptes + nr_pmds * page.pmd_order().nr_pages()) << page.shift()
}
