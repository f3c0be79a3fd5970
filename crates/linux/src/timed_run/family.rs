//! The processes of a started command, tracked so that all of them end.
//!
//! ```text
//!   folio ---- pipe ----> guard, a keeper: when the pipe ends, kills cgroup and process group
//!     |                     | process group
//!     +----- starts ----> command and its children
//!     +----- adopts ----> orphans, such as a daemon (PR_SET_CHILD_SUBREAPER)
//! ```
//!
//! A server also has a cgroup (version 2) if one can be made. Without it, a daemon outlives folio's
//! own SIGKILL.
//!
//! Invariant G1: only the command's descendants are signalled. An adopted child is a descendant,
//! regardless of its group: [`helpers`] lists the children that folio itself starts. If a server is
//! also running, an orphan that left the load's group belongs to the server.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::{TimedRunError, failed};
use crate::census;
use crate::helpers::{self, Own};
use crate::keeper::Keeper;
use crate::proc::stat::tree;
use crate::proc::{Task, cgroup};
use crate::system::Live;

/// The guard's script. The guard leads the process group, so the group's id cannot be reused. `$1`
/// is the cgroup, or empty.
const GUARD: &str = "if [ -n \"$1\" ]; then \
    echo 1 >\"$1/cgroup.kill\"; i=0; \
    while [ $i -lt 100 ] && ! rmdir \"$1\" 2>/dev/null; do i=$((i+1)); sleep 0.05; done; fi; \
    kill -s KILL -- -$$";

/// Time limit for killed processes to disappear, which takes until their memory is freed.
const PATIENCE: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(5);

/// Time for orphans to end by themselves before they count as left running.
const GRACE: Duration = Duration::from_millis(20);

/// The processes of one command. Dropping it kills them.
pub(crate) struct Family {
    guard: Keeper,
    cgroup: Option<PathBuf>,
    leader: Option<Own>,
    has_daemons: bool,
}

impl Family {
    pub(crate) fn start(cgroup: Option<PathBuf>) -> Result<Self, TimedRunError> {
        let group = cgroup.as_deref().map_or_else(|| OsStr::new(""), Path::as_os_str);
        let guard = Keeper::start(GUARD, &[group], Stdio::null())
            .map_err(failed("starting the process that ends a command's children"))?;
        Ok(Self { guard, cgroup, leader: None, has_daemons: true })
    }

    pub(crate) fn group(&self) -> i32 {
        let Ok(group) = i32::try_from(self.guard.pid()) else {
            unreachable!("the kernel's process numbers fit")
        };
        group
    }

    /// Sets the command's process. If it did not get into the cgroup, it is tracked without.
    pub(crate) fn is_led_by(&mut self, leader: Own) {
        let pid = leader.pid();
        self.leader = Some(leader);
        if !self.in_cgroup().contains(&pid) && is_alive(pid) {
            self.cgroup.take().iter().for_each(|group| remove(group));
        }
    }

    pub(crate) fn has_no_leader(&mut self) {
        self.leader = None;
    }

    /// A server runs too and can turn into a daemon at any time.
    pub(crate) fn is_beside_a_server(&mut self) {
        self.has_daemons = false;
    }

    /// Returns user and kernel CPU time and page faults so far. Without a cgroup this covers the
    /// live processes and the children they waited for.
    pub(crate) fn usage(&self) -> ([Duration; 2], u64) {
        let stats = self.pids().into_iter().filter_map(|pid| Task::of(&Live, pid).stat());
        let (mut user, mut system, mut faults) = (0_u64, 0_u64, 0_u64);
        for stat in stats {
            user = user.saturating_add(stat.user_ticks);
            system = system.saturating_add(stat.system_ticks);
            faults = faults.saturating_add(stat.nr_minor_faults);
        }
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let time = |nr: u64| Duration::from_millis(nr.saturating_mul(1000) / ticks);
        let of_group = self.cgroup.as_ref().and_then(|group| cgroup::cpu(&Live, group));
        (of_group.unwrap_or_else(|| [time(user), time(system)]), faults)
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        let mut all: BTreeSet<u32> = self.in_cgroup().into_iter().collect();
        all.extend(self.heads().flat_map(|head| tree(&Live, head)));
        all.into_iter().filter(|pid| is_alive(*pid)).collect()
    }

    fn heads(&self) -> impl Iterator<Item = u32> {
        self.leader.as_ref().map(Own::pid).into_iter().chain(self.adopted())
    }

    pub(crate) fn left_running(&self) -> Option<String> {
        let alive = || self.pids().into_iter().next();
        alive()?;
        thread::sleep(GRACE);
        Some(Task::of(&Live, alive()?).comm())
    }

    /// Sends SIGTERM to the process group, the command and adopted children, once each. `told`
    /// lists those already signalled.
    pub(crate) fn terminate(&self, signalled: &mut BTreeSet<i32>) {
        let all = [-self.group()].into_iter().chain(self.outside(self.heads()));
        for pid in all.filter(|pid| signalled.insert(*pid)) {
            send(pid, libc::SIGTERM);
        }
    }

    fn outside(&self, pids: impl Iterator<Item = u32>) -> impl Iterator<Item = i32> {
        let has_left = |pid: &u32| {
            let stat = Task::of(&Live, *pid).stat();
            stat.is_some_and(|stat| stat.group != self.group() && stat.is_alive())
        };
        pids.filter(has_left).filter_map(|pid| i32::try_from(pid).ok())
    }

    pub(crate) fn kill(&self) {
        if let Some(group) = &self.cgroup {
            let _ = fs::write(group.join("cgroup.kill"), "1");
        }
        send(-self.group(), libc::SIGKILL);
        self.outside(self.pids().into_iter()).for_each(|pid| send(pid, libc::SIGKILL));
    }

    /// Kills all and reaps all except the command. Returns false if one did not end in time.
    pub(crate) fn end(&self) -> bool {
        let start = Instant::now();
        loop {
            self.kill();
            // A process hands its children to us before it counts as ended.
            let is_over = self.pids().is_empty();
            let adopted = self.adopted();
            for pid in &adopted {
                reap(*pid);
            }
            if is_over && adopted.is_empty() {
                break true;
            }
            if start.elapsed() > PATIENCE {
                break false;
            }
            thread::sleep(PAUSE);
        }
    }

    fn in_cgroup(&self) -> Vec<u32> {
        let group = self.cgroup.as_ref();
        group.and_then(|group| census::cgroup::pids(&Live, group).ok()).unwrap_or_default()
    }

    /// Returns this process's children that descend from the command (G1).
    fn adopted(&self) -> Vec<u32> {
        let group = self.group();
        let all = helpers::adopted().into_iter();
        all.filter(|(_, stat)| self.has_daemons || stat.group == group)
            .map(|(pid, _)| pid)
            .collect()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.end();
        self.guard.end();
        self.cgroup.take().iter().for_each(|group| remove(group));
    }
}

/// Signals a process that was just alive, or the guard's group. Neither PID can be reused: the
/// guard is not reaped, and the kernel assigns PIDs in a circle.
fn send(pid: i32, signal: i32) {
    // SAFETY: sends a signal and touches no memory.
    unsafe { libc::kill(pid, signal) };
}

fn is_alive(pid: u32) -> bool {
    Task::of(&Live, pid).stat().is_some_and(|stat| stat.is_alive())
}

fn reap(pid: u32) {
    let Ok(pid) = i32::try_from(pid) else { return };
    let mut status = 0;
    // SAFETY: `status` outlives the call; the child is adopted, no `Child` waits for it.
    unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
}

/// Removes an empty cgroup. The kernel needs a moment after its last process.
pub(crate) fn remove(group: &Path) {
    let start = Instant::now();
    while fs::remove_dir(group).is_err() && group.exists() && start.elapsed() < PATIENCE {
        thread::sleep(PAUSE);
    }
}

/// Makes a cgroup below this process's, and opens its `cgroup.procs`. Returns `None` if that fails.
pub(crate) fn new_cgroup() -> Option<(PathBuf, File)> {
    static NR: AtomicU32 = AtomicU32::new(0);
    let name = format!("folio-verify-{}-{}", std::process::id(), NR.fetch_add(1, Relaxed));
    let group = cgroup::own(&Live)?.join(name);
    fs::create_dir(&group).ok()?;
    let has_all = group.join("cgroup.kill").exists() && cgroup::cpu(&Live, &group).is_some();
    let procs = OpenOptions::new().write(true).open(group.join("cgroup.procs"));
    if let Some(procs) = procs.ok().filter(|_| has_all) {
        return Some((group, procs));
    }
    remove(&group);
    None
}

pub(crate) fn join(command: &mut Command, mut procs: File) {
    let enter = move || -> io::Result<()> {
        let _ = procs.write(b"0");
        Ok(())
    };
    // SAFETY: between fork and exec only write(2) is called, which is async-signal-safe.
    unsafe { command.pre_exec(enter) };
}

/// While this exists, the commands' orphans become children of this process.
#[derive(Debug)]
pub(crate) struct Adoption;

impl Adoption {
    pub(crate) fn start() -> Self {
        subreaper(1);
        Self
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        subreaper(0);
    }
}

fn subreaper(on: libc::c_ulong) {
    // SAFETY: sets a flag of this process. It cannot fail since Linux 3.4.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, on, 0, 0, 0) };
}
