//! Samples how much of a running program's memory large folios map.
//!
//! A sample sums the areas of the program and its children at one moment. Forked processes share
//! their text, so it counts once. A program that ends before the first sample has none.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::census::folios::{Cell, MemoryKind};
use crate::census::{self, Access};
use crate::geometry::Geometry;
use crate::proc::Task;
use crate::proc::maps::Vma;
use crate::proc::stat::tree;
use crate::system::{Live, System};

/// The time of the first sample. Each further interval doubles, up to [`INTERVAL_MAX`].
const INTERVAL_FIRST: Duration = Duration::from_millis(10);
const INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Sampling stops the program's page faults, so it may take at most 1/20 of the time.
const COST_SHARE: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    pub nr: u64,
    pub nr_processes: usize,
    /// Resident bytes of executable file areas in that sample. Areas of the same part of a file
    /// count once, from the process with the most resident bytes.
    pub text_bytes: u64,
    pub text_huge_bytes: u64,
    /// Text in contpte blocks. `None` if the machine has none or folio sizes are not visible.
    pub text_contpte_bytes: Option<u64>,
    pub anon_huge_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Sampler {
    pid: u32,
    geometry: Geometry,
    next: Instant,
    interval: Duration,
    pub(super) samples: Samples,
}

impl Sampler {
    pub(super) fn new(pid: u32) -> Self {
        let next = Instant::now() + INTERVAL_FIRST;
        let (geometry, samples) = (Geometry::running(), Samples::default());
        Self { pid, geometry, next, interval: INTERVAL_FIRST, samples }
    }

    pub(super) fn rest(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    pub(super) fn sample(&mut self) {
        let started = Instant::now();
        if started < self.next {
            return;
        }
        self.take(&Live);
        let cost = started.elapsed();
        self.interval = (self.interval * 2).min(INTERVAL_MAX).max(cost * COST_SHARE);
        self.next = Instant::now() + self.interval;
    }

    fn take(&mut self, system: &dyn System) {
        let mut now = Samples::default();
        let pids = tree(system, self.pid);
        let mut texts: BTreeMap<Text, (u64, u64)> = BTreeMap::new();
        for &pid in &pids {
            let areas = Task::of(system, pid).smaps().unwrap_or_default();
            now.nr_processes += usize::from(!areas.is_empty());
            for smap in areas {
                now.anon_huge_bytes += smap.anon_pmd_bytes;
                if smap.vma.is_exec() && smap.vma.has_file() {
                    let huge = smap.file_pmd_bytes.saturating_add(smap.shmem_pmd_bytes);
                    let most = texts.entry(Text::of(&smap.vma)).or_default();
                    *most = (most.0.max(smap.rss_bytes), most.1.max(huge));
                }
            }
        }
        now.text_bytes = texts.values().map(|(rss, _)| rss).sum();
        now.text_huge_bytes = texts.values().map(|(_, huge)| huge).sum();
        if now.nr_processes == 0 {
            return;
        }
        if self.geometry.has_contpte {
            let pids: Vec<u32> = pids.into_iter().collect();
            if let Some(text) = text(system, &pids) {
                (now.text_bytes, now.text_contpte_bytes) =
                    (text.mapped_bytes(), Some(text.contpte_bytes));
                now.text_huge_bytes = now.text_huge_bytes.max(text.pmd_bytes);
            }
        }
        let best = &mut self.samples;
        let anon_huge_bytes = best.anon_huge_bytes.max(now.anon_huge_bytes);
        let nr = best.nr + 1;
        let large = |one: &Samples| {
            (one.text_huge_bytes.max(one.text_contpte_bytes.unwrap_or(0)), one.text_bytes)
        };
        let is_more = large(&now) >= large(best);
        let base = if is_more { now } else { *best };
        *best = Samples { nr, anon_huge_bytes, ..base };
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Text {
    device: (u32, u32),
    inode: u64,
    pos: u64,
}

impl Text {
    fn of(vma: &Vma) -> Self {
        Self { device: vma.device, inode: vma.inode, pos: vma.pos }
    }
}

/// Returns the text of all processes, each page once, if folio sizes are visible.
fn text(system: &dyn System, pids: &[u32]) -> Option<Cell> {
    let census = census::take(system, pids).ok().filter(|census| census.access == Access::Full)?;
    Some(census.totals.of(MemoryKind::Text))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::system::MemSystem;

    #[test]
    fn a_look_sums_over_the_tree_and_the_best_look_stays() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let smaps = |large: u32| {
            format!(
                "1000-5000 r-xp 0 fe:0 7 /p\nRss: 16 kB\nFilePmdMapped: {large} kB\n\
                 6000-7000 rw-p 0 0:0 0\nRss: 4 kB\nAnonHugePages: {large} kB\n"
            )
        };
        // 7 is its own grandchild: PIDs are reused.
        put("7/task/7/children", "8 ");
        put("7/task/9/children", "x 10 \u{ff} 99999999999\n");
        put("8/task/8/children", "7");
        put("7/smaps", &smaps(2));
        put("8/smaps", &smaps(4));
        let system = MemSystem::from_dir(dir.path());
        assert_eq!(tree(&system, 7), [7, 8, 10].into());
        let mut sampler = Sampler::new(7);
        sampler.take(&system);
        put("8/smaps", "");
        sampler.take(&system);
        let best = sampler.samples;
        assert_eq!((best.nr, best.nr_processes), (2, 2));
        assert_eq!((best.text_bytes, best.text_huge_bytes), (16 << 10, 4 << 10), "it is shared");
        assert_eq!(best.anon_huge_bytes, 6 << 10);
    }
}
