//! The counts of one cell.

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

/// Faults by kind. `total` is the sum of `around` to `hugetlb`, plus failed faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Faults of every kind.
    pub total: u64,
    /// Major faults: the page was not in the page cache.
    pub major: u64,
    /// Resolved by fault-around.
    pub around: u64,
    /// Resolved by the finishing step.
    pub finish: u64,
    /// First touch of anonymous memory.
    pub anon: u64,
    /// First read of anonymous memory: the zero page.
    pub zero_page: u64,
    /// A page was copied.
    pub cow: u64,
    /// A page was made writable.
    pub wp_reuse: u64,
    /// A page was read from swap and not copied.
    pub swap_in: u64,
    /// In `MAP_HUGETLB` mappings.
    pub hugetlb: u64,
    /// Repetitions after I/O.
    pub retries: u64,
}

/// File reads, and how much of the data was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Reads {
    /// Bytes read from files.
    pub bytes: u64,
    /// Bytes of files that the program used, in pieces of 4 KiB.
    pub used_bytes: u64,
    /// `bytes / used_bytes`; absent if nothing was used.
    pub amplification: Option<f64>,
    /// Readahead windows.
    pub windows: u64,
    /// Windows started by the marker.
    pub async_windows: u64,
    /// Cold faults without readahead because of the miss counter.
    pub gated: u64,
    /// Large folios that could not be allocated.
    pub large_folio_fallback: u64,
}

/// Counts for anonymous memory of one folio size, with the names of sysfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnonSize {
    /// Faults that allocated a large folio of this size.
    pub anon_fault_alloc: u64,
    /// Faults that found no free folio of this size and fell back to a smaller one.
    pub anon_fault_fallback: u64,
    /// Folios that were split.
    pub split: u64,
    /// Folios that could not be split.
    pub split_failed: u64,
    /// Folios that became partially mapped.
    pub split_deferred: u64,
}

/// Opens for writing, and their effect on huge folios (docs/behaviour H.2, H.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Writers {
    /// Opens for writing, including those implied by a write call or a writable shared mapping.
    pub opens: u64,
    /// Opens for writing of a running program, refused with `ETXTBSY`.
    pub text_busy: u64,
    /// Executions of a file that is open for writing, refused with `ETXTBSY`.
    pub open_for_write: u64,
    /// Opens that dropped a file's page cache because it held huge folios.
    pub drops: u64,
    /// Bytes that these opens dropped.
    pub dropped_bytes: u64,
}

/// Collapses, with vmstat's names if it has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Collapses {
    /// Large folios allocated for a collapse.
    pub thp_collapse_alloc: u64,
    /// Failed allocations of large folios for a collapse.
    pub thp_collapse_alloc_failed: u64,
    /// Ranges that became one folio by advice.
    pub collapsed: u64,
    /// khugepaged's own count: ranges that it collapsed, plus ranges of files that were already one
    /// folio, counted on every pass (H.6.5 c).
    pub pages_collapsed: u64,
    /// Ranges that were not collapsed, by reason.
    pub refused: BTreeMap<&'static str, u64>,
}

/// Page-table entries that were set and cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Entries {
    /// PTEs and PMD entries that faults set.
    pub set_by_faults: u64,
    /// PTEs and PMD entries that fork copied.
    pub set_by_fork: u64,
    /// PTEs that were cleared.
    pub ptes_cleared: u64,
    /// PMD entries that were cleared.
    pub pmds_cleared: u64,
    /// Batches in which PTEs were cleared. Each covers pages of one folio.
    pub batches_cleared: u64,
}

/// Atomic updates of map counts, by counter (docs/behaviour F.3, F.4.6, F.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mapcounts {
    /// Map counts of single pages. Large folios count only if the kernel keeps per-page counts.
    pub pages: u64,
    /// Plain counters of large folios: mapped pages, PMD mappings, mapcounts without owners.
    pub folios: u64,
    /// Owner words of large folios, one per call.
    pub owner_words: u64,
}

/// References that the replay could not follow, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Strays {
    /// Addresses outside every recorded mapping (signal trampolines, racing threads).
    pub unmapped: u64,
    /// Mappings that do not allow the access.
    pub protected: u64,
    /// Addresses past the end of a file.
    pub beyond_file: u64,
}

/// Huge pages of pools (docs/behaviour O), as counts of huge pages or of calls.
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
    /// Stores that reused a read-only page.
    pub reused: u64,
    /// Pages taken from children for their owner.
    pub taken: u64,
    /// Accesses that ended in SIGBUS because the pool was empty.
    pub sigbus: u64,
    /// Mappings larger than the pool, replayed as ordinary memory.
    pub maps_refused: u64,
    /// Mappings of a size without a pool, replayed as ordinary memory.
    pub maps_without_pool: u64,
}

/// A policy and the counts of its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicyOutcome {
    pub name: String,
    /// BLAKE3 of its object file, in hex; `None` for a Python policy.
    pub digest: Option<String>,
    /// By hook. Hooks without a call are left out.
    pub points: BTreeMap<&'static str, PolicyAnswers>,
}

/// Answers at one hook. The kernel decided all other cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicyAnswers {
    /// Calls of the policy.
    pub asked: u64,
    /// Answers that the kernel followed.
    pub honoured: u64,
    /// Answers that the kernel could not follow, or only in part.
    pub refused: u64,
}

/// One row of a result: a trace under one kernel on one machine with one seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The kernel's name with its edits.
    pub kernel: String,
    /// Whether recordings verify the kernel, before its edits.
    pub is_judged: bool,
    pub machine: String,
    /// Base page size in bytes.
    pub page_bytes: u64,
    /// Seed of the initial state of memory.
    pub seed: u64,
    /// `cold` or `warm` page cache at the start.
    pub cache: String,
    pub memory_bytes: u64,
    pub swap_bytes: u64,
    /// Cgroups with a limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupOutcome>,
    /// Page sizes that programs and libraries are linked for, as `SIZE` or `FILE=SIZE`; empty: as
    /// recorded.
    pub linked: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyOutcome>,
    /// Mapped memory by kind and folio size.
    pub folios: FolioSizes,
    /// `meminfo` and `smaps` at the moment when most is mapped.
    pub statistics: Statistics,
    /// Bytes in the page cache at the end by folio size, mapped or not.
    pub cached_bytes: BTreeMap<u64, u64>,
    /// Faults by the step that resolved them.
    pub faults: Faults,
    /// Bytes read from files, and readahead windows.
    pub reads: Reads,
    /// CPUs on which threads run.
    pub nr_cpus: u32,
    /// References, misses and walks on all CPUs; absent if none were counted.
    #[serde(skip_serializing_if = "tlb::Counters::is_empty")]
    pub tlb: tlb::Counters,
    /// Anonymous memory by folio size in bytes, base pages included.
    pub anon_sizes: BTreeMap<u64, AnonSize>,
    /// Folios requested and allocated, by size in bytes.
    pub asked: AskedSizes,
    /// The same counts per tenth of the trace; the key is the percentage at which the tenth ends.
    pub asked_tenths: BTreeMap<u64, AskedSizes>,
    /// Folios that ageing requested before the program started, by round.
    pub aged: BTreeMap<u64, AskedSizes>,
    /// Free memory in blocks smaller than each folio size at the start, in thousandths.
    pub unusable_at_start: BTreeMap<u64, u64>,
    /// PMD mappings refused, by reason.
    pub pmd_refused: BTreeMap<&'static str, u64>,
    /// Opens for writing, and the page cache that they dropped.
    pub writers: Writers,
    /// Collapses by advice and by khugepaged.
    pub collapse: Collapses,
    /// Effects of memory pressure, with vmstat's names. Zero counts are left out.
    pub pressure: BTreeMap<&'static str, u64>,
    pub zeroed_pages: u64,
    /// Base pages copied.
    pub copied_pages: u64,
    pub entries: Entries,
    pub mapcounts: Mapcounts,
    /// Bytes zeroed; the key is the length zeroed in one go, to the nearest power of two.
    pub cleared_bytes: BTreeMap<u64, u64>,
    /// Bytes copied, with the same key.
    pub copied_bytes: BTreeMap<u64, u64>,
    /// How long other threads wait while memory is cleared and copied.
    pub latency: Latency,
    /// Waits for reads.
    pub waits: ReadEvents,
    /// Estimated time by cause.
    pub estimate: Estimate,
    pub strays: Strays,
    /// Huge pages of pools; `None` if there is no pool and the trace has no such mapping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugetlb: Option<Hugetlb>,
    /// Results by program, and memory in use over the trace; `None` if one process ran one program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<ManyProcesses>,
    /// Whether segments are placed as in a program linked for larger pages than the recorded one:
    /// for the machine's base page, or for 64 KiB on arm64.
    pub is_replaced: bool,
    /// Places of folios and times of faults; absent unless requested.
    pub detail: Option<Detail>,
}
