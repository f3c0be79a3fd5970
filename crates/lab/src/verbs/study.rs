//! `folio-lab study`: published tables compared with ours.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use largefolio_cli::console::{self, Console};
use largefolio_cli::errors::Exit;
use largefolio_cli::verbs::confined;
use largefolio_cli::verbs::values::{FormArgs, within};
use largefolio_cli::verbs::{Invocation, VerbArgs, VerbPlan};
use largefolio_cli::version::installed_or_local;
use largefolio_lab::study::Measurements;
use largefolio_lab::study::result::{StudyRequest, StudyResult, find_traces, measure};
use largefolio_linux::signals::Stop;
use largefolio_results::{Form, Forms as _};
use largefolio_sim::replay::{Budget, FACTOR_MAX};

/// 128 + SIGINT, as shells report it.
const INTERRUPTED: u8 = 130;

/// Compare the patch series' published numbers with this model's numbers
///
/// Each row shows a published number or pair, our number, the distance between the two changes, how
/// close the change and the level are, whether the row counts, and where our number comes from:
/// counted in the model, estimated from the costs in a machine file, measured on this kernel
/// (--live), or quoted from a document. A row counts if none of its inputs comes from its own
/// series, if it measures the published quantity, and if it does not compare zero with zero. It
/// matches if both the level and the change are within 10%; a match that rests on assumed constants
/// is called a coincidence. A study can also run a program under memory limits, with one line per
/// kernel, or many programs under several kernels. It then shows the gains, the costs, and the
/// programs that lose.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio-lab study                       all studies, in about a minute
  folio-lab study exec-order owners
  folio-lab study --list
  folio-lab study clear --live          measure what the model cannot time; needs root
  folio-lab study --file mine.toml --json
  folio-lab study pressure

Exit status: 0 if every row changes in the known direction, 1 if one does not, 2 on error.")]
pub(crate) struct StudyArgs {
    /// Studies [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// File with your own study (studies/*.toml are examples)
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Directory with the recorded traces [default: `traces` here or next to the program]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Measure on this kernel the rows that are otherwise quoted
    #[arg(long)]
    live: bool,
    /// Rounds per measurement
    #[arg(long, default_value_t = 7, requires = "live",
        value_parser = within::<u32>(1..=1000))]
    rounds: u32,
    /// Multiply the limits on a trace's work and memory by N
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = within::<u64>(1..=FACTOR_MAX))]
    max_work: u64,
    #[command(flatten)]
    form: FormArgs,
    /// List the studies, then exit
    #[arg(long, conflicts_with_all = ["json", "csv", "live"])]
    list: bool,
}

pub(crate) struct StudyPlan {
    request: StudyRequest,
    /// The number of rounds, if rows are measured.
    rounds: Option<usize>,
    form: Form,
    is_list: bool,
}

impl VerbArgs for StudyArgs {
    type Plan = StudyPlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let command_line = invocation.line();
        let studies = StudyRequest::studies(&self.names, &self.file, Budget::times(self.max_work))?;
        let rounds = self.live.then_some(usize::try_from(self.rounds)?);
        let program = std::env::current_exe().unwrap_or_default();
        let traces = self
            .traces
            .unwrap_or_else(|| find_traces(&studies, installed_or_local(&program, "traces")));
        if rounds.is_none() {
            let traces = std::slice::from_ref(&traces);
            confined::to_with_temporary(traces, []);
        }
        Ok(StudyPlan {
            request: StudyRequest { studies, traces, command_line },
            rounds,
            form: self.form.form(),
            is_list: self.list,
        })
    }
}

impl VerbPlan for StudyPlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        if self.is_list {
            console.deliver(self.listed().as_bytes(), None)?;
            return Ok(Exit::Done);
        }
        let missing = self.request.remarks();
        console::remark(missing.as_slice());
        let Some(result) = self.result()? else { return Ok(Exit::Program(INTERRUPTED)) };
        console.deliver(result.written(self.form)?.as_bytes(), None)?;
        if missing.is_some() && result.is_empty() {
            return Ok(Exit::Error);
        }
        let surprises = result.surprises();
        console::remark(&surprises);
        Ok(if surprises.is_empty() { Exit::Done } else { Exit::No })
    }
}

impl StudyPlan {
    /// `None` after Ctrl-C.
    fn result(&self) -> Result<Option<StudyResult>> {
        let line = console::status();
        let measured = match self.rounds {
            Some(rounds) => {
                measure(&self.request.studies, rounds, &mut |what| line.set_message(what))?
            }
            None => Measurements::new(),
        };
        // Watches signals until the directory of generated traces is removed.
        let stop = Stop::watch().context("watching for signals")?;
        let result = self.request.run(&measured, &mut |name, nr_rows| {
            line.set_message(format!("{name}, {nr_rows} rows"));
            match stop.asked_by() {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        });
        line.finish_and_clear();
        Ok(result?)
    }

    fn listed(&self) -> String {
        let mut text = String::new();
        for study in &self.request.studies {
            let _ = writeln!(text, "{:16} {}  [{}]", study.name, study.title, study.source);
        }
        text
    }
}
