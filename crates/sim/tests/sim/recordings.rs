//! What real kernels did, replayed and compared; what is here reads the archives of programs.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be replayed fails the test")]

mod collapse;
mod cow;
mod damaged;
mod files;

use std::path::Path;

use largefolio_sim::crosscheck::processes::{ProgramRow, Programs};
use largefolio_sim::crosscheck::{Recording, read_all};
use largefolio_sim::kernel::Kernel;

/// The project's recordings of one kind.
pub(super) fn recordings(kind: &str) -> Vec<Recording<Programs>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings").join(kind);
    let mut all = Vec::new();
    read_all(&dir, &mut |recording| all.push(recording)).unwrap();
    all
}

/// What comes of each program under the rules of `kernel`, or of the kernel that was recorded.
pub(super) fn rows(recording: &Recording<Programs>, kernel: Option<&Kernel>) -> Vec<ProgramRow> {
    let verdicts = recording.check(kernel).unwrap();
    recording.body.runs.iter().zip(verdicts).map(|(run, one)| ProgramRow::new(run, one)).collect()
}
