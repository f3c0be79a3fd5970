//! Many verdicts: per kernel, and per aspect.

use std::collections::BTreeMap;

use serde::Serialize;

use super::difference::Aspect;
use super::verdict::Verdict;

/// What was found for the recordings of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelRow {
    /// Rules they were replayed under.
    pub rules: String,
    /// Recordings without a difference.
    pub nr_equal: u64,
    /// Recordings with one.
    pub nr_different: u64,
    /// Recordings that show reads in flight ([`Verdict::nr_in_flight`], [`Verdict::nr_waits`]).
    pub nr_in_flight: u64,
    /// Items compared, by aspect.
    pub compared: BTreeMap<Aspect, u64>,
    /// Recordings that differ in an aspect.
    pub different: BTreeMap<Aspect, u64>,
}

/// Verdicts of many recordings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// By kernel.
    pub kernels: BTreeMap<String, KernelRow>,
    /// Verdicts that found a difference, at most [`Summary::NR_KEPT`] of them.
    pub different: Vec<Verdict>,
}

impl Summary {
    /// Differing verdicts kept in full.
    pub const NR_KEPT: usize = 1000;

    /// Counts one verdict under `kernel`.
    pub fn add(&mut self, kernel: &str, verdict: Verdict) {
        let row = self.kernels.entry(kernel.to_owned()).or_default();
        row.rules.clone_from(&verdict.rules);
        row.nr_in_flight += u64::from(verdict.nr_in_flight + verdict.nr_waits > 0);
        for (aspect, nr) in &verdict.compared {
            *row.compared.entry(*aspect).or_default() += nr;
        }
        if verdict.is_equal() {
            row.nr_equal += 1;
            return;
        }
        row.nr_different += 1;
        for difference in &verdict.differences {
            *row.different.entry(difference.aspect).or_default() += 1;
        }
        if self.different.len() < Self::NR_KEPT {
            self.different.push(verdict);
        }
    }

    /// Recordings without a difference.
    #[must_use]
    pub fn nr_equal(&self) -> u64 {
        self.kernels.values().map(|row| row.nr_equal).sum()
    }

    /// Recordings with a difference.
    #[must_use]
    pub fn nr_different(&self) -> u64 {
        self.kernels.values().map(|row| row.nr_different).sum()
    }
}
