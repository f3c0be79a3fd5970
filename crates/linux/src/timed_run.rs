//! One timed run of a command: wall, user and system time, and faults.
//!
//! The command runs in a `Family`. When the command has ended, its remaining processes are killed.
//! If this process is killed, the family's guard kills them.

pub(crate) mod family;
pub mod memory_sample;
pub mod output;
pub mod settings;

use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use self::family::{Adoption, Family};
use self::memory_sample::{MemorySample, When};
use self::output::{Capture, Output};
use crate::helpers;
use crate::signals::{self, Signals};

#[derive(Debug, thiserror::Error)]
pub enum TimedRunError {
    #[error("cannot start {command}: {source}{remedy}")]
    Start { command: String, source: io::Error, remedy: &'static str },
    #[error("{what} was killed but has not ended; no more rounds can run until it does")]
    Immortal { what: String },
    #[error("{call} failed: {source}")]
    Call { call: &'static str, source: io::Error },
}

pub(crate) fn failed(call: &'static str) -> impl FnOnce(io::Error) -> TimedRunError {
    move |source| TimedRunError::Call { call, source }
}

/// Pause before the clock starts. The guard and programs started by an arm's preparation have then
/// settled, and both arms start on an idle machine.
const SETTLE: Duration = Duration::from_millis(20);

/// Interval between checks for signals while a command runs: five wakes a second.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
const NR_TICKS_ALIVE: u32 = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub wall: Duration,
    /// User CPU time of the command and the children it waited for.
    pub user: Duration,
    pub system: Duration,
    pub nr_minor_faults: u64,
    pub nr_major_faults: u64,
}

#[derive(Debug)]
pub enum TimedRunEnd {
    Succeeded(Sample),
    /// With another exit code, or by a signal.
    Failed(ExitStatus),
    Stopped,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct RunOptions<'a> {
    pub(crate) when: When,
    /// Whether to capture the output, and where else it goes.
    pub(crate) capture: Option<Output>,
    pub(crate) server: Option<&'a Family>,
    pub(crate) limit: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) ended: TimedRunEnd,
    pub(crate) memory: Option<MemorySample>,
    pub(crate) output: Vec<u8>,
    pub(crate) left: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Ended,
    Stopped,
    TooLong,
}

/// Runs `command` to its end.
///
/// # Errors
/// It cannot be started or waited for.
pub fn timed(command: Command, signals: &Watch) -> Result<TimedRunEnd, TimedRunError> {
    Ok(observed(command, signals, &RunOptions::default())?.ended)
}

pub(crate) fn observed(
    mut command: Command,
    signals: &Watch,
    options: &RunOptions<'_>,
) -> Result<Observed, TimedRunError> {
    let mut family = Family::start(None)?;
    if options.server.is_some() {
        family.is_beside_a_server();
    }
    command.stdin(Stdio::null()).process_group(family.group());
    signals::hand_on(&mut command);
    let capture = options.capture.map(|output| Capture::of(&mut command, output)).transpose();
    let capture = capture.map_err(failed("pipe"))?;
    thread::sleep(SETTLE);
    let start = Instant::now();
    let started = helpers::spawn(&mut command);
    let (leader, own) = started.map_err(|source| start_error(&command, source))?;
    // The command holds the writing end of the pipe.
    drop(command);
    family.is_led_by(own);
    let (why, wall, memory) = thread::scope(|scope| {
        let (end, ended) = channel();
        let (pid, when) = (leader.id(), options.when);
        let looking = (when != When::Never)
            .then(|| scope.spawn(move || memory_sample::watch(pid, when, &ended)));
        let why = wait_for_end(&leader, signals, options);
        let wall = start.elapsed();
        drop(end);
        let memory = looking.and_then(|looking| looking.join().ok()).flatten();
        (why, wall, memory)
    });
    let left = if matches!(why, Ok(Why::Ended)) { family.left_running() } else { None };
    // Before any return: the reader of the output waits for its writers.
    let is_over = family.end();
    let why = why?;
    let (status, usage) = reap(&leader)?;
    family.has_no_leader();
    let output = capture.map(Capture::end).unwrap_or_default();
    if !is_over {
        return Err(TimedRunError::Immortal { what: left.unwrap_or_default() });
    }
    let ended = match why {
        Why::Stopped => TimedRunEnd::Stopped,
        Why::Ended if status.success() => TimedRunEnd::Succeeded(Sample {
            wall,
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            nr_minor_faults: usage.ru_minflt.try_into().unwrap_or(0),
            nr_major_faults: usage.ru_majflt.try_into().unwrap_or(0),
        }),
        Why::Ended | Why::TooLong => TimedRunEnd::Failed(status),
    };
    Ok(Observed { ended, memory, output, left })
}

pub(crate) fn start_error(command: &Command, source: io::Error) -> TimedRunError {
    TimedRunError::Start {
        command: command.get_program().to_string_lossy().into_owned(),
        remedy: match source.kind() {
            io::ErrorKind::NotFound => "; is it installed, and is the path right?",
            io::ErrorKind::PermissionDenied => "; is it executable? (chmod +x)",
            _ => "",
        },
        source,
    }
}

/// Returns for example `exited with 1` or `was killed by signal 11`.
pub(crate) fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (_, Some(signal)) => format!("was killed by signal {signal}"),
        _ => "ended badly".to_owned(),
    }
}

/// Signals end the rounds instead of this process, and orphaned processes become our children.
#[derive(Debug)]
pub struct Watch {
    signals: Signals,
    deadline: Option<Instant>,
    _adoption: Adoption,
}

impl Watch {
    /// Watches until the result is dropped.
    ///
    /// # Errors
    /// If handlers cannot be installed.
    pub fn start() -> Result<Self, TimedRunError> {
        Self::within(None)
    }

    /// As [`Watch::start`], but the end of `time` also ends the rounds.
    ///
    /// # Errors
    /// As [`Watch::start`].
    pub fn within(time: Option<Duration>) -> Result<Self, TimedRunError> {
        let signals = Signals::watch().map_err(failed("sigaction"))?;
        let deadline = time.and_then(|time| Instant::now().checked_add(time));
        Ok(Self { signals, deadline, _adoption: Adoption::start() })
    }

    /// Returns the signal that arrived, 0 for none.
    pub(crate) fn signal(&self) -> i32 {
        self.signals.received().unwrap_or(0)
    }

    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.signals.received().is_some()
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

fn wait_for_end(
    leader: &Child,
    signals: &Watch,
    options: &RunOptions<'_>,
) -> Result<Why, TimedRunError> {
    let start = Instant::now();
    let failed = |errno: rustix::io::Errno| failed("pidfd_open")(errno.into());
    let process = pidfd_open(Pid::from_child(leader), PidfdFlags::empty()).map_err(failed)?;
    for tick in 1_u32.. {
        let mut waiting = [PollFd::new(&process, PollFlags::IN)];
        match poll(&mut waiting, Some(&TICK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(Why::Ended),
            Err(errno) => return Err(failed(errno)),
        }
        if signals.is_stopped() {
            return Ok(Why::Stopped);
        }
        let is_alone = tick.is_multiple_of(NR_TICKS_ALIVE)
            && options.server.is_some_and(|server| server.pids().is_empty());
        if is_alone || options.limit.is_some_and(|limit| start.elapsed() > limit) {
            return Ok(Why::TooLong);
        }
    }
    unreachable!("a command of 27 years")
}

fn reap(leader: &Child) -> Result<(ExitStatus, libc::rusage), TimedRunError> {
    let Ok(pid) = i32::try_from(leader.id()) else {
        unreachable!("the kernel's process numbers fit")
    };
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both outlive the call.
    let reaped = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    if reaped != pid {
        return Err(failed("wait4")(io::Error::last_os_error()));
    }
    Ok((ExitStatus::from_raw(status), usage))
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}
