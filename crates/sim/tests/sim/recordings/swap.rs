//! Programs in a memory group with a limit, with swap space: what kernels swapped and brought back,
//! and what the model does.
//!
//! `LARGEFOLIO_SWAP=DIR` judges the recordings of another folder and prints the first difference of
//! each program.

use std::path::Path;

use largefolio_sim::crosscheck::processes::Programs;
use largefolio_sim::crosscheck::{Recording, read_all};

use super::rows;

#[test]
fn model_swaps_what_the_recorded_kernels_swapped() {
    let Some(dir) = std::env::var_os("LARGEFOLIO_SWAP") else { return };
    let mut all: Vec<Recording<Programs>> = Vec::new();
    read_all(Path::new(&dir), &mut |recording| all.push(recording)).unwrap();
    for recording in &all {
        let found = rows(recording, None);
        let nr_equal = found.iter().filter(|row| row.is_equal()).count();
        println!("{}: {nr_equal} of {}", recording.name, found.len());
        for row in found.iter().filter(|row| !row.is_equal()) {
            println!("  {row}");
        }
    }
}
