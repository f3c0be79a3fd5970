//! Random programs about shared memory in large folios, run by real kernels, replayed and compared
//! page by page after each step (`recordings/README.md`, "Shared memory").

use largefolio_lab::crosscheck::Aspect;
use largefolio_lab::crosscheck::processes::ProgramRow;

use super::{assert_told_apart, recordings, rows};

#[test]
fn cached_folios_of_shared_memory_are_judged() {
    let all = recordings("shmem");
    let one = all.iter().find(|one| one.name.contains("deb_7.3_amd64")).unwrap();
    let verdicts = one.check(None).unwrap();
    let nr_cached: u64 = verdicts.iter().map(|each| each.nr_compared(Aspect::Cached)).sum();
    assert!(nr_cached > 500_000, "{nr_cached} folios");
    assert!(rows(one, None).iter().all(ProgramRow::is_equal));
}

#[test]
fn rules_of_another_kernel_are_told_apart() {
    largefolio_testkit::only_in_test_all!("replays these recordings");
    assert_told_apart("shmem", [((6, 1), "6.12"), ((6, 17), "6.18"), ((7, 3), "6.18")], 5);
}
