//! `folio predict` of one trace: one result with a column for each cell.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use largefolio_report::text::Depth;
use largefolio_report::why::{Question, Why, WhyError};
use largefolio_report::{Absent, Exporter, Goal, Html, PredictResult, Settings, TraceInfo};
use largefolio_sim::replay::{
    CellSpec, Fitting, Outcome, ReplayError, RowsDone, nr_passes, replay_fitting,
};
use largefolio_trace::OpenTrace;
use largefolio_trace::shown::spelled;

use super::form::{FrameForm, Sink};
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::work::{Kind, Work};

/// A replay that can be made.
pub(crate) struct ReplayPlan {
    pub(super) trace: OpenTrace,
    pub(super) specs: Vec<CellSpec>,
    pub(super) settings: Settings,
    pub(super) form: FrameForm,
    pub(super) depth: Depth,
    pub(super) goal: Goal,
    pub(super) run_time_ns: Option<f64>,
    /// When to stop, with the columns that are complete.
    pub(super) within: Option<Duration>,
    /// Results to explain, if any.
    pub(super) why: Option<Vec<String>>,
    pub(super) output: Option<PathBuf>,
    pub(super) report: Option<PathBuf>,
    pub(super) command_line: Vec<String>,
    pub(super) has_idle_seeds: bool,
}

impl ReplayPlan {
    pub(super) fn run(&self, console: &mut Console) -> Result<Exit> {
        if self.has_idle_seeds {
            console::warn(super::IDLE_SEEDS);
        }
        let started = Instant::now();
        let mut work = self.work();
        let Some(Fitting { meta, outcomes, unfit }) = self.replay(&mut work)? else {
            bail!(
                "--within ended the replay before the first columns were complete; allow more time"
            );
        };
        work.finish();
        let is_replayed =
            |nr: &usize| unfit.contains(nr) || outcomes.iter().any(|(done, _)| done == nr);
        let absent = |nr: usize| Absent::new(&self.specs[nr]);
        let not_replayed: Vec<Absent> =
            (0..self.specs.len()).filter(|nr| !is_replayed(nr)).map(absent).collect();
        let unfit = unfit.into_iter().map(absent).collect();
        let (fitting, rows): (Vec<usize>, Vec<Outcome>) = outcomes.into_iter().unzip();
        let specs: Vec<CellSpec> = fitting.iter().map(|&nr| self.specs[nr].clone()).collect();
        let asked = self.why.as_deref().filter(|_| !rows.is_empty());
        let why = asked.map(|results| self.explain(&specs, &rows, results)).transpose()?;
        let trace = TraceInfo {
            digest: Some(self.trace.digest()?),
            ..TraceInfo::new(&spelled(self.trace.path()), &meta)
        };
        let report =
            PredictResult::new(self.command_line.clone(), trace, self.settings.clone(), rows);
        let is_over = !not_replayed.is_empty();
        let report = PredictResult { why, unfit, not_replayed, ..report };
        let report = match self.run_time_ns {
            Some(ns) => report.with_run_time(ns),
            None => report,
        };
        let mut report = report.with_goal(self.goal);
        let is_searched = (self.form.has_verdict() || self.report.is_some()) && !is_over;
        if is_searched {
            self.search(&specs, &mut report, started)?;
        }
        if !self.form.has_verdict()
            && let Some(sentence) = report.missing()
        {
            // A data frame does not say which rows are missing.
            console::warn(&sentence);
        }
        let mut result = Vec::new();
        let sink = if self.output.is_some() { Sink::File } else { Sink::Stream };
        self.form.exporter(sink, self.depth).export(&report, &mut result)?;
        if let Some(path) = &self.report {
            let mut page = Vec::new();
            Html.export(&report, &mut page)?;
            console.deliver(&page, Some(path))?;
        }
        console.deliver(&result, self.output.as_deref())?;
        Ok(if report.rows.is_empty() { Exit::No } else { Exit::Done })
    }

    /// The work of all passes.
    fn work(&self) -> Work {
        let nr_rows = self.trace.meta().nr_rows.saturating_mul(nr_passes(&self.specs));
        let nr_batches = self.specs.len().div_ceil(self.nr_at_once()) as u64;
        Work::new(Kind::Replaying, Some(nr_rows.saturating_mul(nr_batches)), self.within)
    }

    /// Cells of one pass: all, or as many as processors where time may be short, so that some are
    /// complete when it is over.
    fn nr_at_once(&self) -> usize {
        let nr_cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        let nr_all = self.specs.len().max(1);
        if self.within.is_some() { nr_cpus.max(2).min(nr_all) } else { nr_all }
    }

    /// Replays; `None` where no cell was complete in time.
    fn replay(&self, work: &mut Work) -> Result<Option<Fitting>> {
        let (mut done, mut all): (_, Option<Fitting>) = (RowsDone::default(), None);
        let nr_at_once = self.nr_at_once();
        for (batch, specs) in self.specs.chunks(nr_at_once).enumerate() {
            done.begin();
            let mut hear = |nr_read| work.done(done.hear(nr_read));
            let mut found = match replay_fitting(&self.trace, specs, &mut hear) {
                Err(ReplayError::Stopped) => break,
                found => found?,
            };
            let first = batch * nr_at_once;
            found.outcomes.iter_mut().for_each(|(nr, _)| *nr += first);
            found.unfit.iter_mut().for_each(|nr| *nr += first);
            match &mut all {
                Some(all) => {
                    all.outcomes.extend(found.outcomes);
                    all.unfit.extend(found.unfit);
                }
                None => all = Some(found),
            }
        }
        Ok(all)
    }

    /// Which rules make the differences between the rows.
    fn explain(
        &self,
        specs: &[CellSpec],
        rows: &[Outcome],
        results: &[String],
    ) -> Result<Vec<Why>> {
        let question = self.question(specs, rows, results);
        Ok(explaining(None, |progress| question.answer(progress))?)
    }

    /// Which rules make the column that the verdict tells of.
    fn search(
        &self,
        specs: &[CellSpec],
        report: &mut PredictResult,
        started: Instant,
    ) -> Result<()> {
        let question = self.question(specs, &report.rows, &[]);
        let left = self.within.map(|within| within.saturating_sub(started.elapsed()));
        match explaining(left, |progress| report.verdict.search(&question, progress)) {
            // The columns are compared; which rules make the difference is not known.
            Err(WhyError::Replay(ReplayError::Stopped)) if left.is_some() => Ok(()),
            searched => Ok(searched?),
        }
    }

    fn question<'a>(
        &'a self,
        specs: &'a [CellSpec],
        rows: &'a [Outcome],
        results: &'a [String],
    ) -> Question<'a> {
        let trace = &self.trace;
        Question { trace, nr_rows: trace.meta().nr_rows, specs, rows, results }
    }
}

/// Does `work` with a bar.
fn explaining<T>(
    within: Option<Duration>,
    work: impl FnOnce(&mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<T, WhyError>,
) -> Result<T, WhyError> {
    // Each finding adds cells to replay.
    let mut line = Work::new(Kind::Explaining, None, within);
    let done = work(&mut |nr_done, _| line.done(nr_done));
    line.finish();
    done
}
