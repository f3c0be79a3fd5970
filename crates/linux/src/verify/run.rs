//! One timed run of a command: wall, user and system time, faults.
//!
//! The command runs in the process group of a guard. When it has ended, whatever is left of the group
//! is killed; should this process be killed, the guard does it.
//!
//! ```text
//!   folio ---- pipe ----> guard: reads until the pipe ends, then kills its group
//!     |                     | process group
//!     +----- starts ----> command, and what it starts
//! ```

use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::VerifyError;
use crate::signals::Signals;

/// What the guard runs: it leads the group, so that the group's number cannot become another's.
const GUARD: &str = "trap '' INT TERM HUP; cat >/dev/null; kill -s KILL -- -$$";

/// Pause before the clock starts: the guard and what an arm's preparation started have come to rest, and
/// both arms start on a machine that did nothing for as long.
const SETTLE: Duration = Duration::from_millis(20);

/// What one run took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// From start to end.
    pub wall: Duration,
    /// CPU time in user mode, of the command and the children it waited for.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Page faults served without reading.
    pub nr_minor_faults: u64,
    /// Page faults that waited for a read.
    pub nr_major_faults: u64,
}

/// How a run ended.
#[derive(Debug)]
pub enum Ended {
    /// With success.
    Well(Sample),
    /// With another exit code, or by a signal.
    Badly(ExitStatus),
    /// This process was asked to end; the command was killed.
    Stopped,
}

/// Runs `command` to its end.
///
/// # Errors
/// It cannot be started or waited for.
pub fn timed(mut command: Command, signals: &Watch) -> Result<Ended, VerifyError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let guard = Guard::start()?;
    command.stdin(Stdio::null()).process_group(guard.group());
    thread::sleep(SETTLE);
    let start = Instant::now();
    let leader = command.spawn().map_err(|source| VerifyError::Start {
        command: name,
        remedy: match source.kind() {
            io::ErrorKind::NotFound => "; is it installed, and is the path right?",
            io::ErrorKind::PermissionDenied => "; is it executable? (chmod +x)",
            _ => "",
        },
        source,
    })?;
    let running = Running { leader, guard };
    let stopped = running.wait_for_end(signals)?;
    let wall = start.elapsed();
    let (status, usage) = running.reap()?;
    if stopped {
        return Ok(Ended::Stopped);
    }
    if !status.success() {
        return Ok(Ended::Badly(status));
    }
    Ok(Ended::Well(Sample {
        wall,
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        nr_minor_faults: usage.ru_minflt.try_into().unwrap_or(0),
        nr_major_faults: usage.ru_majflt.try_into().unwrap_or(0),
    }))
}

/// `exited with 1`, `was killed by signal 11`.
pub(crate) fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (_, Some(signal)) => format!("was killed by signal {signal}"),
        _ => "ended badly".to_owned(),
    }
}

/// Signals that end the rounds instead of this process.
#[derive(Debug)]
pub struct Watch(Signals);

impl Watch {
    /// From now on until the result is dropped.
    ///
    /// # Errors
    /// When handlers cannot be put in place.
    pub fn start() -> Result<Self, VerifyError> {
        Signals::watch().map(Self).map_err(failed("sigaction"))
    }

    /// The one that came; 0 for none.
    pub(crate) fn signal(&self) -> i32 {
        self.0.seen().unwrap_or(0)
    }

    /// Whether one came.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.seen().is_some()
    }
}

/// The leader of the command's process group; dropping it kills the group.
struct Guard {
    shell: Child,
    _pipe: Option<ChildStdin>,
}

impl Guard {
    fn start() -> Result<Self, VerifyError> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", GUARD])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed("starting the process that ends a command's children"))?;
        let pipe = shell.stdin.take();
        Ok(Self { shell, _pipe: pipe })
    }

    fn group(&self) -> i32 {
        let Ok(group) = i32::try_from(self.shell.id()) else {
            unreachable!("the kernel's process numbers fit")
        };
        group
    }

    /// Kills the group. The guard is not reaped yet: the number is still its own.
    fn kill(&self) {
        // SAFETY: sends a signal, touches no memory.
        unsafe { libc::kill(-self.group(), libc::SIGKILL) };
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.kill();
        let _ = self.shell.wait();
    }
}

/// A command that was started.
struct Running {
    leader: Child,
    guard: Guard,
}

impl Running {
    /// Waits until the leader has ended, without reaping it; true when a signal came instead.
    fn wait_for_end(&self, signals: &Watch) -> Result<bool, VerifyError> {
        loop {
            // SAFETY: an all-zero siginfo is valid.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let flags = libc::WEXITED | libc::WNOWAIT;
            // SAFETY: `info` outlives the call; the leader is a child that nobody has reaped.
            let result =
                unsafe { libc::waitid(libc::P_PID, self.leader.id(), &raw mut info, flags) };
            if result == 0 {
                return Ok(false);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(failed("waitid")(error));
            }
            if signals.is_stopped() {
                self.guard.kill();
                return Ok(true);
            }
        }
    }

    /// Ends what is left of the group and says how the command ended and what it used.
    fn reap(self) -> Result<(ExitStatus, libc::rusage), VerifyError> {
        self.guard.kill();
        let Ok(pid) = i32::try_from(self.leader.id()) else {
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
}

fn failed(call: &'static str) -> impl FnOnce(io::Error) -> VerifyError {
    move |source| VerifyError::Call { call, source }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}
