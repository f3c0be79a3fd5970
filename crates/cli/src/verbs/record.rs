//! `folio record`.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use largefolio_linux::measure::Spread;
use largefolio_linux::record::{self, Outcome, Progress, RecordError, With};
use largefolio_report::figures;
use largefolio_trace::{PlainRun, shown};

use super::values::ProgramArgs;
use crate::console::{self, Console};
use crate::errors::Exit;

/// What a shell adds to the signal that ended a program.
const SIGNALLED: u8 = 128;

/// A program that ends before this shows no progress: its own output stays undisturbed.
const QUIET_START: Duration = Duration::from_secs(1);

/// Record the memory references of a program
///
/// The program runs unmodified under QEMU user emulation (or valgrind), with its threads and child
/// processes. It runs ten to a hundred times slower than alone, at 20 to 200 million references per
/// second. Ctrl-C goes to the program; press it again to terminate the program, a third time to
/// kill it. The trace is complete up to that point. Needs a QEMU with plugins, or valgrind.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio record -- python3 -c pass                  writes python3.folio
  folio record --runs 3 -- python3 -c pass         also times the plain program
  folio record -o cc1.folio -- cc1 -quiet big.i -o /dev/null
  folio record --with valgrind -- ls -l

Exit status: that of the program (128 + signal if a signal killed it); 2 if nothing was recorded.")]
pub(crate) struct RecordArgs {
    /// Trace to write [default: PROGRAM.folio in the current directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Recorder to use
    #[arg(long, value_enum, default_value_t = Recorder::Auto)]
    with: Recorder,
    /// First run the plain program N times and keep its times in the trace, so that predictions are
    /// in per cent of its run; the program then runs N + 1 times, with all that it does. Input and
    /// output of these runs are /dev/null
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: Option<u16>,
    /// Show no progress and no summary, only warnings
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    program: ProgramArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Recorder {
    /// QEMU if it is installed with plugin support, else valgrind
    Auto,
    /// QEMU user emulation with our plugin: threads, forks, fast
    Qemu,
    /// Valgrind's lackey: slow, for machines without QEMU
    Valgrind,
}

impl From<Recorder> for With {
    fn from(recorder: Recorder) -> Self {
        match recorder {
            Recorder::Auto => Self::Auto,
            Recorder::Qemu => Self::Qemu,
            Recorder::Valgrind => Self::Valgrind,
        }
    }
}

/// A recording that can be made.
pub(crate) struct RecordPlan {
    recording: record::Recording,
    nr_runs: u16,
    is_quiet: bool,
}

impl RecordArgs {
    /// Checks program, recorder and output.
    pub(crate) fn plan(&self) -> Result<RecordPlan> {
        let output = self.output.as_deref();
        let recording = record::Recording::new(&self.program.command, output, self.with.into())?;
        Ok(RecordPlan { recording, nr_runs: self.runs.unwrap_or(0), is_quiet: self.quiet })
    }
}

impl RecordPlan {
    /// Records. Standard output is the program's.
    pub(crate) fn run(mut self, _console: &mut Console) -> Result<Exit> {
        let line = console::status();
        let has_line = !self.is_quiet && std::io::stderr().is_terminal();
        let nr_runs = self.nr_runs;
        let timed = self.recording.time(nr_runs.into(), &mut |nr| {
            if has_line {
                line.set_message(format!("timing the plain program: run {nr} of {nr_runs}"));
            }
        });
        let result = timed.and_then(|()| {
            self.recording.run(&mut |progress| {
                if has_line && progress.elapsed >= QUIET_START {
                    line.set_message(state(&progress));
                }
            })
        });
        line.finish_and_clear();
        let outcome = match result {
            Err(error @ RecordError::Interrupted(signal)) => {
                console::say(&format!("folio: {error}"));
                let signal = u8::try_from(signal).unwrap_or(127);
                return Ok(Exit::Program(SIGNALLED.saturating_add(signal)));
            }
            other => other?,
        };
        for warning in &outcome.warnings {
            console::warn(&figures::printable(warning));
        }
        if !self.is_quiet {
            summary(&outcome);
            plain_runs(self.recording.plain_runs());
        }
        Ok(Exit::Program(outcome.ended.exit_code()))
    }
}

fn state(progress: &Progress) -> String {
    format!(
        "recording: {} references, {}, {} s, {}",
        figures::count(progress.nr_references),
        figures::bytes(progress.trace_bytes),
        progress.elapsed.as_secs(),
        tasks(progress.nr_threads, progress.nr_processes),
    )
}

fn summary(outcome: &Outcome) {
    let seconds = outcome.elapsed.as_secs_f64();
    console::say(&format!(
        "folio: recorded {}: {} references in {} rows, {} ({:.3} bytes per reference)",
        shown(&outcome.path),
        figures::count(outcome.nr_references),
        figures::count(outcome.nr_rows),
        figures::bytes(outcome.trace_bytes),
        figures::ratio(outcome.trace_bytes, outcome.nr_references),
    ));
    let programs = match outcome.nr_executions {
        0 => String::new(),
        1 => ", 1 program executed".to_owned(),
        nr => format!(", {} programs executed", figures::count(nr)),
    };
    console::say(&format!(
        "folio: {seconds:.1} s with {}, {:.1} M references/s; {}{programs}; ended with {}",
        outcome.recorder.name(),
        figures::ratio(outcome.nr_references, 1_000_000) / seconds.max(1e-9),
        tasks(outcome.nr_threads, outcome.nr_processes),
        outcome.ended,
    ));
}

/// The times of the plain program, and which counters its CPU has.
fn plain_runs(runs: &[PlainRun]) {
    let times = |get: fn(&PlainRun) -> u64| {
        let ns: Vec<f64> =
            runs.iter().map(|run| Duration::from_nanos(get(run)).as_secs_f64()).collect();
        Spread::of(&ns)
    };
    let (Some(wall), Some(user), Some(system)) =
        (times(|run| run.wall_ns), times(|run| run.user_ns), times(|run| run.system_ns))
    else {
        return;
    };
    let is_counted = runs.iter().all(|run| run.counters.is_some());
    let counters = if is_counted { "" } else { "; no hardware counters here" };
    console::say(&format!(
        "folio: plain program: {:.3} s [{:.3} .. {:.3}], {:.3} s user, {:.3} s system (n = {}){counters}",
        wall.median, wall.min, wall.max, user.median, system.median, wall.n
    ));
}

fn tasks(nr_threads: u32, nr_processes: u32) -> String {
    let plural =
        |nr: u32, one: &str, more: &str| format!("{nr} {}", if nr == 1 { one } else { more });
    format!(
        "{} in {}",
        plural(nr_threads, "thread", "threads"),
        plural(nr_processes, "process", "processes"),
    )
}
