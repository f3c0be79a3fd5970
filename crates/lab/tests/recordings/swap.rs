//! Programs in a memory cgroup with a limit and swap space: swap-outs and swap-ins in kernels and
//! in the model.
//!
//! Not all are equal: the table of `docs/design/tables/fidelity.txt` has the numbers, and this test
//! fails when it changes. `LARGEFOLIO_SWAP=DIR` tests another folder's recordings and prints each
//! program's first difference.

use super::document;
use super::kinds::{assert_explains_more, judge, recordings_or, table};

/// Two LRU kinds of five packaged kernels; fewer mean that the test did not find the archives.
const NR_KINDS_MIN: usize = 10;
/// Minimal percentage of a kernel's steps, per LRU kind, before the first difference of their
/// program.
const EQUAL_PERCENT_MIN: usize = 50;
const VARIABLE: &str = "LARGEFOLIO_SWAP";

#[test]
fn model_swaps_what_the_recorded_kernels_swapped() {
    largefolio_testkit::only_in_test_all!("replays these recordings");
    let kinds = judge(&recordings_or("swap", VARIABLE), |line| println!("{line}"));
    let table = table(&kinds);
    println!("{table}");
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    assert!(kinds.len() >= NR_KINDS_MIN, "{} kinds", kinds.len());
    for (name, kind) in &kinds {
        assert!(kind.percent() >= EQUAL_PERCENT_MIN, "{name}: {}%", kind.percent());
    }
    document("swap.rs", &table);
}

#[test]
fn rules_of_another_kernel_are_told_apart() {
    largefolio_testkit::only_in_test_all!("replays these recordings");
    let pairs = [("deb_7.2_amd64_lists", "6.18"), ("deb_6.12_amd64_lists", "6.1")];
    assert_explains_more("swap", &pairs, 20);
}
