//! `folio record`.

mod live;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use largefolio_linux::measure::Spread;
use largefolio_linux::record::live::LiveRecording;
use largefolio_linux::record::{
    self, Progress, RecordError, RecordOutcome, RecorderKind, Unrecorded,
};
use largefolio_results::figures;
use largefolio_trace::{PlainRun, shown};

use self::live::LiveArgs;
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::values::within;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Shells add this to the number of the signal that ended a program.
const SIGNALLED: u8 = 128;

/// For a program that ends sooner, folio shows no progress, so as not to disturb its output.
const QUIET_START: Duration = Duration::from_secs(1);

/// Record the memory references of a program
///
/// The program runs unmodified under QEMU user emulation, with its threads and child processes. It
/// runs ten to a hundred times slower than natively, at 20 to 200 million references per second.
/// Ctrl-C goes to the program; press it again to terminate the program, and a third time to kill
/// it. The trace is complete up to that point. Needs a QEMU that supports plugins.
///
/// Programs that the program executes are recorded too, at any depth: `folio record -- make -j2`
/// traces the whole build. Programs that cannot be recorded (set-user-ID, 32-bit) run unrecorded,
/// and folio names them.
///
/// With --live, folio records a program at full speed, even one that is already running: the kernel
/// reports its page faults, mappings and reads. From such a trace, folio can predict folio sizes,
/// faults, reads and memory use. The trace contains no accesses between faults, so predictions from
/// it omit TLB misses and run time.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio record -- python3 -c pass                  writes python3.folio
  folio record --runs 3 -- python3 -c pass         also times the plain program
  folio record -o cc1.folio -- cc1 -quiet big.i -o /dev/null
  sudo folio record --live -- ./server             at full speed: faults, mappings, reads
  sudo folio record --live --for 60s -p 4242       a running process, and its children

Exit status: the program's (128 + signal if a signal killed it); 2 if nothing was recorded.")]
pub(crate) struct RecordArgs {
    /// Trace to write [default: PROGRAM.folio in the current directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Accepted from earlier scripts: QEMU is the only emulator
    #[arg(long, hide = true, value_parser = recorder)]
    with: Option<String>,
    /// First search DIR for absolute paths of the program, its libraries and the programs that it
    /// executes. DIR contains another system's files, such as a Debian root for arm64
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// First run the program N times without recording and store its times in the trace, so that
    /// predictions are percentages of its run time. The program then runs N + 1 times, with all its
    /// side effects. The N unrecorded runs read from and write to /dev/null
    #[arg(long, value_name = "N", value_parser = within::<u16>(1..=1000))]
    runs: Option<u16>,
    /// Show only warnings, without progress or a summary
    #[arg(short, long)]
    quiet: bool,
    /// Program and its arguments
    #[arg(required_unless_present_any = ["pids", "cgroup"], trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
    #[command(flatten)]
    live: LiveArgs,
}

/// Checks the recorder of `--with`; earlier versions also had valgrind.
fn recorder(name: &str) -> Result<String, &'static str> {
    match name {
        "auto" | "qemu" => Ok(name.to_owned()),
        "valgrind" => {
            Err("folio no longer records with valgrind, only with QEMU, which is faster \
                           and follows children; omit --with")
        }
        _ => Err("folio records with qemu; omit --with"),
    }
}

pub(crate) struct RecordPlan {
    method: Method,
    is_quiet: bool,
}

enum Notice {
    /// A line that the next one replaces.
    State(String),
    /// A warning.
    Trouble(String),
}

enum Method {
    Emulated { recording: record::Recording, nr_runs: u16 },
    Live(LiveRecording),
}

impl VerbArgs for RecordArgs {
    type Plan = RecordPlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let command_line = invocation.line();
        let output = self.output.as_deref();
        let method = if self.live.is_live() {
            if let Some(reason) = self.refusal() {
                bail!("{reason}");
            }
            Method::Live(self.live.plan(&self.command, output, &command_line)?)
        } else {
            let root = self.root.as_deref();
            let request = record::RecordRequest { command: &self.command, output, root };
            let recording = record::Recording::new(&request)?;
            Method::Emulated { recording, nr_runs: self.runs.unwrap_or(0) }
        };
        Ok(RecordPlan { method, is_quiet: self.quiet })
    }
}

impl RecordArgs {
    fn refusal(&self) -> Option<&'static str> {
        let runs = "--runs times the plain program because recording slows it down, but a live \
            recording runs at full speed; omit --runs";
        let with = "--with chooses an emulator, but --live uses none; omit one of them";
        let root = "--root is for programs from other systems, but --live records on this one; \
                       omit one of them";
        let given = [
            self.runs.map(|_| runs),
            self.with.as_ref().map(|_| with),
            self.root.as_ref().map(|_| root),
        ];
        given.into_iter().flatten().next()
    }
}

impl Method {
    /// Records; reports its state to `notify`.
    fn run(&mut self, notify: &mut dyn FnMut(Notice)) -> Result<RecordOutcome, RecordError> {
        let what = if matches!(self, Self::Live(_)) { "page faults" } else { "references" };
        let mut is_still = false;
        let mut progress = |progress: Progress| {
            if progress.elapsed >= QUIET_START || progress.unrecorded.is_some() {
                notify(Notice::State(state(&progress, what)));
            }
            if let Some(Unrecorded::Lost(error)) = &progress.unrecorded {
                notify(Notice::Trouble(format!("The program continues unrecorded: {error}")));
            }
            if let Some(standstill) = progress.standstill.filter(|_| !is_still) {
                notify(Notice::Trouble(standstill.to_string()));
            }
            is_still = progress.standstill.is_some();
        };
        match self {
            Self::Live(recording) => recording.run(&mut progress),
            Self::Emulated { recording, .. } => recording.run(&mut progress),
        }
    }

    fn time(&mut self, notify: &mut dyn FnMut(Notice)) -> Result<(), RecordError> {
        let Self::Emulated { recording, nr_runs } = self else { return Ok(()) };
        let nr_runs = *nr_runs;
        recording.time(nr_runs.into(), &mut |nr| {
            notify(Notice::State(format!("timing the plain program: run {nr} of {nr_runs}")));
        })
    }
}

impl VerbPlan for RecordPlan {
    fn run(mut self, _console: &mut Console) -> Result<Exit> {
        let line = console::status();
        let has_line = !self.is_quiet && std::io::stderr().is_terminal();
        let mut notify = |notice: Notice| match notice {
            Notice::State(text) if has_line => line.set_message(text),
            Notice::State(_) => {}
            // The user wants to know now; the summary repeats it.
            Notice::Trouble(text) => line.suspend(|| console::warn(&text)),
        };
        let result = self.method.time(&mut notify).and_then(|()| self.method.run(&mut notify));
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
            if let Method::Emulated { recording, .. } = &self.method {
                plain_runs(recording.plain_runs());
            }
        }
        Ok(Exit::Program(outcome.ended.exit_code()))
    }
}

fn state(progress: &Progress, what: &str) -> String {
    match &progress.unrecorded {
        Some(Unrecorded::Written) => {
            return "the trace is written; the program continues".to_owned();
        }
        Some(Unrecorded::Lost(_)) => return "the trace is lost; the program continues".to_owned(),
        None => {}
    }
    format!(
        "recording: {} {}, {}, {} s, {}",
        figures::count(progress.nr_references - progress.nr_before),
        what,
        figures::bytes(progress.trace_bytes),
        progress.elapsed.as_secs(),
        tasks(progress.nr_threads, progress.nr_processes),
    )
}

fn summary(outcome: &RecordOutcome) {
    let (seconds, nr) = (outcome.elapsed.as_secs_f64(), outcome.nr_references);
    let rows = figures::count(outcome.nr_rows);
    let size = figures::bytes(outcome.trace_bytes);
    let (what, one) = match outcome.recorder {
        RecorderKind::Live => ("page faults", "fault"),
        RecorderKind::Qemu => ("references", "reference"),
    };
    let what = match &outcome.attached {
        Some(attached) => {
            let cpu = Duration::from_nanos(attached.run.user_ns + attached.run.system_ns);
            let what = figures::recorded(nr, attached);
            format!("{what}; {:.3} s of CPU time; {rows} rows, {size}", cpu.as_secs_f64())
        }
        None => format!(
            "{} {what} in {rows} rows, {size} ({:.3} bytes per {one})",
            figures::count(nr),
            figures::ratio(outcome.trace_bytes, nr),
        ),
    };
    console::say(&format!("folio: recorded {}: {what}", shown(&outcome.path)));
    let programs = match outcome.nr_executions {
        0 => String::new(),
        1 => ", 1 program executed".to_owned(),
        nr => format!(", {} programs executed", figures::count(nr)),
    };
    let ended = outcome.stopped.clone().unwrap_or_else(|| format!("ended with {}", outcome.ended));
    let speed = match outcome.recorder {
        RecorderKind::Live => String::new(),
        RecorderKind::Qemu => {
            format!(", {:.1} M references/s", figures::ratio(nr, 1_000_000) / seconds.max(1e-9))
        }
    };
    console::say(&format!(
        "folio: {seconds:.1} s with {}{speed}; {}{programs}; {ended}",
        outcome.recorder.name(),
        tasks(outcome.nr_threads, outcome.nr_processes),
    ));
    if let Some(hot) = outcome.hot {
        let ms = figures::ratio(1000, hot.nr_rounds) * hot.time.as_secs_f64();
        console::say(&format!(
            "folio: checked {} times which pages were written again, {ms:.1} ms each; {} faults on \
             pages not mapped for writing",
            figures::count(hot.nr_rounds),
            figures::count(hot.nr_faults),
        ));
    }
}

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
    let counters = if is_counted { "" } else { "; no hardware counters available" };
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
