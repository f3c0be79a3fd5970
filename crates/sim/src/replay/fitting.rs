//! Replays cells that may not finish because memory or time runs out.
//!
//! ```text
//!   cells --passes of all, or of as many as there are processors--> outcomes
//!                     |`---- its memory was not enough --> unfit
//!                     `----- `progress` ended it before -> not replayed
//! ```

use std::num::NonZero;
use std::thread::available_parallelism;

use largefolio_trace::OpenTrace;

use crate::replay::batch::{RowsDone, nr_passes};
use crate::replay::outcome::Outcome;
use crate::replay::request::spec::CellSpec;
use crate::replay::{Failed, Outcomes, Progress, ReplayError, run};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All cells: the trace is decoded once, and all cells finish together.
    All,
    /// As many cells as processors: some are complete whenever `progress` stops the replay.
    Few,
}

impl Sharing {
    #[must_use]
    pub fn nr_rows(self, trace: &OpenTrace, specs: &[CellSpec]) -> u64 {
        let nr_groups = specs.len().div_ceil(self.nr_at_once(specs)) as u64;
        trace.meta().nr_rows.saturating_mul(nr_passes(specs)).saturating_mul(nr_groups)
    }

    fn nr_at_once(self, specs: &[CellSpec]) -> usize {
        match self {
            Self::All => specs.len().max(1),
            Self::Few => available_parallelism().map_or(1, NonZero::get).max(2),
        }
    }
}

#[derive(Debug, Default)]
pub struct Fitting {
    pub outcomes: Vec<(usize, Outcome)>,
    /// Cells whose memory, or a cgroup's limit, was too small.
    pub unfit: Vec<usize>,
    /// Cells that were not complete when `progress` stopped the replay.
    pub not_replayed: Vec<usize>,
}

impl Fitting {
    #[must_use]
    pub fn is_cut(&self) -> bool {
        !self.not_replayed.is_empty()
    }

    fn add(&mut self, first: usize, cells: Outcomes) -> Result<(), ReplayError> {
        for (nr, cell) in (first..).zip(cells) {
            match cell {
                Ok(outcome) => self.outcomes.push((nr, outcome)),
                Err(error) if error.is_out_of_memory() => self.unfit.push(nr),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Like [`replay_until`](super::replay_until), but a cell that is too small for the program is a
/// result, not an error. With [`Sharing::Few`], a cell that ran out of time is a result too.
/// `progress` receives the rows of all passes, plus the rows that `done` already counts.
///
/// # Errors
/// As [`replay_until`](super::replay_until), except for too little memory. [`ReplayError::Stopped`]
/// occurs only with [`Sharing::All`].
pub fn replay_fitting(
    trace: &OpenTrace,
    specs: &[CellSpec],
    sharing: Sharing,
    done: &mut RowsDone,
    progress: Progress<'_>,
) -> Result<Fitting, ReplayError> {
    let (mut fitting, mut first) = (Fitting::default(), 0);
    for group in specs.chunks(sharing.nr_at_once(specs)) {
        done.begin();
        let mut observe = |nr_read| progress(done.observe(nr_read));
        match run(trace, group, Failed::EndsItself, &mut observe) {
            Err(ReplayError::Stopped) if sharing == Sharing::Few => {
                fitting.not_replayed.extend(first..specs.len());
                break;
            }
            found => fitting.add(first, found?.1)?,
        }
        first += group.len();
    }
    Ok(fitting)
}
