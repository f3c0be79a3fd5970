//! What of a running program is mapped large, looked at from time to time.
//!
//! Owns the samples: of the program and its children at one moment, sums over their areas. A
//! program that ends before the first look has none.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::smaps;

/// The first look; each further one after twice the time, up to [`INTERVAL_MAX`].
const INTERVAL_FIRST: Duration = Duration::from_millis(10);
/// Longest time between two looks.
const INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Looking stops the program's page faults: it may take one part in so many of the time.
const COST_SHARE: u32 = 20;
/// Processes looked at in one sample.
const NR_PROCESSES_MAX: usize = 256;

/// Whether a running program's areas are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// From time to time.
    On,
    /// Never.
    Off,
}

/// Sums over the program and its children at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Looks taken.
    pub nr: u64,
    /// Processes at the look with most text mapped large.
    pub nr_processes: usize,
    /// Resident bytes of executable file areas at that look; shared ones count in each process.
    pub text_bytes: u64,
    /// Those mapped by PMD entries.
    pub text_huge_bytes: u64,
    /// Largest number of anonymous bytes mapped by PMD entries.
    pub anon_huge_bytes: u64,
}

/// Takes samples of a process.
#[derive(Debug)]
pub(super) struct Sampler {
    pid: u32,
    next: Instant,
    interval: Duration,
    pub(super) samples: Samples,
}

impl Sampler {
    pub(super) fn new(pid: u32) -> Self {
        let next = Instant::now() + INTERVAL_FIRST;
        Self { pid, next, interval: INTERVAL_FIRST, samples: Samples::default() }
    }

    /// Time until the next look.
    pub(super) fn rest(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Looks, where it is time to.
    pub(super) fn look(&mut self) {
        let started = Instant::now();
        if started < self.next {
            return;
        }
        self.take();
        let cost = started.elapsed();
        self.interval = (self.interval * 2).min(INTERVAL_MAX).max(cost * COST_SHARE);
        self.next = Instant::now() + self.interval;
    }

    fn take(&mut self) {
        let mut now = Samples::default();
        for pid in tree(self.pid) {
            let areas = smaps::read(&proc(pid).join("smaps")).unwrap_or_default();
            now.nr_processes += usize::from(!areas.is_empty());
            for vma in areas {
                now.anon_huge_bytes += vma.anon_huge_bytes;
                if vma.is_text() && vma.inode != 0 {
                    now.text_bytes += vma.resident_bytes;
                    now.text_huge_bytes += vma.file_huge_bytes + vma.shmem_huge_bytes;
                }
            }
        }
        if now.nr_processes == 0 {
            return;
        }
        let best = &mut self.samples;
        let anon_huge_bytes = best.anon_huge_bytes.max(now.anon_huge_bytes);
        let nr = best.nr + 1;
        let is_more =
            (now.text_huge_bytes, now.text_bytes) >= (best.text_huge_bytes, best.text_bytes);
        let base = if is_more { now } else { *best };
        *best = Samples { nr, anon_huge_bytes, ..base };
    }
}

fn proc(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// A process and what descends from it, as far as its parents still live.
fn tree(pid: u32) -> BTreeSet<u32> {
    let (mut found, mut queue) = (BTreeSet::from([pid]), vec![pid]);
    while let Some(pid) = queue.pop() {
        for task in fs::read_dir(proc(pid).join("task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_ascii_whitespace().filter_map(|word| word.parse().ok()) {
                if found.len() < NR_PROCESSES_MAX && found.insert(child) {
                    queue.push(child);
                }
            }
        }
    }
    found
}
