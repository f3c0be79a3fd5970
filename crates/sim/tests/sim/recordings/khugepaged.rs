//! Random programs that khugepaged of real kernels worked for, replayed and compared: what it looked
//! at, in order, what came of it, and every page (`recordings/README.md`, "khugepaged").

use largefolio_sim::crosscheck::processes::Topic;

use super::{assert_equal, assert_read_back};

/// On 6.12 an area of a file is advised in parts; the kernel does not scan it, the model does
/// (docs/differences.md, `READ_ONLY_THP_FOR_FS`).
const ADVISED_LATE: u64 = 52_002;

#[test]
fn model_equals_the_recorded_kernels() {
    let (nr_programs, nr_kernels) = assert_equal("khugepaged", &|_, row| row.seed == ADVISED_LATE);
    // Far fewer mean that archives were not found.
    assert!(nr_programs >= 482 && nr_kernels >= 2, "{nr_programs} of {nr_kernels} kernels");
}

#[test]
fn programs_are_read_back_as_written() {
    assert_read_back(Topic::Khugepaged, &[4, 9]);
    assert_read_back(Topic::DiskKhugepaged, &[9]);
}
