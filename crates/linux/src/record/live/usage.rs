//! CPU time and faults of running processes during a recording, from the kernel's counters.
//!
//! ```text
//!   attached, lives      its counters minus their values at the start
//!   attached, ended      in its parent's child counters if the parent is recorded; else the last reading
//!   born, lives          all of its counters
//!   born, ended          in its parent's child counters
//! ```
//!
//! A process's counters include the children for which it has waited.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{AddAssign, Sub};
use std::time::{Duration, Instant};

use largefolio_trace::PlainRun;

use crate::proc::{Task, cpu_clock_ns};
use crate::system::Live;

/// The interval of readings. When a process ends, the part since the last reading is lost.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    cpu_ns: i64,
    user_ticks: i64,
    system_ticks: i64,
    minor_faults: i64,
    major_faults: i64,
}

impl Spent {
    /// Reads a process's counters; `None` if it has ended.
    fn of(pid: u32) -> Option<(Self, u32)> {
        let stat = Task::of(&Live, pid).stat()?;
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let ns_per_tick = 1_000_000_000 / number(rustix::param::clock_ticks_per_second()).max(1);
        let of_ticks = |ticks: u64| number(ticks).saturating_mul(ns_per_tick);
        let all_ticks = stat.user_ticks.saturating_add(stat.system_ticks);
        let cpu_ns = match cpu_clock_ns(pid) {
            Some(own) => number(own).saturating_add(of_ticks(stat.children_ticks)),
            None => of_ticks(all_ticks),
        };
        let spent = Self {
            cpu_ns,
            user_ticks: number(stat.user_ticks),
            system_ticks: number(stat.system_ticks),
            minor_faults: number(stat.nr_minor_faults),
            major_faults: number(stat.nr_major_faults),
        };
        Some((spent, stat.parent))
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        *self = *self - (Self::default() - other);
    }
}

impl Sub for Spent {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(other.cpu_ns),
            user_ticks: self.user_ticks.saturating_sub(other.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(other.system_ticks),
            minor_faults: self.minor_faults.saturating_sub(other.minor_faults),
            major_faults: self.major_faults.saturating_sub(other.major_faults),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Known {
    parent: u32,
    before: Spent,
    last: Spent,
}

#[derive(Debug)]
pub(super) struct Usage {
    began: Instant,
    looked: Instant,
    known: BTreeMap<u32, Known>,
}

impl Usage {
    pub(super) fn begin(pids: impl Iterator<Item = u32>) -> Self {
        let known = pids.filter_map(|pid| {
            let (before, parent) = Spent::of(pid)?;
            Some((pid, Known { parent, before, last: before }))
        });
        let began = Instant::now();
        Self { began, looked: began, known: known.collect() }
    }

    pub(super) fn sample(&mut self, living: impl Iterator<Item = u32>) {
        if self.looked.elapsed() >= EVERY {
            self.look_now(living);
        }
    }

    fn look_now(&mut self, living: impl Iterator<Item = u32>) {
        for pid in living {
            if let (Some(known), Some((now, _))) = (self.known.get_mut(&pid), Spent::of(pid)) {
                known.last = now;
            }
        }
        self.looked = Instant::now();
    }

    pub(super) fn end(mut self, living: &BTreeSet<u32>) -> PlainRun {
        let wall = self.began.elapsed();
        self.look_now(living.iter().copied());
        let born = living.iter().filter(|pid| !self.known.contains_key(pid));
        let of_born = born.filter_map(|&pid| Some(Spent::of(pid)?.0));
        run(wall, sum(&self.known, living, of_born))
    }
}

fn sum(
    known: &BTreeMap<u32, Known>,
    living: &BTreeSet<u32>,
    of_born: impl Iterator<Item = Spent>,
) -> Spent {
    let mut sum = Spent::default();
    for (pid, of) in known {
        let is_in_parent = !living.contains(pid) && known.contains_key(&of.parent);
        sum += if is_in_parent { Spent::default() - of.before } else { of.last - of.before };
    }
    of_born.for_each(|spent| sum += spent);
    sum
}

/// The kernel splits CPU time into user and system only in ticks: the ticks divide the exact total.
fn run(wall: Duration, spent: Spent) -> PlainRun {
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let (cpu_ns, user, system) =
        (count(spent.cpu_ns), count(spent.user_ticks), count(spent.system_ticks));
    let of_system = u128::from(cpu_ns) * u128::from(system) / u128::from((user + system).max(1));
    let system_ns = u64::try_from(of_system).unwrap_or(cpu_ns);
    PlainRun {
        wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        user_ns: cpu_ns - system_ns,
        system_ns,
        minor_faults: count(spent.minor_faults),
        major_faults: count(spent.major_faults),
        counters: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(cpu_ns: i64) -> Spent {
        Spent { cpu_ns, user_ticks: 3, system_ticks: 1, ..Spent::default() }
    }

    #[test]
    fn what_a_child_did_counts_once_whether_it_lives_or_not() {
        let of = |parent, before, last| Known { parent, before: spent(before), last: spent(last) };
        // 10 waited for 11, which had spent 500 before. The counters of 10 include its own 40 and
        // the child's 550.
        let known = BTreeMap::from([(10, of(1, 1_000, 1_590)), (11, of(10, 500, 500))]);
        let total = |living: &[u32], born: &[i64]| {
            let living = living.iter().copied().collect();
            sum(&known, &living, born.iter().map(|&ns| spent(ns))).cpu_ns
        };
        assert_eq!(total(&[10], &[]), 90);
        assert_eq!(total(&[10, 11], &[]), 590, "the child lives: its own counts");
        assert_eq!(total(&[10], &[7]), 97, "born while it was recorded");
        assert_eq!(total(&[], &[]), 90, "as last seen");
    }

    #[test]
    fn ticks_share_the_time_that_the_clock_gave() {
        let run = run(Duration::from_millis(5), spent(4_000));
        assert_eq!((run.wall_ns, run.user_ns, run.system_ns), (5_000_000, 3_000, 1_000));
        let idle = super::run(Duration::ZERO, Spent { cpu_ns: 900, ..Spent::default() });
        assert_eq!((idle.user_ns, idle.system_ns), (900, 0));
    }

    #[test]
    fn the_clock_of_a_process_goes_on_while_it_computes() {
        let usage = Usage::begin(std::iter::once(std::process::id()));
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(20) {}
        let run = usage.end(&BTreeSet::from([std::process::id()]));
        assert!(run.user_ns + run.system_ns > 0 && run.wall_ns >= 20_000_000, "{run:?}");
    }
}
