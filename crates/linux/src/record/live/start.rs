//! Starts a command and holds it before `execve` until tracing is attached.
//!
//! Until its execve, the child has copies of all the recorder's descriptors, including the pipe on
//! which it waits. It closes its copy of the write end, so the pipe ends with the recorder.
//! `Command::spawn` returns only after the execve, so a separate thread calls it.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread::JoinHandle;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::record::error::RecordError;
use crate::record::program::Program;
use crate::signals::{self, Signals};

#[derive(Debug)]
pub(super) struct Waiting {
    pid: u32,
    go: OwnedFd,
    spawned: JoinHandle<io::Result<Child>>,
}

pub(super) fn spawn(program: &Program, signals: &Signals) -> Result<Waiting, RecordError> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(RecordError::os("make a pipe"));
    let ((pid_reader, pid_writer), (wait, go)) = (pipe()?, pipe()?);
    let mut command = Command::new(&program.elf);
    let (zeroth, rest) = program.arguments.split_at(program.arguments.len().min(1));
    if let Some(zeroth) = zeroth.first() {
        command.arg0(zeroth);
    }
    command.args(rest);
    signals::hand_on(&mut command);
    let opener = go.as_raw_fd();
    let in_child = move || {
        // SAFETY: the child's copy of a descriptor that nothing else in the child uses.
        unsafe { libc::close(opener) };
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        rustix::io::write(&pid_writer, &pid.to_ne_bytes())?;
        // If the recorder died, the pipe ends and the program runs without it.
        rustix::io::read(&wait, &mut [0_u8])?;
        Ok(())
    };
    // SAFETY: the closure calls only close, getpid, write and read, which are async-signal-safe.
    unsafe { command.pre_exec(in_child) };
    let spawned = std::thread::spawn(move || command.spawn());
    let mut pid = [0; 4];
    match rustix::io::read(&pid_reader, &mut pid) {
        Ok(4) => Ok(Waiting { pid: u32::from_ne_bytes(pid), go, spawned }),
        _ => Err(not_started(signals)(failure(spawned))),
    }
}

/// Explains a failed start: a signal ended the waiting child, or the system's error.
fn not_started(signals: &Signals) -> impl Fn(io::Error) -> RecordError {
    |source| match signals.received() {
        Some(signal) => RecordError::Interrupted(signal),
        None => RecordError::Os { action: "start the program", source },
    }
}

fn failure(spawned: JoinHandle<io::Result<Child>>) -> io::Error {
    let result = spawned.join();
    result.ok().and_then(Result::err).unwrap_or_else(|| io::ErrorKind::Other.into())
}

impl Waiting {
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn go(self, signals: &Signals) -> Result<Child, RecordError> {
        let failed = not_started(signals);
        rustix::io::write(&self.go, &[1]).map_err(|error| failed(error.into()))?;
        let spawned = self.spawned.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        spawned.map_err(failed)
    }
}
