//! Compares one step of the kernel and the model.

use std::collections::BTreeSet;

use largefolio_mm::mapping::reserve::ExtentKind;

use super::super::body::{
    EVENT_AROUND, EVENT_ASYNC, EVENT_BASE, EVENT_HANDLER, EVENT_SYNC, EVENT_WINDOW,
};
use super::super::step::{Action, FileStep, PageRun, WindowLine, joined};
use super::check::FileComparison;
use crate::crosscheck::difference::{Aspect, Location};

impl FileComparison<'_> {
    /// Runs and compares one step. Returns the passes of the model's fault handler.
    pub(super) fn step(&mut self, nr: usize, kernel: &FileStep) -> Vec<(u32, u64)> {
        let at = Location::Step {
            step: nr,
            action: described(&kernel.action),
            state_before: self.replay.state_before(&kernel.action).map(|state| {
                format!(
                    "start {} size {} async {} order {} miss {}",
                    state.start,
                    state.size,
                    state.async_size,
                    state.order,
                    state.mmap_miss()
                )
            }),
        };
        self.asides.note(&kernel.action, &mut self.verdict.not_compared);
        let file = self.replay.file_of(&kernel.action);
        let before = self.cached_before(&kernel.action);
        self.reserved(&at, kernel);
        let model = match self.replay.run(nr, kernel) {
            Ok(model) => model,
            Err(_) if self.asides.has(file) => return Vec::new(),
            Err(what) => {
                self.verdict.differ(Aspect::Insertions, at, "did it".to_owned(), what);
                return Vec::new();
            }
        };
        let cut = before.map(|before| self.cut(&before));
        let (theirs, ours) = (self.asides.rest(kernel, file), self.asides.rest(&model, file));
        self.compare(&at, &theirs, &ours, cut.as_deref());
        let not_compared = &mut self.verdict.not_compared;
        if !self.verdict.differences.is_empty()
            && self.asides.excuse(&theirs, &ours, file, not_compared)
        {
            self.verdict.differences.clear();
            let (theirs, ours) = (self.asides.rest(kernel, file), self.asides.rest(&model, file));
            self.compare(&at, &theirs, &ours, cut.as_deref());
        }
        model.handler
    }

    /// Compares the results of one step; `cut` has the pages that the model truncated.
    fn compare(
        &mut self,
        at: &Location,
        kernel: &FileStep,
        model: &FileStep,
        cut: Option<&[PageRun]>,
    ) {
        self.decisions(at, kernel, model);
        self.verdict.compare(Aspect::Insertions, at, &kernel.insertions, &model.insertions);
        if self.workload.is_limited() {
            let (theirs, ours) = (kernel.evictions(), model.evictions());
            self.verdict.compare(Aspect::Evictions, at, &theirs, &ours);
        } else if let Some(cut) = cut {
            let removed = kernel.removals.iter();
            let removed = removed.map(|folio| (folio.index, folio.index + (1 << folio.order) - 1));
            let mut theirs: Vec<PageRun> = removed.collect();
            theirs.sort_unstable();
            self.verdict.compare(Aspect::Removals, at, &joined(theirs), cut);
        } else if kernel.action.removes() {
            self.verdict.compare(Aspect::Removals, at, &kernel.removals, &model.removals);
        } else if let Err(what) = self.replay.follow_reclaim(kernel) {
            self.verdict.differ(Aspect::Insertions, at.clone(), "reclaimed it".to_owned(), what);
        }
        match self.workload.setup.events {
            None => {
                self.verdict.compare(Aspect::ColdStates, at, &kernel.cold, &model.cold);
                let hits: Vec<_> =
                    kernel.hits.iter().map(|hit| (hit.index, hit.is_marked, hit.state)).collect();
                let ours: Vec<_> =
                    model.hits.iter().map(|hit| (hit.index, hit.is_marked, hit.state)).collect();
                self.verdict.compare(Aspect::HandlerHits, at, &hits, &ours);
                self.windows(at, kernel, model, EVENT_WINDOW | EVENT_BASE);
                self.verdict.compare(Aspect::Handler, at, &kernel.handler, &model.handler);
            }
            Some(events) => {
                self.windows(at, kernel, model, events);
                self.entries(at, kernel, model, events);
                if events & EVENT_HANDLER != 0 && !self.workload.takes_io_in_flight() {
                    self.verdict.compare(Aspect::Handler, at, &kernel.handler, &model.handler);
                    if events & EVENT_AROUND != 0 {
                        self.around(at, kernel, model);
                    }
                }
            }
        }
        if self.workload.setup.program.is_some() && !self.workload.takes_io_in_flight() {
            self.verdict.compare(Aspect::Faults, at, &kernel.faults(), &model.faults());
        }
        if let Action::Point(area) = kernel.action {
            self.present(Aspect::Points, at, area, &kernel.present);
        }
    }

    /// Compares the questions to a policy and its answers. The interpreter must also give the
    /// kernel's answers to the kernel's questions.
    fn decisions(&mut self, at: &Location, kernel: &FileStep, model: &FileStep) {
        let Some(policy) = &mut self.policy else { return };
        for decision in &kernel.decisions {
            let point = decision.point();
            let answer = point.map(|point| policy.answer(point, &decision.context));
            if answer != Some(Ok(decision.answer)) {
                let ours = format!("{answer:?} to the same question");
                self.verdict.differ(Aspect::Decisions, at.clone(), decision.shown(), ours);
            }
        }
        let of = |step: &FileStep| -> Vec<String> {
            step.decisions.iter().map(|decision| decision.of_fault().shown()).collect()
        };
        self.verdict.compare(Aspect::Decisions, at, &of(kernel), &of(model));
    }

    /// Compares runs of fault-around, and with them whether the touched page was mapped. If the
    /// fault waited for its page, the recording cannot show which neighbours were still being read.
    fn around(&mut self, at: &Location, kernel: &FileStep, model: &FileStep) {
        let Action::Touch { index, area, .. } = kernel.action else { return };
        if self.replay.is_wait(self.verdict.nr_steps) {
            return;
        }
        self.verdict.compare(Aspect::Around, at, &kernel.around, &model.around);
        for run in kernel.around.iter().filter(|run| !model.around.contains(run)) {
            self.explain_run(*run);
        }
        let was_mapped = kernel.around.is_empty() && kernel.handler.is_empty();
        match (was_mapped, model.was_mapped) {
            (true, false) => self.explain_more(area, (index, index)),
            (false, true) => self.explain_less(area, (index, index)),
            _ => {}
        }
    }

    /// Returns the cached pages before a truncation, whose removals the model determines itself.
    fn cached_before(&self, action: &Action) -> Option<BTreeSet<u64>> {
        matches!(action, Action::Truncate(_)).then(|| self.replay.cached_pages())
    }

    /// Compares the earlier writes' reservations, if the model knows them.
    fn reserved(&mut self, at: &Location, kernel: &FileStep) {
        let Some(reserved) = &kernel.extents else { return };
        let reserved = reserved.iter().filter(|extent| extent.kind == ExtentKind::Reserved);
        let theirs: Vec<PageRun> = reserved.map(|extent| (extent.first, extent.end)).collect();
        // Once the kernel has written a page back, it is not reserved any longer.
        if let Some(ours) = self.replay.reserved().filter(|_| !theirs.is_empty()) {
            self.verdict.compare(Aspect::Reserved, at, &theirs, &ours);
        }
    }

    fn cut(&self, before: &BTreeSet<u64>) -> Vec<PageRun> {
        let now = self.replay.cached_pages();
        joined(before.difference(&now).map(|&index| (index, index)))
    }

    fn windows(&mut self, at: &Location, kernel: &FileStep, model: &FileStep, events: u64) {
        let is_visible =
            |line: &&WindowLine| events & if line.is_base { EVENT_BASE } else { EVENT_WINDOW } != 0;
        let has_order = kernel.windows.iter().all(|line| line.is_base || line.order.is_some());
        let shown =
            |line: &WindowLine| WindowLine { order: line.order.filter(|_| has_order), ..*line };
        let theirs: Vec<_> = kernel.windows.iter().filter(is_visible).map(shown).collect();
        let ours: Vec<_> = model.windows.iter().filter(is_visible).map(shown).collect();
        self.verdict.compare(Aspect::Windows, at, &theirs, &ours);
    }

    fn entries(&mut self, at: &Location, kernel: &FileStep, model: &FileStep, events: u64) {
        if events & EVENT_SYNC == 0 || events & EVENT_ASYNC == 0 {
            return;
        }
        self.verdict.compare(Aspect::Entries, at, &kernel.entries, &model.entries);
    }
}

fn described(action: &Action) -> String {
    match action {
        Action::Touch { index, area: 0, .. } => format!("touch page {index}"),
        Action::Touch { index, area, .. } => format!("touch page {index} of mapping {area}"),
        Action::Read(io) => format!("read {} bytes at {}", io.len_bytes, io.pos),
        Action::Write(io) => format!("write {} bytes at {}", io.len_bytes, io.pos),
        other => format!("{other:?}"),
    }
}
