//! The result of `folio predict`.
//!
//! Invariants:
//! - I1: `reference < rows.len()` unless there are no rows.
//! - I2: nothing depends on when or where the replay ran: the same trace, rules and command line
//!   give the same result, byte for byte.
//!
//! # JSON schema, version 1
//!
//! Counts are integers and exact; what stands under `estimate` is estimated. Keys come in this order
//! and are never left out; a consumer must accept further keys, which do not change the version.
//!
//! | key | type | meaning |
//! |---|---|---|
//! | `schema_version` | integer | 1 |
//! | `tool_version` | string | version of folio |
//! | `command_line` | strings | the command that made the result |
//! | `trace.path` | string | the trace, as it was named |
//! | `trace.digest` | string or null | BLAKE3 of the file, in hex |
//! | `trace.command` | strings | recorded program and its arguments |
//! | `trace.recorder` | string | `qemu`, `valgrind`, `generator NAME` |
//! | `trace.kernel` `trace.machine` | string | where it was recorded; empty for a generated trace |
//! | `trace.ended` | string | how the program ended |
//! | `trace.nr_references` `trace.nr_rows` | integer | size of the trace |
//! | `trace.attached` | object | of a recording of running processes: `nr_rows` and `nr_pages` of the time before, which count for nothing, and the `run` in which it was made; else absent |
//! | `trace.warnings` | strings | what the recorder could not see |
//! | `settings.memory_bytes` | integer | physical memory of the reference |
//! | `settings.swap_bytes` | integer | swap space |
//! | `settings.unusable_permille` | integer | fragmentation at the start: free memory in small blocks |
//! | `settings.unusable_bytes` | integer | blocks smaller than this are small; 0 = than a PMD folio |
//! | `settings.aged_rounds` | integer | rounds of ageing before the start |
//! | `settings.filesystem` | string or null | filesystem instead of the recorded ones |
//! | `settings.annotations` | strings | folio sizes that the loader asks for |
//! | `settings.reference_ns` | integer | time of a reference on khugepaged's clock |
//! | `settings.rules_notes` | strings | kernels asked for that have the rules of another version, or that no recording judges |
//! | `reference` | integer | the row that others are compared with: 0 |
//! | `verdict` | object | which column is best |
//! | `rows[]` | objects | one for each kernel, machine, way to link, memory and seed |
//! | `unfit[]` | objects | cells that have no row, because the program does not fit into their memory or a control group: `kernel` `machine` `page_bytes` `memory_bytes` `cgroups` `linked` `seed`; absent where all fit |
//! | `not_replayed[]` | objects | the same for cells that `--within` left no time for |
//!
//! The verdict. Columns can be compared on one machine with one size of memory; seeds are samples of a
//! column, of which the first row stands for all:
//!
//! | key | meaning |
//! |---|---|
//! | `goal` | `time`, `memory` (private memory where most is mapped, and the page cache at the end) or `faults` |
//! | `answers[]` | one for each machine and memory size |
//! | `..finding` | `better` (than the reference), `first_is_best`, `same`, `not_certain` (bounds reach over 0, or nearer to 0 than 0.05% of a run), `not_known` (a cost is missing), `one_column` |
//! | `..reference` `..best` | rows: what the others are compared with, and the best; the reference unless another is certainly better |
//! | `..columns[]` | `row`, and its `change` and `change_from_best` in per cent of a run, of the memory or of the faults: `low`, `mid`, `high`, or null if not known, or if the reference has none of it |
//! | `..causes` | which rules make the difference of row `row`, or null if they were not searched for: `rules[]` (as in `why[].switches`, with `points`: per cent of what the reference has), `others` in points, `nr_cells` that were replayed besides |
//!
//! A row:
//!
//! | key | meaning |
//! |---|---|
//! | `kernel` `machine` `page_bytes` `seed` `cache` | which cell; `cache` is `cold` or `warm` |
//! | `is_judged` | false if no recording judges the kernel (before its edits; a file counts as what it is based on) |
//! | `memory_bytes` `swap_bytes` | physical memory and swap space of the cell |
//! | `cgroups[]` | control groups with a limit: `name` `limit_bytes` `usage_bytes` (at the end) `peak_bytes` `evicted_bytes` `refaulted_bytes` `nr_limit_hits`; absent without `--cgroup` |
//! | `policy` | the policy of the kernel: `name`, `digest` (BLAKE3 of its object file; null for one in Python), `points.POINT` with `asked`, `honoured`, `refused`; absent without one |
//! | `linked` | pages that programs and libraries are linked for, as `SIZE` or `FILE=SIZE`; empty: as recorded |
//! | `folios.text` `folios.data` | mapped file memory: executable mappings, and the others |
//! | `folios.shmem` `folios.anon` | shared memory without a file; private memory |
//! | `..mapped_bytes` | the sum of the sizes and of `partial_bytes` |
//! | `..by_size.SIZE` | `aligned_bytes`, `unaligned_bytes` in folios of SIZE bytes |
//! | `..partial_bytes` `..partial_by_size.SIZE` | mapped pages of folios that are not wholly mapped, and of those of SIZE bytes |
//! | `..contpte_bytes` `..pmd_bytes` | under folded contpte blocks, under PMD entries |
//! | `cached_bytes.SIZE` | page cache at the end, mapped or not, in folios of SIZE bytes |
//! | `nr_cpus` | CPUs on which the threads of the trace run |
//! | `faults.*` | `total` is the sum of the kinds `around`, `finish`, `anon`, `zero_page`, `cow`, `wp_reuse`, `swap_in` and `hugetlb`, and of faults that failed; `major` and `retries` are of any kind |
//! | `reads.*` | bytes read and used, amplification, readahead windows |
//! | `tlb.instruction` `tlb.data` | references and misses of each side; all of `tlb` is absent for a trace of page faults only |
//! | `tlb.walks_pte` `tlb.walks_contpte` `tlb.walks_pmd` | walks by leaf; contpte is part of pte |
//! | `tlb.walk_refs_LEVEL` | page-table entries that walks read, by level |
//! | `tlb.walk_kinds.KIND` | walks that are `chained`, `beside` others, `alone`, or `fetch` instructions: `walks`, `pmd_walks` of them that ended at a PMD entry, `lines` and `host_lines` by where they were found |
//! | `anon_sizes.SIZE` | anonymous folios of SIZE bytes: allocated, fallen back, split, as in sysfs |
//! | `asked.SIZE` | folios of SIZE bytes: `file_asked`, `file_got`, `anon_asked`, `anon_got` |
//! | `asked_tenths.PERCENT.SIZE` | the same in the tenth of the trace that ends at PERCENT |
//! | `aged.ROUND.SIZE` | the same of ageing, which asks for file folios only |
//! | `unusable_at_start.SIZE` | thousandths of free memory in blocks smaller than SIZE bytes |
//! | `pmd_refused.REASON` | PMD mappings refused |
//! | `writers.*` | opens for writing, refusals, page caches dropped because of huge folios |
//! | `collapse.*` | folios that collapse got; made by advice, by khugepaged; ranges refused by reason |
//! | `pressure.NAME` | what memory pressure did, as in vmstat; counts of 0 are left out |
//! | `zeroed_pages` `copied_pages` | base pages filled, copied |
//! | `entries.*` | entries of page tables set by faults and by fork, and taken away |
//! | `mapcounts.*` | atomic updates of map counts: of pages, of folios, of owner words |
//! | `cleared_bytes.UNIT` | bytes zeroed, UNIT bytes (to the nearest power of two) in one go |
//! | `copied_bytes.UNIT` | bytes copied, the same way |
//! | `latency.preemption` | preemption model: `none`, `voluntary`, `full` or `lazy` |
//! | `latency.stretches` | stretches of clearing and copying without a reschedule point |
//! | `latency.max_bytes` `..p99_bytes` | the longest; 99 of 100 are not longer |
//! | `latency.max_ns` `..p99_ns` | estimated times of these; null where a rate is not known |
//! | `latency.sizes.SIZE` | `stretches` of up to SIZE bytes, a power of two; `max_bytes` of them |
//! | `latency.not_known` | names of rates that are needed and not known |
//! | `waits.*` | reads the program waited for, reads ahead, and what the device's queue added |
//! | `estimate.walks` | `native` or `nested` |
//! | `estimate.total_ns` | estimated time; null where a cost it needs is not known |
//! | `estimate.known_ns` | the part whose costs are known |
//! | `estimate.difference_ns` | `total_ns` less that of the reference row, or null |
//! | `estimate.causes.CAUSE` | `ns`, `difference_ns`, and `terms`: `events` x `cost` = `ns` each |
//! | `estimate.not_known` | names of costs that are needed and not known |
//! | `estimate.constants.NAME` | each cost used: `value`, `low`, `high`, `unit`, `source`, `assumed` |
//! | `estimate.stand_ins.NAME` | the same of costs of another machine that bounds are made of |
//! | `estimate.total.low` `..mid` `..high` | the total in ns with its bounds, or null |
//! | `estimate.run.source` | one run of the program: `measured`, `cpu` (the same as CPU time, if that is half of it or less), `given`, `estimated` or `not_known` |
//! | `estimate.run.runs` `..ns.low` `..` | runs that were measured; their time in ns. If estimated, without memory management; 0 if not known |
//! | `estimate.run_change.low` `..mid` `..high` | change in per cent of a run, against the first row of the machine; or null |
//! | `strays.*` | references that could not be followed, by reason |
//! | `hugetlb.*` | huge pages of pools; absent where there is no pool and no such mapping |
//! | `processes` | absent where one process ran one program: `nr_started`, `nr_alive_max`, `memory`, `programs[]` |
//! | `processes.memory` | page cache and private memory: `peak_bytes`, reached after `peak_references`; what they were at `peak`, a moment with at least four fifths of that, and at the `end`: `references`, `cached_bytes.SIZE`, `anon_bytes.SIZE` |
//! | `processes.programs[]` | `path`, `nr_processes` that executed it or ended in it, `references`, `faults`, `major_faults`, `instruction_walks`, `data_walks`, `estimate_ns` of these, and `folios` as above: the sum over its address spaces as they went |
//! | `is_replaced` | segments stand as linked for larger pages than recorded |
//! | `detail` | null unless pictures were asked for |
//! | `detail.causes` | names of the causes of folios, by number |
//! | `detail.areas[]` | `kind`, `path`, `process`, `start`, `len_bytes` of a file or of private memory |
//! | `..runs[]` | `[page, nr_pages, order, cause]`: folios of one order and one cause, in base pages |
//! | `detail.nr_left_out` | areas with too many runs |
//! | `detail.buckets[]` | `faults` and `read_bytes` in parts of equal references |
//! | `detail.timeline.alive_milli[][]` | by program and part of the trace: thousandths of a process that lived on average |
//! | `detail.timeline.memory_bytes[]` | most page cache and private memory in each part |
//! | `detail.tlb_curve.instruction[]` `..data[]` | `[entries, misses]`: LRU buffers of so many entries |
//! | `detail.tlb_curve.own.LEVEL_SIDE` | entries of the machine's `l1` and `l2`, or null |
//!
//! `why[]`, one for each pair of rows that differ in the kernel alone; absent unless it was asked for:
//!
//! | key | meaning |
//! |---|---|
//! | `before` `after` | the two rows |
//! | `nr_cells` | cells that were replayed besides |
//! | `switches[]` | rules that differ, in the order in which they came |
//! | `..rules[]` | `rule`, `from`, `to`; several where they cannot be changed alone |
//! | `..since` `..commit` | first version known to have the newer value; null for an edit, or not known |
//! | `..is_undone` | the change takes the newer value away |
//! | `..has_effect` | whether it changes any result: alone, left out or in order |
//! | `shown` | results that the table and the page show |
//! | `results[]` | `metric`, `folio_bytes`, `unit` as in the CSV, `before`, `after`, `difference` |
//! | `..effects[]` | `switch` (by number) and by how much it changes the result: `alone` on the first kernel, `left_out` of the second, `in_order` after those before it; the `in_order` add up to the difference |
//! | `..interactions[]` | `switches`, two of them, and `value`: what they do together beyond the sum of both alone |
//! | `..together` | what all other interactions do; `alone`, `interactions` and this add up to the difference |
//! | `nr_pairs_left_out` | pairs of switches with an effect whose interaction is part of `together` |
//! | `not_known` | results that need a cost that is not known |

use std::collections::BTreeMap;

use largefolio_sim::cost::{BaseTime, Estimate};
use largefolio_sim::replay::{CellSpec, Outcome, Request};
use largefolio_trace::{Attached, Meta};
use serde::{Deserialize, Serialize};

use crate::verdict::{Goal, Verdict, words};
use crate::why::Why;

/// Version of the schema, raised when a key changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// Version of this folio.
pub const TOOL_VERSION: &str = env!("CARGO_PKG_VERSION");

/// What was replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceInfo {
    /// The name of the file, as given.
    pub path: String,
    /// BLAKE3 of the file, in hex; absent where nobody asked for it.
    pub digest: Option<String>,
    /// Recorded program and its arguments.
    pub command: Vec<String>,
    /// What made the trace.
    pub recorder: String,
    /// Kernel it was recorded on; empty when it was generated.
    pub kernel: String,
    /// CPU it was recorded on; empty when it was generated.
    pub machine: String,
    /// How the program ended.
    pub ended: String,
    /// References.
    pub nr_references: u64,
    /// Rows.
    pub nr_rows: u64,
    /// What the recorder could not see, one sentence each.
    pub warnings: Vec<String>,
    /// Whether the references are page faults only; absent for other traces.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub faults_only: bool,
    /// For a recording of running processes: which rows describe the time before, and the CPU time and
    /// faults since then; absent for other traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

impl TraceInfo {
    /// What the footer `meta` of the trace at `path` says; without a digest.
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

    /// The program's name: that of the recorded command without its folders, or that of the
    /// generator.
    #[must_use]
    pub fn program(&self) -> &str {
        if let Some(name) = self.recorder.strip_prefix("generator ") {
            return name;
        }
        let first = self.command.first().map_or("", String::as_str);
        first.rsplit('/').next().unwrap_or_default()
    }
}

/// What all rows have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Physical memory of the reference in bytes; a row has its own.
    pub memory_bytes: u64,
    /// Swap space in bytes.
    pub swap_bytes: u64,
    /// Free memory in blocks that are too small at the start, in thousandths.
    pub unusable_permille: u32,
    /// Bytes of the folios that this holds for; 0 = a PMD folio.
    #[serde(default)]
    pub unusable_bytes: u64,
    /// Rounds in which other programs wore memory down before.
    #[serde(default)]
    pub aged_rounds: u64,
    /// Filesystem of every file, instead of the recorded ones.
    pub filesystem: Option<String>,
    /// Folio sizes that the loader asks for, as `FILE=SIZE`.
    pub annotations: Vec<String>,
    /// Nanoseconds of a reference on khugepaged's clock; 0 = it never runs.
    pub reference_ns: u64,
    /// What is to be said of kernels that have the rules of another version, a sentence each.
    #[serde(default)]
    pub rules_notes: Vec<String>,
}

impl Settings {
    /// What the rows of `request` have in common.
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

/// Compares each row with the first of its machine: another machine runs the program itself at
/// another speed, of which nothing is known here.
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

/// The row that `row` is compared with for the change of the run time, of which that is a share.
pub(crate) fn run_reference<'a>(rows: &'a [Outcome], row: &'a Outcome) -> &'a Outcome {
    rows.iter().find(|other| other.machine == row.machine).unwrap_or(row)
}

/// A cell that has no row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Absent {
    /// Its kernel.
    pub kernel: String,
    /// Its machine.
    pub machine: String,
    /// Base page in bytes.
    pub page_bytes: u64,
    /// Physical memory in bytes.
    pub memory_bytes: u64,
    /// Control groups with a limit, as given.
    pub cgroups: Vec<String>,
    /// Pages that programs and libraries are linked for.
    pub linked: Vec<String>,
    /// Its seed.
    pub seed: u64,
}

impl Absent {
    /// The cell that `spec` describes.
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

/// One result: a trace in one or several cells. The module gives the schema.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictResult {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of folio.
    pub tool_version: String,
    /// The command that made it.
    pub command_line: Vec<String>,
    /// What was replayed.
    pub trace: TraceInfo,
    /// What all rows have in common.
    pub settings: Settings,
    /// The row that the others are compared with.
    pub reference: usize,
    /// Which column is best.
    pub verdict: Verdict,
    /// One for each kernel, machine, way to link, memory and seed.
    pub rows: Vec<Outcome>,
    /// Cells that have no row: the program does not fit into their memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<Absent>,
    /// Cells that have no row: the time of `--within` was over before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_replayed: Vec<Absent>,
    /// Which rules make the difference between two kernels; `None` unless it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Vec<Why>>,
}

impl PredictResult {
    /// A result of this version of folio whose first row is the reference.
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

    /// The same with a run of the program that takes `ns`, whatever was measured or estimated.
    #[must_use]
    pub fn with_run_time(mut self, ns: f64) -> Self {
        for row in &mut self.rows {
            row.estimate.run = BaseTime::given(ns);
        }
        compare_runs(&mut self.rows);
        let goal = self.verdict.goal;
        self.with_goal(goal)
    }

    /// Which cells are missing among the rows, in a sentence.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let absent = [words::unfit(self), words::not_replayed(self)];
        let sentences: Vec<String> = absent.into_iter().flatten().collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }

    /// The same with the verdict for `goal`; rules are not searched for.
    #[must_use]
    pub fn with_goal(mut self, goal: Goal) -> Self {
        self.verdict = Verdict::new(goal, &self.rows);
        self
    }
}
