//! The result of `folio predict`.
//!
//! Invariants:
//! - I1: `reference < rows.len()` if any rows exist.
//! - I2: nothing depends on when or where the replay ran: the same trace, rules and command line
//!   give the same result, byte for byte. Only `functions` needs the program's files, which must be
//!   the recorded versions.
//!
//! `schemas/predict.json` describes the JSON: `folio schema predict`. Counts are exact integers;
//! everything under `estimate` is estimated. Keys have the order of the types here and in
//! [`largefolio_sim::replay::Outcome`], and are omitted only if their type says so.

use std::collections::BTreeMap;

use largefolio_sim::cost::{BaseTime, Estimate};
use largefolio_sim::explain::Why;
use largefolio_sim::fit::Fit;
use largefolio_sim::replay::{CellSpec, Outcome, ReplayRequest};
use largefolio_trace::{Attached, Meta};
use serde::{Deserialize, Serialize};

use crate::predict::counted::Counted;
use crate::predict::functions::Functions;
use crate::predict::verdict::{Goal, Verdict, sentences};

pub const SCHEMA_VERSION: u32 = 2;

pub const TOOL_VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// The CPU's own counts in the plain runs of the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
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
            counted: Counted::of(&meta.runs),
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
    /// Settings that change during the replay, as `50%:thp=always`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// The memory for which the allocator advises huge pages; omitted if as recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocator: Option<String>,
    /// Where the program runs on a machine with nodes, and its memory policy; omitted by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<String>,
    /// Nanoseconds per reference on khugepaged's clock; 0 = khugepaged never runs.
    pub reference_ns: u64,
    /// Notes about kernels that use another version's rules, one sentence each.
    #[serde(default)]
    pub rules_notes: Vec<String>,
}

impl Settings {
    #[must_use]
    pub fn new(request: &ReplayRequest) -> Self {
        Self {
            memory_bytes: request.memory().first().copied().unwrap_or_default(),
            swap_bytes: request.swap_bytes,
            unusable_permille: request.fragmentation.permille,
            unusable_bytes: request.fragmentation.bytes,
            aged_rounds: request.aged_rounds.into(),
            filesystem: request.filesystem.clone(),
            annotations: request.annotations.iter().map(ToString::to_string).collect(),
            changes: request.changes.iter().map(ToString::to_string).collect(),
            allocator: request.allocator.map(|allocator| allocator.name().to_owned()),
            numa: request.numa.map(|numa| numa.to_string()),
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
    /// Memory limits of the program, per row; `None` unless requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit: Option<Vec<Fit>>,
    /// Functions on the pages of code with the most walks; empty unless requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Functions>,
}

/// Facts and wishes for a result, besides its rows.
#[derive(Debug, Default)]
pub struct Options {
    pub goal: Goal,
    /// The program's run time in ns, which replaces a measured or estimated one.
    pub run_time_ns: Option<f64>,
    pub why: Option<Vec<Why>>,
    pub fit: Option<Vec<Fit>>,
    pub functions: Vec<Functions>,
    pub unfit: Vec<Absent>,
    pub not_replayed: Vec<Absent>,
}

impl PredictResult {
    /// Creates a result of this version of folio. The first row is the reference: the estimates of
    /// the result's rows have their differences from it. The verdict has no rules yet
    /// ([`Verdict::search`]).
    #[must_use]
    pub fn new(
        command_line: Vec<String>,
        trace: TraceInfo,
        settings: Settings,
        mut rows: Vec<Outcome>,
        options: Options,
    ) -> Self {
        let Options { goal, run_time_ns, why, fit, functions, unfit, not_replayed } = options;
        if let Some(ns) = run_time_ns {
            for row in &mut rows {
                row.estimate.run = BaseTime::given(ns);
            }
        }
        if let Some(counted) = &trace.counted {
            counted.anchor(&trace.machine, &mut rows);
        }
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
            verdict: Verdict::new(goal, &rows),
            rows,
            unfit,
            not_replayed,
            why,
            fit,
            functions,
        }
    }

    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let absent = [sentences::unfit(self), sentences::not_replayed(self)];
        let sentences: Vec<String> = absent.into_iter().flatten().collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }
}
