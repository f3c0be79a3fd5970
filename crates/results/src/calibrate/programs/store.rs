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
    /// [`RESULTS_VERSION`] of its predictions. Others say nothing about this version's errors.
    version: u32,
    cpu: String,
    pub(super) programs: BTreeMap<String, Vec<Visit>>,
}

impl Visit {
    pub(super) fn now(compared: Compared) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let Compared { run_ns, nr_rounds, settings, .. } = compared;
        Self {
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
        let new = Self { version: RESULTS_VERSION, cpu: cpu.to_owned(), programs: BTreeMap::new() };
        let about = |why: String| Error::request(format!("{}: {why}; remove it", shown(path)));
        let text = match disk::read_whole(path, FILE_BYTES_MAX) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((new, None)),
            text => text.map_err(|error| about(error.to_string()))?,
        };
        let store: Self =
            serde_json::from_slice(&text).map_err(|error| about(error.to_string()))?;
        if store.version != RESULTS_VERSION {
            let why = "the earlier measurements are of another version's predictions";
            return Ok((new, Some(why.to_owned())));
        }
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

    pub(super) fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_vec(self).map_err(|error| Error::request(error.to_string()))?;
        write(path, &text)
    }
}

/// Writes a file of the bank as a whole.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let about = |error: io::Error| Error::request(format!("cannot write {}: {error}", shown(path)));
    disk::write_whole(path, bytes).map_err(about)
}
