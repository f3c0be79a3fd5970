//! Running the cells of studies: each trace is decoded once for all cells that want it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;

use super::error::StudyError;
use super::file::{Source, Study};
use super::parts::Generated;
use crate::replay::{CellSpec, Outcome, ReplayError, replay_until};

/// Hears what is being done, a name and the rows decoded so far of it, and may end it.
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64) -> ControlFlow<()>;

/// What every cell of some studies came to.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// By study and cell; an error is that of a trace that is not there.
    cells: BTreeMap<(String, String), Result<Value, String>>,
}

impl Values {
    /// The result of a cell.
    pub(super) fn cell(&self, study: &str, name: &str) -> Result<&Value, &str> {
        let key = (study.to_owned(), name.to_owned());
        match self.cells.get(&key) {
            Some(Ok(value)) => Ok(value),
            Some(Err(why)) => Err(why),
            None => Err("not run"),
        }
    }
}

/// Where a trace comes from.
#[derive(Clone, Debug, PartialEq)]
enum Input {
    Recorded(String),
    Generated(Generated),
}

/// Cells of one trace.
struct Group<'a> {
    input: Input,
    cells: Vec<GroupCell<'a>>,
}

/// One cell of a study.
struct GroupCell<'a> {
    study: &'a Study,
    name: &'a str,
    spec: &'a CellSpec,
}

/// Where traces are.
#[derive(Clone, Copy, Debug)]
pub struct Folders<'a> {
    /// Recorded traces, `NAME.folio`.
    pub traces: &'a Path,
    /// A folder for those that are generated.
    pub scratch: &'a Path,
}

/// Runs every cell of `studies`.
///
/// # Errors
/// A trace that cannot be replayed or generated, or [`StudyError::Stopped`]; a trace that does not
/// exist leaves its cells without a result.
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
    for group in groups(studies) {
        if progress("next trace", 0).is_break() {
            return Err(StudyError::Stopped);
        }
        let path = match &group.input {
            Input::Recorded(name) => folders.traces.join(format!("{name}.folio")),
            Input::Generated(workload) => {
                let path = folders.scratch.join("generated.folio");
                let told = |error| StudyError::Generate { path: path.clone(), error };
                workload.write(&path).map_err(told)?;
                path
            }
        };
        values.add(&group, &path, progress)?;
    }
    Ok(values)
}

impl Values {
    fn add(
        &mut self,
        group: &Group<'_>,
        path: &Path,
        progress: Progress<'_>,
    ) -> Result<(), StudyError> {
        if !path.exists() {
            for GroupCell { study, name, .. } in &group.cells {
                let why = Err(format!("no trace {}", largefolio_trace::shown(path)));
                self.cells.insert((study.name.clone(), (*name).to_owned()), why);
            }
            return Ok(());
        }
        let specs: Vec<CellSpec> = group.cells.iter().map(|cell| cell.spec.clone()).collect();
        let name = match &group.input {
            Input::Recorded(name) => name.clone(),
            Input::Generated(_) => "generated".to_owned(),
        };
        let mut hears = |nr| progress(&name, nr);
        let (meta, outcomes) = replay_until(path, &specs, &mut hears).map_err(|error| {
            if matches!(error, ReplayError::Stopped) {
                return StudyError::Stopped;
            }
            let first = &group.cells[0];
            let (origin, cell) = (first.study.origin.clone(), first.name.to_owned());
            StudyError::Replay { origin, cell, error: Box::new(error) }
        })?;
        for (GroupCell { study, name, .. }, outcome) in group.cells.iter().zip(&outcomes) {
            let shown = if meta.faults_only { Err(faults_only(path)) } else { Ok(shown(outcome)) };
            self.cells.insert((study.name.clone(), (*name).to_owned()), shown);
        }
        Ok(())
    }
}

fn groups(studies: &[Study]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for study in studies {
        for (name, source) in &study.cells {
            let (input, spec) = match source {
                Source::Trace(trace, spec) => (Input::Recorded(trace.clone()), spec),
                Source::Generated(workload, spec) => (Input::Generated(workload.clone()), spec),
                Source::Model(_) => continue,
            };
            let cell = GroupCell { study, name, spec };
            match groups.iter_mut().find(|group| group.input == input) {
                Some(group) => group.cells.push(cell),
                None => groups.push(Group { input, cells: vec![cell] }),
            }
        }
    }
    groups
}

/// Why a trace of page faults gives no numbers.
fn faults_only(path: &Path) -> String {
    let path = largefolio_trace::shown(path);
    format!("{path} holds page faults only; record it without --live")
}

/// The result as JSON, with text and data together as `folios.file`, and TLBs also where nothing was
/// counted.
pub(super) fn shown(outcome: &Outcome) -> Value {
    let mut value = serde_json::to_value(outcome).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.insert("tlb".to_owned(), serde_json::to_value(outcome.tlb).unwrap_or_default());
    }
    let all = serde_json::to_value(outcome.folios.all()).unwrap_or_default();
    if let Some(folios) = value.get_mut("folios").and_then(Value::as_object_mut) {
        folios.insert("file".to_owned(), all);
    }
    value
}
