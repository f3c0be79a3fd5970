//! The first touch of memory that a virtual machine has returned to its host.
//!
//! A guest with free page reporting returns its free blocks after about two seconds. The host then
//! backs a block again at its first touch, which can take a hundred times as long as clearing it.
//! No model can say which blocks a program gets, but bounds can contain both.

use std::thread;
use std::time::Duration;

use super::Figure;
use super::anon::{BenchError, FolioSize, Operation};
use crate::geometry::Geometry;

/// Long enough for the guest to return its free memory.
const PAUSE: Duration = Duration::from_secs(4);
const REGION_BYTES: usize = 64 << 20;

/// Measures the first touch of PMD folios after a pause, per folio. Call it before other
/// measurements: the guest returns a part of its free memory every two seconds.
///
/// # Errors
/// If the kernel has no such folios, or a system call fails.
pub(super) fn measure(nr_rounds: usize) -> Result<Option<Figure>, BenchError> {
    let pmd_bytes = Geometry::running().pmd_bytes();
    let bytes = usize::try_from(pmd_bytes).unwrap_or(usize::MAX);
    if bytes > REGION_BYTES {
        return Ok(None);
    }
    FolioSize::given(bytes, REGION_BYTES)?;
    let mut rounds_ns = Vec::new();
    for _ in 0..nr_rounds {
        // The system keeps its own setting meanwhile.
        thread::sleep(PAUSE);
        let size = FolioSize::enable(bytes)?;
        rounds_ns.push(size.time(Operation::Touch, REGION_BYTES)?.as_secs_f64() * 1e9);
    }
    let how = "first touch of PMD folios, four seconds after memory was last freed";
    Ok(Figure::of(&rounds_ns, REGION_BYTES / bytes, how))
}
