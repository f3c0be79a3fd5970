//! Random programs that khugepaged of real kernels worked for, replayed and compared: what it looked
//! at, in order, what came of it, and every page (`recordings/README.md`, "khugepaged").

use largefolio_sim::crosscheck::processes::Topic;

use super::{assert_equal, assert_read_back};

#[test]
fn model_equals_the_recorded_kernels() {
    let (nr_programs, nr_kernels) = assert_equal("khugepaged", &|_, _| false);
    // Far fewer mean that archives were not found.
    assert!(nr_programs >= 242 && nr_kernels >= 1, "{nr_programs} of {nr_kernels} kernels");
}

#[test]
fn programs_are_read_back_as_written() {
    assert_read_back(Topic::Khugepaged, &[4, 9]);
}
