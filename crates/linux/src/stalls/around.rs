//! Counters, kernel threads and pressure, read before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::proc::counters::{self, PRESSURE, PRESSURE_OF_GROUP, Pressure};
use crate::proc::{self, Task, cgroup};
use crate::system::System;

/// The first part of the counters in vmstat that concern waits for memory and folio sizes.
const PREFIXES: [&str; 7] = [
    "allocstall_",
    "compact_",
    "thp_",
    "pgscan_direct",
    "pgsteal_direct",
    "pgmigrate_",
    "zone_reclaim_",
];
/// Kernel threads that free, compact or collapse memory.
const THREADS: [&str; 3] = ["kswapd", "kcompactd", "khugepaged"];
/// Control groups with their own pressure.
const NR_GROUPS_MAX: usize = 16;

/// A counter, and by how much it moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    pub name: String,
    /// For a counter of one folio size.
    pub folio_bytes: Option<u64>,
    pub by: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelThread {
    pub pid: u32,
    pub name: String,
    pub cpu_ns: u64,
}

/// Time in which tasks of a group waited for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPressure {
    /// `None`: the whole system.
    pub group: Option<String>,
    pub pressure: Pressure,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    vmstat: BTreeMap<String, u64>,
    sizes: BTreeMap<(u64, String), u64>,
    threads: BTreeMap<(u32, String), u64>,
    pressures: BTreeMap<(Option<String>, PathBuf), Pressure>,
}

/// The files to read: found first, so that a snapshot itself is quick and close to the tracing.
#[derive(Debug)]
pub(super) struct Sources {
    threads: Vec<(u32, String)>,
    pressures: Vec<(Option<String>, PathBuf)>,
}

impl Sources {
    /// Also reads the pressure of the groups of `pids`.
    pub(super) fn find(system: &dyn System, pids: &[u32]) -> Self {
        let owns: BTreeSet<Vec<u8>> =
            pids.iter().filter_map(|pid| Task::of(system, *pid).cgroups().ok()).collect();
        let groups = owns.iter().filter_map(|own| cgroup::file_of(system, own, PRESSURE_OF_GROUP));
        let groups = groups.filter(|(group, _)| group != "/").take(NR_GROUPS_MAX);
        let files = groups.map(|(group, file)| (Some(group), file));
        let files = std::iter::once((None, PathBuf::from(PRESSURE))).chain(files);
        Self { threads: threads(system), pressures: files.collect() }
    }
}

impl Snapshot {
    pub(super) fn take(system: &dyn System, sources: &Sources) -> Self {
        let is_wanted = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let pressure = |key: &(Option<String>, PathBuf)| {
            let pressure = counters::pressure(system, &key.1).ok()?;
            Some((key.clone(), pressure))
        };
        let cpu_ns = |key: &(u32, String)| Some((key.clone(), proc::cpu_clock_ns(key.0)?));
        Self {
            vmstat: counters::vmstat(system, &is_wanted),
            sizes: counters::of_sizes(system),
            threads: sources.threads.iter().filter_map(cpu_ns).collect(),
            pressures: sources.pressures.iter().filter_map(pressure).collect(),
        }
    }

    /// Returns the counters that have moved since `before`.
    pub(super) fn moved_since(&self, before: &Self) -> Vec<Moved> {
        let of_all = self.vmstat.iter().map(|(name, now)| {
            (name.clone(), None, now.saturating_sub(*before.vmstat.get(name).unwrap_or(now)))
        });
        let of_sizes = self.sizes.iter().map(|(key, now)| {
            let by = now.saturating_sub(*before.sizes.get(key).unwrap_or(now));
            (key.1.clone(), key.0.checked_mul(1 << 10), by)
        });
        let moved = of_all.chain(of_sizes).filter(|(_, _, by)| *by > 0);
        moved.map(|(name, folio_bytes, by)| Moved { name, folio_bytes, by }).collect()
    }

    pub(super) fn threads_since(&self, before: &Self) -> Vec<KernelThread> {
        let used = |((pid, name), now): (&(u32, String), &u64)| {
            let earlier = before.threads.get(&(*pid, name.clone())).copied().unwrap_or(0);
            KernelThread { pid: *pid, name: name.clone(), cpu_ns: now.saturating_sub(earlier) }
        };
        self.threads.iter().map(used).collect()
    }

    /// Empty if the kernel does not measure pressure.
    pub(super) fn pressure_since(&self, before: &Self) -> Vec<GroupPressure> {
        let since = |(key, now): (&(Option<String>, PathBuf), &Pressure)| {
            let earlier = before.pressures.get(key)?;
            let pressure = Pressure {
                some_us: now.some_us.saturating_sub(earlier.some_us),
                full_us: now.full_us.saturating_sub(earlier.full_us),
            };
            Some(GroupPressure { group: key.0.clone(), pressure })
        };
        self.pressures.iter().filter_map(since).collect()
    }
}

/// Finds the kernel's memory threads.
fn threads(system: &dyn System) -> Vec<(u32, String)> {
    let own = |pid: u32| {
        let task = Task::of(system, pid);
        let name = task.comm();
        // Any program can take such a name, but only kernel threads have no command line.
        let is_ours = THREADS.iter().any(|known| name.starts_with(known));
        (is_ours && task.command().iter().all(String::is_empty)).then_some((pid, name))
    };
    proc::pids(system).unwrap_or_default().into_iter().filter_map(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_moved_is_kept() {
        let of = |thp: u64, split: u64| Snapshot {
            vmstat: [("thp_split_page", thp), ("compact_stall", 5)]
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            sizes: [((64, "split".to_owned()), split)].into(),
            ..Snapshot::default()
        };
        assert!(of(3, 4).moved_since(&of(3, 4)).is_empty());
        // A counter never falls; one that does has been read while it was updated.
        let moved = of(2, 9).moved_since(&of(3, 4));
        let expected = Moved { name: "split".to_owned(), folio_bytes: Some(64 << 10), by: 5 };
        assert_eq!(moved, [expected]);
    }

    #[test]
    fn pressure_is_that_of_the_time_between() {
        let of = |some_us: u64| Snapshot {
            pressures: [((None, PathBuf::new()), Pressure { some_us, full_us: 1 })].into(),
            ..Snapshot::default()
        };
        let found = of(70).pressure_since(&of(50));
        let pressure = Pressure { some_us: 20, full_us: 0 };
        assert_eq!(found, [GroupPressure { group: None, pressure }]);
        assert!(of(70).pressure_since(&Snapshot::default()).is_empty());
    }
}
