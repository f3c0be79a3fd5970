//! Counts a cell's work and state against its [`Budget`](super::Budget).
//!
//! Checks the budget after every event and every fault, but never after a reference that found its
//! page.

use super::budget::{
    CPU_BYTES, ENTRY_BYTES, Excess, OverBudget, STACKS_BYTES, STEPS_OF_EVENT, THREAD_BYTES,
};
use super::cell::Cell;
use super::error::CellError;
use super::program::ProcessNr;

impl Cell {
    pub(super) fn allow(&mut self, nr_rows: usize) {
        self.meter.nr_rows += nr_rows as u64;
        let limit = self.spec.budget.steps_after(self.meter.nr_rows);
        self.change(|memory| memory.work_mut().set_limit(limit));
    }

    pub(super) fn count_steps(&self, nr: usize) {
        self.memory.work().add(nr as u64);
    }

    pub(super) fn count_event(&self) {
        self.memory.work().add(STEPS_OF_EVENT);
    }

    pub(super) fn check_budget(&mut self, process: ProcessNr) -> Result<(), CellError> {
        self.measure_process(process);
        self.check_limits()
    }

    /// Checks the budget without measuring the processes again.
    pub(super) fn check_limits(&self) -> Result<(), CellError> {
        let budget = &self.spec.budget;
        let held = self.state_bytes();
        let work = self.memory.work();
        let excess = if work.is_spent() {
            let allowed = budget.steps_after(self.meter.nr_rows);
            let of_policy = self.memory.policy_steps();
            Excess::Steps { taken: work.nr_steps(), allowed, of_policy }
        } else if held > budget.state_bytes {
            Excess::State { held, allowed: budget.state_bytes }
        } else {
            return Ok(());
        };
        let policy = self.spec.kernel.policy.as_ref().map(|policy| policy.name().to_owned());
        let over = OverBudget { row: None, op: None, excess, policy, budget: *budget };
        Err(CellError::OverBudget(Box::new(over)))
    }

    pub(super) fn measure_process(&mut self, process: ProcessNr) {
        let Some(measured) = self.program.processes.get(process) else { return };
        let mm = self.program.spaces[measured.space].mm;
        self.change(|memory| memory.measure(mm));
        let process = &mut self.program.processes[process];
        let space = &mut self.program.spaces[process.space];
        let parts = [
            (process.nr_entries(), &mut process.measured_bytes),
            (space.nr_entries(), &mut space.measured_bytes),
        ];
        for (nr_entries, measured_bytes) in parts {
            let bytes = nr_entries as u64 * ENTRY_BYTES;
            let before = std::mem::replace(measured_bytes, bytes);
            self.meter.process_bytes = self.meter.process_bytes - before + bytes;
        }
    }

    fn state_bytes(&self) -> u64 {
        let of_cpu = CPU_BYTES + if self.pictures.is_some() { STACKS_BYTES } else { 0 };
        let nr_threads = self.program.threads.len() as u64;
        self.memory.state_bytes()
            + self.meter.process_bytes
            + self.hardware.nr_cpus() as u64 * of_cpu
            + nr_threads * THREAD_BYTES
            + self.counted.touched.nr_words() as u64 * ENTRY_BYTES
    }
}
