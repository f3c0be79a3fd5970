//! The result of `folio predict`.
//!
//! Invariants:
//! - I1: `reference < rows.len()` if any rows exist.
//! - I2: nothing depends on when or where the replay ran: the same trace, rules and command line
//!   give the same result, byte for byte.
//!
//! # JSON schema, version 1
//!
//! Counts are exact integers; everything under `estimate` is estimated. Keys appear in this order
//! and are never omitted. Consumers must accept further keys, which do not change the version.
//!
//! | key | type | meaning |
//! |---|---|---|
//! | `schema_version` | integer | 1 |
//! | `tool_version` | string | version of folio |
//! | `command_line` | strings | the command that made the result |
//! | `trace.path` | string | the trace, as given on the command line |
//! | `trace.digest` | string or null | BLAKE3 of the file, in hex |
//! | `trace.command` | strings | recorded program and its arguments |
//! | `trace.recorder` | string | `qemu`, `live`, `generator NAME`; `valgrind` in older traces |
//! | `trace.kernel` `trace.machine` | string | kernel and machine of the recording; empty for a generated trace |
//! | `trace.ended` | string | how the program ended |
//! | `trace.nr_references` `trace.nr_rows` | integer | the trace's size |
//! | `trace.attached` | object | only for a recording of running processes: `nr_rows` and `nr_pages` of the time before, which are not counted, and the recorded `run` |
//! | `trace.warnings` | strings | what the recorder could not see |
//! | `settings.memory_bytes` | integer | physical memory of the reference |
//! | `settings.swap_bytes` | integer | swap space |
//! | `settings.unusable_permille` | integer | fragmentation at the start: share of free memory in small blocks |
//! | `settings.unusable_bytes` | integer | blocks smaller than this are small; 0 = a PMD folio |
//! | `settings.aged_rounds` | integer | rounds of ageing before the start |
//! | `settings.filesystem` | string or null | filesystem that replaces the recorded ones |
//! | `settings.annotations` | strings | folio sizes that the loader requests |
//! | `settings.reference_ns` | integer | time of a reference on khugepaged's clock |
//! | `settings.rules_notes` | strings | requested kernels that use another version's rules, or that no recording judges |
//! | `reference` | integer | the row that the others are compared with: 0 |
//! | `verdict` | object | which column is best |
//! | `rows[]` | objects | one per kernel, machine, linking, memory and seed |
//! | `unfit[]` | objects | cells without a row because the program does not fit into their memory or a control group: `kernel` `machine` `page_bytes` `memory_bytes` `cgroups` `linked` `seed`; absent if all fit |
//! | `not_replayed[]` | objects | the same for cells that `--within` left out |
//!
//! The verdict. Columns are comparable on one machine with one memory size. Seeds are samples of a
//! column, and the row with the first seed represents all of them:
//!
//! | key | meaning |
//! |---|---|
//! | `goal` | `time`, `memory` (private memory at its peak plus the page cache at the end) or `faults` |
//! | `answers[]` | one per machine and memory size |
//! | `..finding` | `better` (than the reference), `first_is_best`, `same`, `not_certain` (bounds include 0, or are closer to 0 than 0.05% of a run), `not_known` (a cost is missing), `one_column` |
//! | `..reference` `..best` | rows: the one that the others are compared with, and the best: the reference, unless another is certainly better |
//! | `..columns[]` | `row`, and its `change` and `change_from_best` in percent of a run, of the memory or of the faults: `low`, `mid`, `high`, or null if not known or if the reference has 0 |
//! | `..causes` | which rules make the difference of row `row`, or null if they were not searched for: `rules[]` (as in `why[].switches`, with `points`: percent of the reference's value), `others` in points, and `nr_cells`: additional cells replayed |
//!
//! A row:
//!
//! | key | meaning |
//! |---|---|
//! | `kernel` `machine` `page_bytes` `seed` `cache` | which cell; `cache` is `cold` or `warm` |
//! | `is_judged` | false if no recording judges the kernel (before its edits; a kernel file counts as its base version) |
//! | `memory_bytes` `swap_bytes` | physical memory and swap space of the cell |
//! | `cgroups[]` | control groups with a limit: `name` `limit_bytes` `usage_bytes` (at the end) `peak_bytes` `evicted_bytes` `refaulted_bytes` `nr_limit_hits`; absent without `--cgroup` |
//! | `policy` | the kernel's policy: `name`, `digest` (BLAKE3 of its object file; null for one in Python), `points.POINT` with `asked`, `honoured`, `refused`; absent without one |
//! | `linked` | page sizes that programs and libraries are linked for, as `SIZE` or `FILE=SIZE`; empty: as recorded |
//! | `folios.text` `folios.data` | mapped file memory: executable mappings, and the others |
//! | `folios.shmem` `folios.anon` | shared memory without a file; private memory |
//! | `..mapped_bytes` | the sum of the sizes and of `partial_bytes` |
//! | `..by_size.SIZE` | `aligned_bytes`, `unaligned_bytes` in folios of SIZE bytes |
//! | `..partial_bytes` `..partial_by_size.SIZE` | mapped pages of partially mapped folios, in total and for folios of SIZE bytes |
//! | `..contpte_bytes` `..pmd_bytes` | mapped by folded contpte blocks, by PMD entries |
//! | `cached_bytes.SIZE` | page cache at the end, mapped or not, in folios of SIZE bytes |
//! | `nr_cpus` | CPUs that the trace's threads run on |
//! | `faults.*` | `total` is the sum of the kinds `around`, `finish`, `anon`, `zero_page`, `cow`, `wp_reuse`, `swap_in` and `hugetlb`, and of failed faults; `major` and `retries` count faults of any kind |
//! | `reads.*` | bytes read and used, amplification, readahead windows |
//! | `tlb.instruction` `tlb.data` | references and misses of each side; all of `tlb` is absent for a trace of page faults only |
//! | `tlb.walks_pte` `tlb.walks_contpte` `tlb.walks_pmd` | walks by leaf; contpte is part of pte |
//! | `tlb.walk_refs_LEVEL` | page-table entries that walks read, by level |
//! | `tlb.walk_kinds.KIND` | walks that are `chained`, `beside` others, `alone`, or `fetch` instructions: `walks`, `pmd_walks` (walks that ended at a PMD entry), and `lines` and `host_lines` by where they were found |
//! | `anon_sizes.SIZE` | anonymous folios of SIZE bytes: allocations, fallbacks and splits, as in sysfs |
//! | `asked.SIZE` | folios of SIZE bytes: `file_asked`, `file_got`, `anon_asked`, `anon_got` |
//! | `asked_tenths.PERCENT.SIZE` | the same for the tenth of the trace that ends at PERCENT |
//! | `aged.ROUND.SIZE` | the same for ageing, which requests only file folios |
//! | `unusable_at_start.SIZE` | thousandths of free memory in blocks smaller than SIZE bytes |
//! | `pmd_refused.REASON` | PMD mappings refused |
//! | `writers.*` | opens for writing, refusals, page caches dropped because they had huge folios |
//! | `collapse.*` | folios that collapse allocated; collapses by advice and by khugepaged; refused ranges by reason |
//! | `pressure.NAME` | effects of memory pressure, as in vmstat; counts of 0 are omitted |
//! | `zeroed_pages` `copied_pages` | base pages filled, copied |
//! | `entries.*` | page-table entries set by faults and by fork, and removed |
//! | `mapcounts.*` | atomic updates of map counts: of pages, of folios, of owner words |
//! | `cleared_bytes.UNIT` | bytes zeroed in units of UNIT bytes (the nearest power of two) |
//! | `copied_bytes.UNIT` | bytes copied, the same way |
//! | `latency.preemption` | preemption model: `none`, `voluntary`, `full` or `lazy` |
//! | `latency.stretches` | stretches of clearing and copying without a reschedule point |
//! | `latency.max_bytes` `..p99_bytes` | the longest stretch, and the 99th percentile |
//! | `latency.max_ns` `..p99_ns` | their estimated times; null if a rate is not known |
//! | `latency.sizes.SIZE` | `stretches` of up to SIZE bytes, a power of two; `max_bytes` of them |
//! | `latency.not_known` | names of required rates that are not known |
//! | `waits.*` | reads that the program waited for, reads ahead, and waiting in the device's queue |
//! | `estimate.walks` | `native` or `nested` |
//! | `estimate.total_ns` | estimated time; null if a required cost is not known |
//! | `estimate.known_ns` | the part whose costs are known |
//! | `estimate.difference_ns` | `total_ns` minus the reference row's, or null |
//! | `estimate.causes.CAUSE` | `ns`, `difference_ns`, and `terms`: `events` x `cost` = `ns` each |
//! | `estimate.not_known` | names of required costs that are not known |
//! | `estimate.constants.NAME` | each cost used: `value`, `low`, `high`, `unit`, `source`, `assumed` |
//! | `estimate.stand_ins.NAME` | the same for costs of other machines that the bounds use |
//! | `estimate.total.low` `..mid` `..high` | the total in ns with its bounds, or null |
//! | `estimate.run.source` | one run of the program: `measured`, `cpu` (its CPU time, if that is at most half of the measured time), `given`, `estimated` or `not_known` |
//! | `estimate.run.runs` `..ns.low` `..` | measured runs; their time in ns. An estimated time excludes memory management; 0 if not known |
//! | `estimate.run_change.low` `..mid` `..high` | change in percent of a run, relative to the machine's first row; or null |
//! | `strays.*` | references that could not be followed, by reason |
//! | `hugetlb.*` | huge pages of pools; absent without a pool and without such mappings |
//! | `processes` | absent if one process ran one program: `nr_started`, `nr_alive_max`, `memory`, `programs[]` |
//! | `processes.memory` | page cache and private memory: `peak_bytes`, reached after `peak_references`; their contents at `peak`, a moment with at least four fifths of that, and at the `end`: `references`, `cached_bytes.SIZE`, `anon_bytes.SIZE` |
//! | `processes.programs[]` | `path`, `nr_processes` that executed it or exited from it, `references`, `faults`, `major_faults`, `instruction_walks`, `data_walks`, `estimate_ns` of these, and `folios` as above: the sum over its address spaces when they ended |
//! | `is_replaced` | segments are laid out for larger pages than recorded |
//! | `detail` | null unless pictures were requested |
//! | `detail.causes` | causes of folios, by number |
//! | `detail.areas[]` | `kind`, `path`, `process`, `start`, `len_bytes` of a file or of private memory |
//! | `..runs[]` | `[page, nr_pages, order, cause]`: folios of one order and one cause, in base pages |
//! | `detail.nr_left_out` | areas omitted because they have too many runs |
//! | `detail.buckets[]` | `faults` and `read_bytes` in parts of equal references |
//! | `detail.timeline.alive_milli[][]` | by program and part of the trace: average number of live processes, in thousandths |
//! | `detail.timeline.memory_bytes[]` | largest sum of page cache and private memory in each part |
//! | `detail.tlb_curve.instruction[]` `..data[]` | `[entries, misses]` of LRU buffers |
//! | `detail.tlb_curve.own.LEVEL_SIDE` | entries of the machine's `l1` and `l2`, or null |
//!
//! `why[]`, one for each pair of rows that differ only in the kernel; absent unless requested:
//!
//! | key | meaning |
//! |---|---|
//! | `before` `after` | the two rows |
//! | `nr_cells` | additional cells replayed |
//! | `switches[]` | rules that differ, oldest first |
//! | `..rules[]` | `rule`, `from`, `to`; several if they cannot be changed alone |
//! | `..since` `..commit` | first version known to have the newer value; null for an edit, or not known |
//! | `..is_undone` | the change reverts to the older value |
//! | `..has_effect` | whether it changes any result alone, left out or in order |
//! | `shown` | results that the table and the page show |
//! | `results[]` | `metric`, `folio_bytes`, `unit` as in the CSV, `before`, `after`, `difference` |
//! | `..effects[]` | `switch` (its index) and how it changes the result: `alone` on the first kernel, `left_out` of the second, `in_order` after all older switches; the `in_order` values add up to the difference |
//! | `..interactions[]` | two `switches`, and `value`: their joint effect beyond the sum of both alone |
//! | `..together` | the sum of all other interactions; `alone`, `interactions` and this add up to the difference |
//! | `nr_pairs_left_out` | pairs of switches with an effect whose interaction is part of `together` |
//! | `not_known` | results that need an unknown cost |

use std::collections::BTreeMap;

use largefolio_sim::cost::{BaseTime, Estimate};
use largefolio_sim::replay::{CellSpec, Outcome, Request};
use largefolio_trace::{Attached, Meta};
use serde::{Deserialize, Serialize};

use crate::verdict::{Goal, Verdict, words};
use crate::why::Why;

pub const SCHEMA_VERSION: u32 = 1;

pub const TOOL_VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceInfo {
    pub path: String,
    /// BLAKE3 of the file in hex, if it was requested.
    pub digest: Option<String>,
    pub command: Vec<String>,
    pub recorder: String,
    /// Kernel of the recording; empty if the trace was generated.
    pub kernel: String,
    /// CPU of the recording; empty if the trace was generated.
    pub machine: String,
    pub ended: String,
    pub nr_references: u64,
    pub nr_rows: u64,
    /// The recorder's blind spots, one sentence each.
    pub warnings: Vec<String>,
    /// Whether the references are page faults only; omitted if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub faults_only: bool,
    /// Only for recordings of running processes: the rows that describe the time before, and the
    /// CPU time and faults since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

impl TraceInfo {
    /// Copies the footer `meta` of the trace at `path`. Sets no digest.
    #[must_use]
    pub fn new(path: &str, meta: &Meta) -> Self {
        Self {
            path: path.to_owned(),
            digest: None,
            command: meta.command.clone(),
            recorder: meta.recorder.clone(),
            kernel: meta.kernel.clone(),
            machine: meta.machine.clone(),
            ended: meta.ended.clone(),
            nr_references: meta.nr_references,
            nr_rows: meta.nr_rows,
            warnings: meta.warnings.clone(),
            faults_only: meta.faults_only,
            attached: meta.attached,
        }
    }

    #[must_use]
    pub fn program(&self) -> &str {
        if let Some(name) = self.recorder.strip_prefix("generator ") {
            return name;
        }
        let first = self.command.first().map_or("", String::as_str);
        first.rsplit('/').next().unwrap_or_default()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The reference's physical memory in bytes; each row has its own.
    pub memory_bytes: u64,
    pub swap_bytes: u64,
    /// Share of free memory at the start in blocks that are too small, in thousandths.
    pub unusable_permille: u32,
    /// The folio size in bytes that such a block is too small for; 0 = a PMD folio.
    #[serde(default)]
    pub unusable_bytes: u64,
    #[serde(default)]
    pub aged_rounds: u64,
    pub filesystem: Option<String>,
    /// Folio sizes that the loader requests, as `FILE=SIZE`.
    pub annotations: Vec<String>,
    /// Nanoseconds per reference on khugepaged's clock; 0 = khugepaged never runs.
    pub reference_ns: u64,
    /// Notes about kernels that use another version's rules, one sentence each.
    #[serde(default)]
    pub rules_notes: Vec<String>,
}

impl Settings {
    #[must_use]
    pub fn new(request: &Request) -> Self {
        Self {
            memory_bytes: request.memory().first().copied().unwrap_or_default(),
            swap_bytes: request.swap_bytes,
            unusable_permille: request.fragmentation.permille,
            unusable_bytes: request.fragmentation.bytes,
            aged_rounds: request.aged_rounds.into(),
            filesystem: request.filesystem.clone(),
            annotations: request.annotations.iter().map(ToString::to_string).collect(),
            reference_ns: request.ns_per_reference,
            rules_notes: request.rules_notes(),
        }
    }
}

/// Compares each row with the first row of its machine. Machines are not compared with each other:
/// they run the program itself at different speeds, and the model does not know by how much.
fn compare_runs(rows: &mut [Outcome]) {
    let mut first: BTreeMap<String, Estimate> = BTreeMap::new();
    for row in rows {
        match first.get(&row.machine) {
            Some(reference) => row.estimate.compare_run(reference),
            None => {
                first.insert(row.machine.clone(), row.estimate.clone());
            }
        }
    }
}

/// Returns the row that `row`'s change of the run time is relative to.
pub(crate) fn run_reference<'a>(rows: &'a [Outcome], row: &'a Outcome) -> &'a Outcome {
    rows.iter().find(|other| other.machine == row.machine).unwrap_or(row)
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Absent {
    pub kernel: String,
    pub machine: String,
    pub page_bytes: u64,
    pub memory_bytes: u64,
    pub cgroups: Vec<String>,
    pub linked: Vec<String>,
    pub seed: u64,
}

impl Absent {
    #[must_use]
    pub fn new(spec: &CellSpec) -> Self {
        Self {
            kernel: spec.kernel.name.clone(),
            machine: spec.machine.name.clone(),
            page_bytes: spec.page_size().bytes(),
            memory_bytes: spec.ram_bytes,
            cgroups: spec.cgroups.iter().map(ToString::to_string).collect(),
            linked: spec.linked.iter().map(ToString::to_string).collect(),
            seed: spec.seed,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictResult {
    pub schema_version: u32,
    pub tool_version: String,
    pub command_line: Vec<String>,
    pub trace: TraceInfo,
    pub settings: Settings,
    pub reference: usize,
    pub verdict: Verdict,
    pub rows: Vec<Outcome>,
    /// Cells without a row because the program does not fit into their memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<Absent>,
    /// Cells without a row because the time limit of `--within` ran out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_replayed: Vec<Absent>,
    /// Which rules make the difference between two kernels; `None` unless requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Vec<Why>>,
}

impl PredictResult {
    /// Creates a result of this version of folio. The first row is the reference.
    #[must_use]
    pub fn new(
        command_line: Vec<String>,
        trace: TraceInfo,
        settings: Settings,
        mut rows: Vec<Outcome>,
    ) -> Self {
        if let Some(reference) = rows.first().map(|row| row.estimate.clone()) {
            for row in &mut rows {
                row.estimate.compare(&reference);
            }
        }
        compare_runs(&mut rows);
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: TOOL_VERSION.to_owned(),
            command_line,
            trace,
            settings,
            reference: 0,
            verdict: Verdict::new(Goal::default(), &rows),
            rows,
            unfit: Vec::new(),
            not_replayed: Vec::new(),
            why: None,
        }
    }

    /// Sets the program's run time to `ns`, overriding a measured or estimated one.
    #[must_use]
    pub fn with_run_time(mut self, ns: f64) -> Self {
        for row in &mut self.rows {
            row.estimate.run = BaseTime::given(ns);
        }
        compare_runs(&mut self.rows);
        let goal = self.verdict.goal;
        self.with_goal(goal)
    }

    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let absent = [words::unfit(self), words::not_replayed(self)];
        let sentences: Vec<String> = absent.into_iter().flatten().collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }

    /// Sets the verdict for `goal` without searching for rules.
    #[must_use]
    pub fn with_goal(mut self, goal: Goal) -> Self {
        self.verdict = Verdict::new(goal, &self.rows);
        self
    }
}
