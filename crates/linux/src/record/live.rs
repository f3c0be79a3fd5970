//! `folio record --live`: a program at its own speed, as far as the kernel tells what it does.
//!
//! Owns the checks before, whom it follows, and the end. Page faults, the system calls that change
//! memory, reads through the page cache, and the births and ends of threads become rows of a trace
//! with `faults_only`: what a program does between two faults is not seen.
//!
//! ```text
//!   tracefs instance --raw pages--> page, format --.
//!   perf rings ------------------> named ----------+-- by time --> tasks --> book --> trace
//!   /proc of running processes --> attach ---------'
//! ```
//!
//! Reading order: `seen` (what can be told), `page`, `format`, `rings`, `named` (how it is told),
//! `handle`, `files`, `image`, `attach`, `tasks` (their meaning), `usage` (CPU time and faults), `hot` (pages written again), `start` (a
//! command), `session` (the loop).
//!
//! Invariants:
//! - V1: nothing is left behind: the instance and a probe go with this process, or with the next
//!   recording if it was killed; the perf rings go with their descriptors.
//! - V2: a process that ran before goes on as it was. It is never stopped.
//! - V3: events that were lost are counted, and the first warning says so.

mod attach;
mod files;
mod format;
mod handle;
mod hot;
mod image;
mod named;
mod page;
mod rings;
mod seen;
mod session;
mod start;
mod tasks;
mod usage;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use largefolio_trace::{ExitKind, Writer};

use self::hot::Hot;
use self::named::Names;
use self::rings::Rings;
use self::session::{Fate, Session, Stopped};
use super::book::Book;
use super::child::wait_for;
use super::error::RecordError;
use super::finish::{self, Finish};
use super::outcome::{Ended, GoesOn, Outcome, Progress, RecorderKind};
use super::program::{self, Program};
use crate::census::whom::Whom;
use crate::environment::Host;
use crate::fault_probe::FaultProbe;
use crate::proc::{Task, stat};
use crate::signals::Signals;
use crate::system::Live;
use crate::tracefs::{Instance, TracefsError};

/// Buffer of each processor. A fault takes 36 bytes: 400,000 of them fit, and the loop empties it
/// twenty times a second.
const BUFFER_KB: u32 = 16 << 10;
/// Rounds in which threads are listed until no new ones come.
const NR_ROUNDS_MAX: usize = 10;

/// What to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A command, from its start on.
    Command(Vec<OsString>),
    /// Processes that run, with their children.
    Running(Whom),
}

/// When to stop before the program ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// After this time.
    pub time: Option<Duration>,
    /// When the trace has this size.
    pub bytes: Option<u64>,
}

/// A live recording that can be made.
#[derive(Debug)]
pub struct LiveRecording {
    whom: Whose,
    command: Vec<String>,
    output: PathBuf,
    bounds: Bounds,
    hot: Option<Duration>,
}

#[derive(Debug)]
enum Whose {
    Command(Program),
    Running(Whom),
}

impl LiveRecording {
    /// Checks that `target` can be recorded into `output` (default: `<program>.folio` in the current
    /// directory), asking each `hot` which pages are written again; `again` is the command line of this
    /// process, for the remedies.
    ///
    /// # Errors
    /// The first thing that is wrong, with its remedy.
    pub fn new(
        target: Target,
        output: Option<&Path>,
        bounds: Bounds,
        hot: Option<Duration>,
        again: &str,
    ) -> Result<Self, RecordError> {
        let (whom, command, name) = match target {
            Target::Command(command) => {
                let program = program::resolve(&Host, &command, None)?;
                if !program.arch.is_native() {
                    return Err(RecordError::NotNativeLive(program.arch.name()));
                }
                let words = command.iter().map(|word| word.to_string_lossy().into_owned());
                let name = program.name.clone();
                (Whose::Command(program), words.collect(), name)
            }
            Target::Running(whom) => {
                let first = *processes(&whom)?.first().unwrap_or(&0);
                let task = Task::of(&Live, first);
                let name = match &whom {
                    Whom::Cgroup(path) => path.file_name().map(OsStr::to_owned),
                    _ => None,
                };
                let name = name.unwrap_or_else(|| task.command_name().into());
                (Whose::Running(whom), task.command(), name)
            }
        };
        if !rustix::process::geteuid().is_root() {
            return Err(RecordError::NotRoot(again.to_owned()));
        }
        let output = program::checked_output(output, &name)?;
        Ok(Self { whom, command, output, bounds, hot })
    }

    /// Records. `progress` is called about ten times a second.
    ///
    /// # Errors
    /// What is missing in the kernel before anything is recorded; [`RecordError::Trace`] when the trace
    /// cannot be completed.
    pub fn run(&self, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, RecordError> {
        let started = Instant::now();
        let hot = self.hot.map(Hot::new).transpose()?;
        let meta = finish::meta_of(self.command.clone(), RecorderKind::Live);
        let mut writer = Writer::create(&self.output, meta)?;
        // Before the instance, which is gone first: an event that it has enabled cannot be removed.
        let probe;
        let instance = Instance::new("record").map_err(refused)?;
        prepare(&instance)?;
        probe = if format::Formats::has_faults(&instance) {
            None
        } else {
            Some(FaultProbe::new().map_err(RecordError::NoFaults)?)
        };
        let formats = format::Formats::enable(&instance, probe.as_ref());
        let formats = formats.map_err(RecordError::NoEvent)?;
        let rings =
            Rings::open(&instance, formats).map_err(RecordError::os("open the trace buffers"))?;
        let names =
            Names::open().map_err(RecordError::os("open the records of mappings (perf)"))?;
        let signals = Signals::watch().map_err(RecordError::os("watch signals"))?;

        let mut book = Book::new(&mut writer);
        let mut session = Session::new(&instance, rings, names, &mut book, self.bounds);
        session.hot = hot;
        let (fate, stopped) = match &self.whom {
            Whose::Command(program) => {
                let child = start::spawn(program, &signals)?;
                set(&instance, "set_event_pid", &child.pid().to_string())?;
                set(&instance, "tracing_on", "1")?;
                session.command(child, &signals, progress)?
            }
            Whose::Running(whom) => {
                follow(&instance, whom)?;
                set(&instance, "tracing_on", "1")?;
                // Threads that were started before the first list took effect.
                let pids = follow(&instance, whom)?;
                session.attach(&pids)?;
                let stopped = session.run(&signals, None, progress)?;
                (Fate::Ended(Ended::Code(0)), stopped)
            }
        };
        let (hot, last) = (session.hot_pages(), session.progress());
        let attached = session.take_attached();
        let warnings = session.finish();
        let (ended, goes_on) = match fate {
            Fate::Ended(ended) => (ended, None),
            Fate::GoesOn(child) => (Ended::Code(0), Some(child)),
        };
        let stopped = stopped.text(&self.whom);
        let text = stopped.clone().unwrap_or_else(|| ended.to_string());
        let outcome = match warnings {
            Ok(warnings) => {
                let finish = Finish::of_book(&mut book, text, warnings);
                writer.meta_mut().faults_only = true;
                writer.meta_mut().attached = attached;
                finish.complete(writer, ended, RecorderKind::Live, started)
            }
            Err(error) => Err(error),
        };
        // Nothing is traced while a command goes on without its recorder.
        drop(instance);
        drop(probe);
        let ended = match goes_on {
            Some(mut child) => {
                progress(Progress { goes_on: Some(GoesOn::after(&outcome)), ..last });
                wait_for(&mut child, &signals)?
            }
            None => ended,
        };
        Ok(Outcome { ended, stopped, attached, hot, ..outcome? })
    }
}

fn set(instance: &Instance, name: &str, value: &str) -> Result<(), RecordError> {
    instance.set(name, value).map_err(RecordError::os("set up tracing"))
}

/// Makes an instance ready to trace, and trace nobody.
fn prepare(instance: &Instance) -> Result<(), RecordError> {
    set(instance, "tracing_on", "0")?;
    set(instance, "trace_clock", "mono")?;
    set(instance, "options/overwrite", "0")?;
    set(instance, "options/event-fork", "1")?;
    set(instance, "buffer_size_kb", &BUFFER_KB.to_string())?;
    // Nobody has this number: no thread is traced before it is asked for.
    set(instance, "set_event_pid", "0")
}

/// The processes that are meant, with their children.
fn processes(whom: &Whom) -> Result<Vec<u32>, RecordError> {
    let chosen = whom.chosen(&Live).map_err(|error| RecordError::Nobody(error.to_string()))?;
    if let Some(missing) = chosen.missing.first() {
        return Err(RecordError::Nobody(missing.to_string()));
    }
    let mut pids = Vec::new();
    for pid in chosen.pids {
        if !Task::of(&Live, pid).exists() {
            return Err(RecordError::NoProcess(pid));
        }
        pids.push(pid);
        if matches!(whom, Whom::Processes(_)) {
            pids.extend(stat::tree(&Live, pid));
        }
    }
    let mut known = BTreeSet::from([std::process::id()]);
    pids.retain(|pid| known.insert(*pid) && !Task::of(&Live, *pid).command().is_empty());
    if pids.is_empty() {
        return Err(RecordError::Nobody("the group is empty; name one with processes".to_owned()));
    }
    Ok(pids)
}

/// Traces all threads of the processes, until a list of them has no new ones.
fn follow(instance: &Instance, whom: &Whom) -> Result<Vec<u32>, RecordError> {
    let mut known = BTreeSet::new();
    for _ in 0..NR_ROUNDS_MAX {
        let pids = processes(whom)?;
        let threads = pids.iter().flat_map(|pid| Task::of(&Live, pid).threads());
        let threads: BTreeSet<u32> = threads.collect();
        if threads.is_subset(&known) {
            return Ok(pids);
        }
        known.extend(threads);
        let text: Vec<String> = known.iter().map(u32::to_string).collect();
        instance
            .set("set_event_pid", &text.join(" "))
            .map_err(RecordError::os("choose the threads to trace"))?;
    }
    processes(whom)
}

fn refused(error: TracefsError) -> RecordError {
    match error {
        TracefsError::NotPermitted => RecordError::NotPermitted,
        TracefsError::Missing => RecordError::NoTracefs,
        TracefsError::PidNamespace => RecordError::PidNamespace,
        TracefsError::Instance(source) => {
            RecordError::Os { action: "make a tracefs instance", source }
        }
    }
}

/// How a command ended, for its exit row.
fn exit_of(ended: Ended) -> (ExitKind, u64) {
    match ended {
        Ended::Code(code) => (ExitKind::Process, code.into()),
        Ended::Signal(signal) => (ExitKind::Signal, signal.into()),
    }
}

impl Stopped {
    /// In words; `None` where a command ran to its end.
    fn text(self, whom: &Whose) -> Option<String> {
        Some(match self {
            Self::Signal(signal) => format!("stopped by signal {signal}"),
            Self::Time => "stopped after the time of --for".to_owned(),
            Self::Size => "stopped at the size of --max-size".to_owned(),
            Self::Ended if matches!(whom, Whose::Command(_)) => return None,
            Self::Ended => "stopped because all processes ended".to_owned(),
        })
    }
}
