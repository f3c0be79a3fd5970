//! `folio verify`: a command with and without a change, alternately, and a verdict.

mod arms;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use largefolio_linux::verify::rounds::{Until, alternate};
use largefolio_linux::verify::verdict::{self, Verdict};
use largefolio_results::verify::{VerifyPrediction, VerifyResult};
use largefolio_results::{Form, Forms as _};

use self::arms::{Changed, Output, Plain};
use super::names;
use super::page_file::{self, PageArgs, PageFile};
use super::run::{HeapSize, TextMode, heap_size};
use super::values::FormArgs;
use crate::console::{self, Console};
use crate::errors::Exit;

/// Rounds where neither --runs nor --time says how many.
const NR_ROUNDS: usize = 20;

/// Run a command with and without a change, in turns, and tell whether the change helps
///
/// The plain and the changed command take turns, so that drift of the machine affects both; values
/// are compared within a round. The verdict is one of: confirmed (faster by more than --margin,
/// with 95% confidence), not confirmed (slower, or no such difference), inconclusive (the rounds do
/// not decide it).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio verify --text large -- cc1 -quiet big.i -o /dev/null
  folio verify --heap 64K --report heap.html -- ./job
  sudo folio verify --tune thp.64K=always -- cc1 -quiet big.i -o /dev/null
  sudo folio verify --tune thp.enabled=always --time 2m --metric user -- ./server --selftest
  sudo folio verify --tune thp.64K=always --trace job.folio --machine zen4 -- ./job

--tune takes the settings of folio tune. folio changes them for each changed run and puts them back
after it, even if folio is killed. With --text it empties the page cache of program and libraries
before each plain run and fills it before each changed one, unless other processes map them; an
untimed run follows in both cases. Exit status: 0 confirmed, 1 not confirmed or inconclusive, 2
error. Ctrl-C ends the rounds and shows the complete ones.")]
pub(crate) struct VerifyArgs {
    /// Change a setting of the system for the changed runs (folio tune names them)
    #[arg(long, value_name = "NAME=VALUE")]
    tune: Vec<String>,
    /// Start the changed runs with their text on large folios, as folio run does
    #[arg(long, value_enum, default_value_t = TextMode::Off)]
    text: TextMode,
    /// Give malloc of the changed runs folios of this size, as folio run does
    #[arg(long, value_name = "SIZE", default_value = "off", value_parser = heap_size)]
    heap: HeapSize,
    /// Rounds: one plain and one changed run each [default: 20]
    #[arg(long, value_name = "N", conflicts_with = "time", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: Option<u32>,
    /// Run rounds for this long, such as 90s or 5m
    #[arg(long, value_parser = duration)]
    time: Option<Duration>,
    /// What the verdict is about
    #[arg(long, value_enum, default_value_t = Metric::Wall)]
    metric: Metric,
    /// Ignore differences below this, in per cent
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    margin: f64,
    /// Predict the change from a trace of the command (folio record), and show the prediction
    /// beside the result
    #[arg(long, value_name = "TRACE")]
    trace: Option<PathBuf>,
    /// Machine of the prediction: one of `folio predict --list`, or a file
    #[arg(long, value_name = "MACHINE", default_value = "this", requires = "trace",
        value_parser = names::MACHINE, hide_possible_values = true)]
    machine: String,
    /// Let the command write to the terminal, not to /dev/null
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

/// What the verdict is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Metric {
    Wall,
    User,
    System,
}

impl Metric {
    const fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::User => "user",
            Self::System => "system",
        }
    }
}

/// Rounds that can be run.
pub(crate) struct VerifyPlan {
    plain: Plain,
    changed: Changed,
    prediction: Option<VerifyPrediction>,
    until: Until,
    metric: Metric,
    margin: f64,
    form: Form,
    page: Option<PageFile>,
    command_line: Vec<String>,
}

impl VerifyArgs {
    /// Checks the change; runs nothing.
    pub(crate) fn plan(self, command_line: Vec<String>) -> Result<VerifyPlan> {
        let has_start = self.text != TextMode::Off || self.heap.0.is_some();
        if self.tune.is_empty() && !has_start {
            bail!(
                "name the change to verify, such as --text large, --heap 64K or --tune \
                 thp.64K=always; without one, both runs would be the same"
            );
        }
        if self.trace.is_some() && has_start {
            bail!("--trace predicts only --tune; for text, use folio predict --annotate FILE=2M");
        }
        let program = self.command.first().map(Path::new);
        let page = self.page.file(program.into_iter().chain(self.trace.as_deref()))?;
        let output = if self.show_output { Output::Shown } else { Output::Discarded };
        let mut plain = Plain::new(self.command, output);
        let mut changed = Changed::new(plain.clone(), &self.tune)?;
        let prediction = self
            .trace
            .as_ref()
            .map(|trace| VerifyPrediction::plan(trace, &self.machine, &changed.settings()))
            .transpose()?;
        let remark = prediction.as_ref().and_then(VerifyPrediction::remarks);
        console::remark(remark.as_slice());
        if has_start {
            plain.cools(changed.starts(self.text.into(), self.heap.0)?);
        }
        let until = match (self.runs, self.time) {
            (Some(nr), _) => Until::Rounds(usize::try_from(nr).context("--runs")?),
            (None, Some(time)) => Until::Time(time),
            (None, None) => Until::Rounds(NR_ROUNDS),
        };
        let form = self.form.form();
        let (metric, margin) = (self.metric, self.margin / 100.0);
        Ok(VerifyPlan {
            plain,
            changed,
            prediction,
            until,
            metric,
            margin,
            form,
            page,
            command_line,
        })
    }
}

impl VerifyPlan {
    /// Runs the rounds and writes the verdict.
    pub(crate) fn run(mut self, console: &mut Console) -> Result<Exit> {
        let bar = match self.until {
            Until::Rounds(nr) => console::counter(nr as u64 + 1, "rounds"),
            Until::Time(_) => console::status(),
        };
        let rounds = alternate(&mut self.plain, &mut self.changed, self.until, &mut |round| {
            bar.set_position(round as u64 + 1);
            if matches!(self.until, Until::Time(_)) {
                bar.set_message(format!("round {round}"));
            }
        });
        bar.finish_and_clear();
        let rounds = rounds?;
        let compared = verdict::compare(&rounds);
        if compared.is_empty() {
            bail!("stopped before the first round was complete: there is nothing to compare");
        }
        let judged = compared
            .iter()
            .find(|one| one.name == self.metric.name())
            .and_then(|one| one.ratio)
            .map_or(Verdict::Inconclusive, |ratio| verdict::judge(&ratio, self.margin));
        let wall = compared.iter().find(|one| one.name == Metric::Wall.name());
        let predicted = match (&self.prediction, wall) {
            (Some(prediction), Some(wall)) => {
                let line = console::status();
                line.set_message("predicting");
                let predicted = prediction.run(wall.plain.median, wall.ratio);
                line.finish_and_clear();
                Some(predicted?)
            }
            _ => None,
        };
        let result = VerifyResult::new(&compared, judged, &rounds)
            .beside(predicted)
            .about(self.metric.name(), self.margin, self.changed.description())
            .with_effects(self.changed.effects())
            .of(self.command_line);
        page_file::deliver(console, &result.written(self.form)?, self.page.as_ref(), || {
            result.page()
        })?;
        Ok(if judged == Verdict::Confirmed { Exit::Done } else { Exit::No })
    }
}

/// `90s`, `5m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a time such as 90s, 5m or 1h".to_owned();
    let unit = text.chars().last().ok_or_else(expected)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return Err(expected()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| expected())?;
    let whole = number.checked_mul(seconds).filter(|whole| (1..=7 * 86_400).contains(whole));
    whole.map(Duration::from_secs).ok_or_else(|| format!("{}, at most a week", expected()))
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
    fn times_and_parts_are_checked() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2h"), Ok(Duration::from_hours(2)));
        for refused in ["", "5", "m", "0s", "-1s", "8d", "999h", "99999999999999999999s", "5µ"] {
            assert!(duration(refused).is_err(), "{refused}");
        }
        assert_eq!(percent("0.5"), Ok(0.5));
        for refused in ["-1", "100", "nan", "x"] {
            assert!(percent(refused).is_err(), "{refused}");
        }
    }
}
