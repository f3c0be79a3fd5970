//! Child processes that folio starts itself, as opposed to orphans that it adopts.
//!
//! A setting's keeper has its own process group, but so can a command's orphan (through timeout(1)
//! or a shell's job control). Only this set shows which processes may be ended. This module also
//! makes a waiting child end with its parent, because the child holds copies of the keepers' pipes
//! until its execve.
//!
//! Invariant H1: a child of [`spawn`] is visible only once it is in the set.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::proc::Task;
use crate::proc::stat::Stat;
use crate::system::Live;

static OWN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// The PID of a child in the set. Dropped after the child was waited for.
#[derive(Debug)]
pub struct Own(u32);

impl Own {
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.0
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        OWN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

pub fn spawn(command: &mut Command) -> io::Result<(Child, Own)> {
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn()?;
    own.insert(child.id());
    let pid = Own(child.id());
    Ok((child, pid))
}

/// Called in a child after fork: kills it when its parent thread ends. Returns `false` if that has
/// already happened. Makes two system calls, which are async-signal-safe.
#[must_use]
pub fn end_with(parent: Pid) -> bool {
    // It fails only for an invalid signal.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    getppid() == Some(parent)
}

/// Reverts [`end_with`].
pub fn end_alone() {
    let _ = set_parent_process_death_signal(None);
}

/// Returns the children outside of this process's group that [`spawn`] did not start.
pub(crate) fn adopted() -> Vec<(u32, Stat)> {
    let this = Task::own(&Live);
    let Some(group) = this.stat().map(|stat| stat.group) else { return Vec::new() };
    let own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let others = this.children().into_iter().filter(|pid| !own.contains(pid));
    let with_stat = others.filter_map(|pid| Some((pid, Task::of(&Live, pid).stat()?)));
    with_stat.filter(|(_, stat)| stat.group != group).collect()
}
