//! `folio record --live`: records a program at full speed through kernel events.
//!
//! Owns the checks, the choice of processes, and the end. Page faults, system calls that change
//! memory, reads through the page cache, and thread starts and exits become rows of a `faults_only`
//! trace. Accesses between two faults are invisible.
//!
//! ```text
//!   tracefs instance --events--> format -----------.
//!   perf rings ------------------> named ----------+-- by time --> tasks --> book --> trace
//!   /proc of running processes --> attach ---------'
//! ```
//!
//! Reading order: `kernel_event` (the events), `format`, `named` (their encoding),
//! `handle`, `files`, `image`, `attach`, `tasks` (their meaning), `usage` (CPU time and faults),
//! `hot` (pages written again), `start` (a command), `session` (the loop).
//!
//! Invariants:
//! - V1: nothing remains. The instance and a probe are removed by this process, or by the next
//!   recording if this one was killed; the perf rings close with their descriptors.
//! - V2: an attached process continues undisturbed. It is never stopped.
//! - V3: lost events are counted, and the first warning reports them.

mod attach;
mod files;
mod format;
mod handle;
mod hot;
mod image;
mod kernel_event;
mod named;
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
use self::session::{Buffers, CommandEnd, Session, Stopped};
use super::book::Book;
use super::child::wait_for;
use super::error::RecordError;
use super::finish::{self, Finish};
use super::outcome::{Progress, RecordEnd, RecordOutcome, RecorderKind, Unrecorded};
use super::program::{self, Program};
use crate::census::selection::Selection;
use crate::environment::Host;
use crate::fault_probe::FaultProbe;
use crate::proc::{Task, stat};
use crate::signals::Signals;
use crate::system::Live;
use crate::tracefs::rings::Rings;
use crate::tracefs::{Instance, TracefsError};

/// Buffer per processor: room for 400,000 faults, emptied twenty times a second.
const BUFFER_KB: u32 = 16 << 10;
/// Rounds of listing threads until no new ones appear.
const NR_ROUNDS_MAX: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Command(Vec<OsString>),
    Running(Selection),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub time: Option<Duration>,
    pub bytes: Option<u64>,
}

#[derive(Debug)]
pub struct LiveRecording {
    subject: Subject,
    command: Vec<String>,
    output: PathBuf,
    bounds: Bounds,
    hot: Option<Duration>,
}

#[derive(Debug)]
enum Subject {
    Command(Program),
    Running(Selection),
}

impl LiveRecording {
    /// Checks that `target` can be recorded into `output` (default: `<program>.folio` in the
    /// current directory). `hot` is the interval for finding pages that are written again. `again`
    /// is this process's command line, for the remedies.
    ///
    /// # Errors
    /// The first problem, with its remedy.
    pub fn new(
        target: Target,
        output: Option<&Path>,
        bounds: Bounds,
        hot: Option<Duration>,
        again: &str,
    ) -> Result<Self, RecordError> {
        let (subject, command, name) = match target {
            Target::Command(command) => {
                let program = program::resolve(&Host, &command, None)?;
                if !program.arch.is_native() {
                    return Err(RecordError::NotNativeLive(program.arch.name()));
                }
                let arguments = command.iter().map(|word| word.to_string_lossy().into_owned());
                let name = program.name.clone();
                (Subject::Command(program), arguments.collect(), name)
            }
            Target::Running(selection) => {
                let first = *processes(&selection)?.first().unwrap_or(&0);
                let task = Task::of(&Live, first);
                let name = match &selection {
                    Selection::Cgroup(path) => path.file_name().map(OsStr::to_owned),
                    _ => None,
                };
                let name = name.unwrap_or_else(|| task.command_name().into());
                (Subject::Running(selection), task.command(), name)
            }
        };
        if !rustix::process::geteuid().is_root() {
            return Err(RecordError::NotRoot(again.to_owned()));
        }
        let output = program::checked_output(output, &name)?;
        Ok(Self { subject, command, output, bounds, hot })
    }

    /// Records. Calls `progress` about ten times a second.
    ///
    /// # Errors
    /// A missing kernel feature, before anything is recorded; [`RecordError::Trace`] if the trace
    /// cannot be completed.
    pub fn run(&self, progress: &mut dyn FnMut(Progress)) -> Result<RecordOutcome, RecordError> {
        let started = Instant::now();
        let hot = self.hot.map(Hot::new).transpose()?;
        let meta = finish::meta_of(self.command.clone(), RecorderKind::Live);
        let mut writer = Writer::create(&self.output, meta)?;
        // Declared before the instance, so it drops later: an enabled event cannot be removed.
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
        let rings = Rings::open(&instance).map_err(RecordError::os("open the trace buffers"))?;
        let names = Names::open().map_err(RecordError::os("open perf's records of mappings"))?;
        let signals = Signals::watch().map_err(RecordError::os("watch signals"))?;

        let mut book = Book::new(&mut writer);
        let buffers = Buffers { rings, formats, names };
        let mut session = Session::new(&instance, buffers, &mut book, self.bounds);
        session.hot = hot;
        let (command_end, stopped) = match &self.subject {
            Subject::Command(program) => {
                let child = start::spawn(program, &signals)?;
                set(&instance, "set_event_pid", &child.pid().to_string())?;
                set(&instance, "tracing_on", "1")?;
                session.command(child, &signals, progress)?
            }
            Subject::Running(selection) => {
                follow(&instance, selection)?;
                set(&instance, "tracing_on", "1")?;
                // Includes threads that started before the first list took effect.
                let pids = follow(&instance, selection)?;
                session.attach(&pids)?;
                let stopped = session.run(&signals, None, progress)?;
                (CommandEnd::Ended(RecordEnd::Code(0)), stopped)
            }
        };
        let (hot, last) = (session.hot_pages(), session.progress());
        let attached = session.take_attached();
        let warnings = session.finish();
        let (ended, continuing) = match command_end {
            CommandEnd::Ended(ended) => (ended, None),
            CommandEnd::Continues(child) => (RecordEnd::Code(0), Some(child)),
        };
        let stopped = stopped.text(&self.subject);
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
        // Stop tracing while a command continues without its recorder.
        drop(instance);
        drop(probe);
        let ended = match continuing {
            Some(mut child) => {
                progress(Progress { unrecorded: Some(Unrecorded::after(&outcome)), ..last });
                wait_for(&mut child, &signals)?
            }
            None => ended,
        };
        Ok(RecordOutcome { ended, stopped, attached, hot, ..outcome? })
    }
}

fn set(instance: &Instance, name: &str, value: &str) -> Result<(), RecordError> {
    instance.set(name, value).map_err(RecordError::os("set up tracing"))
}

fn prepare(instance: &Instance) -> Result<(), RecordError> {
    set(instance, "tracing_on", "0")?;
    set(instance, "trace_clock", "mono")?;
    set(instance, "options/overwrite", "0")?;
    set(instance, "options/event-fork", "1")?;
    set(instance, "buffer_size_kb", &BUFFER_KB.to_string())?;
    // No thread has this pid, so none is traced until requested.
    set(instance, "set_event_pid", "0")
}

fn processes(selection: &Selection) -> Result<Vec<u32>, RecordError> {
    let chosen =
        selection.chosen(&Live).map_err(|error| RecordError::NoMatch(error.to_string()))?;
    if let Some(missing) = chosen.missing.first() {
        return Err(RecordError::NoMatch(missing.to_string()));
    }
    let mut pids = Vec::new();
    for pid in chosen.pids {
        if !Task::of(&Live, pid).exists() {
            return Err(RecordError::NoProcess(pid));
        }
        pids.push(pid);
        if matches!(selection, Selection::Processes(_)) {
            pids.extend(stat::tree(&Live, pid));
        }
    }
    let mut known = BTreeSet::from([std::process::id()]);
    pids.retain(|pid| known.insert(*pid) && !Task::of(&Live, *pid).command().is_empty());
    if pids.is_empty() {
        return Err(RecordError::NoMatch(
            "the group is empty; name a group that contains processes".to_owned(),
        ));
    }
    Ok(pids)
}

/// Traces all threads of the processes; repeats until no new ones appear.
fn follow(instance: &Instance, selection: &Selection) -> Result<Vec<u32>, RecordError> {
    let mut known = BTreeSet::new();
    for _ in 0..NR_ROUNDS_MAX {
        let pids = processes(selection)?;
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
    processes(selection)
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

fn exit_of(ended: RecordEnd) -> (ExitKind, u64) {
    match ended {
        RecordEnd::Code(code) => (ExitKind::Process, code.into()),
        RecordEnd::Signal(signal) => (ExitKind::Signal, signal.into()),
    }
}

impl Stopped {
    fn text(self, subject: &Subject) -> Option<String> {
        Some(match self {
            Self::Signal(signal) => format!("stopped by signal {signal}"),
            Self::Time => "stopped after the time given by --for".to_owned(),
            Self::Size => "stopped at the size given by --max-size".to_owned(),
            Self::Ended if matches!(subject, Subject::Command(_)) => return None,
            Self::Ended => "stopped because all processes ended".to_owned(),
        })
    }
}
