//! Replays of the cells between two kernels, within a budget.

use std::ops::ControlFlow;

use largefolio_trace::OpenTrace;

use super::WhyError;
use crate::replay::{CellSpec, Outcome, RowsDone, nr_passes, replay_until};
use crate::why::{Comparison, Mix};

/// Cells per pass over the trace: each has its own memory, 5 MiB for a small program.
const NR_CELLS_OF_A_PASS: usize = 64;

/// Receives the rows replayed and the total needed so far, and returns whether to continue: the
/// caller has the clock.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// All replays of one explanation.
pub struct Replays<'a> {
    trace: &'a OpenTrace,
    nr_rows: u64,
    progress: Progress<'a>,
    done: RowsDone,
    nr_all: u64,
}

impl<'a> Replays<'a> {
    pub(super) fn new(trace: &'a OpenTrace, nr_rows: u64, progress: Progress<'a>) -> Self {
        Self { trace, nr_rows, progress, done: RowsDone::default(), nr_all: 0 }
    }

    /// Replays the cells of `mixes`, in their order.
    pub(super) fn run(
        &mut self,
        comparison: &Comparison,
        mixes: &[Mix],
    ) -> Result<Vec<Outcome>, WhyError> {
        let specs = mixes.iter().map(|mix| comparison.spec(mix));
        let specs: Vec<CellSpec> = specs.collect::<Result<_, _>>()?;
        let parts = specs.chunks(NR_CELLS_OF_A_PASS);
        let nr_passes: u64 = parts.clone().map(nr_passes).sum();
        self.nr_all = self.nr_all.saturating_add(self.nr_rows.saturating_mul(nr_passes));
        let mut outcomes = Vec::with_capacity(specs.len());
        for part in parts {
            self.done.begin();
            let mut observe = |nr_read| (self.progress)(self.done.observe(nr_read), self.nr_all);
            outcomes.extend(replay_until(self.trace, part, &mut observe)?.1);
        }
        Ok(outcomes)
    }
}
