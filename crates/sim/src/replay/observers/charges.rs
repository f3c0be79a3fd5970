//! Charges faults and memory in use to the program that caused them.
//!
//! Decides when a cell takes these counts. [`super::programs`] defines them.

use crate::cost::{Estimate, Events};
use crate::replay::cell::Cell;
use crate::replay::observers::programs::{ManyProcesses, MemoryParts, ProgramNr, ProgramOutcome};
use crate::replay::program::ProcessNr;
use crate::tlb;

#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultsSoFar {
    all: u64,
    major: u64,
}

impl Cell {
    #[inline]
    pub(crate) fn faults_so_far(&self) -> FaultsSoFar {
        let counters = self.memory.counters();
        FaultsSoFar { all: counters.pgfault, major: counters.pgmajfault }
    }

    pub(crate) fn charge_faults(&mut self, program: ProgramNr, before: FaultsSoFar) {
        let now = self.faults_so_far();
        let tally = &mut self.counted.programs.tallies[program];
        tally.faults += now.all - before.all;
        tally.major_faults += now.major - before.major;
        self.note_memory();
    }

    pub(crate) fn program_of(&self, process: ProcessNr) -> ProgramNr {
        self.program.processes[process].program
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        let nr_pages = self.memory.core().buddy.nr_allocated_pages();
        nr_pages.saturating_sub(self.nr_pages_at_start) << self.page().shift()
    }

    fn note_memory(&mut self) {
        let used = self.used_bytes();
        if let Some(keeper) = &mut self.pictures {
            keeper.note_memory(used, self.hardware.nr_references);
        }
        if used <= self.counted.programs.memory.peak_bytes {
            return;
        }
        let references = self.hardware.nr_references;
        let programs = &mut self.counted.programs;
        (programs.memory.peak_bytes, programs.memory.peak_references) = (used, references);
        if used > programs.looked_at_bytes + programs.looked_at_bytes / 4 {
            programs.looked_at_bytes = used;
            programs.memory.peak = MemoryParts::of(&self.memory, references);
            self.count_steps(usize::try_from(used >> self.page().shift()).unwrap_or(0) / 8);
        }
    }

    pub(crate) fn note_end_of_memory(&mut self) {
        let references = self.hardware.nr_references;
        self.counted.programs.memory.end = MemoryParts::of(&self.memory, references);
    }

    /// Returns the results by program; `None` if the trace has one process that ran one program.
    pub(crate) fn many_processes(&self) -> Option<ManyProcesses> {
        let counted = &self.counted.programs;
        if self.program.nr_started <= 1 && counted.nr_executed == 0 {
            return None;
        }
        let by_program = self.hardware.by_program();
        let none = tlb::Counters::default();
        let programs = counted.tallies.iter().enumerate().map(|(nr, tally)| {
            let tlb = by_program.get(nr).unwrap_or(&none);
            ProgramOutcome {
                references: tlb.instruction.references + tlb.data.references,
                instruction_walks: tlb.instruction.l2_misses,
                data_walks: tlb.data.l2_misses,
                estimate_ns: self.estimate_of(tally.faults, tlb),
                ..tally.clone()
            }
        });
        Some(ManyProcesses {
            nr_started: self.program.nr_started as u64,
            nr_alive_max: counted.nr_alive_max,
            memory: counted.memory.clone(),
            programs: programs.collect(),
        })
    }

    fn estimate_of(&self, faults: u64, tlb: &tlb::Counters) -> Option<u64> {
        let (l2_hits, walks) = (tlb.l2_hits_by_wait(), tlb.walk_kinds);
        let has_links = self.has_links;
        let events = Events { faults, l2_hits, walks, has_links, ..Events::default() };
        let on = self.spec.walks.on(&self.spec.machine);
        Estimate::new(&events, &self.spec.machine.costs, on).total_ns
    }
}
