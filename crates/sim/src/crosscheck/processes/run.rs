//! Programs, and what a kernel answered to them.

use super::program::{PageRange, ProcessProgram};
use super::world::{PageState, PoolState, World};

/// The output of one run of `probe/cow.c`: programs, in order.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The kernel does not tell what a PMD entry maps (before 6.7).
    pub(super) hides_pmds: bool,
    /// In the order they ran.
    pub runs: Vec<ProgramRun>,
}

/// One program and its answers.
#[derive(Clone, Debug, Default)]
pub struct ProgramRun {
    /// What was done.
    pub program: ProcessProgram,
    /// One for each step.
    pub(super) answers: Vec<Answer>,
    /// Events of the machine that move or split pages behind a program's back, with their number.
    pub(super) disturbances: Vec<String>,
    /// Whether the last step was reached.
    pub is_complete: bool,
}

/// What a step did.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    /// Error number, 14 for an access that may not be.
    pub(super) error: Option<u32>,
    /// Pages whose state changed.
    pub(super) changes: Vec<PageChange>,
    /// Pages of the program's own file that are cached, where their number changed.
    pub(super) nr_cached: Option<u64>,
    /// Numbers of the pool of huge pages, where they changed.
    pub(super) pool: Option<PoolState>,
    /// Mappings of labels, where their number changed.
    pub(super) counts: Vec<(u64, u32)>,
}

/// Pages that changed in the same way.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageChange {
    pub(super) slot: usize,
    pub(super) pages: PageRange,
    /// State of the first page; the following ones are the next pages of its folio.
    pub(super) state: PageState,
}

impl Answer {
    /// Applies the changes to what was there before the step.
    pub(super) fn apply(&self, world: &mut World) {
        for change in &self.changes {
            world.set(change.slot, change.pages, change.state);
        }
        world.pool = self.pool.or(world.pool);
        world.counts.extend(self.counts.iter().copied());
    }
}
