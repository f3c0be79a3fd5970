//! The manifest: every request and its result.
//!
//! People and scripts read it; only the parts determine which cells are done. The file is replaced
//! as a whole when a sweep begins and when it ends.
//!
//! # JSON schema, version 1
//!
//! | key | meaning |
//! |---|---|
//! | `schema_version` `table_version` `results_version` `tool_version` | versions of this file, of the columns, of the counts and of folio |
//! | `nr_cells` `nr_parts` | rows and parts of the data set |
//! | `failed[]` | requested cells without a row: `trace`, `nr_cells`, `error`, `cells` (the first hundred), `more` (the `id` of each of the others). A new request removes a cell from this list |
//! | `texts.BLAKE3` | kernels and machines as TOML |
//! | `runs[]` | one per sweep: `command_line`, `asked`, `ended`, counts, files set aside |
//! | `..asked.traces[]` | `path`, `digest` |
//! | `..asked.kernels[]` `..asked.machines[]` | `name`, `text`: the key in `texts` |
//! | `..asked.memory_bytes` `..asked.seeds` `..asked.setting` | memory sizes, seeds, and all other settings |
//! | `..ended` | `running`, `done`, `incomplete` (something failed), `interrupted`, `stopped` (an error), `died` |
//! | `..nr_asked` `nr_found` `nr_done` `nr_failed` | cells: requested, done before, done now, failed |
//! | `..nr_runs_dropped` `nr_failures_dropped` | earlier runs, and entries of `failed`, dropped because the manifest was full; absent if none were |

mod room;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use largefolio_sim::replay::RESULTS_VERSION;
use largefolio_sim::sweep::{CellId, Setting, Stamp};
use largefolio_trace::disk;
use largefolio_trace::shown::brief;
use serde::{Deserialize, Serialize};

use super::error::SweepError;
use super::part_file::{SetAside, damage, set_aside};
use super::{Counts, SweepRequest};
use crate::figures::counted;
use crate::predict::result::TOOL_VERSION;
use crate::predict::table::TABLE_VERSION;

/// The file's name. Whoever reads the whole directory through pyarrow skips names that begin with
/// `_`.
pub const MANIFEST: &str = "_manifest.json";

pub(super) const LOST: &str =
    "the rows are complete; the history of sweeps and the texts of their kernels are lost";

pub const MANIFEST_VERSION: u32 = 1;

/// The longest manifest: three hundred runs of a thousand traces. Longer ones are neither written
/// nor read.
const MANIFEST_BYTES_MAX: u64 = 1 << 26;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnding {
    Running,
    Done,
    Incomplete,
    Interrupted,
    Stopped,
    /// Killed, or the host went down: it recorded no end.
    Died,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedTrace {
    pub path: String,
    pub digest: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    pub traces: Vec<RequestedTrace>,
    pub kernels: Vec<Stamp>,
    pub machines: Vec<Stamp>,
    pub memory_bytes: Vec<u64>,
    pub seeds: Vec<u64>,
    /// All other settings; its memory and seed are the first ones.
    pub setting: Setting,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepRun {
    pub tool_version: String,
    pub command_line: Vec<String>,
    pub asked: RunRequest,
    pub ended: RunEnding,
    pub nr_asked: usize,
    pub nr_found: usize,
    pub nr_done: usize,
    pub nr_failed: usize,
    pub set_aside: Vec<SetAside>,
    /// Earlier runs dropped because the manifest was full.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nr_runs_dropped: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nr_failures_dropped: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_zero(nr: &usize) -> bool {
    *nr == 0
}

/// A failure describes this many cells in full, and lists the others by identity.
const NR_NAMED_MAX: usize = 100;

impl SweepRun {
    pub(super) fn new(request: &SweepRequest, asked: RunRequest, quarantined: &[SetAside]) -> Self {
        Self {
            tool_version: TOOL_VERSION.to_owned(),
            command_line: request.command_line.clone(),
            asked,
            ended: RunEnding::Running,
            nr_asked: 0,
            nr_found: 0,
            nr_done: 0,
            nr_failed: 0,
            set_aside: quarantined.to_vec(),
            nr_runs_dropped: 0,
            nr_failures_dropped: 0,
        }
    }

    #[must_use]
    pub fn dropped(&self) -> Option<String> {
        let (nr_runs, nr_failures) = (self.nr_runs_dropped, self.nr_failures_dropped);
        let what = match (nr_runs, nr_failures) {
            (0, 0) => return None,
            (_, 0) => counted(nr_runs as u64, "earlier run"),
            (0, _) => counted(nr_failures as u64, "failure"),
            _ => format!(
                "{} and {}",
                counted(nr_runs as u64, "earlier run"),
                counted(nr_failures as u64, "failure")
            ),
        };
        let mib = MANIFEST_BYTES_MAX >> 20;
        Some(format!("the manifest has no room for {what}; it holds at most {mib} MiB"))
    }

    pub(super) const fn set(&mut self, ended: RunEnding, counts: Counts) {
        self.ended = ended;
        Counts {
            nr_asked: self.nr_asked,
            nr_found: self.nr_found,
            nr_done: self.nr_done,
            nr_failed: self.nr_failed,
        } = counts;
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCell {
    pub id: CellId,
    pub kernel: String,
    pub machine: String,
    pub memory_bytes: u64,
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub trace: String,
    pub nr_cells: usize,
    pub error: String,
    /// The first hundred cells; empty if the trace cannot be read.
    pub cells: Vec<FailedCell>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<CellId>,
}

impl Failure {
    pub(super) const fn of_trace(trace: String, nr_cells: usize, error: String) -> Self {
        Self { trace, nr_cells, error, cells: Vec::new(), more: Vec::new() }
    }

    pub(super) const fn is_of_trace(&self) -> bool {
        self.nr_named() == 0
    }

    const fn nr_named(&self) -> usize {
        self.cells.len() + self.more.len()
    }

    pub(super) fn keep_others(&mut self, is_asked: &dyn Fn(&CellId) -> bool) -> bool {
        let nr_before = self.nr_named();
        self.cells.retain(|cell| !is_asked(&cell.id));
        self.more.retain(|cell| !is_asked(cell));
        self.nr_cells = self.nr_cells.saturating_sub(nr_before - self.nr_named());
        self.nr_named() > 0
    }

    fn add(&mut self, cell: &FailedCell) {
        self.nr_cells += 1;
        if self.cells.len() < NR_NAMED_MAX {
            self.cells.push(cell.clone());
        } else {
            self.more.push(cell.id.clone());
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub schema_version: u32,
    pub table_version: u32,
    pub results_version: u32,
    pub tool_version: String,
    pub nr_cells: usize,
    pub nr_parts: usize,
    pub failed: Vec<Failure>,
    pub texts: BTreeMap<String, String>,
    pub runs: Vec<SweepRun>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ManifestState {
    Whole,
    Damaged(SetAside),
    Nothing,
}

impl Manifest {
    fn new() -> Self {
        Self {
            schema_version: MANIFEST_VERSION,
            table_version: TABLE_VERSION,
            results_version: RESULTS_VERSION,
            tool_version: TOOL_VERSION.to_owned(),
            nr_cells: 0,
            nr_parts: 0,
            failed: Vec::new(),
            texts: BTreeMap::new(),
            runs: Vec::new(),
        }
    }

    /// Opens the manifest of `dir`, or creates one; sets a damaged one aside. The caller holds the
    /// lock, so no earlier run is still running.
    pub(super) fn open(dir: &Path) -> Result<(Self, ManifestState), SweepError> {
        let path = dir.join(MANIFEST);
        let text = match disk::read_whole(&path, MANIFEST_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok((Self::new(), ManifestState::Nothing));
            }
            Err(error) => {
                let quarantined = set_aside(dir, MANIFEST, damage(&path, error)?)?;
                return Ok((Self::new(), ManifestState::Damaged(quarantined)));
            }
        };
        let manifest = serde_json::from_slice::<Self>(&text);
        let found =
            manifest.as_ref().map_or_else(|_| version(&text), |one| Some(one.schema_version));
        if let Some(found) = found.filter(|&found| found > MANIFEST_VERSION) {
            return Err(SweepError::NewerManifest { path, found, known: MANIFEST_VERSION });
        }
        let manifest = match manifest {
            Ok(manifest) => manifest,
            Err(error) => {
                let why = format!("it cannot be read: {}", brief(&error.to_string()));
                let quarantined = set_aside(dir, MANIFEST, why)?;
                return Ok((Self::new(), ManifestState::Damaged(quarantined)));
            }
        };
        let Self { failed, texts, mut runs, .. } = manifest;
        for run in runs.iter_mut().filter(|run| run.ended == RunEnding::Running) {
            run.ended = RunEnding::Died;
        }
        Ok((Self { failed, texts, runs, ..Self::new() }, ManifestState::Whole))
    }

    /// Replaces the file in `dir`, after dropping entries that do not fit.
    pub(super) fn write(&mut self, dir: &Path) -> Result<(), SweepError> {
        let text = self.fitted(MANIFEST_BYTES_MAX)?;
        let path = dir.join(MANIFEST);
        disk::write_whole(&path, &text).map_err(|error| SweepError::io("write", &path, error))
    }

    #[must_use]
    pub fn last(&self) -> Option<&SweepRun> {
        self.runs.last()
    }
}

impl SetAside {
    #[must_use]
    pub fn lost(&self) -> &'static str {
        if self.file == MANIFEST { LOST } else { "its cells will be computed again" }
    }
}

pub(super) fn note<'a>(
    failures: &mut Vec<Failure>,
    cells: impl Iterator<Item = &'a (FailedCell, String, String)>,
) {
    let mut known: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (nr, failure) in failures.iter().enumerate().filter(|(_, one)| !one.is_of_trace()) {
        known.insert((failure.trace.clone(), failure.error.clone()), nr);
    }
    for (cell, trace, error) in cells {
        let nr = *known.entry((trace.clone(), error.clone())).or_insert(failures.len());
        if nr == failures.len() {
            failures.push(Failure::of_trace(trace.clone(), 0, error.clone()));
        }
        failures[nr].add(cell);
    }
}

/// Reads only the version: a newer manifest can have any other form.
fn version(text: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Versioned {
        schema_version: u32,
    }
    serde_json::from_slice::<Versioned>(text).ok().map(|versioned| versioned.schema_version)
}
