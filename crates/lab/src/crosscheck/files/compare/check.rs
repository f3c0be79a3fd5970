//! A comparison in progress, and the check of a mapping's present pages.

use super::super::body::FileSteps;
use super::super::not_compared::NotComparedFiles;
use super::super::replay::FileReplay;
use super::super::step::PageRun;
use super::super::timing::IoTiming;
use crate::crosscheck::difference::{Aspect, Location, shown};
use crate::crosscheck::error::CheckError;
use crate::crosscheck::recording::Recording;
use crate::crosscheck::verdict::Verdict;
use largefolio_mm::policy::Policy;
use largefolio_sim::kernel::Kernel;

pub(super) struct FileComparison<'a> {
    pub(super) workload: &'a FileSteps,
    /// The filesystem completes reads page by page in a separate thread.
    pub(super) reads_piecemeal: bool,
    pub(super) replay: FileReplay,
    pub(super) verdict: Verdict,
    pub(super) asides: NotComparedFiles,
    pub(super) learned: IoTiming,
    /// The policy, to answer the kernel's own questions.
    pub(super) policy: Option<Box<dyn Policy>>,
    /// The kernel has fewer pages present at the end, because of timing.
    pub(super) lacks: bool,
}

impl<'a> FileComparison<'a> {
    pub(super) fn new(
        recording: &'a Recording<FileSteps>,
        kernel: &Kernel,
        timing: IoTiming,
    ) -> Result<Self, CheckError> {
        let verdict = Verdict {
            nr_waits: timing.waits.len() as u64,
            nr_in_flight: timing.nr_off_rule(),
            ..Verdict::new(recording.name.clone(), kernel)
        };
        let replay = FileReplay::new(recording, kernel, timing)?;
        let policy = kernel.policy.as_ref().map(|policy| policy.0.start()).transpose();
        let policy = policy.map_err(CheckError::Policy)?;
        let (asides, learned) = (NotComparedFiles::default(), IoTiming::default());
        let reads_piecemeal = recording.header.filesystem == "btrfs";
        let workload = &recording.body;
        let lacks = false;
        Ok(Self { workload, reads_piecemeal, replay, verdict, asides, learned, policy, lacks })
    }

    /// Notes the faults that skipped pages which the kernel has mapped.
    pub(super) fn explain_more(&mut self, area: u32, (first, last): PageRun) {
        for index in first..=last {
            let Some((step, nr_requests)) = self.replay.early(area, index) else { return };
            let known = self.learned.early.entry(step).or_default();
            *known = nr_requests.max(*known);
        }
    }

    /// Notes that the read of a folio was complete when the current step's fault ran fault-around.
    pub(super) fn explain_run(&mut self, (file, first, last): (u32, u64, u64)) {
        let step = self.verdict.nr_steps;
        if let Some(nr_requests) = self.replay.early_in(step, file, (first, last)) {
            let known = self.learned.early.entry(step).or_default();
            *known = nr_requests.max(*known);
        }
    }

    /// Notes the faults that mapped pages which the kernel has not mapped.
    pub(super) fn explain_less(&mut self, area: u32, (first, last): PageRun) {
        for index in first..=last {
            let Some(step) = self.replay.late(area, index) else { return };
            let known = self.learned.late.entry(step).or_insert(index);
            *known = index.min(*known);
        }
    }

    /// Compares present pages. Without pauses, or on btrfs, fault-around may have met pages that
    /// were still being read: btrfs completes reads page by page in a separate thread.
    pub(super) fn present(&mut self, aspect: Aspect, at: &Location, area: u32, kernel: &[PageRun]) {
        let model = &self.replay.present(area);
        self.verdict.count(aspect, nr_pages(kernel));
        if kernel == model {
            return;
        }
        for run in beyond(kernel, model) {
            self.explain_more(area, run);
        }
        for run in beyond(model, kernel) {
            self.explain_less(area, run);
        }
        let setup = &self.workload.setup;
        let has_pauses = setup.events.is_some() && setup.settle_us > 0;
        let may_lack = self.reads_piecemeal || !has_pauses;
        if may_lack && beyond(kernel, model).is_empty() {
            self.lacks |= aspect == Aspect::Mapped;
            return;
        }
        self.verdict.differ(aspect, at.clone(), shown(kernel), shown(model));
    }
}

fn nr_pages(runs: &[PageRun]) -> u64 {
    runs.iter().map(|run| run.1 - run.0 + 1).sum()
}

/// Returns the parts of `runs` that no run of `of` covers; both ascend.
fn beyond(runs: &[PageRun], of: &[PageRun]) -> Vec<PageRun> {
    let mut parts = Vec::new();
    for &(first, last) in runs {
        let mut next = first;
        for &(from, to) in of.iter().filter(|run| run.1 >= first && run.0 <= last) {
            if next < from {
                parts.push((next, from - 1));
            }
            next = to + 1;
        }
        if next <= last {
            parts.push((next, last));
        }
    }
    parts
}
