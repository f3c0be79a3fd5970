//! The main loop of a live recording.
//!
//! Owns the order of events. After a given moment, the buffers of all processors contain all events
//! up to that moment; the session takes these in time order. Later events wait for the next round.

use std::mem;
use std::process::Child;
use std::time::{Duration, Instant};

use largefolio_trace::Attached;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::attach::AttachedProcess;
use super::format::Formats;
use super::hot::Hot;
use super::kernel_event::{KernelEvent, Timed};
use super::named::Names;
use super::start::Waiting;
use super::tasks::Tasks;
use super::usage::Usage;
use super::{Bounds, exit_of};
use crate::record::book::Book;
use crate::record::child::{pass_on, pause, wait_for, wait_unrecorded};
use crate::record::error::RecordError;
use crate::record::outcome::{HotPages, Progress, RecordEnd};
use crate::signals::Signals;
use crate::tracefs::rings::Rings;
use crate::tracefs::{Instance, now_ns};

/// The polling interval of the buffers: polling needs no wake-up in the program.
const TICK: Duration = Duration::from_millis(50);

/// The interval until the command has executed, because its maps must be read while it lives.
const FIRST_TICK: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    Signal(i32),
    Time,
    Size,
    Ended,
}

/// Rows for the time before processes were attached.
#[derive(Clone, Copy, Debug)]
struct Before {
    nr_rows: u64,
    nr_pages: u64,
}

pub(super) enum CommandEnd {
    Ended(RecordEnd),
    /// The recording ended before the command.
    Continues(Child),
}

/// Where events come from. The instance's descriptors are closed before it is removed.
pub(super) struct Buffers {
    pub(super) rings: Rings,
    pub(super) formats: Formats,
    pub(super) names: Names,
}

pub(super) struct Session<'run, 'book, 'sink> {
    buffers: Buffers,
    instance: &'run Instance,
    tasks: Tasks<'book, 'sink>,
    bounds: Bounds,
    pub(super) hot: Option<Hot>,
    started: Instant,
    /// Earlier rows and pages, and the CPU time and faults since then.
    attached: Option<(Before, Usage)>,
    held: Vec<Timed>,
}

impl<'run, 'book, 'sink> Session<'run, 'book, 'sink> {
    pub(super) fn new(
        instance: &'run Instance,
        buffers: Buffers,
        book: &'book mut Book<'sink>,
        bounds: Bounds,
    ) -> Self {
        let (tasks, started) = (Tasks::new(book), Instant::now());
        Self {
            buffers,
            instance,
            tasks,
            bounds,
            hot: None,
            started,
            attached: None,
            held: Vec::new(),
        }
    }

    pub(super) fn attach(&mut self, pids: &[u32]) -> Result<(), RecordError> {
        let mut processes = Vec::new();
        for &pid in pids {
            if let Some(process) = AttachedProcess::new(pid) {
                processes.push((process, now_ns()));
            }
        }
        if processes.is_empty() {
            return Err(RecordError::NoMatch(
                "none of them has its own memory: they have ended or are kernel threads".to_owned(),
            ));
        }
        let mut begun = Vec::new();
        // All forks first: a child then inherits nothing from the first process.
        for (process, since_ns) in processes {
            let first = process.begin(&mut self.tasks)?;
            if let Some(known) = self.tasks.process_mut(process.pid) {
                known.since_ns = since_ns;
            }
            begun.push((process, first));
        }
        for (process, first) in begun {
            process.go_on(&mut self.tasks, first)?;
            for tid in crate::proc::Task::of(&crate::system::Live, process.pid).threads() {
                self.tasks.add_thread(process.pid, tid)?;
            }
        }
        // Their executions were before the recording.
        self.tasks.book.executions.nr = 0;
        let book = &self.tasks.book;
        let before = Before { nr_rows: book.nr_rows(), nr_pages: book.nr_references() };
        self.attached = Some((before, Usage::begin(self.tasks.pids())));
        Ok(())
    }

    /// Records a command until it ends or a limit is reached; returns the command if it still runs.
    pub(super) fn command(
        &mut self,
        child: Waiting,
        signals: &Signals,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(CommandEnd, Stopped), RecordError> {
        self.tasks.start_command(child.pid());
        let mut child = child.go(signals)?;
        let stopped = match self.run(signals, Some(&mut child), progress) {
            Ok(Stopped::Ended) => Stopped::Ended,
            Ok(stopped) if self.tasks.has_begun() => {
                return Ok((CommandEnd::Continues(child), stopped));
            }
            Ok(stopped) => stopped,
            Err(error) => {
                // It continues normally, and only this process waits for it.
                self.stop();
                wait_unrecorded(&error, &mut child, signals, self.started, progress);
                return Err(error);
            }
        };
        let ended = wait_for(&mut child, signals)?;
        self.drain()?;
        if !self.tasks.has_begun() {
            return match signals.received() {
                Some(signal) => Err(RecordError::Interrupted(signal)),
                None => Err(RecordError::RecorderFailed {
                    recorder: "the kernel",
                    status: ended.to_string(),
                    command: "folio record --live -- true".to_owned(),
                }),
            };
        }
        let (kind, status) = exit_of(ended);
        self.tasks.end_command(kind, status)?;
        if self.tasks.nr_alive() > 0 {
            self.tasks.book.warn(
                "A child process was still running when the program ended, so what it did later is \
                 missing; record a command that waits for it.",
            );
        }
        Ok((CommandEnd::Ended(ended), stopped))
    }

    pub(super) fn run(
        &mut self,
        signals: &Signals,
        mut child: Option<&mut Child>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Stopped, RecordError> {
        let pidfd = child
            .as_ref()
            .and_then(|child| pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok());
        loop {
            pause(pidfd.as_ref(), if self.tasks.has_begun() { TICK } else { FIRST_TICK })?;
            self.drain()?;
            if let Some(hot) = self.hot.as_mut().filter(|_| self.tasks.has_begun()) {
                hot.request(self.tasks.pids());
            }
            if let Some((_, usage)) = &mut self.attached {
                usage.sample(self.tasks.pids());
            }
            progress(self.progress());
            let is_over = match child.as_deref_mut() {
                Some(child) => {
                    pass_on(child, signals);
                    child.try_wait().map_err(RecordError::os("wait for the program"))?.is_some()
                }
                None => self.tasks.nr_alive() == 0,
            };
            if is_over {
                return Ok(Stopped::Ended);
            }
            if let Some(signal) = signals.received().filter(|_| child.is_none()) {
                return Ok(Stopped::Signal(signal));
            }
            if self.bounds.time.is_some_and(|time| self.started.elapsed() >= time) {
                return Ok(Stopped::Time);
            }
            if self.bounds.bytes.is_some_and(|bytes| self.tasks.book.trace_bytes() >= bytes) {
                return Ok(Stopped::Size);
            }
        }
    }

    fn drain(&mut self) -> Result<(), RecordError> {
        let until_ns = now_ns();
        let Buffers { rings, formats, names } = &mut self.buffers;
        names.take(&mut self.held);
        let held = &mut self.held;
        let taken = rings.take(&mut |time_ns, data| {
            if let Some((tid, event)) = formats.decode(data) {
                held.push(Timed { time_ns, tid, event });
            }
        });
        taken.map_err(RecordError::os("read the trace buffers"))?;
        // The sort is stable: for the same processor and moment, mapping records come first.
        self.held.sort_by_key(|event| event.time_ns);
        let nr_taken = self.held.partition_point(|event| event.time_ns <= until_ns);
        let later = self.held.split_off(nr_taken);
        for event in self.held.iter().chain(&later) {
            if let KernelEvent::Mapped(mapped) = &event.event {
                self.tasks.inodes.note(mapped);
            }
        }
        for event in mem::replace(&mut self.held, later) {
            self.tasks.take(event)?;
        }
        Ok(())
    }

    fn stop(&self) {
        // The instance is removed anyway.
        let _ = self.instance.set("tracing_on", "0");
    }

    pub(super) fn hot_pages(&self) -> Option<HotPages> {
        self.hot.as_ref().map(|hot| hot.cost(self.tasks.nr_protected))
    }

    pub(super) fn take_attached(&mut self) -> Option<Attached> {
        let (Before { nr_rows, nr_pages }, usage) = self.attached.take()?;
        Some(Attached { nr_rows, nr_pages, run: usage.end(&self.tasks.pids().collect()) })
    }

    pub(super) fn finish(mut self) -> Result<Vec<String>, RecordError> {
        self.stop();
        self.drain()?;
        let mut warnings = Vec::new();
        let nr_lost = self.instance.nr_lost();
        if nr_lost > 0 {
            warnings.push(format!(
                "{nr_lost} events were lost because they arrived faster than folio could write \
                 them, so faults and mappings are missing; record fewer processes, or record on a \
                 less busy machine."
            ));
        }
        if self.buffers.names.nr_lost > 0 {
            warnings.push(format!(
                "{} records of mapped files were lost, so some files count as anonymous memory.",
                self.buffers.names.nr_lost
            ));
        }
        if !self.buffers.formats.has_reads {
            warnings.push(
                "This kernel does not report read calls on files (Linux 6.12 and later do), so the \
                 trace has reads only for mapped files."
                    .to_owned(),
            );
        }
        Ok(warnings)
    }

    pub(super) fn progress(&self) -> Progress {
        let book = &self.tasks.book;
        Progress {
            nr_references: book.nr_references(),
            nr_before: self.attached.as_ref().map_or(0, |(before, _)| before.nr_pages),
            trace_bytes: book.trace_bytes(),
            nr_threads: book.nr_threads(),
            nr_processes: book.nr_processes,
            elapsed: self.started.elapsed(),
            standstill: None,
            unrecorded: None,
        }
    }
}
