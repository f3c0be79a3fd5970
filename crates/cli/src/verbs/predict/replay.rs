//! `folio predict` of one trace: one result with a column for each cell.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Result;
use largefolio_report::text::Depth;
use largefolio_report::why::{Question, Why, WhyError};
use largefolio_report::{Exporter, Goal, Html, PredictResult, Settings, TraceInfo, Unfit};
use largefolio_sim::replay::{CellSpec, Fitting, Outcome, RowsDone, nr_passes, replay_fitting};
use largefolio_trace::OpenTrace;
use largefolio_trace::shown::spelled;

use super::form::{FrameForm, Sink};
use crate::console::{self, Console};
use crate::errors::Exit;

/// A replay that can be made.
pub(crate) struct ReplayPlan {
    pub(super) trace: OpenTrace,
    pub(super) specs: Vec<CellSpec>,
    pub(super) settings: Settings,
    pub(super) form: FrameForm,
    pub(super) depth: Depth,
    pub(super) goal: Goal,
    pub(super) run_time_ns: Option<f64>,
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
        let Fitting { meta, outcomes, unfit } = self.replay()?;
        let unfit = unfit.into_iter().map(|nr| Unfit::new(&self.specs[nr])).collect();
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
        let report = PredictResult { why, unfit, ..report };
        let report = match self.run_time_ns {
            Some(ns) => report.with_run_time(ns),
            None => report,
        };
        let mut report = report.with_goal(self.goal);
        if self.form.has_verdict() || self.report.is_some() {
            self.search(&specs, &mut report)?;
        } else if let Some(sentence) = report.missing() {
            // Rows of a data frame do not say what is missing among them.
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

    fn replay(&self) -> Result<Fitting> {
        let nr_rows = self.trace.meta().nr_rows.saturating_mul(nr_passes(&self.specs));
        let bar = console::bar(nr_rows, "replaying");
        let mut done = RowsDone::default();
        let result = replay_fitting(&self.trace, &self.specs, &mut |nr_read| {
            bar.set_position(done.hear(nr_read));
            ControlFlow::Continue(())
        });
        bar.finish_and_clear();
        Ok(result?)
    }

    /// Which rules make the differences between the rows.
    fn explain(
        &self,
        specs: &[CellSpec],
        rows: &[Outcome],
        results: &[String],
    ) -> Result<Vec<Why>> {
        let question = self.question(specs, rows, results);
        explaining(|progress| question.answer(progress))
    }

    /// Which rules make the column that the verdict tells of.
    fn search(&self, specs: &[CellSpec], report: &mut PredictResult) -> Result<()> {
        let question = self.question(specs, &report.rows, &[]);
        explaining(|progress| report.verdict.search(&question, progress))
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
    work: impl FnOnce(&mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<T, WhyError>,
) -> Result<T> {
    let bar = console::bar(0, "explaining");
    let done = work(&mut |nr_done, nr_all| {
        bar.set_length(nr_all);
        bar.set_position(nr_done);
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    Ok(done?)
}
