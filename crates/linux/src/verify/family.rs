//! The processes of a started command, so that none of them is left.
//!
//! ```text
//!   folio ---- pipe ----> guard, a keeper: when the pipe ends, kills control and process group
//!     |                     | process group
//!     +----- starts ----> command, and what it starts
//!     +----- adopts ----> what lost its parent, such as a daemon (PR_SET_CHILD_SUBREAPER)
//! ```
//!
//! Owns the process group, the control group of a server (version 2, where one can be made) and the
//! search for processes that left both. Without a control group a daemon outlives folio's own SIGKILL.
//!
//! Invariant G1: only processes that descend from the command are signalled. An adopted child is one,
//! whatever its group: [`helpers`] knows what folio itself starts. Beside a server an orphan that left the
//! load's group is the server's.

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

use super::{VerifyError, failed};
use crate::census;
use crate::helpers::{self, Own};
use crate::keeper::Keeper;
use crate::proc::stat::tree;
use crate::proc::{Task, cgroup};
use crate::system::Live;

/// What the guard runs: it leads the group, so that the group's number cannot become another's. `$1`
/// is the control group, or empty.
const GUARD: &str = "if [ -n \"$1\" ]; then \
    echo 1 >\"$1/cgroup.kill\"; i=0; \
    while [ $i -lt 100 ] && ! rmdir \"$1\" 2>/dev/null; do i=$((i+1)); sleep 0.05; done; fi; \
    kill -s KILL -- -$$";

/// How long killed processes may take to be gone: until then memory is given back.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pause between two looks at processes that end.
const PAUSE: Duration = Duration::from_millis(5);

/// How long what has lost its parent may take to end by itself, before it counts as left running.
const GRACE: Duration = Duration::from_millis(20);

/// The processes of one command; dropping it kills them.
pub(super) struct Family {
    guard: Keeper,
    cgroup: Option<PathBuf>,
    leader: Option<Own>,
    /// Whether orphans that left the group are this command's.
    has_daemons: bool,
}

impl Family {
    /// A family without members; `cgroup` is the control group of the command.
    pub(super) fn start(cgroup: Option<PathBuf>) -> Result<Self, VerifyError> {
        let group = cgroup.as_deref().map_or_else(|| OsStr::new(""), Path::as_os_str);
        let guard = Keeper::start(GUARD, &[group], Stdio::null())
            .map_err(failed("starting the process that ends a command's children"))?;
        Ok(Self { guard, cgroup, leader: None, has_daemons: true })
    }

    /// The process group of the command.
    pub(super) fn group(&self) -> i32 {
        let Ok(group) = i32::try_from(self.guard.pid()) else {
            unreachable!("the kernel's process numbers fit")
        };
        group
    }

    /// The command is this process. One that did not get into the control group is followed without.
    pub(super) fn is_led_by(&mut self, leader: Own) {
        let pid = leader.pid();
        self.leader = Some(leader);
        if !self.in_cgroup().contains(&pid) && is_alive(pid) {
            self.cgroup.take().iter().for_each(|group| remove(group));
        }
    }

    /// The command itself was reaped: its number may become another's.
    pub(super) fn has_no_leader(&mut self) {
        self.leader = None;
    }

    /// A server runs beside it, which may turn into a daemon at any time.
    pub(super) fn is_beside_a_server(&mut self) {
        self.has_daemons = false;
    }

    /// CPU time in user mode and in the kernel, and page faults, so far; without a control group of the
    /// processes that live and of those they waited for.
    pub(super) fn usage(&self) -> ([Duration; 2], u64) {
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

    /// The processes that live, ascending.
    pub(super) fn pids(&self) -> Vec<u32> {
        let mut all: BTreeSet<u32> = self.in_cgroup().into_iter().collect();
        all.extend(self.heads().flat_map(|head| tree(&Live, head)));
        all.into_iter().filter(|pid| is_alive(*pid)).collect()
    }

    /// The command itself, and children of this process that descend from it.
    fn heads(&self) -> impl Iterator<Item = u32> {
        self.leader.as_ref().map(Own::pid).into_iter().chain(self.adopted())
    }

    /// What goes on though the command itself has ended: a name.
    pub(super) fn left_running(&self) -> Option<String> {
        let alive = || self.pids().into_iter().next();
        alive()?;
        thread::sleep(GRACE);
        Some(Task::of(&Live, alive()?).comm())
    }

    /// Tells the process group, the command and adopted children to end, each once; `told` are those
    /// that know.
    pub(super) fn terminate(&self, told: &mut BTreeSet<i32>) {
        let all = [-self.group()].into_iter().chain(self.outside(self.heads()));
        for pid in all.filter(|pid| told.insert(*pid)) {
            send(pid, libc::SIGTERM);
        }
    }

    /// Those of `pids` that live and are not in the process group.
    fn outside(&self, pids: impl Iterator<Item = u32>) -> impl Iterator<Item = i32> {
        let has_left = |pid: &u32| {
            let stat = Task::of(&Live, *pid).stat();
            stat.is_some_and(|stat| stat.group != self.group() && stat.is_alive())
        };
        pids.filter(has_left).filter_map(|pid| i32::try_from(pid).ok())
    }

    /// Kills all of them; the command and the guard stay to be reaped.
    pub(super) fn kill(&self) {
        if let Some(group) = &self.cgroup {
            let _ = fs::write(group.join("cgroup.kill"), "1");
        }
        send(-self.group(), libc::SIGKILL);
        self.outside(self.pids().into_iter()).for_each(|pid| send(pid, libc::SIGKILL));
    }

    /// Kills and reaps all, the command itself excepted; false where one did not end in time.
    pub(super) fn end(&self) -> bool {
        let start = Instant::now();
        loop {
            self.kill();
            // One that ends has handed its children to us before it counts as ended.
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

    /// Children of this process that descend from the command (G1).
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

/// To a process that lived just now, or to the guard's group: the guard is not reaped, and numbers are
/// given out in a circle.
fn send(pid: i32, signal: i32) {
    // SAFETY: sends a signal, touches no memory.
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

/// Removes an empty control group; the kernel needs a moment after its last process.
pub(crate) fn remove(group: &Path) {
    let start = Instant::now();
    while fs::remove_dir(group).is_err() && group.exists() && start.elapsed() < PATIENCE {
        thread::sleep(PAUSE);
    }
}

/// A control group below that of this process, and the file that takes its processes; `None` where
/// none can be made.
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

/// Starts `command` in a control group. Where the kernel refuses, it is in none.
pub(crate) fn join(command: &mut Command, mut procs: File) {
    let enter = move || -> io::Result<()> {
        let _ = procs.write(b"0");
        Ok(())
    };
    // SAFETY: between fork and exec only write(2) is called, which is async-signal-safe.
    unsafe { command.pre_exec(enter) };
}

/// Orphans of the commands become children of this process while it lives.
#[derive(Debug)]
pub(super) struct Adoption;

impl Adoption {
    pub(super) fn start() -> Self {
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
