//! Processes and memory over the course of a trace, measured in references, for pictures.
//!
//! Owns two sums per part of the trace: each program's mean number of live processes, and the peak
//! of memory in use.

use serde::Serialize;

use crate::replay::observers::programs::ProgramNr;

/// Buckets of a trace. A picture a few hundred pixels wide can show each of them.
pub const NR_BUCKETS: usize = 200;
const MILLI: u128 = 1000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// Mean number of live processes in thousandths, by program (the outcome's order) and part.
    pub alive_milli: Vec<Vec<u64>>,
    pub memory_bytes: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    nr_references: u64,
    counts: Vec<LiveCount>,
    memory_bytes: Vec<u64>,
    /// Bytes in use now, and the first part not yet filled in.
    used: (u64, usize),
}

#[derive(Clone, Debug, Default)]
struct LiveCount {
    nr_alive: u64,
    since: u64,
    /// By part: processes times references.
    sums: Vec<u128>,
}

impl Recorder {
    pub(crate) fn new(nr_references: u64) -> Self {
        let memory_bytes = vec![0; NR_BUCKETS];
        Self { nr_references, counts: Vec::new(), memory_bytes, used: (0, 0) }
    }

    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.nr_references);
    }

    fn part_of(&self, references: u64) -> usize {
        let whole = u128::from(self.nr_references.max(1));
        let nr = u128::from(references) * NR_BUCKETS as u128 / whole;
        usize::try_from(nr).unwrap_or(NR_BUCKETS).min(NR_BUCKETS - 1)
    }

    fn start_of(&self, part: usize) -> u64 {
        let start = u128::from(self.nr_references) * part as u128 / NR_BUCKETS as u128;
        u64::try_from(start).unwrap_or(u64::MAX)
    }

    /// Records that `nr` more processes of a program live; `nr` can be negative.
    pub(crate) fn change(&mut self, program: ProgramNr, nr: i64, references: u64) {
        if program >= self.counts.len() {
            self.counts.resize(program + 1, LiveCount::default());
        }
        self.settle(program, references);
        let counts = &mut self.counts[program];
        counts.nr_alive = counts.nr_alive.saturating_add_signed(nr);
    }

    fn settle(&mut self, program: ProgramNr, references: u64) {
        let LiveCount { nr_alive, since, .. } = self.counts[program];
        self.counts[program].since = references;
        if nr_alive == 0 || since >= references {
            return;
        }
        for part in self.part_of(since)..=self.part_of(references) {
            let end = if part + 1 == NR_BUCKETS { references } else { self.start_of(part + 1) };
            let (from, to) = (since.max(self.start_of(part)), references.min(end));
            let sums = &mut self.counts[program].sums;
            sums.resize(NR_BUCKETS, 0);
            sums[part] += u128::from(nr_alive) * u128::from(to.saturating_sub(from));
        }
    }

    pub(crate) fn note_memory(&mut self, used_bytes: u64, references: u64) {
        let part = self.part_of(references);
        let (before, noted) = self.used;
        for bytes in self.memory_bytes.iter_mut().take(part + 1).skip(noted) {
            *bytes = before.max(*bytes);
        }
        self.memory_bytes[part] = self.memory_bytes[part].max(used_bytes);
        self.used = (used_bytes, part);
    }

    pub(crate) fn finish(mut self, references: u64) -> Timeline {
        let used = self.used.0;
        self.note_memory(used, self.nr_references.max(references));
        (0..self.counts.len()).for_each(|program| self.settle(program, references));
        let nr_of = |part: usize| {
            let end = if part + 1 == NR_BUCKETS { references } else { self.start_of(part + 1) };
            u128::from(end.saturating_sub(self.start_of(part)).max(1))
        };
        let mean = |(part, sum): (usize, &u128)| {
            u64::try_from(sum * MILLI / nr_of(part)).unwrap_or(u64::MAX)
        };
        let of = |counts: &LiveCount| counts.sums.iter().enumerate().map(mean).collect();
        Timeline {
            alive_milli: self.counts.iter().map(of).collect(),
            memory_bytes: self.memory_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_the_mean_of_those_that_lived_in_it() {
        let mut recorder = Recorder::new(2_000);
        recorder.change(0, 1, 0);
        recorder.change(1, 1, 15);
        recorder.change(1, 1, 20);
        recorder.change(1, -2, 30);
        let timeline = recorder.finish(2_000);
        assert_eq!(timeline.alive_milli[0], vec![1000; NR_BUCKETS]);
        assert_eq!(timeline.alive_milli[1][..4], [0, 500, 2000, 0]);
    }

    #[test]
    fn memory_stays_in_use_until_it_changes() {
        let mut recorder = Recorder::new(2_000);
        recorder.note_memory(7, 0);
        recorder.note_memory(5, 1);
        recorder.note_memory(9, 35);
        recorder.note_memory(2, 36);
        let timeline = recorder.finish(2_000);
        assert_eq!(timeline.memory_bytes[..5], [7, 5, 5, 9, 2]);
    }
}
