//! Programs, and what a kernel answered to them.

use super::program::{Pages, Program};
use super::world::{PageState, World};

/// The output of one run of `probe/cow.c`: programs, in order.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The kernel does not tell what a PMD entry maps (before 6.7).
    pub hides_pmds: bool,
    /// The programs, in order.
    pub runs: Vec<ProgramRun>,
}

/// One program and its answers.
#[derive(Clone, Debug, Default)]
pub struct ProgramRun {
    /// The program.
    pub program: Program,
    /// One for each step.
    pub answers: Vec<Answer>,
    /// Events of the machine that move or split pages behind a program's back, with their number.
    pub disturbances: Vec<String>,
    /// Whether the last step was reached.
    pub is_complete: bool,
}

/// What a step did.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Error number, 14 for an access that may not be.
    pub error: Option<u32>,
    /// Pages whose state changed.
    pub changes: Vec<PageChange>,
    /// Pages of the program's own file that are cached, where their number changed.
    pub nr_cached: Option<u64>,
}

/// Pages that changed in the same way.
#[derive(Clone, Copy, Debug)]
pub struct PageChange {
    /// Process.
    pub slot: usize,
    /// Pages.
    pub pages: Pages,
    /// State of the first page; the following ones are the next pages of its folio.
    pub state: PageState,
}

impl Answer {
    /// Applies the changes to what was there before the step.
    pub(super) fn apply(&self, world: &mut World) {
        for change in &self.changes {
            world.set(change.slot, change.pages, change.state);
        }
    }
}
