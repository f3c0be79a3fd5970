//! A command that waits before its execve until it is followed.
//!
//! Owns the child until then. `Command::spawn` returns after the execve, so it is called in a thread
//! of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread::JoinHandle;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::record::error::RecordError;
use crate::record::program::Program;
use crate::signals;

/// A child before its execve.
#[derive(Debug)]
pub(super) struct Waiting {
    pid: u32,
    go: OwnedFd,
    spawned: JoinHandle<io::Result<Child>>,
}

/// Starts it.
pub(super) fn spawn(program: &Program) -> Result<Waiting, RecordError> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(RecordError::os("make a pipe"));
    let ((told, tell), (wait, go)) = (pipe()?, pipe()?);
    let mut command = Command::new(&program.elf);
    let (zeroth, rest) = program.arguments.split_at(program.arguments.len().min(1));
    if let Some(zeroth) = zeroth.first() {
        command.arg0(zeroth);
    }
    command.args(rest);
    signals::hand_on(&mut command);
    let in_child = move || {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        rustix::io::write(&tell, &pid.to_ne_bytes())?;
        // If the recorder died the pipe is at its end, and the program runs without it.
        rustix::io::read(&wait, &mut [0_u8])?;
        Ok(())
    };
    // SAFETY: the closure calls only getpid, write and read, which are async-signal-safe.
    unsafe { command.pre_exec(in_child) };
    let spawned = std::thread::spawn(move || command.spawn());
    let mut pid = [0; 4];
    match rustix::io::read(&told, &mut pid) {
        Ok(4) => Ok(Waiting { pid: u32::from_ne_bytes(pid), go, spawned }),
        _ => Err(RecordError::Os { action: "start the program", source: failure(spawned) }),
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

    /// Lets it go.
    pub(super) fn go(self) -> Result<Child, RecordError> {
        rustix::io::write(&self.go, &[1]).map_err(RecordError::os("start the program"))?;
        let spawned = self.spawned.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        spawned.map_err(RecordError::os("start the program"))
    }
}
