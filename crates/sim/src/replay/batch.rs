//! Decides how many cells run together.
//!
//! All cells of one replay hold their state at the same time, so callers split large sets of cells
//! into batches. A single cell can exceed the limit because it cannot be split.

use crate::replay::request::spec::{CacheState, CellSpec};

/// Limit on the state of all cells in a batch together.
const STATE_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a cell's memory per byte of its state: nine bytes for a base page of 4 KiB.
const MEMORY_BYTES_PER_STATE_BYTE: u64 = 4096 / 9;

/// Splits `cells` in order into batches of at most `nr_max` cells and 1 GiB of state. A cell that
/// needs more state gets its own batch. `memory_bytes` returns a cell's physical memory.
///
/// ```
/// use largefolio_sim::replay::batches;
/// let gib = |cells: &u64| cells << 30;
/// assert_eq!(batches([400, 56, 100, 100, 100], 2, gib), [vec![400], vec![56, 100], vec![100, 100]]);
/// ```
pub fn batches<T>(
    cells: impl IntoIterator<Item = T>,
    nr_max: usize,
    memory_bytes: impl Fn(&T) -> u64,
) -> Vec<Vec<T>> {
    let mut batches: Vec<Vec<T>> = Vec::new();
    let mut state_bytes = 0_u64;
    for cell in cells {
        let bytes = memory_bytes(&cell) / MEMORY_BYTES_PER_STATE_BYTE;
        let with_it = state_bytes.saturating_add(bytes);
        match batches.last_mut() {
            Some(batch) if batch.len() < nr_max && with_it <= STATE_BYTES_MAX => {
                batch.push(cell);
                state_bytes = with_it;
            }
            _ => {
                batches.push(vec![cell]);
                state_bytes = bytes;
            }
        }
    }
    batches
}

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
