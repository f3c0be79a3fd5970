//! Our own tracefs instance.
//!
//! The caller owns the enabled events. Does not touch other instances or the global buffer, and
//! uses a private mount, so tracefs need not be mounted anywhere.
//!
//! Invariant T1: dropping the value or killing this process removes the instance. If its
//! [keeper](crate::keeper) was also killed, the next process that makes an instance removes it.

pub(crate) mod format;
pub(crate) mod page;
pub(crate) mod rings;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

use crate::keeper::Keeper;
use crate::mount::Detached;
use crate::proc::{Task, host};
use crate::system::Live;

const PREFIX: &str = "folio-";

/// The keeper's script: `$1` is an instance in the directory that it holds. It cannot be removed
/// while a file in it is open, and a killed process's children can end a little later.
const REMOVE: &str = "cd /proc/self/fd/2 && [ -d \"$1\" ] || exit; echo 0 >\"$1\"/tracing_on; i=0; \
    until rmdir \"$1\" || [ $i -eq 100 ]; do i=$((i+1)); sleep 0.05; done";

/// Returns the time of the trace clock `mono`.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let number = |value: i64| u64::try_from(value).unwrap_or(0);
    number(now.tv_sec) * 1_000_000_000 + number(now.tv_nsec)
}

#[derive(Debug)]
pub enum TracefsError {
    NotPermitted,
    Missing,
    PidNamespace,
    Instance(io::Error),
}

#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
    _keeper: Keeper,
    tracefs: Detached,
}

impl Instance {
    /// Makes an instance, after removing those of processes that are gone.
    pub fn new(purpose: &str) -> Result<Self, TracefsError> {
        if !host::has_pids_of_machine() {
            return Err(TracefsError::PidNamespace);
        }
        let tracefs = Detached::new("tracefs", None).map_err(|error| refused(&error))?;
        let instances = tracefs.path().join("instances");
        remove_stale(&instances);
        let name = format!("{PREFIX}{purpose}-{}", std::process::id());
        let path = instances.join(&name);
        let held = File::open(&instances).map_err(TracefsError::Instance)?;
        let keeper = Keeper::start(REMOVE, &[OsStr::new(&name)], held);
        let keeper = keeper.map_err(TracefsError::Instance)?;
        fs::create_dir(&path).map_err(TracefsError::Instance)?;
        Ok(Self { path, _keeper: keeper, tracefs })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn has(&self, event: &str) -> bool {
        self.path.join("events").join(event).is_dir()
    }

    pub fn set(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.path.join(name), value)
    }

    /// Returns the name of a thread that had an event recently, even if it has ended. The thread
    /// chooses it.
    #[must_use]
    pub fn comm_of(&self, tid: u32) -> Option<String> {
        let text = crate::system::read(&self.tracefs.path().join("saved_cmdlines")).ok()?;
        comm_in(&text, tid)
    }

    #[must_use]
    pub fn nr_lost(&self) -> u64 {
        let Ok(cpus) = fs::read_dir(self.path.join("per_cpu")) else { return 0 };
        let stats = cpus.flatten().map(|cpu| cpu.path().join("stats"));
        let stats = stats.filter_map(|path| fs::read_to_string(path).ok());
        stats.flat_map(|text| text.lines().filter_map(lost_of).collect::<Vec<_>>()).sum()
    }
}

/// Finds a line of `saved_cmdlines`: a thread's id and name. `<...>` is an unknown name.
fn comm_in(text: &[u8], tid: u32) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    let (_, name) = pairs.find(|(id, _)| id.parse() == Ok(tid))?;
    (name != "<...>").then(|| name.to_owned())
}

fn lost_of(line: &str) -> Option<u64> {
    let (key, value) = line.split_once(": ")?;
    let is_loss = matches!(key, "overrun" | "commit overrun" | "dropped events");
    if is_loss { value.trim().parse().ok() } else { None }
}

fn refused(error: &io::Error) -> TracefsError {
    if error.kind() == io::ErrorKind::PermissionDenied {
        TracefsError::NotPermitted
    } else {
        TracefsError::Missing
    }
}

/// Removes the instances of killed processes. One that cannot be removed is in use.
fn remove_stale(instances: &Path) {
    let Ok(entries) = fs::read_dir(instances) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.rsplit_once('-'));
        let Some((_, pid)) = ours else { continue };
        if pid.parse::<u32>().is_ok() && !Task::of(&Live, pid).exists() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_name_is_that_of_the_thread() {
        let text = b"7 a b\n70 \xff\n8 <...>\nx\n";
        assert_eq!(comm_in(text, 7).as_deref(), Some("a b"));
        assert_eq!(comm_in(text, 70).as_deref(), Some("\u{fffd}"));
        assert_eq!((comm_in(text, 8), comm_in(text, 9)), (None, None));
    }
}
