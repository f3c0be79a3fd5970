//! What one cell counted.

use std::collections::BTreeMap;

use serde::Serialize;

use super::asked::AskedSizes;
use super::cgroup::CgroupOutcome;
use super::detail::Detail;
use super::programs::ManyProcesses;
use super::sizes::FolioSizes;
use super::statistics::Statistics;
use crate::cost::{Estimate, Latency, ReadEvents};
use crate::tlb;

/// Faults by kind; all are counts. `total` is the sum of `around` to `hugetlb` and of faults that
/// failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Faults of every kind.
    pub total: u64,
    /// Counted major: the page was not in the page cache.
    pub major: u64,
    /// Ended by fault-around.
    pub around: u64,
    /// Ended by the finishing step.
    pub finish: u64,
    /// First touch of anonymous memory.
    pub anon: u64,
    /// First read of anonymous memory: the zero page.
    pub zero_page: u64,
    /// A page was copied.
    pub cow: u64,
    /// A page was made writable.
    pub wp_reuse: u64,
    /// A page came back from swap space, and was not copied.
    pub swap_in: u64,
    /// In mappings of huge pages (`MAP_HUGETLB`).
    pub hugetlb: u64,
    /// Repetitions after I/O.
    pub retries: u64,
}

/// What was read from files, and what of it was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Reads {
    /// Bytes read from files.
    pub bytes: u64,
    /// Bytes of files the program used, in pieces of 4 KiB.
    pub used_bytes: u64,
    /// `bytes / used_bytes`; absent when nothing was used.
    pub amplification: Option<f64>,
    /// Windows of readahead, as a count.
    pub windows: u64,
    /// Windows started by the marker.
    pub async_windows: u64,
    /// Cold faults refused readahead by the miss counter.
    pub gated: u64,
    /// Large folios that could not be allocated.
    pub large_folio_fallback: u64,
}

/// What happened to anonymous memory of one folio size; names as in sysfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnonSize {
    /// Faults that got a large folio of this size.
    pub anon_fault_alloc: u64,
    /// Faults that found none free and went on with a smaller size.
    pub anon_fault_fallback: u64,
    /// Folios that were split.
    pub split: u64,
    /// Folios that could not be split.
    pub split_failed: u64,
    /// Folios that became partially mapped.
    pub split_deferred: u64,
}

/// Opens for writing, and what they did to huge folios (docs/behaviour H.2, H.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Writers {
    /// Opens for writing, also those that a write call or a shared mapping with stores implies.
    pub opens: u64,
    /// Opens for writing of a running program: refused (`ETXTBSY`).
    pub text_busy: u64,
    /// Runs of a program that is open for writing: refused (`ETXTBSY`).
    pub open_for_write: u64,
    /// Opens that dropped the page cache of a file because it held huge folios.
    pub drops: u64,
    /// Bytes that they dropped.
    pub dropped_bytes: u64,
}

/// Collapse, with the names of vmstat where it has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Collapses {
    /// Large folios allocated for it.
    pub thp_collapse_alloc: u64,
    /// Large folios that were not free.
    pub thp_collapse_alloc_failed: u64,
    /// Ranges that became one folio by advice.
    pub collapsed: u64,
    /// What khugepaged counts so: ranges that it made one folio of, and those of files that were one
    /// already each time it passes them (H.6.5 c).
    pub pages_collapsed: u64,
    /// Ranges that did not, by the reasons that occurred.
    pub refused: BTreeMap<&'static str, u64>,
}

/// Entries of page tables that came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Entries {
    /// PTEs and PMD entries of folios that faults set.
    pub set_by_faults: u64,
    /// PTEs and PMD entries that fork copied.
    pub set_by_fork: u64,
    /// PTEs that were cleared.
    pub ptes_cleared: u64,
    /// PMD entries taken away.
    pub pmds_cleared: u64,
    /// Batches, pages of one folio each, in which the PTEs were taken away.
    pub batches_cleared: u64,
}

/// Atomic updates of map counts, by what they change (docs/behaviour F.3, F.4.6, F.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mapcounts {
    /// Map counts of single pages; of large folios only if the kernel keeps them.
    pub pages: u64,
    /// Plain counters of large folios: mapped pages, PMD mappings, mapcounts without owners.
    pub folios: u64,
    /// Owner words of large folios: one a call.
    pub owner_words: u64,
}

/// References that the replay could not follow, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Strays {
    /// To addresses no recorded mapping covers (signal trampolines, racing threads).
    pub unmapped: u64,
    /// To mappings that do not allow the access.
    pub protected: u64,
    /// Beyond the end of a file.
    pub beyond_file: u64,
}

/// Huge pages of pools (docs/behaviour O). All are counts of huge pages or of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hugetlb {
    /// Faults that mapped a page where none was.
    pub faults: u64,
    /// Pages taken from a pool and zeroed.
    pub allocated: u64,
    /// Entries that fork copied.
    pub forked: u64,
    /// Stores that copied a page.
    pub copied: u64,
    /// Stores that kept a page that was mapped read-only.
    pub reused: u64,
    /// Pages taken from children for their owner.
    pub taken: u64,
    /// Touches that ended in SIGBUS because no page was left.
    pub sigbus: u64,
    /// Mappings that the pool was too small for; replayed as ordinary memory.
    pub maps_refused: u64,
    /// Mappings of a size without a pool; replayed as ordinary memory.
    pub maps_without_pool: u64,
}

/// A policy, and what came of its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicyOutcome {
    /// What it is called.
    pub name: String,
    /// BLAKE3 of its object file, in hex; `None` for one in Python.
    pub digest: Option<String>,
    /// By point; those at which it was never asked are left out.
    pub points: BTreeMap<&'static str, PolicyAnswers>,
}

/// Answers at one point, as counts; the rest of what was asked was left to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicyAnswers {
    /// Questions.
    pub asked: u64,
    /// Followed.
    pub honoured: u64,
    /// What a kernel could not do, or only in part.
    pub refused: u64,
}

/// One row of a result: a trace under one kernel on one machine with one seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Kernel, with its edits.
    pub kernel: String,
    /// Whether recordings judge the kernel, before its edits.
    pub is_judged: bool,
    /// Machine, by name.
    pub machine: String,
    /// Base page in bytes.
    pub page_bytes: u64,
    /// Seed of the initial state of memory.
    pub seed: u64,
    /// `cold` or `warm` page cache at the start.
    pub cache: String,
    /// Physical memory in bytes.
    pub memory_bytes: u64,
    /// Swap space in bytes.
    pub swap_bytes: u64,
    /// Control groups with a limit, and what became of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupOutcome>,
    /// Pages that programs and libraries are linked for, as `SIZE` or `FILE=SIZE`; empty: as
    /// recorded.
    pub linked: Vec<String>,
    /// The policy of the kernel, and what came of its answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyOutcome>,
    /// Mapped memory by kind and folio size.
    pub folios: FolioSizes,
    /// What `meminfo` and `smaps` say where most is mapped.
    pub statistics: Statistics,
    /// Bytes in the page cache at the end by folio size, mapped or not.
    pub cached_bytes: BTreeMap<u64, u64>,
    /// Faults by what ended them.
    pub faults: Faults,
    /// Bytes read from files, and windows.
    pub reads: Reads,
    /// CPUs on which threads run.
    pub nr_cpus: u32,
    /// References, misses and walks on all CPUs; absent if none were counted.
    #[serde(skip_serializing_if = "tlb::Counters::is_empty")]
    pub tlb: tlb::Counters,
    /// Anonymous memory by folio size in bytes, base pages included.
    pub anon_sizes: BTreeMap<u64, AnonSize>,
    /// Folios asked for and had, by size in bytes.
    pub asked: AskedSizes,
    /// The same in tenths of the trace, by the percentage at which each ends.
    pub asked_tenths: BTreeMap<u64, AskedSizes>,
    /// What ageing asked for before the program started, by round.
    pub aged: BTreeMap<u64, AskedSizes>,
    /// Thousandths of the free memory that lay in blocks smaller than a folio size at the start.
    pub unusable_at_start: BTreeMap<u64, u64>,
    /// PMD mappings refused, by reason.
    pub pmd_refused: BTreeMap<&'static str, u64>,
    /// Opens for writing, and what they dropped.
    pub writers: Writers,
    /// Collapse by advice and by khugepaged.
    pub collapse: Collapses,
    /// What memory pressure did, by name as in vmstat; counts that stayed 0 are left out.
    pub pressure: BTreeMap<&'static str, u64>,
    /// Pages filled with zeroes.
    pub zeroed_pages: u64,
    /// Base pages copied.
    pub copied_pages: u64,
    /// Entries of page tables.
    pub entries: Entries,
    /// Updates of map counts.
    pub mapcounts: Mapcounts,
    /// Bytes zeroed by the bytes, to the nearest power of two, that were zeroed in one go.
    pub cleared_bytes: BTreeMap<u64, u64>,
    /// Bytes copied, the same way.
    pub copied_bytes: BTreeMap<u64, u64>,
    /// How long others wait while memory is cleared and copied.
    pub latency: Latency,
    /// Who waited for which reads.
    pub waits: ReadEvents,
    /// Estimated time by cause.
    pub estimate: Estimate,
    /// What could not be followed.
    pub strays: Strays,
    /// Huge pages of pools; `None` where there is no pool and the trace has no such mapping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugetlb: Option<Hugetlb>,
    /// Results by program, and memory in use over the trace; `None` where one process ran one program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<ManyProcesses>,
    /// Whether segments stand where a program linked for larger pages than the recorded one has
    /// them: for the machine's base page, or for 64 KiB on arm64.
    pub is_replaced: bool,
    /// Where folios lie and when faults happened; absent unless it was asked for.
    pub detail: Option<Detail>,
}
