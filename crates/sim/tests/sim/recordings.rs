//! What real kernels did, replayed and compared; what is here reads the archives of programs.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be replayed fails the test")]

mod collapse;
mod cow;
mod damaged;
mod files;

use std::path::Path;

use largefolio_sim::crosscheck::processes::{Recording, Verdict, check, read_all};
use largefolio_sim::kernel::Kernel;
use rayon::prelude::*;

/// The project's recordings of one kind.
pub(super) fn recordings(kind: &str) -> Vec<Recording> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings").join(kind);
    let mut all = Vec::new();
    read_all(&dir, &mut |recording| all.push(recording)).unwrap();
    all
}

/// What comes of each program under the rules of `kernel`.
pub(super) fn verdicts(recording: &Recording, kernel: &Kernel) -> Vec<Verdict> {
    let header = &recording.header;
    recording.runs.par_iter().map(|run| check(run, kernel, header).unwrap()).collect()
}
