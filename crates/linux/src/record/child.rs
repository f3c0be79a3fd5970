//! The recorded program as a child process: forwards signals to it and waits for it.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::error::RecordError;
use super::finish::ended_of;
use super::outcome::{Progress, RecordEnd, Unrecorded};
use crate::signals::Signals;

const TICK: Duration = Duration::from_millis(50);

/// Forwards signals sent to this process alone. The child has not been waited for yet.
pub(super) fn pass_on(child: &Child, signals: &Signals) {
    if let Some(signal) = signals.take().and_then(Signal::from_named_raw) {
        // The program may have ended in the meantime.
        let _ = kill_process(Pid::from_child(child), signal);
    }
}

pub(super) fn pause(pidfd: Option<&OwnedFd>, tick: Duration) -> Result<(), RecordError> {
    let timeout = Timespec { tv_sec: 0, tv_nsec: tick.subsec_nanos().into() };
    let mut fds: Vec<PollFd<'_>> =
        pidfd.map(|fd| PollFd::new(fd, PollFlags::IN)).into_iter().collect();
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(RecordError::os("wait for the program")(error)),
    }
}

pub(super) fn wait_for(child: &mut Child, signals: &Signals) -> Result<RecordEnd, RecordError> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok();
    loop {
        if let Some(status) = child.try_wait().map_err(RecordError::os("wait for the program"))? {
            return Ok(ended_of(status));
        }
        pass_on(child, signals);
        pause(pidfd.as_ref(), TICK)?;
    }
}

/// Reports `error` immediately if the program still runs, and waits for the program to end.
pub(super) fn wait_unrecorded(
    error: &RecordError,
    child: &mut Child,
    signals: &Signals,
    started: Instant,
    progress: &mut dyn FnMut(Progress),
) {
    if matches!(child.try_wait(), Ok(None)) {
        let unrecorded = Some(Unrecorded::Lost(error.to_string()));
        progress(Progress { elapsed: started.elapsed(), unrecorded, ..Progress::default() });
    }
    // The error has been reported.
    let _ = wait_for(child, signals);
}
