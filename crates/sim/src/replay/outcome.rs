//! The counts of one cell.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cost::{Estimate, Latency, ReadEvents};
use crate::gaps::Gap;
use crate::replay::changed::Changed;
use crate::replay::observers::detail::Detail;
use crate::replay::observers::fault_times::FaultTimes;
use crate::replay::observers::programs::ManyProcesses;
use crate::replay::observers::regions::Regions;
use crate::replay::observers::requested::RequestedSizes;
use crate::replay::observers::sizes::FolioSizes;
use crate::replay::observers::statistics::Statistics;
use crate::replay::request::cgroup::CgroupOutcome;
use crate::tlb;

/// Faults by kind. `total` is the sum of `around` to `hugetlb`, plus failed faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    pub total: u64,
    pub major: u64,
    pub around: u64,
    pub finish: u64,
    pub anon: u64,
    pub zero_page: u64,
    pub cow: u64,
    pub wp_reuse: u64,
    /// A page was read from swap and not copied.
    pub swap_in: u64,
    pub hugetlb: u64,
    pub retries: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Reads {
    pub bytes: u64,
    /// Bytes of files that the program used, in pieces of 4 KiB.
    pub used_bytes: u64,
    /// `bytes / used_bytes`; absent if nothing was used.
    pub amplification: Option<f64>,
    pub windows: u64,
    pub async_windows: u64,
    /// Cold faults without readahead because of the miss counter.
    pub gated: u64,
    pub large_folio_fallback: u64,
}

/// Counts for anonymous memory of one folio size, with the names of sysfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnonSize {
    pub anon_fault_alloc: u64,
    pub anon_fault_fallback: u64,
    pub split: u64,
    pub split_failed: u64,
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
    pub drops: u64,
    pub dropped_bytes: u64,
}

/// Collapses, with vmstat's names if it has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Collapses {
    pub thp_collapse_alloc: u64,
    pub thp_collapse_alloc_failed: u64,
    pub collapsed: u64,
    /// khugepaged's own count: ranges that it collapsed, plus ranges of files that were already one
    /// folio, counted on every pass (H.6.5 c).
    pub pages_collapsed: u64,
    pub refused: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Entries {
    pub set_by_faults: u64,
    pub set_by_fork: u64,
    pub ptes_cleared: u64,
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
    pub protected: u64,
    pub beyond_file: u64,
}

/// Where memory was allocated (docs/behaviour R.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Nodes {
    /// On the node of the program's CPU.
    pub local_bytes: u64,
    /// On other nodes.
    pub other_bytes: u64,
    /// Mapped on the node of the program's CPU when most memory was mapped.
    pub mapped_local_bytes: u64,
    /// Mapped on other nodes then.
    pub mapped_other_bytes: u64,
    /// Faults on pages that NUMA balancing had marked (docs/behaviour R.6).
    pub hint_faults: u64,
    /// Memory that such faults moved near the CPU.
    pub hint_moved_bytes: u64,
}

/// Huge pages of pools (docs/behaviour O), as counts of huge pages or of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hugetlb {
    pub faults: u64,
    pub allocated: u64,
    pub forked: u64,
    pub copied: u64,
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
    pub asked: u64,
    pub honoured: u64,
    /// Answers that the kernel could not follow, or only in part.
    pub refused: u64,
}

/// One row of a result: a trace under one kernel on one machine with one seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    pub kernel: String,
    /// Whether recordings cover everything that the row depends on, except edits: no gaps.
    pub is_judged: bool,
    /// Everything without a rule or a recording; omitted if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
    pub machine: String,
    pub page_bytes: u64,
    pub seed: u64,
    /// `cold` or `warm` page cache at the start.
    pub cache: String,
    pub memory_bytes: u64,
    pub swap_bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupOutcome>,
    /// Settings that changed during the replay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Changed>,
    /// Page sizes that images are linked for, as `SIZE` or `FILE=SIZE`; empty: as recorded.
    pub linked: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyOutcome>,
    pub folios: FolioSizes,
    pub statistics: Statistics,
    /// Last level of page tables, when most memory was mapped.
    pub page_table_bytes: u64,
    /// `memory.stat` of a cgroup with the whole program: amounts in bytes when most memory is
    /// mapped, and events of the whole run.
    pub memory_stat: BTreeMap<&'static str, u64>,
    pub cached_bytes: BTreeMap<u64, u64>,
    pub faults: Faults,
    pub reads: Reads,
    pub nr_cpus: u32,
    #[serde(skip_serializing_if = "tlb::Counters::is_empty")]
    pub tlb: tlb::Counters,
    pub anon_sizes: BTreeMap<u64, AnonSize>,
    pub asked: RequestedSizes,
    /// The same counts per tenth of the trace; the key is the percentage at which the tenth ends.
    pub asked_tenths: BTreeMap<u64, RequestedSizes>,
    pub aged: BTreeMap<u64, RequestedSizes>,
    /// Free memory in blocks smaller than each folio size at the start, in thousandths.
    pub unusable_at_start: BTreeMap<u64, u64>,
    pub pmd_refused: BTreeMap<&'static str, u64>,
    pub writers: Writers,
    pub collapse: Collapses,
    /// Effects of memory pressure, with vmstat's names. Zero counts are left out.
    pub pressure: BTreeMap<&'static str, u64>,
    pub zeroed_pages: u64,
    pub copied_pages: u64,
    pub entries: Entries,
    pub mapcounts: Mapcounts,
    /// Bytes zeroed, by the length zeroed in one go (nearest power of two). `copied_bytes` has the
    /// same key.
    pub cleared_bytes: BTreeMap<u64, u64>,
    pub copied_bytes: BTreeMap<u64, u64>,
    pub latency: Latency,
    pub waits: ReadEvents,
    pub estimate: Estimate,
    pub strays: Strays,
    /// Memory by node; `None` on a machine with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
    /// Huge pages of pools; `None` without a pool if the trace has no such mapping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugetlb: Option<Hugetlb>,
    /// Results by program, and memory in use over the trace; `None` if one process ran one program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<ManyProcesses>,
    /// Whether segments are placed as if linked for pages larger than the recorded ones.
    pub is_replaced: bool,
    pub detail: Option<Detail>,
    /// Where the page walks are, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regions: Option<Regions>,
    /// How long page faults take, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault_times: Option<FaultTimes>,
}
