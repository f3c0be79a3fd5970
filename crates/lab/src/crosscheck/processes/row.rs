//! The result for one program, as a row of a table.

use std::fmt;

use serde::Serialize;

use super::run::ProgramRun;
use crate::crosscheck::difference::{Aspect, Difference};
use crate::crosscheck::verdict::Verdict;

/// Differences to print; the others are counted.
const NR_SHOWN: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramRow {
    pub seed: u64,
    pub sizes_kib: Vec<u64>,
    pub nr_steps: usize,
    pub nr_pages: u64,
    /// Areas whose `smaps` was compared, summed over all steps.
    pub nr_areas: u64,
    pub nr_new_frames: u64,
    pub disturbances: Vec<String>,
    pub step: Option<String>,
    /// Differences after that step; later steps are not compared.
    pub differences: Vec<Difference>,
}

impl ProgramRow {
    #[must_use]
    pub fn new(run: &ProgramRun, verdict: Verdict) -> Self {
        let last = verdict.nr_steps.checked_sub(1).and_then(|nr| run.program.steps.get(nr));
        Self {
            seed: run.program.seed,
            sizes_kib: run.program.sizes_kib.clone(),
            nr_steps: verdict.nr_steps,
            nr_pages: verdict.nr_compared(Aspect::Presence),
            nr_areas: verdict.nr_compared(Aspect::Smaps),
            nr_new_frames: verdict.nr_compared(Aspect::Frame),
            disturbances: run.disturbances.clone(),
            step: last.filter(|_| !verdict.is_equal()).map(ToString::to_string),
            differences: verdict.differences,
        }
    }

    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }
}

impl fmt::Display for ProgramRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, sizes_kib, nr_steps, .. } = self;
        let step = self.step.as_deref().unwrap_or("-");
        write!(f, "program {seed} ({sizes_kib:?} KiB) step {nr_steps}: {step}")?;
        self.disturbances.iter().try_for_each(|event| write!(f, " [{event}]"))?;
        self.differences.iter().take(NR_SHOWN).try_for_each(|one| write!(f, "\n  {one}"))?;
        match self.differences.len() {
            nr if nr > NR_SHOWN => write!(f, "\n  and {} more", nr - NR_SHOWN),
            _ => Ok(()),
        }
    }
}
