//! The measured programs of a machine: a file next to its machine file, to which each visit adds.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use largefolio_sim::replay::RESULTS_VERSION;
use largefolio_trace::{disk, shown};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::running;
use crate::trial::{Compared, SettingPairs};

/// More visits do not change a median.
const NR_VISITS_MAX: usize = 32;
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A prediction of a program and its measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Visit {
    /// [`RESULTS_VERSION`] of its predictions.
    pub(super) version: u32,
    /// Seconds since 1970.
    pub(super) time: u64,
    pub(super) kernel: String,
    pub(super) nr_rounds: usize,
    /// Plain run's CPU time in ns.
    pub(super) run_ns: f64,
    pub(super) settings: Vec<SettingPairs>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Store {
    cpu: String,
    pub(super) programs: BTreeMap<String, Vec<Visit>>,
}

impl Visit {
    pub(super) fn now(compared: Compared) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let Compared { run_ns, nr_rounds, settings, .. } = compared;
        Self {
            version: RESULTS_VERSION,
            time: now.map_or(0, |now| now.as_secs()),
            kernel: running::release(),
            nr_rounds,
            run_ns,
            settings,
        }
    }
}

impl Store {
    pub(super) fn path_of(machine: &Path) -> PathBuf {
        machine.with_extension("programs.json")
    }

    /// Returns the file's programs, and why earlier ones are not used.
    pub(super) fn read(path: &Path, cpu: &str) -> Result<(Self, Option<String>), Error> {
        let new = Self { cpu: cpu.to_owned(), programs: BTreeMap::new() };
        let about = |why: String| Error::request(format!("{}: {why}; remove it", shown(path)));
        let text = match disk::read_whole(path, FILE_BYTES_MAX) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((new, None)),
            text => text.map_err(|error| about(error.to_string()))?,
        };
        let store: Self =
            serde_json::from_slice(&text).map_err(|error| about(error.to_string()))?;
        if store.cpu != cpu {
            return Ok((new, Some(format!("the earlier measurements are of {}", store.cpu))));
        }
        Ok((store, None))
    }

    pub(super) fn add(&mut self, program: &str, visit: Visit) {
        let visits = self.programs.entry(program.to_owned()).or_default();
        visits.push(visit);
        let nr_old = visits.len().saturating_sub(NR_VISITS_MAX);
        visits.drain(..nr_old);
    }

    /// Returns the programs whose latest predictions are this version's. Those of other versions say
    /// nothing about its errors, but what was measured stays.
    pub(super) fn current(&self) -> BTreeMap<&str, &[Visit]> {
        let all = self.programs.iter().map(|(name, visits)| (name.as_str(), visits.as_slice()));
        all.filter(|(_, visits)| is_current(visits)).collect()
    }

    /// Programs that most need a visit have the smallest number.
    pub(super) fn nr_current_visits(&self, program: &str) -> usize {
        let visits = self.programs.get(program).filter(|visits| is_current(visits));
        visits.map_or(0, Vec::len)
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_vec(self).map_err(|error| Error::request(error.to_string()))?;
        write(path, &text)
    }
}

fn is_current(visits: &[Visit]) -> bool {
    visits.last().is_some_and(|visit| visit.version == RESULTS_VERSION)
}

/// Writes a file of the bank as a whole.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let about = |error: io::Error| Error::request(format!("cannot write {}: {error}", shown(path)));
    disk::write_whole(path, bytes).map_err(about)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_of_another_version_wait_for_new_predictions() {
        let visit = |version| Visit {
            version,
            time: 0,
            kernel: "6.18".to_owned(),
            nr_rounds: 9,
            run_ns: 1e9,
            settings: Vec::new(),
        };
        let mut store = Store { cpu: "a CPU".to_owned(), programs: BTreeMap::new() };
        store.add("old", visit(RESULTS_VERSION - 1));
        store.add("both", visit(RESULTS_VERSION - 1));
        store.add("both", visit(RESULTS_VERSION));
        let current: Vec<&str> = store.current().into_keys().collect();
        assert_eq!(current, ["both"]);
        let nr = ["old", "both", "new"].map(|name| store.nr_current_visits(name));
        assert_eq!(nr, [0, 2, 0]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("this.programs.json");
        store.write(&path).unwrap();
        assert_eq!(Store::read(&path, "a CPU").unwrap(), (store, None));
        let (other, note) = Store::read(&path, "another").unwrap();
        assert!(other.programs.is_empty() && note.unwrap().contains("a CPU"));
    }
}
