//! How many cells are replayed at once.
//!
//! All cells of a replay hold their state at the same time; what asks for any number of them is split
//! into batches. A cell alone may need more: it cannot be split.

/// Most state that the cells of a batch may have together.
const STATE_BYTES_MAX: u64 = 1 << 30;
/// Memory of a cell for each byte of its state: nine bytes a base page of 4 KiB.
const MEMORY_BYTES_PER_STATE_BYTE: u64 = 4096 / 9;

/// `cells` in their order, in batches of at most `nr_max` cells and a gigabyte of state; a cell with
/// more has one of its own. `memory_bytes` is the physical memory of a cell.
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
