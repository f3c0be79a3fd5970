//! `folio verify`: runs a command alternately with and without a change, and prints a verdict.

mod arms;
mod quoting;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use largefolio_linux::run;
use largefolio_linux::timed_run::output::Output;
use largefolio_linux::verify::metric::{self, Better, Metric, Source};
use largefolio_linux::verify::rounds::{Measure, Rounds, Until, alternate};
use largefolio_linux::verify::server::Ready;
use largefolio_linux::verify::threshold::Threshold;
use largefolio_linux::verify::verdict::{self, Compared, Judged, VerifyQuestion};
use largefolio_results::figures::printable;
use largefolio_results::verify::{
    MeasuredTime, MeasuredTimes, PredictedChange, PredictedFrom, VerifyPrediction, VerifyResult,
};
use largefolio_results::{Form, Forms as _};

use self::arms::{Changed, Plain};
use super::names;
use super::page_file::{self, PageArgs, PageFile};
use super::run::{HeapSize, TextMode, heap_size};
use super::values::{self, FormArgs};
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};
use crate::work::{Work, WorkKind};

const NR_ROUNDS: usize = 20;
const WALL: &str = "wall";
const USER: &str = "user";
const SYSTEM: &str = "system";
/// Quantities without a better direction.
const NEITHER: [&str; 2] = ["large folios", "server large folios"];

/// Run a command alternately with and without a change, and report whether the change helps
///
/// The plain and the changed command take turns, so machine drift affects both; values are compared
/// within a round. A round counts only if no other program changes a setting during it. If --heap
/// or --tune determines folio sizes, folio sizes and page faults must also show the change. The
/// verdict is one of: confirmed (better by more than --margin, with 95% confidence), not confirmed
/// (worse, or no such difference), inconclusive (the data does not settle it, or fewer than ten
/// rounds count), not proved (the change took effect in fewer than ten rounds).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio verify --text large -- cc1 -quiet big.i -o /dev/null
  folio verify --heap 64K --report heap.html -- ./job
  folio verify --env GLIBC_TUNABLES=glibc.malloc.hugetlb=1 -- ./job
  sudo folio verify --tune thp.64K=always -- cc1 -quiet big.i -o /dev/null
  sudo folio verify --tune thp.64K=always --trace job.folio --machine zen4 -- ./job
  sudo folio verify --tune thp.enabled=always --server 'redis-server --disable-thp no' \\
      --ready 'redis-cli ping' --metric-pattern '([0-9.]+) requests per second' -- \\
      redis-benchmark -t set -n 500000 -r 1000000
  sudo folio verify --tune thp.64K=always --json --fail-if 'wall>+2%' -- ./job

--tune accepts the settings that folio tune lists. folio changes them before each changed run and
restores them after it, even if folio is killed. With --text, folio evicts the program and its
libraries from the page cache before each plain run and caches them in large folios before each
changed run, unless other processes map them. For a setting that decides how files are read, such as
largefolio.exec_order, folio evicts them before every run. Then it runs the command untimed until
two runs take the same CPU time (at most 8 runs, 2 on a noisy machine). With --server, each run
starts the server, waits for --ready, times the command that loads it and stops the server; the
change applies to the server. Exit status: 0 if the change was confirmed or every --fail-if passed;
1 for any other verdict, or if a --fail-if failed or was undecided; 2 on error. Ctrl-C ends the
measurement and shows the complete rounds.")]
pub(crate) struct VerifyArgs {
    /// Change a system setting for the runs with the change (folio tune lists the settings)
    #[arg(long, value_name = "NAME=VALUE")]
    tune: Vec<String>,
    /// Set an environment variable for the runs with the change
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// For the runs with the change, put the program text in large folios, as folio run does
    #[arg(long, value_enum, default_value_t = TextMode::Off)]
    text: TextMode,
    /// For the runs with the change, put the heap in folios of this size, as folio run does
    #[arg(long, value_name = "SIZE", default_value = "off", value_parser = heap_size)]
    heap: HeapSize,
    /// Start this server for each run and apply the change to it; the command generates its load
    #[arg(long, value_name = "CMD", requires = "ready")]
    server: Option<String>,
    /// The server is ready when this shell command succeeds or, with /REGEX/, when the server's
    /// output matches
    #[arg(long, value_name = "CMD|/REGEX/", requires = "server")]
    ready: Option<String>,
    /// Run this shell command before each run (not timed), after the server is ready
    #[arg(long, value_name = "CMD")]
    prepare: Option<String>,
    /// Number of rounds, each with one plain and one changed run [default: 20]
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1..=100_000))]
    runs: Option<u32>,
    /// Run rounds for this long, such as 90s or 5m; with --runs, stop at whichever limit comes
    /// first
    #[arg(long, value_parser = values::duration)]
    time: Option<Duration>,
    /// Stop after this time, such as 2m, and use the completed rounds
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    within: Option<Duration>,
    /// Base the verdict on wall, cpu (user and system), user, system, memory, minor faults, major
    /// faults, one of these for the server (such as server user), or the number that a shell
    /// command prints after each run
    #[arg(long, value_name = "NAME|CMD", default_value = "wall")]
    metric: String,
    /// Base the verdict on a number in the command's output: the first group of the last match
    #[arg(long, value_name = "REGEX", conflicts_with = "metric")]
    metric_pattern: Option<String>,
    /// Which direction of the printed number is better [default: guessed from words such as tps or
    /// latency]
    #[arg(long, value_enum)]
    better: Option<Direction>,
    /// Unit of the printed number
    #[arg(long, value_parser = unit)]
    unit: Option<String>,
    /// Ignore differences below this, in percent
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    margin: f64,
    /// Exit with status 1 if this condition holds, such as 'wall>+2%', 'tps<-3%', 'server
    /// memory>+10%'
    #[arg(long, value_name = "LIMIT", value_parser = Threshold::parse)]
    fail_if: Vec<Threshold>,
    /// Predict the effect of the change from a trace of the command (folio record), and show the
    /// prediction next to the result
    #[arg(long, value_name = "TRACE", conflicts_with = "server")]
    trace: Option<PathBuf>,
    /// Machine for the prediction: a name listed by `folio predict --list`, or a file
    #[arg(long, value_name = "MACHINE", default_value = "this", requires = "trace",
        value_parser = names::MACHINE, hide_possible_values = true)]
    machine: String,
    /// Keep with the trace how long this program waits for page walks, as TRACE.anchor.json; later
    /// predictions for this CPU use it
    #[arg(long, requires = "trace")]
    save_anchor: bool,
    /// Show the command's standard error instead of discarding it
    #[arg(long)]
    show_output: bool,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    page: PageArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The better direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Direction {
    Lower,
    Higher,
}

impl From<Direction> for Better {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Lower => Self::Lower,
            Direction::Higher => Self::Higher,
        }
    }
}

pub(crate) struct VerifyPlan {
    plain: Plain,
    changed: Changed,
    prediction: Option<VerifyPrediction>,
    measure: Measure,
    question: VerifyQuestion,
    form: Form,
    page: Option<PageFile>,
    command_line: Vec<String>,
}

impl VerbArgs for VerifyArgs {
    type Plan = VerifyPlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let command_line = invocation.line();
        let has_start = self.text != TextMode::Off || self.heap.0.is_some();
        if self.tune.is_empty() && self.env.is_empty() && !has_start {
            bail!(
                "name the change to verify, such as --text large, --heap 64K or --tune \
                 thp.64K=always; without one, both runs would be the same"
            );
        }
        if self.trace.is_some() && has_start {
            bail!(
                "--trace predicts only changes made with --tune; for text, use folio predict \
                 --annotate FILE=2M"
            );
        }
        if self.trace.is_some() && !self.env.is_empty() {
            bail!(
                "--trace predicts only changes made with --tune: the model does not know the \
                 effects of environment variables"
            );
        }
        let (measure, metric) = (self.measure()?, self.metric()?);
        let measure = Measure { metric: metric.clone(), ..measure };
        self.check_limits(&metric)?;
        let server = self.server.as_deref().map(quoting::split).transpose()?;
        let program = self.command.first().map(Path::new);
        let page = self.page.file(program.into_iter().chain(self.trace.as_deref()))?;
        let mut plain = Plain::new(self.command, server, measure.output);
        let mut changed = Changed::new(&mut plain, &self.tune, &self.env)?;
        let prediction = self
            .trace
            .as_ref()
            .map(|trace| {
                let (machine, saves_anchor) = (self.machine.as_str(), self.save_anchor);
                let from = PredictedFrom { trace, machine, saves_anchor };
                VerifyPrediction::plan(from, &changed.settings())
            })
            .transpose()?;
        changed.refuse_none()?;
        console::remark(prediction.as_ref().map_or(&[], VerifyPrediction::remarks));
        if let Some(disabled) = run::thp_disabled() {
            console::warn(&printable(&disabled));
        }
        let mut files = changed.reads();
        if has_start {
            files.extend(changed.starts(self.text.into(), self.heap.0)?);
        }
        plain.cools(files);
        let (trace, thresholds) = (changed.trace(), self.fail_if);
        let question = VerifyQuestion { metric, margin: self.margin / 100.0, trace, thresholds };
        let form = self.form.form();
        Ok(VerifyPlan { plain, changed, prediction, measure, question, form, page, command_line })
    }
}

impl VerifyArgs {
    fn measure(&self) -> Result<Measure> {
        let until = match (self.runs, self.time) {
            (Some(nr), None) => Until::Rounds(usize::try_from(nr).context("--runs")?),
            (Some(nr), Some(time)) => Until::Either(usize::try_from(nr).context("--runs")?, time),
            (None, Some(time)) => Until::Time(time),
            (None, None) => Until::Rounds(NR_ROUNDS),
        };
        let ready = self.ready.as_ref().map(|text| {
            let inside = text.strip_prefix('/').and_then(|text| text.strip_suffix('/'));
            let Some(inside) = inside else { return Ok(Ready::Command(text.clone())) };
            let pattern = metric::pattern(inside).map_err(|why| anyhow!("--ready: {why}"))?;
            Ok::<_, anyhow::Error>(Ready::Pattern(Box::new(pattern)))
        });
        Ok(Measure {
            until,
            within: self.within,
            metric: Metric::quantity(WALL),
            prepare: self.prepare.clone(),
            ready: ready.transpose()?,
            output: if self.show_output { Output::Shown } else { Output::Discarded },
        })
    }

    fn metric(&self) -> Result<Metric> {
        let (source, text) = match &self.metric_pattern {
            Some(text) => {
                let pattern =
                    metric::pattern(text).map_err(|why| anyhow!("--metric-pattern: {why}"))?;
                (Source::Pattern(Box::new(pattern)), text)
            }
            None => (Source::Command(self.metric.clone()), &self.metric),
        };
        if self.metric_pattern.is_none()
            && let Some(name) = self.quantity()?
        {
            return Ok(Metric::quantity(name));
        }
        let (better, unit) = (self.better.map(Into::into), self.unit.clone());
        Metric::printed(source, text, better, unit)
            .map_err(|why| anyhow!("{why} Add --better higher or --better lower"))
    }

    /// Returns the quantity that --metric names; `None` for a shell command.
    fn quantity(&self) -> Result<Option<&'static str>> {
        if NEITHER.contains(&self.metric.as_str()) {
            bail!(
                "--metric {0}: neither more nor fewer is inherently better; to set a limit, use \
                 --fail-if '{0}<-10%'",
                self.metric
            );
        }
        if let Some(name) = verdict::names().find(|name| *name == self.metric) {
            if self.better.is_some() || self.unit.is_some() {
                bail!("--better and --unit apply to a printed number; add --metric-pattern");
            }
            if !self.names().any(|known| known == name) {
                bail!("--metric {name}: there is no server; start one with --server and --ready");
            }
            return Ok(Some(name));
        }
        if !self.metric.contains(|c: char| c == '/' || c.is_whitespace()) {
            let names: Vec<&str> = self.names().filter(|name| !NEITHER.contains(name)).collect();
            bail!(
                "--metric {}: expected {}, or a shell command, such as 'tail -n 1 log'",
                self.metric,
                names.join(", ")
            );
        }
        Ok(None)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        let has_server = self.server.is_some();
        verdict::names().filter(move |name| has_server || !name.starts_with("server"))
    }

    /// # Errors
    /// If a limit refers to something that is not measured.
    fn check_limits(&self, metric: &Metric) -> Result<()> {
        let mut names: Vec<&str> = self.names().collect();
        if !names.contains(&metric.name.as_str()) {
            names.push(&metric.name);
        }
        for limit in &self.fail_if {
            if !names.contains(&limit.quantity.as_str()) {
                bail!(
                    "--fail-if {limit}: there is no quantity {}; expected one of {}",
                    limit.quantity,
                    names.join(", ")
                );
            }
        }
        Ok(())
    }
}

impl VerbPlan for VerifyPlan {
    fn run(mut self, console: &mut Console) -> Result<Exit> {
        let until = self.measure.until;
        // The first round does not count, but takes as long as the others.
        let (nr_all, time) = match until {
            Until::Rounds(nr) => (Some(nr as u64 + 1), None),
            Until::Time(time) => (None, Some(time)),
            Until::Either(nr, time) => (Some(nr as u64 + 1), Some(time)),
        };
        let mut work = Work::new(WorkKind::Rounds, nr_all, time.or(self.measure.within));
        let rounds = alternate(&mut self.plain, &mut self.changed, &self.measure, &mut |round| {
            // The rounds check the time themselves, even during a run.
            let _ = work.done(round as u64 + 1);
        });
        work.finish();
        let rounds = rounds?;
        if rounds.plain.is_empty() {
            bail!(
                "stopped before the first round was complete: there is nothing to compare. The \
                 warm-up round and the untimed runs also take time"
            );
        }
        let judged = Judged::of(&rounds, &self.question);
        let predicted = self.predicted(&rounds, &judged)?;
        let result = VerifyResult::new(&rounds, &judged, &self.question)
            .with_prediction(predicted)
            .about(self.changed.change())
            .of(self.command_line);
        page_file::deliver(console, &result.written(self.form)?, self.page.as_ref(), || {
            result.page()
        })?;
        Ok(if result.is_yes() { Exit::Done } else { Exit::No })
    }
}

impl VerifyPlan {
    /// Returns the model's prediction. Without a counted round, it covers only the plain runs.
    fn predicted(&self, rounds: &Rounds, judged: &Judged) -> Result<Option<PredictedChange>> {
        let Some(prediction) = &self.prediction else { return Ok(None) };
        let all = verdict::compare(rounds, &self.question.metric);
        let time = |name: &str| {
            let of = |compared: &[Compared]| compared.iter().find(|one| one.name == name).cloned();
            let counted = of(&judged.compared);
            let plain = counted.as_ref().or(of(&all).as_ref()).map(|one| one.plain.median)?;
            Some(MeasuredTime { plain_ns: plain, ratio: counted.and_then(|one| one.ratio) })
        };
        let (Some(wall), Some(user), Some(system)) = (time(WALL), time(USER), time(SYSTEM)) else {
            return Ok(None);
        };
        let line = console::status();
        line.set_message("predicting");
        let measured = MeasuredTimes { wall, user, system };
        let predicted = prediction.run(&measured, self.question.margin);
        line.finish_and_clear();
        Ok(Some(predicted?))
    }
}

fn unit(text: &str) -> Result<String, String> {
    let is_plain = text.chars().all(|c| c.is_ascii_graphic()) && text.len() <= 16;
    let is_own = ["ns", "bytes", "faults"].contains(&text);
    (is_plain && !is_own)
        .then(|| text.to_owned())
        .ok_or_else(|| "expected up to 16 letters, such as ms or /s".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|part| (0.0..100.0).contains(part))
        .ok_or_else(|| "expected a percentage from 0 to below 100, such as 1 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_checked() {
        assert_eq!(percent("0.5"), Ok(0.5));
        for refused in ["-1", "100", "nan", "x"] {
            assert!(percent(refused).is_err(), "{refused}");
        }
    }
}
