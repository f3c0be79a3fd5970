//! Reads and checks a curve of a study file.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::count::CountFile;
use super::super::error::Mistake;
use super::super::load::{CellFile, LineFile, check_filesystem, input_of};
use super::super::parts::Generated;
use super::super::sample::Sample;
use super::{Curve, CurveLine};
use largefolio_sim::replay::CellSpec;

const NR_LINES_MAX: usize = 16;
const NR_LIMITS_MAX: usize = 32;
const NR_COUNTS_MAX: usize = 16;
/// The largest limit, in percent.
const PERCENT_MAX: u32 = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in super::super) struct CurveFile {
    title: String,
    trace: Option<String>,
    workload: Option<String>,
    machine: String,
    filesystem: Option<String>,
    cache: Option<String>,
    memory: Option<String>,
    swap: Option<String>,
    limits: Vec<String>,
    beside: Option<BesideFile>,
    lines: Vec<LineFile>,
    counts: Vec<CountFile>,
}

/// The same lines with an edit of their kernels.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct BesideFile {
    name: String,
    edit: String,
}

impl CurveFile {
    pub(in super::super) fn curve(
        self,
        place: &str,
        workloads: &BTreeMap<String, Generated>,
        sample: &Sample,
    ) -> Result<Curve, Mistake> {
        let few = [
            ("lines", self.lines.len(), NR_LINES_MAX),
            ("limits", self.limits.len(), NR_LIMITS_MAX),
            ("counts", self.counts.len(), NR_COUNTS_MAX),
        ];
        for (key, nr, max) in few {
            if nr == 0 || nr > max {
                let expected = "1 to 16 lines, 1 to 32 limits and 1 to 16 counts";
                return Err(wrong(place, key, &nr.to_string(), expected));
            }
        }
        check_filesystem(self.filesystem.as_deref(), place)?;
        let input = input_of(place, self.trace.as_ref(), self.workload.as_ref(), workloads)?;
        let limits = limits_of(&self.limits, place)?;
        let mut lines = Vec::new();
        for (nr, line) in self.lines.iter().enumerate() {
            let place = format!("{place}.lines[{nr}]");
            let spec = self.spec(&line.kernel, &place)?;
            let beside = self
                .beside
                .as_ref()
                .map(|beside| self.spec(&format!("{}+{}", line.kernel, beside.edit), &place));
            lines.push(CurveLine { name: line.name.clone(), spec, beside: beside.transpose()? });
        }
        let counts = CountFile::counts(self.counts, place, sample)?;
        let beside = self.beside.map(|beside| beside.name);
        Ok(Curve { title: self.title, input, limits, lines, beside, counts })
    }

    fn spec(&self, kernel: &str, place: &str) -> Result<CellSpec, Mistake> {
        let cell = CellFile {
            kernel: Some(kernel.to_owned()),
            machine: Some(self.machine.clone()),
            filesystem: self.filesystem.clone(),
            cache: self.cache.clone(),
            memory: self.memory.clone(),
            swap: self.swap.clone(),
            ..CellFile::default()
        };
        cell.spec(place)
    }
}

fn wrong(place: &str, key: &str, value: &str, expected: &'static str) -> Mistake {
    Mistake::Value { place: format!("{place}.{key}"), value: value.to_owned(), expected }
}

/// Reads `["10%", "100%"]`, rising.
fn limits_of(texts: &[String], place: &str) -> Result<Vec<u32>, Mistake> {
    let mut limits: Vec<u32> = Vec::new();
    for text in texts {
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        let rises = |percent: &u32| limits.last().is_none_or(|last| last < percent);
        let percent = percent.filter(|percent| (1..=PERCENT_MAX).contains(percent)).filter(rises);
        let expected = "ascending shares, such as [\"10%\", \"100%\"], up to 1000%";
        limits.push(percent.ok_or_else(|| wrong(place, "limits", text, expected))?);
    }
    Ok(limits)
}
