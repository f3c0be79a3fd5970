//! The program as a child process: passes signals on and waits for the program's end.
//!
//! Signals are taken one by one with sigtimedwait(2). A signal from the terminal also reaches the
//! child (same process group), so it is taken but not forwarded. A signal sent only to folio is
//! passed on. Terminal stops (SIGTSTP and others) are not handled: both processes stop and
//! continue.
//!
//! Invariants:
//! - C1: the child starts with the signal mask and dispositions that we inherited.
//! - C2: if this process is killed, so is the child, so a setting is never restored while it runs.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::ptr;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, getpid};

use super::sample::{Sampler, Samples, Sampling};
use crate::helpers;

/// Signals that are taken and passed on. SIGCHLD is only taken.
const PASSED: [i32; 7] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEnd {
    Code(u8),
    Signal(i32),
}

impl ChildEnd {
    fn of(status: ExitStatus) -> Self {
        match status.signal() {
            Some(signal) => Self::Signal(signal),
            // Exit codes have 8 bits.
            None => Self::Code(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(0)),
        }
    }
}

#[derive(Debug)]
pub(super) enum ChildError {
    Process(io::Error),
    Program(io::Error),
    Wait(io::Error),
}

pub(super) fn run(
    command: &mut Command,
    sampling: Sampling,
) -> Result<(ChildEnd, Samples), ChildError> {
    let is_sampled = sampling == Sampling::On;
    let mask = Mask::block().map_err(ChildError::Wait)?;
    let mut child = spawn(command, mask.earlier)?;
    let mut sampler = Sampler::new(child.id());
    loop {
        let rest = if is_sampled { sampler.rest() } else { Duration::from_secs(1) };
        let signal = mask.next(rest).map_err(ChildError::Wait)?;
        if let Some(status) = child.try_wait().map_err(ChildError::Wait)? {
            return Ok((ChildEnd::of(status), sampler.samples));
        }
        if let Some(signal) = signal {
            pass_on(&child, signal);
        }
        if is_sampled {
            sampler.sample();
        }
    }
}

/// Starts the child. std has the same error for a failed fork and a failed exec, and both can be
/// EPERM. The child therefore sends a byte when it exists.
fn spawn(command: &mut Command, earlier: libc::sigset_t) -> Result<Child, ChildError> {
    let parent = getpid();
    let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
    let (started, starting) = pipe_with(flags).map_err(|error| ChildError::Wait(error.into()))?;
    let in_child = move || {
        let _ = rustix::io::write(&starting, &[1]);
        prepare(&earlier, parent)
    };
    // SAFETY: the closure calls only write, sigprocmask, prctl and getppid, which are
    // async-signal-safe.
    unsafe { command.pre_exec(in_child) };
    command.spawn().map_err(|source| match rustix::io::read(&started, &mut [0_u8]) {
        Ok(1) => ChildError::Program(source),
        _ => ChildError::Process(source),
    })
}

/// Runs in the child: restores the mask, and ties its lifetime to its parent's.
fn prepare(earlier: &libc::sigset_t, parent: Pid) -> io::Result<()> {
    // SAFETY: the set was written by the kernel.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, earlier, ptr::null_mut()) };
    if helpers::end_with(parent) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
}

fn pass_on(child: &Child, signal: i32) {
    let Ok(pid) = i32::try_from(child.id()) else { return };
    // SAFETY: our own child, not reaped yet, so the PID is still its own.
    unsafe { libc::kill(pid, signal) };
}

struct Mask {
    earlier: libc::sigset_t,
    taken: libc::sigset_t,
}

impl Mask {
    fn block() -> io::Result<Self> {
        // SIGCHLD can be inherited as ignored, and the child could then not be waited for.
        default(libc::SIGCHLD)?;
        let signals: Vec<i32> = PASSED.into_iter().chain([libc::SIGCHLD]).collect();
        let taken = set_of(&signals);
        let mut earlier = set_of(&[]);
        // SAFETY: both point to whole sets.
        let result =
            unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const taken, &raw mut earlier) };
        if result == 0 { Ok(Self { earlier, taken }) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns the next signal to pass on, `None` after `rest` or for a signal that is not passed
    /// on.
    fn next(&self, rest: Duration) -> io::Result<Option<i32>> {
        let rest = libc::timespec {
            tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(rest.subsec_nanos()),
        };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set and the time are whole, and the kernel writes one siginfo.
        let signal = unsafe {
            libc::sigtimedwait(&raw const self.taken, info.as_mut_ptr(), &raw const rest)
        };
        if signal < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: zeroed before the call, and all its fields are plain numbers.
        let info = unsafe { info.assume_init() };
        // SI_USER and below: kill, tgkill, sigqueue. The terminal's signals are SI_KERNEL.
        let is_sent = signal != libc::SIGCHLD && info.si_code <= libc::SI_USER;
        Ok(is_sent.then_some(signal))
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: the set was written by the kernel.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.earlier, ptr::null_mut()) };
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is written whole.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for &signal in signals {
        // SAFETY: the set was made by sigemptyset.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: made by sigemptyset.
    unsafe { set.assume_init() }
}

fn default(signal: i32) -> io::Result<()> {
    // SAFETY: an all-zero sigaction is valid: default disposition, empty mask.
    let action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the action is whole, and the old one is not requested.
    let result = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ends this process by `signal`, as the program ended. Returns if the signal does not end it.
pub fn die_of(signal: i32) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // The program has written its core dump, which ours would overwrite. SAFETY: the limit is
    // whole.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    let _ = default(signal);
    let set = set_of(&[signal]);
    // SAFETY: the set is whole.
    unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut()) };
    // SAFETY: raises a signal in this process to end it.
    unsafe { libc::raise(signal) };
}
