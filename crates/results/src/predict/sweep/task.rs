//! A task: some cells of one trace, replayed together.
//!
//! A task is self-contained: it carries kernels and machines as texts and identifies its trace by
//! digest. As JSON it travels to another host, whose worker needs only the trace file:
//!
//! ```text
//!   Sweep::missing -> Task --JSON--> worker: Task::run(path of the trace) -> TaskResult --> Sweep::add
//! ```
//!
//! Owns the description of a worker's job. Does not own the data set (`data_set`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use largefolio_sim::replay::{Budget, CellSpec, Outcome, ReplayError, replay_each};
use largefolio_sim::sweep::{CellId, Named, Recipe, Setting};
use largefolio_trace::{Meta, OpenTrace};
use serde::{Deserialize, Serialize};

use super::error::TaskError;
use super::manifest::FailedCell;
use crate::predict::parquet;
use crate::predict::result::{Settings, TOOL_VERSION, TraceInfo};
use crate::predict::table::{self, Row};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskCell {
    pub id: CellId,
    pub kernel: usize,
    pub machine: usize,
    pub setting: Setting,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The trace's name as text ([`spelled`](largefolio_trace::shown::spelled)).
    pub trace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_bytes: Option<Vec<u8>>,
    pub digest: String,
    pub kernels: Vec<Arc<Named>>,
    pub machines: Vec<Arc<Named>>,
    pub cells: Vec<TaskCell>,
    #[serde(default)]
    pub budget: Budget,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskResult {
    /// Parquet: the rows of the cells that could be replayed.
    pub part: Vec<u8>,
    /// Why the other cells could not be replayed.
    pub failed: BTreeMap<CellId, String>,
}

impl Task {
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let bytes = self.trace_bytes.as_deref().unwrap_or(self.trace.as_bytes());
        PathBuf::from(OsStr::from_bytes(bytes))
    }

    /// Replays the cells; `trace` is the local path of the trace. `progress` receives the number of
    /// rows decoded so far and can stop the replay.
    ///
    /// # Errors
    /// If no cell can be replayed: the trace cannot be read or is another one, the task is of
    /// another version, or `progress` stopped it. A single failed cell is part of the result
    /// instead.
    pub fn run(
        &self,
        trace: &Path,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<TaskResult, TaskError> {
        let (batch, failed) = self.frame(trace, progress)?;
        Ok(TaskResult { part: parquet::file_of(&batch)?, failed })
    }

    /// Replays the cells as [`Task::run`] does, and returns a data frame.
    ///
    /// # Errors
    /// As [`Task::run`].
    pub fn frame(
        &self,
        trace: &Path,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(RecordBatch, BTreeMap<CellId, String>), TaskError> {
        let specs = self.specs()?;
        // Opened once, so the replayed file is the one with the digest.
        let trace = OpenTrace::open(trace)?;
        let found = trace.digest_until(&mut || progress(0).is_break())?;
        let found = found.ok_or(ReplayError::Stopped)?;
        if found != self.digest {
            let (path, planned) = (trace.path().to_owned(), self.digest.clone());
            return Err(TaskError::OtherTrace { path, found, planned });
        }
        let (meta, outcomes) = replay_each(&trace, &specs, progress)?;
        self.table(&meta, outcomes)
    }

    pub(super) fn failed(&self, cell: &TaskCell) -> FailedCell {
        let name = |named: &[Arc<Named>], nr: usize| {
            named.get(nr).map(|named| named.name.clone()).unwrap_or_default()
        };
        FailedCell {
            id: cell.id.clone(),
            kernel: name(&self.kernels, cell.kernel),
            machine: name(&self.machines, cell.machine),
            memory_bytes: cell.setting.memory_bytes,
            seed: cell.setting.seed,
        }
    }

    fn specs(&self) -> Result<Vec<CellSpec>, TaskError> {
        self.cells.iter().map(|cell| self.spec(cell)).collect()
    }

    fn spec(&self, cell: &TaskCell) -> Result<CellSpec, TaskError> {
        let (kernel, machine) = (self.kernels.get(cell.kernel), self.machines.get(cell.machine));
        let (Some(kernel), Some(machine)) = (kernel, machine) else {
            return Err(TaskError::Incomplete);
        };
        let (kernel, machine) = (Named::clone(kernel), Named::clone(machine));
        let (setting, budget) = (cell.setting.clone(), self.budget);
        let recipe = Recipe { kernel, machine, setting, budget };
        if CellId::new(&self.digest, &recipe) != cell.id {
            return Err(TaskError::OtherVersion { tool: TOOL_VERSION });
        }
        Ok(recipe.cell()?)
    }

    fn table(
        &self,
        meta: &Meta,
        outcomes: Vec<Result<Outcome, ReplayError>>,
    ) -> Result<(RecordBatch, BTreeMap<CellId, String>), TaskError> {
        let digest = Some(self.digest.clone());
        let trace = TraceInfo { digest, ..TraceInfo::new(&self.trace, meta) };
        let (mut done, mut failed) = (Vec::new(), BTreeMap::new());
        for (cell, outcome) in self.cells.iter().zip(outcomes) {
            match outcome {
                Ok(outcome) => done.push((cell, settings(&cell.setting), outcome)),
                Err(error) => drop(failed.insert(cell.id.clone(), error.to_string())),
            }
        }
        let rows: Vec<Row<'_>> = done
            .iter()
            .map(|(_, settings, outcome)| Row { trace: &trace, settings, outcome })
            .collect();
        let of_rows = |text: &dyn Fn(&TaskCell) -> String| -> Vec<String> {
            done.iter().map(|(cell, ..)| text(cell)).collect()
        };
        let (kernels, machines) = (stamps(&self.kernels), stamps(&self.machines));
        let batch =
            table::with_cells(&table::batch_of(&rows)?, &of_rows(&|cell| cell.id.to_string()))?;
        let of_kernels = of_rows(&|cell| kernels[cell.kernel].clone());
        let batch = table::with_texts(&batch, table::KERNEL_TEXT, &of_kernels)?;
        let of_machines = of_rows(&|cell| machines[cell.machine].clone());
        Ok((table::with_texts(&batch, table::MACHINE_TEXT, &of_machines)?, failed))
    }
}

fn stamps(named: &[Arc<Named>]) -> Vec<String> {
    named.iter().map(|named| named.stamp().text).collect()
}

fn settings(setting: &Setting) -> Settings {
    Settings {
        rules_notes: Vec::new(),
        memory_bytes: setting.memory_bytes,
        swap_bytes: setting.swap_bytes,
        unusable_permille: setting.unusable_permille,
        unusable_bytes: setting.unusable_bytes,
        aged_rounds: setting.aged_rounds,
        filesystem: setting.filesystem.clone(),
        annotations: setting.annotations.clone(),
        changes: setting.changes.clone(),
        allocator: None,
        numa: setting.numa.clone(),
        reference_ns: setting.reference_ns,
    }
}
