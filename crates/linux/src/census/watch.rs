//! A repeated census, which reads only the processes that changed.
//!
//! ```text
//!   reading 1    all processes: mappings, page tables, page flags
//!   reading 2    /proc/PID/stat of each; those with other figures as in reading 1
//!   every 16th   each process again, spread over the readings
//! ```
//!
//! Owns the facts kept between two readings. A process's own pages are kept as a sum. Pages that
//! other processes may have are kept by frame, so that totals count each of them once.
//!
//! Invariants:
//! - W1: a process is read again if its faults, its address space, its resident memory, its name
//!   or its start differ from before its last reading.
//! - W2: if the kernel collapsed or split folios since, every process is read again that has memory
//!   for a PMD entry, or large folios in private or shared memory.
//! - W3: a change that W1 and W2 miss, such as migrated or moved memory, is seen after at most
//!   [`READINGS_MAX`] readings.
//! - W4: at most [`NR_RUNS_MAX`] runs of frames are kept. Beyond, the processes with most of them are
//!   read every time.

use std::collections::{BTreeMap, BTreeSet};

use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};

use super::folios::{MemoryKind, Size};
use super::process::{Process, Seen};
use super::{Census, CensusError};
use crate::proc::stat::MemoryState;
use crate::proc::{Task, thp};
use crate::system::System;

/// At one reading every 15 s: 4 minutes. It costs a sixteenth of reading everything.
const READINGS_MAX: u64 = 16;
/// Runs of frames that are kept, at 40 bytes each: 80 MiB.
const NR_RUNS_MAX: usize = 2 << 20;

/// Takes one census after another.
#[derive(Debug, Default)]
pub struct Watch {
    nr_readings: u64,
    /// How often the kernel had collapsed or split folios before the last reading.
    nr_changed: Option<u64>,
    previous: Vec<Process>,
    kept: BTreeMap<u32, Kept>,
}

/// A process's facts that are kept in addition to its mappings.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) state: MemoryState,
    pub(super) seen: Seen,
}

impl Watch {
    /// Takes a census.
    ///
    /// # Errors
    /// As [`super::take`].
    pub fn take(&mut self, system: &dyn System, pids: &[u32]) -> Result<Census, CensusError> {
        super::take_with(system, pids, Some(self))
    }

    /// Returns the last census when it is no longer needed. The next one reads only what changed.
    pub fn give_back(&mut self, census: Census) {
        self.previous = census.processes;
    }

    pub(super) fn keep(&mut self, kept: BTreeMap<u32, Kept>) {
        self.kept = bounded(kept, NR_RUNS_MAX);
    }

    /// Returns the processes that need no reading.
    pub(super) fn unchanged(&mut self, system: &dyn System, pids: &[u32]) -> Vec<(Process, Kept)> {
        let pids: BTreeSet<u32> = pids.iter().copied().collect();
        let nr_changed = thp::nr_changed(system);
        let is_quiet = nr_changed.is_some() && self.nr_changed == nr_changed;
        self.nr_changed = nr_changed;
        self.nr_readings += 1;
        let mut kept = std::mem::take(&mut self.kept);
        let pairs: Vec<(Process, Kept)> = std::mem::take(&mut self.previous)
            .into_iter()
            .filter(|process| pids.contains(&process.pid))
            .filter_map(|process| kept.remove(&process.pid).map(|kept| (process, kept)))
            .collect();
        let is_due = |pid: u32| (self.nr_readings + u64::from(pid)).is_multiple_of(READINGS_MAX);
        let is_unchanged = |(process, kept): &(Process, Kept)| {
            !is_due(process.pid)
                && (is_quiet || !may_change(process))
                && Task::of(system, process.pid).memory_state().as_ref() == Some(&kept.state)
        };
        pairs.into_par_iter().filter(is_unchanged).collect()
    }
}

/// Drops the processes with most runs until at most `nr_max` are left.
fn bounded(mut kept: BTreeMap<u32, Kept>, nr_max: usize) -> BTreeMap<u32, Kept> {
    let nr_of = |kept: &Kept| kept.seen.runs.len();
    let mut nr_runs: usize = kept.values().map(nr_of).sum();
    if nr_runs <= nr_max {
        return kept;
    }
    let mut all: Vec<(usize, u32)> = kept.iter().map(|(pid, kept)| (nr_of(kept), *pid)).collect();
    all.sort_unstable();
    while nr_runs > nr_max {
        let Some((nr, pid)) = all.pop() else { break };
        kept.remove(&pid);
        nr_runs -= nr;
    }
    kept
}

/// Whether the kernel may collapse or split its folios without a fault.
fn may_change(process: &Process) -> bool {
    let is_large =
        |kind, size| matches!(kind, MemoryKind::Anon | MemoryKind::Shmem) && size > Size::Order(0);
    process.tally.sum(is_large).mapped_bytes() > 0
        || process.mappings.iter().any(|mapping| {
            mapping.touched.as_ref().is_none_or(|touched| touched.pmd.iter().next().is_some())
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::census::kpageflags::Page;
    use crate::census::process::SeenRun;

    #[test]
    fn those_with_most_runs_are_dropped() {
        let state = MemoryState::parse(b"7 (a) S 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 9 8 7");
        let of = |(pid, nr): (u32, u64)| {
            let run = |at: u64| SeenRun { pages: at..at + 1, page: Page::default(), bits: 0 };
            let seen = Seen { runs: (0..nr).map(|nr| run(2 * nr)).collect(), ..Seen::default() };
            (pid, Kept { state: state.clone().unwrap(), seen })
        };
        let left = |nr_max| {
            let kept = bounded([(1, 3), (2, 9), (3, 5)].map(of).into(), nr_max);
            kept.into_keys().collect::<Vec<u32>>()
        };
        assert_eq!(left(17), [1, 2, 3]);
        assert_eq!(left(16), [1, 3]);
        assert_eq!(left(7), [1]);
        assert!(left(2).is_empty());
    }
}
