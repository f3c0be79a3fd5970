//! Whose waits they are: from thread ids to processes.
//!
//! Owns the sums. A thread is looked up once per round, because ids are used again. A thread that
//! ended before is known by the name that the kernel keeps for its recent trace events.
//!
//! Invariant O1: at most `NR_OWNERS_MAX` processes have sums of their own; the rest share one.

use std::collections::{BTreeMap, BTreeSet};

use super::durations::Durations;
use super::step::Kind;
use super::waits::Wait;
use crate::proc::Task;
use crate::system::System;

const NR_OWNERS_MAX: usize = 4096;
/// Threads counted per process.
const NR_THREADS_MAX: usize = 4096;
/// The kernel's parent of its own threads.
const KTHREADD: u32 = 2;

/// A process, or a kernel thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// 0 for the processes without sums of their own.
    pub pid: u32,
    pub name: String,
    pub is_kernel: bool,
    /// It ended before it could be looked up, so `pid` may be a thread's.
    pub has_ended: bool,
}

/// The waits of one kind for folios of one order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub waits: Durations,
    /// Still waiting when tracing ended.
    pub nr_cut: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub by_kind: BTreeMap<(Kind, Option<u32>), Sum>,
    pub threads: BTreeSet<u32>,
    /// Asleep within reclaim.
    pub throttled_ns: u64,
    pub nr_wakes: u64,
}

impl Sums {
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.by_kind.values().fold(0, |sum, one| sum.saturating_add(one.waits.total_ns))
    }

    #[must_use]
    pub fn nr_waits(&self) -> u64 {
        self.by_kind.values().map(|one| one.waits.nr).sum()
    }

    pub(super) fn extend(&mut self, other: &Self) {
        for (key, sum) in &other.by_kind {
            let own = self.by_kind.entry(*key).or_default();
            own.waits.extend(&sum.waits);
            own.nr_cut += sum.nr_cut;
        }
        self.threads.extend(&other.threads);
        self.throttled_ns = self.throttled_ns.saturating_add(other.throttled_ns);
        self.nr_wakes += other.nr_wakes;
    }
}

#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Looked up in this round, and before.
    now: BTreeMap<u32, Owner>,
    earlier: BTreeMap<u32, Owner>,
    pub(super) sums: BTreeMap<Owner, Sums>,
}

impl Owners {
    /// Adds a wait. `comm` returns a thread's name from the kernel's trace.
    pub(super) fn add(
        &mut self,
        system: &dyn System,
        wait: &Wait,
        comm: &dyn Fn(u32) -> Option<String>,
    ) {
        let Some(sums) = self.of(system, wait.tid, comm, wait.order.is_none()) else { return };
        if sums.threads.len() < NR_THREADS_MAX {
            sums.threads.insert(wait.tid);
        }
        let sum = sums.by_kind.entry((wait.kind, wait.order)).or_default();
        sum.waits.add(wait.ns);
        sum.nr_cut += u64::from(wait.is_cut);
    }

    pub(super) fn throttled(
        &mut self,
        system: &dyn System,
        (tid, us): (u32, u64),
        comm: &dyn Fn(u32) -> Option<String>,
    ) {
        if let Some(sums) = self.of(system, tid, comm, false) {
            sums.throttled_ns = sums.throttled_ns.saturating_add(us.saturating_mul(1000));
        }
    }

    pub(super) fn woke(
        &mut self,
        system: &dyn System,
        tid: u32,
        comm: &dyn Fn(u32) -> Option<String>,
    ) {
        if let Some(sums) = self.of(system, tid, comm, false) {
            sums.nr_wakes += 1;
        }
    }

    /// Returns the sums of a thread's process; `None` for a kernel thread if `is_own_work`: that is
    /// what kcompactd is for, and not a wait.
    fn of(
        &mut self,
        system: &dyn System,
        tid: u32,
        comm: &dyn Fn(u32) -> Option<String>,
        is_own_work: bool,
    ) -> Option<&mut Sums> {
        if !self.now.contains_key(&tid) {
            let found = look_up(system, tid).or_else(|| self.earlier.get(&tid).cloned());
            let owner = found.unwrap_or_else(|| Owner {
                pid: tid,
                name: comm(tid).unwrap_or_default(),
                has_ended: true,
                ..Owner::default()
            });
            self.now.insert(tid, owner);
        }
        let owner = self.now.get(&tid).filter(|owner| !(is_own_work && owner.is_kernel))?;
        let is_known = self.sums.contains_key(owner) || self.sums.len() < NR_OWNERS_MAX;
        let owner = if is_known { owner.clone() } else { Owner::default() };
        Some(self.sums.entry(owner).or_default())
    }

    /// Ends a round: the next one looks threads up again.
    pub(super) fn end_round(&mut self) {
        if !self.now.is_empty() {
            self.earlier = std::mem::take(&mut self.now);
        }
    }
}

fn look_up(system: &dyn System, tid: u32) -> Option<Owner> {
    let pid = Task::of(system, tid).status("Tgid")?.parse().ok()?;
    let process = Task::of(system, pid);
    let parent = process.parent().map(|(parent, _)| parent);
    let is_kernel = pid == KTHREADD || parent == Some(KTHREADD);
    Some(Owner { pid, name: process.comm(), is_kernel, has_ended: false })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::system::MemSystem;

    fn task(dir: &Path, tid: u32, process: u32, parent: u32, name: &str) {
        let path = dir.join(tid.to_string());
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("comm"), format!("{name}\n")).unwrap();
        let status = format!("Name:\t{name}\nTgid:\t{process}\nPid:\t{tid}\nPPid:\t{parent}\n");
        fs::write(path.join("status"), status).unwrap();
    }

    fn wait(tid: u32, order: Option<u32>) -> Wait {
        Wait { tid, kind: Kind::Compaction, order, ns: 5, is_cut: false }
    }

    #[test]
    fn threads_add_up_and_names_outlive_their_threads() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        task(dir.path(), 10, 10, 1, "db");
        task(dir.path(), 11, 10, 1, "worker");
        task(dir.path(), 36, 36, 2, "kcompactd0");
        let comm = |tid| (tid == 99).then(|| "gone".to_owned());
        let mut owners = Owners::default();
        for tid in [10, 11, 36, 99] {
            owners.add(&system, &wait(tid, Some(9)), &comm);
        }
        owners.add(&system, &wait(36, None), &comm);
        owners.end_round();
        fs::remove_dir_all(dir.path().join("11")).unwrap();
        owners.add(&system, &wait(11, Some(9)), &comm);
        let found: Vec<(u32, &str, u64)> = owners
            .sums
            .iter()
            .map(|(owner, sums)| (owner.pid, owner.name.as_str(), sums.nr_waits()))
            .collect();
        assert_eq!(found, [(10, "db", 3), (36, "kcompactd0", 1), (99, "gone", 1)]);
        let db = owners.sums.values().next().unwrap();
        assert_eq!((db.threads.len(), db.total_ns()), (2, 15));
    }

    #[test]
    fn too_many_processes_share_a_sum() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        let mut owners = Owners::default();
        for tid in 1..=5000 {
            owners.add(&system, &wait(tid, Some(0)), &|_| None);
            owners.end_round();
        }
        assert_eq!(owners.sums.len(), NR_OWNERS_MAX + 1);
        assert_eq!(owners.sums[&Owner::default()].nr_waits(), 5000 - NR_OWNERS_MAX as u64);
    }
}
