//! Clearing and copying in user space by size, cold and hot (series 001). Compares the choice made
//! by `largefolio-bulk` with clearing page by page, the C library and every primitive that the CPU
//! supports.
//!
//! Times are the thread's CPU time unless noted otherwise. They exclude other programs' time
//! slices, but not their effect on caches and memory.

mod arena;

use std::cell::RefCell;
use std::convert::Infallible;
use std::ops::Range;
use std::time::Duration;

use largefolio_bulk::{Clearer, Copier, Primitive, Residency, Tuning};

use crate::geometry::page_bytes;
use crate::measure::{Series, cpu_time, interleave};

pub use arena::Arena;

const HOT_BYTES: usize = 8 << 20;
const COLD_BYTES: usize = 64 << 20;

/// The kernel's primitive for clearing a page.
pub const PAGEWISE: Primitive =
    if cfg!(target_arch = "x86_64") { Primitive::RepString } else { Primitive::DcZva };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearWork {
    Clear,
    Copy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub work: ClearWork,
    /// Bytes of a unit: a power of two, at least a page and at most the arena.
    pub len_bytes: usize,
    /// Whether each unit is written just before and used right after. If not, all other units are
    /// visited before the same one again, and it is not used after.
    pub is_hot: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A page at a time with the kernel's primitive.
    Pagewise,
    Chosen(Primitive),
    Whole(Primitive),
}

#[derive(Clone, Copy)]
enum Routine {
    Clear(Clearer),
    Copy(Copier),
}

impl Routine {
    fn run(self, to: &mut [u8], from: &[u8], range: Range<usize>) {
        match self {
            Self::Clear(clearer) => clearer.clear(&mut to[range]),
            Self::Copy(copier) => {
                let Ok(()) = copier.copy(&mut to[range.clone()], &from[range]) else {
                    unreachable!("two slices of one range")
                };
            }
        }
    }
}

impl Cell {
    #[must_use]
    pub fn moved_bytes(&self) -> usize {
        self.nr_repeats() * self.len_bytes
    }

    /// Measures each subject's rounds: page-at-a-time, the choice of `tuning`, then every
    /// primitive, starting with the C library's.
    #[must_use]
    pub fn measure(
        &self,
        arena: &mut Arena,
        tuning: &Tuning,
        nr_rounds: usize,
    ) -> Vec<(Subject, Series)> {
        let all = self.subjects(tuning);
        let arena = RefCell::new(arena);
        let mut runs: Vec<Box<dyn FnMut() -> Result<Duration, Infallible> + '_>> = Vec::new();
        for &(subject, routine) in &all {
            let (cell, arena) = (*self, &arena);
            let mut walk = arena.borrow().walk(cell.len_bytes);
            runs.push(Box::new(move || {
                Ok(cell.sample(&mut arena.borrow_mut(), subject, routine, &mut walk))
            }));
        }
        let Ok(series) = interleave(nr_rounds, &mut runs, &mut |_| {});
        all.iter().map(|(subject, _)| *subject).zip(series).collect()
    }

    fn nr_repeats(&self) -> usize {
        if self.is_hot { HOT_BYTES } else { COLD_BYTES }.div_ceil(self.len_bytes)
    }

    fn subjects(&self, tuning: &Tuning) -> Vec<(Subject, Routine)> {
        let hint = if self.is_hot { Residency::TouchedNow } else { Residency::NotTouched };
        match self.work {
            ClearWork::Clear => {
                let chosen = tuning.clearer(self.len_bytes, hint);
                let whole = |by: Clearer| (Subject::Whole(by.primitive()), Routine::Clear(by));
                let pagewise = Clearer::new(PAGEWISE).or(Clearer::new(Primitive::Portable));
                let pagewise = pagewise.map(|by| (Subject::Pagewise, Routine::Clear(by)));
                let chosen = (Subject::Chosen(chosen.primitive()), Routine::Clear(chosen));
                pagewise
                    .into_iter()
                    .chain([chosen])
                    .chain(Clearer::available().into_iter().map(whole))
                    .collect()
            }
            ClearWork::Copy => {
                let chosen = tuning.copier(self.len_bytes, hint);
                let whole = |by: Copier| (Subject::Whole(by.primitive()), Routine::Copy(by));
                let pagewise = Copier::new(PAGEWISE).or(Copier::new(Primitive::Portable));
                let pagewise = pagewise.map(|by| (Subject::Pagewise, Routine::Copy(by)));
                let chosen = (Subject::Chosen(chosen.primitive()), Routine::Copy(chosen));
                pagewise
                    .into_iter()
                    .chain([chosen])
                    .chain(Copier::available().into_iter().map(whole))
                    .collect()
            }
        }
    }

    fn sample(
        &self,
        arena: &mut Arena,
        subject: Subject,
        routine: Routine,
        walk: &mut impl FnMut() -> usize,
    ) -> Duration {
        let (to, from) = arena.both();
        let step = if subject == Subject::Pagewise {
            page_bytes().min(self.len_bytes)
        } else {
            self.len_bytes
        };
        let mut run = |first: usize| {
            for at in (first..first + self.len_bytes).step_by(step) {
                routine.run(to, from, at..at + step);
            }
        };
        let nr_repeats = self.nr_repeats();
        let mut pass = |nr| (0..nr).for_each(|_| run(if self.is_hot { 0 } else { walk() }));
        // Runs untimed first, so the timed part writes back this subject's lines and not the
        // previous one's.
        pass(if self.is_hot { 1 } else { nr_repeats });
        let start = cpu_time();
        pass(nr_repeats);
        cpu_time().saturating_sub(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_all_subjects_and_leaves_its_bytes_behind() {
        let mut arena = Arena::new(4 << 20, 4 << 20).unwrap();
        for (work, expected) in [(ClearWork::Clear, 0), (ClearWork::Copy, 1)] {
            for is_hot in [true, false] {
                arena.to().fill(2);
                let cell = Cell { work, len_bytes: 64 << 10, is_hot };
                let series_of = cell.measure(&mut arena, Tuning::host(), 2);
                assert_eq!(series_of[0].0, Subject::Pagewise);
                assert!(matches!(series_of[1].0, Subject::Chosen(_)));
                assert_eq!(series_of[2].0, Subject::Whole(Primitive::Portable));
                assert!(series_of.iter().all(|(_, series)| series.rounds_ns.len() == 2));
                let nr_bytes = if is_hot { 64 << 10 } else { 4 << 20 };
                assert!(arena.to()[..nr_bytes].iter().all(|&byte| byte == expected), "{cell:?}");
                assert!(arena.to()[nr_bytes..].iter().all(|&byte| byte == 2), "{cell:?}");
            }
        }
    }

    #[test]
    fn a_walk_visits_every_unit_once_in_each_pass() {
        let arena = Arena::new(4 << 20, 0).unwrap();
        let mut walk = arena.walk(64 << 10);
        let mut starts: Vec<usize> = (0..64).map(|_| walk()).collect();
        assert_ne!(starts[1], starts[0] + (64 << 10));
        starts.sort_unstable();
        assert!(starts.into_iter().eq((0..64).map(|nr| nr << 16)));
    }
}
