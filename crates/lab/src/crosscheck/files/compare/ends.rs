//! Compares the final mappings, and the counters over all steps.

use std::collections::BTreeSet;

use super::super::body::AreaEnd;
use super::super::step::{Action, FileStep, PageRun, joined};
use super::check::FileComparison;
use crate::crosscheck::difference::{Aspect, Location};

impl FileComparison<'_> {
    pub(super) fn ends(&mut self) {
        for (&area, end) in &self.workload.ends {
            self.end(area, end);
        }
        self.group();
        let is_counted = self.workload.setup.program.is_none();
        if let Some(kernel) = self.workload.setup.nr_major.filter(|_| is_counted) {
            self.major_faults(kernel);
        }
    }

    fn at_end(&self, action: String) -> Location {
        Location::Step { step: self.workload.steps.len(), action, state_before: None }
    }

    fn group(&mut self) {
        let at = self.at_end("all steps".to_owned());
        for (key, ours) in self.replay.counted() {
            let theirs = self.workload.counted.get(key).copied().unwrap_or(0);
            self.verdict.compare(Aspect::Group, &at, &[(key, theirs)], &[(key, ours)]);
        }
    }

    fn major_faults(&mut self, kernel: u64) {
        let ours = self.replay.nr_major();
        // If the handler is not traced, the model waits at every hit.
        let may_be_more = self.workload.is_slow() && !self.workload.shows_handler();
        if may_be_more && kernel <= ours {
            return;
        }
        let at = self.at_end("all steps".to_owned());
        self.verdict.compare(Aspect::MajorFaults, &at, &[kernel], &[ours]);
    }

    fn end(&mut self, area: u32, end: &AreaEnd) {
        let at = self.at_end(format!("mapping {area} at the end"));
        let touched;
        let kernel = if let Some(runs) = &end.present {
            runs
        } else {
            touched = touched_pages(&self.workload.steps, area);
            &touched
        };
        self.present(Aspect::Mapped, &at, area, kernel);
        if self.lacks {
            self.verdict.nr_in_flight += 1;
            return;
        }
        if !end.folios.is_empty() {
            let ours = self.replay.folio_runs(area);
            self.verdict.compare(Aspect::Folios, &at, &end.folios, &ours);
        }
        if let Some(kib) = end.pmd_kib {
            let ours = self.replay.pmd_kib(area);
            self.verdict.compare(Aspect::PmdMapped, &at, &[kib], &[ours]);
        }
    }
}

fn touched_pages(steps: &[FileStep], of: u32) -> Vec<PageRun> {
    let touched: BTreeSet<u64> = steps
        .iter()
        .filter_map(|step| match step.action {
            Action::Touch { index, area, .. } if area == of => Some(index),
            _ => None,
        })
        .collect();
    joined(touched.into_iter().map(|index| (index, index)))
}
