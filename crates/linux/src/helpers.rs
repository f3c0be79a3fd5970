//! Children that this process starts itself, told apart from orphans that it adopts.
//!
//! Owns the set of the former. A keeper of a setting has a process group of its own, and so may an orphan
//! of a command (timeout(1) and job control of shells make one): only the set tells which may be ended.
//!
//! Also owns how a waiting child ends with its parent. Until its execve a child holds copies of all
//! descriptors, among them the pipes of keepers.
//!
//! Invariant H1: nobody sees a child of [`spawn`] before it is in the set.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::proc::Task;
use crate::proc::stat::Stat;
use crate::system::Live;

static OWN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// The number of a child in the set; dropped when the child was waited for.
#[derive(Debug)]
pub(crate) struct Own(u32);

impl Own {
    pub(crate) const fn pid(&self) -> u32 {
        self.0
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        OWN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Starts `command`.
pub(crate) fn spawn(command: &mut Command) -> io::Result<(Child, Own)> {
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn()?;
    own.insert(child.id());
    let pid = Own(child.id());
    Ok((child, pid))
}

/// In a child after fork: it is killed when the thread that made it ends. `false` if that has happened
/// already. Two system calls, which are async-signal-safe.
pub(crate) fn end_with(parent: Pid) -> bool {
    // It fails only for an invalid signal.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    getppid() == Some(parent)
}

/// Takes [`end_with`] back.
pub(crate) fn end_alone() {
    // As above.
    let _ = set_parent_process_death_signal(None);
}

/// Children outside of this process's group that [`spawn`] did not start.
pub(crate) fn adopted() -> Vec<(u32, Stat)> {
    let this = Task::own(&Live);
    let Some(group) = this.stat().map(|stat| stat.group) else { return Vec::new() };
    let own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let others = this.children().into_iter().filter(|pid| !own.contains(pid));
    let with_stat = others.filter_map(|pid| Some((pid, Task::of(&Live, pid).stat()?)));
    with_stat.filter(|(_, stat)| stat.group != group).collect()
}
