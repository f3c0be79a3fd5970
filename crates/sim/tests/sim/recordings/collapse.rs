//! Random programs about `MADV_COLLAPSE` that real kernels ran, and programs about files on disks,
//! replayed and compared page by page after each step (`recordings/README.md`, "Collapse").

use largefolio_sim::crosscheck::Recording;
use largefolio_sim::crosscheck::processes::{ProgramRow, Programs, Topic};
use largefolio_sim::kernel::version;

use super::{assert_equal, assert_read_back, assert_told_apart};

/// Up to 6.17 a process without any page near the block is refused the PMD entry of a file's block
/// that it has just collapsed; the model gives it one (docs/differences.md, "no table of blocks").
const WITHOUT_TABLE: [(u64, &[(u32, u32)]); 2] =
    [(1011, &[(6, 12), (6, 16), (6, 17)]), (3013, &[(6, 12), (6, 16), (6, 17)])];

fn is_known(recording: &Recording<Programs>, verdict: &ProgramRow) -> bool {
    let version = version(&recording.header.release);
    let of_kernel = |(seed, kernels): &(u64, &[(u32, u32)])| {
        *seed == verdict.seed && kernels.iter().any(|kernel| Some(*kernel) == version)
    };
    WITHOUT_TABLE.iter().any(of_kernel)
}

#[test]
fn model_equals_the_recorded_kernels() {
    let (nr_programs, nr_kernels) = assert_equal("collapse", &is_known);
    // Far fewer mean that archives were not found.
    assert!(nr_programs >= 2_148 && nr_kernels >= 10, "{nr_programs} of {nr_kernels} kernels");
}

/// A kernel does not pass for one with other rules of collapse.
#[test]
fn rules_of_another_kernel_are_told_apart() {
    assert_told_apart("collapse", [((7, 2), "7.1"), ((7, 1), "7.2"), ((6, 12), "6.18")], 5);
}

#[test]
fn programs_are_read_back_as_written() {
    assert_read_back(Topic::Collapse, &[4, 9]);
}
