//! Samples the folio sizes of a process tree during a run.
//!
//! Decides when to sample, because sampling slows both arms. A run is sampled once near its end,
//! after the fraction `NEAR_END` of the arm's previous run time. The warm-up run is sampled at
//! doubling intervals, and its last sample counts. If a sample took more than `COST_MAX` of the
//! warm-up run, no more samples are taken, unless the verdict is about memory. One thread samples.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::census;
use crate::census::folios::Size;
use crate::proc::stat::tree;
use crate::system::{Live, System as _};

const NEAR_END: f64 = 0.75;
const COST_MAX: f64 = 0.02;
const FIRST: Duration = Duration::from_millis(10);

/// Memory of processes, each page once if the kernel shows pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemorySample {
    pub folios: BTreeMap<u64, u64>,
    pub unknown_bytes: u64,
    pub page_bytes: u64,
    pub took: Duration,
}

impl MemorySample {
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.folios.values().fold(self.unknown_bytes, |sum, bytes| sum.saturating_add(*bytes))
    }

    #[must_use]
    pub fn large_bytes(&self) -> u64 {
        let large = self.folios.range(self.page_bytes.saturating_add(1)..);
        large.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    pub(crate) fn at(pids: &[u32]) -> Option<Self> {
        let start = Instant::now();
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().ok()?;
        let census = one.install(|| census::take(&Live, pids)).ok()?;
        let mut sample = Self { page_bytes: Live.page_bytes(), ..Self::default() };
        for (_, size, cell) in census.totals.cells() {
            match size {
                Size::Unknown => sample.unknown_bytes += cell.mapped_bytes(),
                Size::Order(_) => {
                    let bytes = size.bytes(sample.page_bytes)?;
                    *sample.folios.entry(bytes).or_default() += cell.mapped_bytes();
                }
            }
        }
        sample.took = start.elapsed();
        (sample.mapped_bytes() > 0).then_some(sample)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum When {
    #[default]
    Never,
    Doubling,
    After(Duration),
}

impl When {
    pub(crate) fn near_end(wall: Duration) -> Self {
        Self::After(wall.mul_f64(NEAR_END))
    }
}

/// Returns the fraction of the run that a sample took, if it is too much.
pub(crate) fn too_dear(wall: Duration, sample: Option<&MemorySample>) -> Option<f64> {
    let part = sample?.took.as_secs_f64() / wall.as_secs_f64();
    (part > COST_MAX).then_some(part)
}

pub(crate) fn watch(leader: u32, when: When, ended: &Receiver<()>) -> Option<MemorySample> {
    let mut wait = match when {
        When::Never => return None,
        When::Doubling => FIRST,
        When::After(time) => time,
    };
    let mut last = None;
    while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        let pids: Vec<u32> = tree(&Live, leader).into_iter().collect();
        last = MemorySample::at(&pids).or(last);
        wait = if when == When::Doubling { wait * 2 } else { Duration::from_hours(24 * 365) };
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen_and_a_dear_look_is_not_taken_again() {
        let sample = MemorySample::at(&[std::process::id()]).unwrap();
        assert!(sample.mapped_bytes() > 100 << 10 && sample.large_bytes() <= sample.mapped_bytes());
        assert_eq!(MemorySample::at(&[]), None);
        let wall = Duration::from_secs(1);
        let of = |ms| MemorySample { took: Duration::from_millis(ms), ..MemorySample::default() };
        assert_eq!(When::near_end(wall), When::After(Duration::from_millis(750)));
        assert_eq!(too_dear(wall, Some(&of(19))), None);
        assert_eq!(too_dear(wall, None), None);
        assert_eq!(too_dear(wall, Some(&of(80))), Some(0.08));
    }
}
