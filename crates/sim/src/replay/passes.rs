//! Passes over a trace, as whoever waits for them counts.

use super::spec::{CacheState, CellSpec};

/// How often the trace is decoded for `specs`: twice where a cell starts with a warm page cache.
#[must_use]
pub fn nr_passes(specs: &[CellSpec]) -> u64 {
    if specs.iter().any(|spec| spec.cache == CacheState::Warm) { 2 } else { 1 }
}

/// Rows of all passes so far. Each pass counts its rows from the beginning.
///
/// ```
/// use largefolio_sim::replay::RowsDone;
/// let mut done = RowsDone::default();
/// assert_eq!([5, 9, 4, 9].map(|nr_read| done.hear(nr_read)), [5, 9, 13, 18]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RowsDone {
    before: u64,
    last: u64,
}

impl RowsDone {
    /// The present pass has read `nr_read` rows; all passes together, that many.
    pub fn hear(&mut self, nr_read: u64) -> u64 {
        if nr_read < self.last {
            self.begin();
        }
        self.last = nr_read;
        self.before + nr_read
    }

    /// A pass begins, also where the one before was so short that its rows do not tell.
    pub fn begin(&mut self) {
        self.before += self.last;
        self.last = 0;
    }
}
