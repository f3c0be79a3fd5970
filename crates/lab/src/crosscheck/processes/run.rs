//! Programs and the kernel's results for them.

use largefolio_mm::rules::reclaim::LruRule;

use super::khugepaged::Scan;
use super::limit::SwapNumbers;
use super::program::{ProcessOp, ProcessProgram, ProcessStep};
use super::range::PageRange;
use super::shmem::CachedFolio;
use super::statistics::{AllAreas, MachineKib, Recorded, SlotAreas};
use super::world::{PageState, PoolState, World};
use super::zswap::{ZswapMachine, ZswapNumbers};

/// The output of one run of `probe/cow.c`: programs, in order.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The kernel does not show which pages a PMD entry maps (before 6.7).
    pub(super) hides_pmds: bool,
    pub(super) lists: Option<LruRule>,
    /// The machine's cached file pages, if recorded.
    pub(super) others: Option<u64>,
    /// A machine with zswap.
    pub(super) zswap: Option<ZswapMachine>,
    pub(super) recorded: Recorded,
    pub runs: Vec<ProgramRun>,
}

#[derive(Clone, Debug, Default)]
pub struct ProgramRun {
    pub program: ProcessProgram,
    pub(super) results: Vec<StepResult>,
    pub(super) machine_before: Option<MachineKib>,
    /// Events that moved or split pages without the program's doing, with their counts.
    pub(super) disturbances: Vec<String>,
    pub is_complete: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct StepResult {
    /// Error number; 14 for a forbidden access.
    pub(super) error: Option<u32>,
    pub(super) changes: Vec<PageChange>,
    /// Faults of the step's loads and stores, if counted.
    pub(super) nr_faults: Option<u64>,
    pub(super) scan: Scan,
    /// Cached pages of the program's own file, if the number changed.
    pub(super) nr_cached: Option<u64>,
    /// Cached pages in PMD-sized folios; recorded together with [`Self::nr_cached`].
    pub(super) nr_huge: Option<u64>,
    /// Cached folios of the own file, if it is in memory and they changed.
    pub(super) folios: Option<Vec<CachedFolio>>,
    pub(super) pool: Option<PoolState>,
    pub(super) swap: Option<SwapNumbers>,
    pub(super) zswap: Option<ZswapNumbers>,
    pub(super) counts: Vec<(u64, u32)>,
    pub(super) mapcounts: Vec<MapcountChange>,
    pub(super) areas: Vec<SlotAreas>,
    pub(super) machine: Option<MachineKib>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MapcountChange {
    pub(super) slot: usize,
    pub(super) pages: PageRange,
    pub(super) mapcount: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PageChange {
    pub(super) slot: usize,
    pub(super) pages: PageRange,
    /// State of the first page; the others are the next pages of its folio.
    pub(super) state: PageState,
}

impl ProgramRun {
    #[must_use]
    pub fn nr_steps(&self) -> usize {
        self.results.len()
    }

    /// Events that moved or split pages without the program's doing. A program that collapses
    /// memory makes new huge pages itself; khugepaged sleeps then.
    #[must_use]
    pub fn disturbances(&self) -> Vec<&str> {
        let collapses = |step: &ProcessStep| {
            use ProcessOp::{Collapse, CollapseTo, Scan};
            matches!(step.op, Collapse(_) | CollapseTo(..) | Scan)
        };
        let is_collapsing = self.program.steps.iter().any(collapses);
        let is_own = |event: &&str| is_collapsing && event.starts_with("thp_collapse_alloc");
        self.disturbances.iter().map(String::as_str).filter(|event| !is_own(event)).collect()
    }
}

impl StepResult {
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

    pub(super) fn apply_areas(&self, areas: &mut AllAreas) {
        for change in &self.areas {
            areas[change.slot].clone_from(&change.areas);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collapse_of_the_programs_own_disturbs_nothing() {
        let step = |op| ProcessStep { slot: 0, op };
        let mut run = ProgramRun {
            disturbances: vec!["thp_collapse_alloc 1".into(), "pgmigrate_success 2".into()],
            ..ProgramRun::default()
        };
        assert_eq!(run.disturbances().len(), 2);
        run.program.steps = vec![step(ProcessOp::Collapse(PageRange { first: 0, nr: 512 }))];
        assert_eq!(run.disturbances(), ["pgmigrate_success 2"]);
    }
}
