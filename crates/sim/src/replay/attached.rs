//! Recordings that attach to running processes: where counting begins and ends.
//!
//! ```text
//!   rows of the time before     rows of the recording        the end of the trace
//!   ----------------------->|<----------------------------->|
//!   build memory, and count nothing    counted              a live process keeps its memory
//! ```
//!
//! The earlier rows leave only the machine's state: memory, page cache, TLBs, and the addresses
//! that could not be placed.

use crate::cost::Mark;
use crate::replay::cell::{Cell, Counted};
use crate::replay::observers::programs::Programs;

impl Cell {
    /// Returns the rows left before the recording begins, or `u64::MAX` once it has begun.
    pub(crate) fn rows_until_recording(&self) -> u64 {
        let attached = self.meta.attached.filter(|_| !self.counted.has_begun);
        attached.map_or(u64::MAX, |attached| attached.nr_rows)
    }

    pub(crate) fn begin_recording(&mut self) {
        self.cgroups.mark(&self.memory);
        self.change(largefolio_mm::memory::Memory::take_observed);
        self.change(largefolio_mm::memory::Memory::take_stretches);
        self.hardware.charge_all();
        self.hardware.forget_charges();
        let base = self.mark();
        let counted = Counted { has_begun: true, base, ..Counted::new(&self.spec, &self.meta) };
        let before = std::mem::replace(&mut self.counted, counted);
        self.counted.nr_rows = before.nr_rows;
        self.counted.tenths = before.tenths;
        self.counted.programs = Programs::after(before.programs);
        // An address that the model could not place stays missing.
        self.counted.strays = before.strays;
        self.counted.nr_maps_without_pool = before.nr_maps_without_pool;
        self.begin_pictures();
    }

    /// Ends the trace and the counting. A process of a live recording was still running at this
    /// point: the model ends it, but its exit is not counted.
    pub(crate) fn end_recording(&mut self) {
        if self.rows_until_recording() < u64::MAX {
            self.begin_recording();
        }
        let end = self.meta.faults_only.then(|| self.mark());
        self.end_processes();
        self.counted.end = end.unwrap_or_else(|| self.mark());
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { counters: *self.memory.counters(), ram: self.memory.core().ram.counted }
    }
}
