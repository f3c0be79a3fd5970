//! Reads and checks a frontier of a study file.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::count::CountFile;
use super::super::error::Mistake;
use super::super::load::{CellFile, LineFile, check_filesystem, input_of};
use super::super::parts::Generated;
use super::super::sample::Sample;
use super::Frontier;

const NR_PROGRAMS_MAX: usize = 64;
/// Lines differ by colour.
const NR_LINES_MAX: usize = 8;
const NR_COUNTS_MAX: usize = 4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in super::super) struct FrontierFile {
    title: String,
    #[serde(default)]
    traces: Vec<String>,
    #[serde(default)]
    workloads: Vec<String>,
    machine: String,
    filesystem: Option<String>,
    cache: Option<String>,
    memory: Option<String>,
    swap: Option<String>,
    lines: Vec<LineFile>,
    counts: Vec<CountFile>,
}

impl FrontierFile {
    pub(in super::super) fn frontier(
        self,
        place: &str,
        workloads: &BTreeMap<String, Generated>,
        sample: &Sample,
    ) -> Result<Frontier, Mistake> {
        let nr_programs = self.traces.len() + self.workloads.len();
        let bounds = [
            ("traces", nr_programs, 1, NR_PROGRAMS_MAX),
            ("lines", self.lines.len(), 2, NR_LINES_MAX),
            ("counts", self.counts.len(), 2, NR_COUNTS_MAX),
        ];
        for (key, nr, min, max) in bounds {
            if !(min..=max).contains(&nr) {
                let expected = "1 to 64 traces and workloads, 2 to 8 lines and 2 to 4 counts";
                let place = format!("{place}.{key}");
                return Err(Mistake::Value { place, value: nr.to_string(), expected });
            }
        }
        check_filesystem(self.filesystem.as_deref(), place)?;
        let traces = self.traces.iter().map(|trace| (Some(trace), None));
        let generated = self.workloads.iter().map(|workload| (None, Some(workload)));
        let programs = traces
            .chain(generated)
            .map(|(trace, workload)| input_of(place, trace, workload, workloads))
            .collect::<Result<_, _>>()?;
        let mut lines = Vec::new();
        for (nr, line) in self.lines.into_iter().enumerate() {
            let cell = CellFile {
                kernel: Some(line.kernel),
                machine: Some(self.machine.clone()),
                filesystem: self.filesystem.clone(),
                cache: self.cache.clone(),
                memory: self.memory.clone(),
                swap: self.swap.clone(),
                ..CellFile::default()
            };
            lines.push((line.name, cell.spec(&format!("{place}.lines[{nr}]"))?));
        }
        let counts = CountFile::counts(self.counts, place, sample)?;
        Ok(Frontier { title: self.title, programs, lines, counts })
    }
}
