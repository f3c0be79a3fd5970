//! Runs the cells of studies. All cells of a trace share one pass over it, or one pass per batch if
//! their state would fill memory.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use largefolio_trace::OpenTrace;
use largefolio_trace::generate::GenerateError;
use serde::Serialize;
use serde_json::Value;

use super::error::StudyError;
use super::file::{Source, Study};
use super::parts::Input;
use super::sample::shown;
use largefolio_sim::replay::{
    CellError, CellSpec, NR_CELLS_MAX, ReplayError, batches, replay_each,
};

/// Called with a name and the number of rows decoded so far; can stop the run.
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64) -> ControlFlow<()>;

#[derive(Clone, Debug, Default)]
pub struct Values {
    /// By study and cell; an error means that the trace is missing.
    cells: BTreeMap<(String, String), Result<Value, String>>,
    /// Cells that ended early as a valid result: below limits, in frontiers.
    ended: BTreeMap<(String, String), CellEnd>,
}

impl Values {
    pub(super) fn cell(&self, study: &str, name: &str) -> Result<&Value, &str> {
        let key = (study.to_owned(), name.to_owned());
        match self.cells.get(&key) {
            Some(Ok(value)) => Ok(value),
            Some(Err(why)) => Err(why),
            None => Err(self.ended(study, name).map_or("not run", CellEnd::label)),
        }
    }

    pub(super) fn ended(&self, study: &str, name: &str) -> Option<CellEnd> {
        self.ended.get(&(study.to_owned(), name.to_owned())).copied()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CellEnd {
    OutOfMemory,
    /// It did little but read back evicted pages.
    Thrashes,
}

impl CellEnd {
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::OutOfMemory => "no memory",
            Self::Thrashes => "thrashes",
        }
    }
}

struct Group<'a> {
    input: &'a Input,
    runs: Vec<CellRun<'a>>,
}

struct CellRun<'a> {
    study: &'a Study,
    input: &'a Input,
    name: String,
    spec: CellSpec,
    /// Ending early is a result, not an error.
    may_end: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Folders<'a> {
    /// Recorded traces, `NAME.folio`.
    pub traces: &'a Path,
    pub scratch: &'a Path,
}

/// Runs every cell of `studies`. If a trace does not exist, its cells have no result.
///
/// # Errors
/// A trace that cannot be replayed or generated, or [`StudyError::Stopped`].
pub fn run(
    studies: &[Study],
    folders: Folders<'_>,
    progress: Progress<'_>,
) -> Result<Values, StudyError> {
    let mut values = Values::default();
    for study in studies {
        for (name, source) in &study.cells {
            let Source::Model(model) = source else { continue };
            if progress(name, 0).is_break() {
                return Err(StudyError::Stopped);
            }
            let value = model.run().map_err(|message| StudyError::Model {
                origin: study.origin.clone(),
                cell: name.clone(),
                message,
            })?;
            values.cells.insert((study.name.clone(), name.clone()), Ok(value));
        }
    }
    values.replay(groups(whole(studies)), folders, progress)?;
    let limited = values.limited(studies);
    values.replay(groups(limited), folders, progress)?;
    Ok(values)
}

impl Values {
    fn replay(
        &mut self,
        groups: Vec<Group<'_>>,
        folders: Folders<'_>,
        progress: Progress<'_>,
    ) -> Result<(), StudyError> {
        for Group { input, runs } in groups {
            if progress("next trace", 0).is_break() {
                return Err(StudyError::Stopped);
            }
            let path = match input {
                Input::Recorded(name) => folders.traces.join(format!("{name}.folio")),
                Input::Generated(workload) => {
                    let path = folders.scratch.join("generated.folio");
                    let mut on_progress = |nr| progress("generated", nr);
                    workload.write(&path, &mut on_progress).map_err(|error| match error {
                        GenerateError::Stopped => StudyError::Stopped,
                        error => StudyError::Generate { path: path.clone(), error },
                    })?;
                    path
                }
            };
            for runs in batched(runs) {
                self.add(&runs, &path, progress)?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        runs: &[CellRun<'_>],
        path: &Path,
        progress: Progress<'_>,
    ) -> Result<(), StudyError> {
        if !path.exists() {
            for CellRun { study, name, .. } in runs {
                let why = Err(format!("no trace {}", largefolio_trace::shown(path)));
                self.cells.insert((study.name.clone(), name.clone()), why);
            }
            return Ok(());
        }
        let specs: Vec<CellSpec> = runs.iter().map(|run| run.spec.clone()).collect();
        let Some(first) = runs.first() else { return Ok(()) };
        let mut on_progress = |nr| progress(first.input.name(), nr);
        let fail = |run: &CellRun<'_>, error| {
            let (origin, cell) = (run.study.origin.clone(), run.name.clone());
            StudyError::Replay { origin, cell, error: Box::new(error) }
        };
        let replayed = OpenTrace::open(path)
            .map_err(ReplayError::from)
            .and_then(|trace| replay_each(&trace, &specs, &mut on_progress));
        let (meta, outcomes) = replayed.map_err(|error| match error {
            ReplayError::Stopped => StudyError::Stopped,
            other => fail(first, other),
        })?;
        for (run, outcome) in runs.iter().zip(outcomes) {
            let key = (run.study.name.clone(), run.name.clone());
            let value = match outcome {
                Ok(_) if meta.faults_only => Err(faults_only(path)),
                Ok(outcome) => Ok(shown(&outcome)),
                Err(error) => {
                    let ended = ended(&error).filter(|_| run.may_end);
                    let Some(ended) = ended else { return Err(fail(run, error)) };
                    self.ended.insert(key, ended);
                    continue;
                }
            };
            self.cells.insert(key, value);
        }
        Ok(())
    }

    /// Returns the cells below limits; a limit is a share of the memory used without one.
    fn limited<'a>(&self, studies: &'a [Study]) -> Vec<CellRun<'a>> {
        let mut runs = Vec::new();
        for study in studies {
            for (nr, curve) in study.curves.iter().enumerate() {
                let Ok(whole) = self.cell(&study.name, &curve.whole(nr).0) else { continue };
                let Some(bytes) = peak_bytes(whole) else { continue };
                let cells = curve.limited(nr, bytes).into_iter();
                runs.extend(cells.map(|(name, spec)| CellRun {
                    study,
                    input: &curve.input,
                    name,
                    spec,
                    may_end: true,
                }));
            }
        }
        runs
    }
}

/// Returns the cells of tables and frontiers, and of curves without a limit.
fn whole(studies: &[Study]) -> Vec<CellRun<'_>> {
    let mut runs = Vec::new();
    for study in studies {
        for (name, source) in &study.cells {
            let Source::Replay(input, spec) = source else { continue };
            let (name, spec) = (name.clone(), spec.as_ref().clone());
            runs.push(CellRun { study, input, name, spec, may_end: false });
        }
        for (nr, curve) in study.curves.iter().enumerate() {
            let (name, spec) = curve.whole(nr);
            runs.push(CellRun { study, input: &curve.input, name, spec, may_end: false });
        }
        for (nr, frontier) in study.frontiers.iter().enumerate() {
            let cells = frontier.cells(nr).map(|(name, input, spec)| {
                let spec = spec.clone();
                CellRun { study, input, name, spec, may_end: true }
            });
            runs.extend(cells);
        }
    }
    runs
}

fn groups(runs: Vec<CellRun<'_>>) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for run in runs {
        match groups.iter_mut().find(|group| group.input == run.input) {
            Some(group) => group.runs.push(run),
            None => groups.push(Group { input: run.input, runs: vec![run] }),
        }
    }
    groups
}

/// Splits runs into batches of at most one prediction's cells.
fn batched(runs: Vec<CellRun<'_>>) -> Vec<Vec<CellRun<'_>>> {
    batches(runs, NR_CELLS_MAX, |run| run.spec.ram_bytes)
}

const fn ended(error: &ReplayError) -> Option<CellEnd> {
    match error {
        ReplayError::Cell { source: CellError::OverBudget(_), .. } => Some(CellEnd::Thrashes),
        error if error.is_out_of_memory() => Some(CellEnd::OutOfMemory),
        _ => None,
    }
}

pub(super) fn peak_bytes(value: &Value) -> Option<u64> {
    value.pointer("/cgroups/0/peak_bytes")?.as_u64()
}

fn faults_only(path: &Path) -> String {
    let path = largefolio_trace::shown(path);
    format!("{path} contains only page faults; record it without --live")
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// A file of a few kilobytes whose cells would need 12 GB of state together.
    #[test]
    fn the_cells_of_a_trace_are_replayed_in_batches() {
        let mut text = "name = \"many\"\ntitle = \"Many\"\nsource = \"a test\"\nsetup = \"none\"\n\
             [workloads.stubs]\nkind = \"ret-stubs\"\npages = 64\nstub-size = \"4K\"\n\
             order = \"sequential\"\ncalls = 10\nadvice = \"none\"\nseed = 1\n"
            .to_owned();
        for nr in 0..400 {
            let cell = "workload = \"stubs\"\nkernel = \"7.0\"\nmachine = \"altra\"";
            writeln!(text, "[cells.c{nr}]\n{cell}").unwrap();
        }
        let studies = [Study::from_toml(&text, "many.toml").unwrap()];
        let [group] = groups(whole(&studies)).try_into().unwrap_or_else(|_| panic!("one trace"));
        let names: Vec<_> = group.runs.iter().map(|run| run.name.clone()).collect();
        assert_eq!(names.len(), 400);
        let batches = batched(group.runs);
        // Nine bytes per 4 KiB page, in at most 1 GB: 28 cells of 16 GiB.
        assert_eq!(batches.iter().map(Vec::len).max(), Some(28));
        let again: Vec<_> = batches.iter().flatten().map(|run| run.name.clone()).collect();
        assert_eq!(again, names);
    }
}
