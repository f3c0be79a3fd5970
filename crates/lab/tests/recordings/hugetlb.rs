//! Random programs about hugetlb, run by a real kernel, replayed and compared after each step
//! (`recordings/README.md`, "hugetlb").

#![expect(clippy::unwrap_used, reason = "a recording that cannot be replayed fails the test")]

use largefolio_lab::crosscheck::Recording;
use largefolio_lab::crosscheck::processes::{ProgramRow, Programs};
use largefolio_sim::kernel::Kernel;
use largefolio_testkit::is_in_sample;

use super::{recordings, rows, version};

/// Owners would give the same result for every page: no process maps a page twice (O.4.5).
#[test]
fn owners_of_huge_pages_change_nothing_that_programs_see() {
    let kernel = Kernel::parse("6.18+page=4K+hugetlb-owners=on").unwrap();
    let mut nr_programs = 0;
    for recording in &recordings("hugetlb") {
        if version(&recording.header.release) != Some((6, 18)) {
            continue;
        }
        nr_programs += recording.body.runs.len();
        if is_in_sample(&recording.name) {
            let rows = rows(recording, Some(&kernel));
            assert!(rows.iter().all(ProgramRow::is_equal), "{}", recording.name);
        }
    }
    assert!(nr_programs >= 1_400, "{nr_programs}");
}

const HEADER: &str = "# cow page=4096 arch=x86-64 release=6.18.44\n";
/// The owner of all reservations stores to a page that its child also has.
const TAKEN: &str = "> 0 map 0 2 g\ng 2 2 0\n> 0 write 0 2\n0 0 1:9 xH =16386\n0 1 2:9 xH =16388\n\
                     g 0 0 0\n> 0 fork 1\n0 0 1 H =16386\n0 1 2 H =16388\n1 0 1 H =16386\n\
                     1 1 2 H =16388\n> 0 write 0\n0 0 1 xH =49154\n1 0 -\n> 1 read 0\n! 14\n";

fn is_equal(pool: &str, lines: &str) -> bool {
    let text = format!("{HEADER}program 1 pages=8 sizes=- huge=2048:{pool}\n{lines}end\n");
    let recording = Recording::<Programs>::parse("here", &text).unwrap();
    rows(&recording, None).iter().all(ProgramRow::is_equal)
}

#[test]
fn another_answer_is_told_apart() {
    assert!(is_equal("2", TAKEN));
    assert!(!is_equal("3", TAKEN), "a child can copy from a larger pool");
    assert!(!is_equal("2", &TAKEN.replace("g 0 0 0", "g 0 1 0")), "promises are compared");
    assert!(is_equal("2", &format!("{TAKEN}m 2 2\n")));
    assert!(!is_equal("2", &format!("{TAKEN}m 2 1\n")), "mapcounts are compared");
    assert!(!is_equal("2", &TAKEN.replace("1 0 -", "1 0 1 H =16386")), "the page was taken");
}

#[test]
fn a_wrong_pool_is_named() {
    for (huge, what) in [
        ("2048", "here:2: huge= needs KIB:NR;"),
        ("2000:1", "here:2: 2000 KiB is not a huge page size;"),
        ("2048:9999", "here:2: 9999 is more than 1024;"),
    ] {
        let text = format!("{HEADER}program 1 pages=8 sizes=- huge={huge}\nend\n");
        let error = Recording::<Programs>::parse("here", &text).unwrap_err().to_string();
        assert!(error.starts_with(what), "{error}");
    }
}
