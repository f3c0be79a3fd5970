//! Keeper processes: they restore or end something when this process ends, even if SIGKILL ends it.
//!
//! ```text
//!   folio ---- pipe ----> keeper: reads until the pipe ends, then does its part
//!     | drop, error, SIGKILL even of the whole cgroup: the pipe always ends
//! ```
//!
//! A keeper is a shell in its own process group, which terminal signals do not reach, and in the
//! root cgroup if this process may move it there. It waits with a shell builtin.
//!
//! Invariant K1: once a keeper is started, it is waiting and ignores the signals that end its
//! parent.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::helpers::{self, Own};
use crate::proc::cgroup;

/// Reports that it is ready, then waits for the end of its input.
const WAIT: &str = "trap '' INT TERM HUP; echo; while read -r line; do :; done; ";

/// The process. Dropping this ends it after its part.
#[derive(Debug)]
pub(crate) struct Keeper {
    child: Child,
    pipe: Option<ChildStdin>,
    _own: Own,
}

impl Keeper {
    /// Starts a keeper for `part`, a script with the arguments `args`. Until the script is done,
    /// the keeper holds `held` as its descriptor 2.
    pub(crate) fn start(part: &str, args: &[&OsStr], held: impl Into<Stdio>) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command
            // `pkill folio` must not match the keeper.
            .args(["-c", &[WAIT, part].concat(), "keeper"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(held)
            .process_group(0);
        let (mut child, own) = helpers::spawn(&mut command)?;
        // Killing this process's whole cgroup must not kill the keeper.
        cgroup::leave(child.id());
        let pipe = child.stdin.take();
        let output = child.stdout.take();
        let mut keeper = Self { child, pipe, _own: own };
        let mut ready = [0];
        let waits = output.is_some_and(|mut output| output.read_exact(&mut ready).is_ok());
        if waits {
            return Ok(keeper);
        }
        keeper.end();
        Err(io::Error::other("/bin/sh exited immediately"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    #[cfg(test)]
    pub(crate) fn kill(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    pub(crate) fn end(&mut self) {
        drop(self.pipe.take());
        let _ = self.child.wait();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}
