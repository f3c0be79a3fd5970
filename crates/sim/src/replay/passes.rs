//! Counts the passes over a trace for progress reports.

use super::spec::{CacheState, CellSpec};

/// Returns how often the trace is decoded: twice if a cell starts with a warm page cache.
#[must_use]
pub fn nr_passes(specs: &[CellSpec]) -> u64 {
    if specs.iter().any(|spec| spec.cache == CacheState::Warm) { 2 } else { 1 }
}

/// Rows of all passes so far. Each pass reports its rows from zero.
///
/// ```
/// use largefolio_sim::replay::RowsDone;
/// let mut done = RowsDone::default();
/// assert_eq!([5, 9, 4, 9].map(|nr_read| done.observe(nr_read)), [5, 9, 13, 18]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RowsDone {
    before: u64,
    last: u64,
}

impl RowsDone {
    /// Notes that the current pass has read `nr_read` rows. Returns the rows of all passes.
    pub fn observe(&mut self, nr_read: u64) -> u64 {
        if nr_read < self.last {
            self.begin();
        }
        self.last = nr_read;
        self.before + nr_read
    }

    /// Starts a pass. Needed if the row count alone does not show it, after a very short pass.
    pub fn begin(&mut self) {
        self.before += self.last;
        self.last = 0;
    }
}
