//! Recording through valgrind's lackey.
//!
//! Owns the run: a pipe for valgrind's log, the child, the completed trace. The log has accesses,
//! system calls and thread switches in one order, because valgrind runs one thread at a time.
//!
//! What this route cannot see, against QEMU's: forked children (valgrind is told to be silent in
//! them), positions of files opened for appending or shared by dup, reads and writes other than
//! the plain ones, the kernel's accesses to buffers.

mod calls;
mod stream;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use largefolio_trace::Writer;
use rustix::io::Errno;

use self::stream::Stream;
use super::book::Book;
use super::child::{pass_on, wait_unrecorded};
use super::error::RecordError;
use super::finish::{self, Finish};
use super::outcome::{Outcome, Progress, RecorderKind};
use super::plan::Recording;
use crate::signals::{self, Signals};

/// Time between calls of progress.
const TICK: Duration = Duration::from_millis(100);

/// Bytes of the pipe: the most an unprivileged process may ask for.
const PIPE_BYTES: usize = 1 << 20;

/// Pause when the pipe is empty. Valgrind writes line by line; waiting in poll would have each line
/// wake us, which takes longer than the line. A pipe fills in some 10 ms.
const PAUSE: Duration = Duration::from_millis(2);

/// Bytes read at a time.
const READ_BYTES: usize = 256 * 1024;

pub(super) fn run(
    plan: &Recording,
    valgrind: &Path,
    reason: &str,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, RecordError> {
    let started = Instant::now();
    let mut writer = Writer::create(&plan.output, finish::meta(plan, RecorderKind::Valgrind))?;
    let signals = Signals::watch().map_err(RecordError::os("watch signals"))?;
    let (log, log_end) = log_pipe().map_err(RecordError::os("make a pipe"))?;
    let mut command = command(plan, valgrind, &log_end);
    let mut child = command.spawn().map_err(RecordError::os("start valgrind"))?;
    drop(log_end);

    let mut book = Book::new(&mut writer);
    let mut stream = Stream::new(&mut book, child.id(), &plan.program.elf);
    let mut pump = Pump { log, started, next_tick: started + TICK };
    let result = pump.run(&mut child, &mut stream, &signals, progress);
    drop(pump);
    let status = match result {
        Ok(status) => status,
        Err(error) => {
            // Without its log valgrind goes on.
            wait_unrecorded(&error, &mut child, &signals, started, progress);
            return Err(error);
        }
    };
    if !stream.has_started() {
        if let Some(signal) = signals.seen() {
            return Err(RecordError::Interrupted(signal));
        }
        let (status, command) = (status.to_string(), format!("{command:?}"));
        return Err(RecordError::RecorderFailed { recorder: "valgrind", status, command });
    }
    let ended = finish::ended_of(status);
    let ended_text = stream.finish(ended)?;
    let fallback = (!reason.is_empty())
        .then(|| format!("Recorded with valgrind, about 30 times slower than QEMU: {reason}."));
    let facts = Finish::of_book(&mut book, ended_text, fallback.into_iter().collect());
    facts.complete(writer, ended, RecorderKind::Valgrind, started)
}

/// Both ends of the log's pipe; the second is inherited by the child.
fn log_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (log, end) = rustix::pipe::pipe()?;
    rustix::io::fcntl_setfd(&log, rustix::io::FdFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&log, rustix::fs::OFlags::NONBLOCK)?;
    // A smaller pipe only means more switches.
    let _ = rustix::pipe::fcntl_setpipe_size(&log, PIPE_BYTES);
    Ok((log, end))
}

fn command(plan: &Recording, valgrind: &Path, log_end: &OwnedFd) -> Command {
    let mut command = Command::new(valgrind);
    command
        .args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
        .args(["--trace-syscalls=yes", "--trace-sched=yes", "--trace-children=no"])
        .args(["--child-silent-after-fork=yes", "--vgdb=no"])
        .arg(format!("--log-fd={}", log_end.as_raw_fd()))
        .arg(&plan.program.elf)
        .args(plan.program.arguments.iter().skip(1));
    signals::hand_on(&mut command);
    command
}

/// Moves the log into the stream.
struct Pump {
    log: OwnedFd,
    started: Instant,
    next_tick: Instant,
}

impl Pump {
    /// Reads until the program ended and the log is empty. A child that the program left behind
    /// keeps the pipe open, so its end is not waited for.
    fn run(
        &mut self,
        child: &mut Child,
        stream: &mut Stream<'_, '_>,
        signals: &Signals,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<ExitStatus, RecordError> {
        let mut buffer = vec![0; READ_BYTES];
        let mut status = None;
        loop {
            let is_empty = self.read(&mut buffer, stream)?;
            // After its end was seen, its number may be another's.
            if status.is_none() {
                pass_on(child, signals);
            }
            if Instant::now() >= self.next_tick {
                self.next_tick = Instant::now() + TICK;
                progress(stream.progress(self.started.elapsed()));
            }
            match status {
                Some(status) if is_empty => return Ok(status),
                _ if is_empty => {
                    status = child.try_wait().map_err(RecordError::os("wait for the program"))?;
                    if status.is_none() {
                        std::thread::sleep(PAUSE);
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes what is in the pipe, at most a buffer; true when there was nothing.
    fn read(&self, buffer: &mut [u8], stream: &mut Stream<'_, '_>) -> Result<bool, RecordError> {
        match rustix::io::read(&self.log, &mut *buffer) {
            Ok(0) | Err(Errno::AGAIN | Errno::INTR) => Ok(true),
            Ok(nr_bytes) => {
                stream.take(buffer.get(..nr_bytes).unwrap_or_default())?;
                Ok(false)
            }
            Err(error) => Err(RecordError::os("read valgrind's log")(error)),
        }
    }
}
