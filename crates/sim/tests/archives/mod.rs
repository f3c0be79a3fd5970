//! Archives of recorded programs, and their replay.

use std::path::Path;

use largefolio_sim::cowcheck::{Recording, Verdict, check, read_all};
use largefolio_sim::kernel::Kernel;
use rayon::prelude::*;

/// The project's recordings of one kind.
pub(crate) fn recordings(kind: &str) -> Vec<Recording> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings").join(kind);
    let mut all = Vec::new();
    read_all(&dir, &mut |recording| all.push(recording)).unwrap();
    all
}

/// What comes of each program under the rules of `kernel`.
pub(crate) fn verdicts(recording: &Recording, kernel: &Kernel) -> Vec<Verdict> {
    let header = &recording.header;
    recording.runs.par_iter().map(|run| check(run, kernel, header).unwrap()).collect()
}
