//! Programs on kernels with zswap: pages stored, loaded and written back, in kernels and in the
//! model.
//!
//! The programs page memory out themselves, so which page reclaim takes first does not matter.
//! `LARGEFOLIO_ZSWAP=DIR` tests another folder's recordings and prints each program's first
//! difference.

use super::document;
use super::kinds::{assert_explains_more, judge, recordings_or, table};

const VARIABLE: &str = "LARGEFOLIO_ZSWAP";
/// Five kinds of machines with five kernels; fewer mean that the test did not find the archives.
const NR_KINDS_MIN: usize = 25;
/// Minimal percentage of a kernel's programs that agree, by kind of machine. On `limit`, reclaim
/// chooses the pages. On 6.1, the slots of earlier programs fill a group's and a pool's limits.
const EQUAL_PERCENT_MIN: [(&str, usize); 4] =
    [("zram", 98), ("disk", 80), ("groups", 60), ("limit", 35)];

#[test]
fn model_stores_what_the_recorded_kernels_stored() {
    largefolio_testkit::only_in_test_all!("replays these recordings");
    let kinds = judge(&recordings_or("zswap", VARIABLE), |line| println!("{line}"));
    let table = table(&kinds);
    println!("{table}");
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    assert!(kinds.len() >= NR_KINDS_MIN, "{} kinds", kinds.len());
    for (name, kind) in &kinds {
        let least = EQUAL_PERCENT_MIN.iter().find(|(machine, _)| name.ends_with(machine));
        let least = least.map_or(0, |(_, percent)| *percent);
        assert!(kind.nr_equal * 100 >= kind.nr * least, "{name}: {} of {}", kind.nr_equal, kind.nr);
    }
    document("zswap.rs", &table);
}

#[test]
fn rules_of_another_kernel_are_told_apart() {
    largefolio_testkit::only_in_test_all!("replays these recordings");
    let pairs = [
        ("deb_6.1_amd64_zram", "6.12"),
        ("deb_6.12_amd64_zram", "6.16"),
        ("deb_6.18_amd64_zram", "6.17"),
        ("deb_7.3_amd64_groups", "7.2"),
        ("deb_7.2_amd64_disk", "7.3"),
    ];
    assert_explains_more("zswap", &pairs, 10);
}
