//! `folio predict` for one trace: a single result with a column per cell.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use largefolio_linux::shell;
use largefolio_results::anchor::{self, AnchorRequest};
use largefolio_results::figures::printable;
use largefolio_results::predict::functions::Named;
use largefolio_results::predict::{
    Absent, Depth, Goal, Options, PredictResult, Settings, TraceInfo,
};
use largefolio_sim::explain::{Why, WhyError, WhyQuestion};
use largefolio_sim::fit::{self, Fit};
use largefolio_sim::replay::{
    CellSpec, Fitting, Outcome, ReplayError, RowsDone, Sharing, replay_fitting,
};
use largefolio_trace::OpenTrace;
use largefolio_trace::shown;
use largefolio_trace::shown::spelled;

use super::form::{FrameForm, Sink};
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::confined;
use crate::work::{Work, WorkKind};

pub(crate) struct ReplayPlan {
    pub(super) trace: OpenTrace,
    pub(super) specs: Vec<CellSpec>,
    /// What to measure first.
    pub(super) anchor: Option<AnchorRequest>,
    pub(super) settings: Settings,
    pub(super) form: FrameForm,
    pub(super) depth: Depth,
    pub(super) goal: Goal,
    pub(super) run_time_ns: Option<f64>,
    /// When to stop, with the completed columns.
    pub(super) within: Option<Duration>,
    /// Results to explain, if any.
    pub(super) why: Option<Vec<String>>,
    /// Whether to search the smallest memory limits.
    pub(super) has_fit: bool,
    pub(super) output: Option<PathBuf>,
    pub(super) report: Option<PathBuf>,
    pub(super) command_line: Vec<String>,
    pub(super) has_idle_seeds: bool,
}

impl ReplayPlan {
    pub(super) fn run(&mut self, console: &mut Console) -> Result<Exit> {
        if self.has_idle_seeds {
            console::warn(super::IDLE_SEEDS);
        }
        if let Some(request) = self.anchor.take() {
            if !measured(&request, &self.trace, &mut self.specs)? {
                return Ok(Exit::Error);
            }
            // The measurement needed the rights that this drops.
            let results = self.output.iter().chain(&self.report).map(PathBuf::as_path);
            confined::to(&[self.trace.path().to_owned()], results);
        }
        let started = Instant::now();
        let fitting = self.replay()?;
        let is_over = fitting.is_cut();
        let Fitting { outcomes, unfit, not_replayed } = fitting;
        if is_over && outcomes.is_empty() && unfit.is_empty() {
            bail!(
                "--within ended the replay before the first columns were complete; allow more time"
            );
        }
        let absent = |nr: usize| Absent::new(&self.specs[nr]);
        let [unfit, not_replayed] =
            [unfit, not_replayed].map(|cells| cells.into_iter().map(absent).collect());
        let (fitting, rows): (Vec<usize>, Vec<Outcome>) = outcomes.into_iter().unzip();
        let specs: Vec<CellSpec> = fitting.iter().map(|&nr| self.specs[nr].clone()).collect();
        let results = self.why.as_deref().filter(|_| !rows.is_empty());
        let why = results.map(|results| self.explain(&specs, &rows, results)).transpose()?;
        let trace = TraceInfo {
            digest: Some(self.trace.digest()?),
            ..TraceInfo::new(&spelled(self.trace.path()), self.trace.meta())
        };
        let fit = self.has_fit.then(|| self.fit(&specs)).transpose()?;
        let (goal, run_time_ns) = (self.goal, self.run_time_ns);
        let named = Named::of(&rows, self.trace.meta());
        console::remark(&named.missing);
        let functions = named.functions;
        let options = Options { goal, run_time_ns, why, fit, functions, unfit, not_replayed };
        let (command_line, settings) = (self.command_line.clone(), self.settings.clone());
        let mut report = PredictResult::new(command_line, trace, settings, rows, options);
        let is_searched =
            !self.has_fit && (self.form.has_verdict() || self.report.is_some()) && !is_over;
        if is_searched {
            self.search(&specs, &mut report, started)?;
        }
        if !self.form.has_verdict()
            && let Some(sentence) = report.missing()
        {
            console::warn(&sentence);
        }
        let sink = if self.output.is_some() { Sink::File } else { Sink::Stream };
        let result = self.form.written(&report, sink, self.depth)?;
        if let Some(path) = &self.report {
            console.deliver(report.page()?.html().as_bytes(), Some(path))?;
        }
        console.deliver(&result, self.output.as_deref())?;
        Ok(if report.rows.is_empty() { Exit::No } else { Exit::Done })
    }

    fn replay(&self) -> Result<Fitting> {
        let sharing = if self.within.is_some() { Sharing::Few } else { Sharing::All };
        let nr_rows = sharing.nr_rows(&self.trace, &self.specs);
        let mut work = Work::new(WorkKind::Replaying, Some(nr_rows), self.within);
        let mut done = RowsDone::default();
        let mut on_progress = |nr_done| work.done(nr_done);
        let fitting =
            replay_fitting(&self.trace, &self.specs, sharing, &mut done, &mut on_progress);
        work.finish();
        Ok(fitting?)
    }

    fn fit(&self, specs: &[CellSpec]) -> Result<Vec<Fit>> {
        // Each finding adds limits to replay.
        let mut work = Work::new(WorkKind::Searching, None, self.within);
        let found = fit::fit(&self.trace, specs, &mut |nr_done| work.done(nr_done));
        work.finish();
        Ok(found?)
    }

    fn explain(
        &self,
        specs: &[CellSpec],
        rows: &[Outcome],
        results: &[String],
    ) -> Result<Vec<Why>> {
        let question = self.question(specs, rows, results);
        Ok(explaining(None, |progress| question.answer(progress))?)
    }

    fn search(
        &self,
        specs: &[CellSpec],
        report: &mut PredictResult,
        started: Instant,
    ) -> Result<()> {
        let question = self.question(specs, &report.rows, &[]);
        let left = self.within.map(|within| within.saturating_sub(started.elapsed()));
        match explaining(left, |progress| report.verdict.search(&question, progress)) {
            // The comparison is complete; only the rules are unknown.
            Err(WhyError::Replay(ReplayError::Stopped)) if left.is_some() => Ok(()),
            searched => Ok(searched?),
        }
    }

    fn question<'a>(
        &'a self,
        specs: &'a [CellSpec],
        rows: &'a [Outcome],
        results: &'a [String],
    ) -> WhyQuestion<'a> {
        let trace = &self.trace;
        WhyQuestion { trace, nr_rows: trace.meta().nr_rows, specs, rows, results }
    }
}

/// Measures the trace's program; returns false after a signal.
pub(in crate::verbs) fn measured(
    request: &AnchorRequest,
    trace: &OpenTrace,
    specs: &mut [CellSpec],
) -> Result<bool> {
    let command: Vec<String> = request.command().iter().map(shell::quoted).collect();
    console::say(&format!("folio: measuring {}", printable(&command.join(" "))));
    let line = console::status();
    line.set_message("measuring");
    let anchor = request.run(trace, specs, &mut |_| {});
    line.finish_and_clear();
    let Some(anchor) = anchor? else {
        console::warn("stopped: nothing was measured");
        return Ok(false);
    };
    let path = anchor::path_of(trace.path());
    console::say(&format!(
        "folio: user time changes {:.2} times as much as the model says ({:.2} to {:.2}, n = {}); \
         kept in {}",
        anchor.slope.mid,
        anchor.slope.low,
        anchor.slope.high,
        anchor.nr_rounds,
        shown(&path)
    ));
    Ok(true)
}

fn explaining<T>(
    within: Option<Duration>,
    work: impl FnOnce(&mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<T, WhyError>,
) -> Result<T, WhyError> {
    // Each finding adds cells to replay.
    let mut line = Work::new(WorkKind::Explaining, None, within);
    let done = work(&mut |nr_done, _| line.done(nr_done));
    line.finish();
    done
}
