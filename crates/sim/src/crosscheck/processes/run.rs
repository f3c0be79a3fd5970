//! Programs, and what a kernel answered to them.

use largefolio_mm::rules::reclaim::LruRule;

use super::khugepaged::Scan;
use super::limit::SwapNumbers;
use super::program::ProcessProgram;
use super::range::PageRange;
use super::statistics::{AllAreas, MachineKib, Recorded, SlotAreas};
use super::world::{PageState, PoolState, World};

/// The output of one run of `probe/cow.c`: programs, in order.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The kernel does not tell what a PMD entry maps (before 6.7).
    pub(super) hides_pmds: bool,
    /// The lists that were on, where the recording says.
    pub(super) lists: Option<LruRule>,
    /// What it tells beside the pages.
    pub(super) recorded: Recorded,
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
    /// Mapped pages of the machine before the first step.
    pub(super) machine_before: Option<MachineKib>,
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
    /// What khugepaged did when it was woken.
    pub(super) scan: Scan,
    /// Pages of the program's own file that are cached, where their number changed.
    pub(super) nr_cached: Option<u64>,
    /// Pages of them in PMD-sized folios, said together with [`Self::nr_cached`].
    pub(super) nr_huge: Option<u64>,
    /// Numbers of the pool of huge pages, where they changed.
    pub(super) pool: Option<PoolState>,
    /// Swap space, where something went there or came back.
    pub(super) swap: Option<SwapNumbers>,
    /// Mappings of labels, where their number changed.
    pub(super) counts: Vec<(u64, u32)>,
    /// Pages whose map count changed.
    pub(super) mapcounts: Vec<MapcountChange>,
    /// Processes whose areas changed.
    pub(super) areas: Vec<SlotAreas>,
    /// Mapped pages of the machine.
    pub(super) machine: Option<MachineKib>,
}

/// Pages that have another map count.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapcountChange {
    pub(super) slot: usize,
    pub(super) pages: PageRange,
    pub(super) mapcount: u32,
}

/// Pages that changed in the same way.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageChange {
    pub(super) slot: usize,
    pub(super) pages: PageRange,
    /// State of the first page; the following ones are the next pages of its folio.
    pub(super) state: PageState,
}

impl ProgramRun {
    /// Steps of it that the kernel answered.
    #[must_use]
    pub fn nr_steps(&self) -> usize {
        self.answers.len()
    }
}

impl Answer {
    /// Applies the changes to what was there before the step.
    pub(super) fn apply(&self, world: &mut World) {
        for change in &self.mapcounts {
            world.set_mapcount(change.slot, change.pages, change.mapcount);
        }
        for change in &self.changes {
            world.set(change.slot, change.pages, change.state);
        }
        world.pool = self.pool.or(world.pool);
        world.counts.extend(self.counts.iter().copied());
    }

    /// Takes over what is said of areas.
    pub(super) fn apply_areas(&self, areas: &mut AllAreas) {
        for change in &self.areas {
            areas[change.slot].clone_from(&change.areas);
        }
    }
}
