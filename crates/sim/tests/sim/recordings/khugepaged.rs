//! Random programs under the khugepaged of real kernels, replayed and compared: the scanned ranges
//! in order, their results, and every page (`recordings/README.md`, "khugepaged").

use largefolio_sim::crosscheck::processes::Topic;

use super::{assert_equal, assert_read_back};

/// On 6.12, parts of a file's area are advised one after another; the kernel does not scan it, the
/// model does (docs/differences.md, `READ_ONLY_THP_FOR_FS`).
const ADVISED_LATE: u64 = 52_002;

#[test]
fn model_equals_the_recorded_kernels() {
    let (nr_programs, nr_kernels) = assert_equal("khugepaged", &|_, row| row.seed == ADVISED_LATE);
    // Far fewer mean that the test did not find the archives.
    assert!(nr_programs >= 482 && nr_kernels >= 2, "{nr_programs} of {nr_kernels} kernels");
}

#[test]
fn programs_are_read_back_as_written() {
    assert_read_back(Topic::Khugepaged, &[4, 9]);
    assert_read_back(Topic::DiskKhugepaged, &[9]);
}
