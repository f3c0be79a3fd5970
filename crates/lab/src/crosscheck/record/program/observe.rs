//! Observes a plain run: the numbers that the kernel reports, read whenever an address space ends.
//!
//! ```text
//!   execve, or the last thread's exit --> stopped, its memory still there
//!      census of its mappings, smaps_rollup of all living processes, its own faults
//! ```
//!
//! The process is stopped while it is read. Owns the bookkeeping of processes and address spaces.
//!
//! Invariant O1: observing adds no fault to the program; each reading checks this.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use largefolio_linux::census::{self, folios::Tally};
use largefolio_linux::proc::{Task, TaskFaults};
use largefolio_linux::system::Live;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::tracer::{Birth, Call, Observer};

/// Where the kernel puts a program's mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// At random, as usual.
    #[default]
    Random,
    /// So many pages below a fixed address. The kernel leaves room for the stack's limit above the
    /// mappings, so that limit, during `execve`, moves them.
    Fixed { nr_pages_below: u64 },
}

/// More than the least room that the kernel leaves for a stack (128 MiB).
const STACK_BYTES: u64 = 256 << 20;

/// The kernel's report about an observed program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// From the first `execve` on, over all processes.
    pub faults: TaskFaults,
    pub read_bytes: u64,
    /// The mappings of all address spaces, each at its end.
    pub mapped: Tally,
    /// When most was resident, at the end of an address space.
    pub resident: Resident,
    /// Pages of the vDSO at the ends of address spaces: a part of the kernel.
    pub vdso_bytes: u64,
    pub nr_processes: u64,
    /// Processes that a signal killed before they could be read.
    pub nr_unobserved: u64,
}

/// Sums over all living processes; without the vDSO in `rss_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    pub rss_bytes: u64,
    pub pss_bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct Snapshot {
    mapped: Tally,
    resident: Resident,
    vdso_bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct LiveProcess {
    threads: BTreeSet<i32>,
    space: u64,
    parent: Option<i32>,
    /// Bytes read when it reached its exit.
    read_bytes: Option<u64>,
}

pub(crate) struct ProgramObserver<'a> {
    pub(crate) observed: Observed,
    processes: BTreeMap<i32, LiveProcess>,
    /// Each thread's process, and its last call.
    threads: BTreeMap<i32, (i32, i64)>,
    nr_spaces: u64,
    /// The state of each process that has entered `execve`.
    before_exec: BTreeMap<i32, Option<Snapshot>>,
    /// Faults and bytes read before the first `execve`.
    before: Option<(TaskFaults, u64)>,
    /// The stack's limit before the first `execve`, if it was changed for that call.
    stack_limit: Option<Rlimit>,
    placement: Placement,
    /// Called once with the first process, which is stopped.
    at_start: &'a mut dyn FnMut(i32) -> io::Result<()>,
}

impl<'a> ProgramObserver<'a> {
    pub(crate) fn new(
        placement: Placement,
        at_start: &'a mut dyn FnMut(i32) -> io::Result<()>,
    ) -> Self {
        Self {
            observed: Observed::default(),
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            nr_spaces: 0,
            before_exec: BTreeMap::new(),
            before: None,
            stack_limit: None,
            placement,
            at_start,
        }
    }

    fn new_space(&mut self) -> u64 {
        self.nr_spaces += 1;
        self.nr_spaces
    }

    fn process_of(&self, tid: i32) -> i32 {
        self.threads.get(&tid).map_or(tid, |(process, _)| *process)
    }

    fn nr_users(&self, space: u64) -> usize {
        self.processes.values().filter(|process| process.space == space).count()
    }

    /// Reads the memory of the space of thread `tid`, and sums over all living spaces.
    fn snapshot(&self, tid: i32) -> io::Result<Snapshot> {
        let task = Task::of(&Live, tid);
        let before = task.own_faults();
        let snapshot = self.read(tid)?;
        if task.own_faults() == before {
            Ok(snapshot)
        } else {
            Err(io::Error::other("observing the program added faults to it"))
        }
    }

    fn read(&self, tid: i32) -> io::Result<Snapshot> {
        let pid = u32::try_from(tid).map_err(io::Error::other)?;
        let census = census::take(&Live, &[pid]).map_err(io::Error::other)?;
        let mut snapshot = Snapshot::default();
        for process in &census.processes {
            snapshot.mapped.add_all(&process.tally);
            let of_kernel = process.mappings.iter().filter(|one| is_of_kernel(&one.vma.path));
            snapshot.vdso_bytes += of_kernel.map(|one| one.tally.all().mapped_bytes()).sum::<u64>();
        }
        let own = self.processes.get(&self.process_of(tid)).map_or(0, |process| process.space);
        let mut spaces = BTreeSet::from([own]);
        let mut add = |tid: i32| {
            // A process that was killed meanwhile has no memory.
            let task = Task::of(&Live, tid);
            let (Ok(sums), Ok(areas)) = (task.smaps_rollup(), task.smaps()) else { return };
            let own = areas.iter().filter(|area| !is_of_kernel(&area.vma.path));
            snapshot.resident.rss_bytes += own.map(|area| area.rss_bytes).sum::<u64>();
            snapshot.resident.pss_bytes += sums.pss_bytes;
        };
        add(tid);
        for process in self.processes.values() {
            if spaces.insert(process.space)
                && let Some(&tid) = process.threads.first()
            {
                add(tid);
            }
        }
        Ok(snapshot)
    }

    fn keep(&mut self, snapshot: &Snapshot) {
        self.observed.mapped.add_all(&snapshot.mapped);
        self.observed.vdso_bytes += snapshot.vdso_bytes;
        if snapshot.resident.rss_bytes > self.observed.resident.rss_bytes {
            self.observed.resident = snapshot.resident;
        }
    }

    /// Whether this thread's exit ends its process.
    fn ends_process(&self, tid: i32, process: &LiveProcess) -> bool {
        let is_own_exit = self.threads.get(&tid).is_some_and(|(_, nr)| *nr == libc::SYS_exit);
        !is_own_exit || process.threads.iter().all(|other| *other == tid)
    }
}

fn is_of_kernel(path: &std::path::Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(b"[v")
}

const fn is_exec(nr: i64) -> bool {
    nr == libc::SYS_execve || nr == libc::SYS_execveat
}

/// Whether two processes have the same address space.
fn share_memory(one: i32, other: i32) -> bool {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: the call takes numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) == 0 }
}

impl Observer for ProgramObserver<'_> {
    fn starts(&mut self, tid: i32) -> io::Result<()> {
        let space = self.new_space();
        let threads = BTreeSet::from([tid]);
        self.processes.insert(tid, LiveProcess { threads, space, ..LiveProcess::default() });
        self.threads.insert(tid, (tid, -1));
        self.observed.nr_processes = 1;
        if let Placement::Fixed { nr_pages_below } = self.placement {
            let bytes = STACK_BYTES + nr_pages_below * rustix::param::page_size() as u64;
            let current = Some(bytes);
            let old = getrlimit(Resource::Stack);
            let limit = Rlimit { current, ..old };
            self.stack_limit = Some(prlimit(Pid::from_raw(tid), Resource::Stack, limit)?);
        }
        (self.at_start)(tid)
    }

    fn enters(&mut self, tid: i32, call: &Call) -> io::Result<()> {
        let process = self.process_of(tid);
        self.threads.insert(tid, (process, call.nr));
        if !is_exec(call.nr) {
            return Ok(());
        }
        let task = Task::of(&Live, tid);
        if self.before.is_none() {
            let faults = task.own_faults().unwrap_or_default();
            self.before = Some((faults, task.read_bytes().unwrap_or(0)));
            self.before_exec.insert(process, None);
            return Ok(());
        }
        let space = self.processes.get(&process).map_or(0, |process| process.space);
        let is_last = self.nr_users(space) == 1;
        let snapshot = is_last.then(|| self.snapshot(tid)).transpose()?;
        self.before_exec.insert(process, snapshot);
        Ok(())
    }

    fn leaves(&mut self, _: i32, _: &Call, _: i64) -> io::Result<()> {
        Ok(())
    }

    fn executes(&mut self, tid: i32) -> io::Result<()> {
        if let Some(limit) = self.stack_limit.take() {
            prlimit(Pid::from_raw(tid), Resource::Stack, limit)?;
        }
        // The thread that executes takes the process's number.
        if let Some(Some(snapshot)) = self.before_exec.remove(&tid) {
            self.keep(&snapshot);
        }
        let space = self.new_space();
        let process = self.processes.entry(tid).or_default();
        process.space = space;
        process.threads = BTreeSet::from([tid]);
        self.threads.insert(tid, (tid, -1));
        Ok(())
    }

    fn exits(&mut self, tid: i32) -> io::Result<()> {
        let pid = self.process_of(tid);
        let Some(process) = self.processes.get(&pid).cloned() else { return Ok(()) };
        if !self.ends_process(tid, &process) || process.read_bytes.is_some() {
            if let Some(process) = self.processes.get_mut(&pid) {
                process.threads.remove(&tid);
            }
            return Ok(());
        }
        if self.nr_users(process.space) == 1 {
            let snapshot = self.snapshot(tid)?;
            self.keep(&snapshot);
        }
        let task = Task::of(&Live, tid);
        let faults = task.own_faults().unwrap_or_default();
        self.observed.faults.nr_minor += faults.nr_minor;
        self.observed.faults.nr_major += faults.nr_major;
        let read_bytes = task.read_bytes().unwrap_or(0);
        // A parent's count includes the children that it waited for. So a process adds its own only
        // if its parent has ended.
        let lives = |pid: i32| self.processes.get(&pid).is_some_and(|one| one.read_bytes.is_none());
        let is_orphan = !process.parent.is_some_and(lives);
        if is_orphan {
            self.observed.read_bytes += read_bytes;
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            process.read_bytes = Some(read_bytes);
            process.space = u64::MAX - u64::from(pid.unsigned_abs());
            process.threads.clear();
        }
        Ok(())
    }

    fn ends(&mut self, tid: i32) {
        let pid = self.process_of(tid);
        self.threads.remove(&tid);
        if pid == tid
            && let Some(process) = self.processes.remove(&pid)
        {
            self.observed.nr_unobserved += u64::from(process.read_bytes.is_none());
        }
        if self.processes.is_empty()
            && let Some((faults, read_bytes)) = self.before.take()
        {
            let own = &mut self.observed;
            own.faults.nr_minor = own.faults.nr_minor.saturating_sub(faults.nr_minor);
            own.faults.nr_major = own.faults.nr_major.saturating_sub(faults.nr_major);
            own.read_bytes = own.read_bytes.saturating_sub(read_bytes);
        }
    }

    fn births(&mut self, tid: i32, child: i32, how: Birth) -> io::Result<()> {
        let parent = self.process_of(tid);
        let group = Task::of(&Live, child).status("Tgid").and_then(|id| id.parse::<i32>().ok());
        let process = group.unwrap_or(child);
        self.threads.insert(child, (process, -1));
        if process != child {
            self.processes.entry(process).or_default().threads.insert(child);
            return Ok(());
        }
        let is_common = how == Birth::Vfork || (how == Birth::Clone && share_memory(parent, child));
        let shared = self.processes.get(&parent).map(|process| process.space);
        let space = shared.filter(|_| is_common).unwrap_or_else(|| self.new_space());
        let threads = BTreeSet::from([child]);
        let parent = Some(parent);
        self.processes.insert(child, LiveProcess { threads, space, parent, read_bytes: None });
        self.observed.nr_processes += 1;
        Ok(())
    }
}
