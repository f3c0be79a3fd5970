//! Recordings of processes that ran before: where counting begins, and where it ends.
//!
//! ```text
//!   rows of the time before     rows of the recording        the end of the trace
//!   ----------------------->|<----------------------------->|
//!   build memory, and count nothing    counted              a live process keeps its memory
//! ```
//!
//! Owns these two moments. What stays from the time before is the state of the machine: memory, page
//! cache, TLBs, and the places that the program did not find.

use super::cell::{Cell, Counted};
use super::programs::Programs;
use crate::cost::Mark;

impl Cell {
    /// Rows before the recording, while it has not begun; `u64::MAX` for one that has.
    pub(super) fn rows_until_recording(&self) -> u64 {
        let attached = self.meta.attached.filter(|_| !self.counted.has_begun);
        attached.map_or(u64::MAX, |attached| attached.nr_rows)
    }

    /// Ends the rows of the time before. Their counts are dropped.
    pub(super) fn begin_recording(&mut self) {
        self.cgroups.mark(&self.memory);
        self.memory.take_observed();
        self.memory.take_stretches();
        self.hardware.charge_all();
        self.hardware.forget_charges();
        let base = self.mark();
        let counted = Counted { has_begun: true, base, ..Counted::new(&self.spec) };
        let before = std::mem::replace(&mut self.counted, counted);
        self.counted.nr_rows = before.nr_rows;
        self.counted.tenths = before.tenths;
        self.counted.programs = Programs::after(before.programs);
        // Pages that the model could not place stay missing.
        self.counted.strays = before.strays;
        self.counted.nr_maps_without_pool = before.nr_maps_without_pool;
        self.begin_pictures();
    }

    /// Ends the trace, and what counts. Processes of a live recording that are still alive stay so:
    /// the model ends them here, but the program did not, so this does not count.
    pub(super) fn end_recording(&mut self) {
        if self.rows_until_recording() < u64::MAX {
            self.begin_recording();
        }
        let end = self.meta.faults_only.then(|| self.mark());
        self.end_processes();
        self.counted.end = end.unwrap_or_else(|| self.mark());
    }

    /// Counters now.
    pub(super) fn mark(&self) -> Mark {
        Mark { counters: *self.memory.counters(), ram: self.memory.core().ram.counted }
    }
}
