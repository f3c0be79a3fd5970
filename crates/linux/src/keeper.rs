//! Processes that put something back, or end something, when this one ends, however it does.
//!
//! ```text
//!   folio ---- pipe ----> keeper: reads until the pipe ends, then does its part
//!     | drop, error, SIGKILL, also of the whole control group: the pipe ends in each case
//! ```
//!
//! Owns such a process. It is a shell in a process group of its own, which signals of a terminal do not
//! reach, and in the root control group, where this process may move it there. It waits by a command of
//! the shell itself: nothing else need be installed.
//!
//! Invariant K1: a keeper that could be started waits already, and ignores what ends its parent.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::helpers::{self, Own};
use crate::proc::cgroup;

/// Says that it waits, and waits for the end of its input.
const WAIT: &str = "trap '' INT TERM HUP; echo; while read -r line; do :; done; ";

/// The process; dropping this ends it after it did its part.
#[derive(Debug)]
pub(crate) struct Keeper {
    child: Child,
    pipe: Option<ChildStdin>,
    _own: Own,
}

impl Keeper {
    /// Starts one that runs `part`, a script with the arguments `args`. It holds `held` until then, as
    /// its descriptor 2.
    pub(crate) fn start(part: &str, args: &[&OsStr], held: impl Into<Stdio>) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command
            // The name is none that somebody looks for who ends all of folio.
            .args(["-c", &[WAIT, part].concat(), "keeper"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(held)
            .process_group(0);
        let (mut child, own) = helpers::spawn(&mut command)?;
        // What kills the whole group of this process leaves the keeper.
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
        Err(io::Error::other("/bin/sh ended at once"))
    }

    /// The process, which leads a group of this number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, so that it does not do its part.
    #[cfg(test)]
    pub(crate) fn kill(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    /// Has it do its part now, and waits for that.
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
