//! Random programs about memory policies, run by real kernels on two NUMA nodes, replayed and compared
//! page by page after each step (`recordings/README.md`, "Nodes").

use largefolio_lab::crosscheck::processes::{ProgramRow, Programs};
use largefolio_lab::crosscheck::{Aspect, Recording};
use largefolio_sim::kernel::Kernel;

use super::{assert_told_apart, recordings, rows};

/// Programs with a `move_pages` of large folios on 6.1, which no other recording judges
/// (docs/differences.md).
const MOVES_OF_6_1: [u64; 3] = [72_204, 72_301, 72_302];

pub(super) fn is_known(recording: &Recording<Programs>, row: &ProgramRow) -> bool {
    recording.header.release.starts_with("6.1.") && MOVES_OF_6_1.contains(&row.seed)
}

/// A folio that is allocated on the node of the CPU, and moves whole to another.
const MOVED: &str = "\
# cow page=4096 arch=x86-64 release=6.18.15
program 1 pages=128 sizes=64 nodes=2
> 0 map 0 128 h
> 0 node 1
> 0 write 0
0 0 1:4.0 x @1 =16385
0 1+15 1.1 x @1 =0
> 0 bind 5 b0M
0 0 2:4.0 x =16385
0 1+15 2.1 x =0
end
";

fn differences(text: &str) -> Vec<Aspect> {
    let recording = Recording::<Programs>::parse("here", text).unwrap();
    let verdicts = recording.check(None).unwrap();
    verdicts[0].differences.iter().map(|one| one.aspect).collect()
}

/// The text agrees, and each change of it is noticed as this aspect.
fn assert_judged(text: &str, changes: &[(&str, &str, Aspect)]) {
    assert_eq!(differences(text), []);
    for (from, to, aspect) in changes {
        let wrong = text.replacen(from, to, 1);
        assert!(differences(&wrong).contains(aspect), "{from:?} {:?}", differences(&wrong));
    }
}

#[test]
fn nodes_of_pages_are_judged() {
    assert_judged(
        MOVED,
        &[
            ("x @1 =16385", "x =16385", Aspect::Node),
            ("2.1 x =0", "2.1 x @1 =0", Aspect::Node),
            ("0 0 2:4.0 x =16385\n0 1+15 2.1 x =0\n", "", Aspect::Node),
            ("2:4.0 x =16385", "1 x =16385", Aspect::Frame),
        ],
    );
}

/// NUMA balancing marks a folio that is far from the CPU; its next use moves it (R.6).
const HINTED: &str = "\
# cow page=4096 arch=x86-64 release=6.18.15
program 1 pages=128 sizes=64 nodes=2 balanced
> 0 map 0 64 h
> 0 write 0
f 1
0 0+16 1:4.0 x
> 0 node 1
> 0 hint
> 0 read 3
f 1
0 0+16 2:4.0 x @1
> 0 read 4
f 0
> 0 write 5
f 1
end
";

#[test]
fn moves_by_hinting_faults_are_judged() {
    assert_judged(
        HINTED,
        &[
            ("x @1", "x", Aspect::Node),
            ("> 0 hint\n", "", Aspect::Node),
            ("> 0 read 4\nf 0", "> 0 read 4\nf 1", Aspect::NrFaults),
            ("> 0 write 5\nf 1", "> 0 write 5\nf 0", Aspect::NrFaults),
        ],
    );
}

/// A folio that moved while PTEs mapped it is split by its next move, or is not (R.4.5).
#[test]
fn rules_of_another_kernel_are_told_apart() {
    largefolio_testkit::only_in_test_all!("replays these recordings");
    let nodes = recordings("nodes");
    let balancing = recordings("balancing");
    for (all, release, rules) in [
        (&nodes, "6.12.", "6.12+page=4K+anon.moved=whole"),
        (&nodes, "6.12.", "6.12+page=4K+anon.area_merge=any"),
        (&nodes, "6.18.", "6.18+page=4K+anon.moved=queued"),
        (&nodes, "7.3.", "7.3+page=4K+anon.moved=whole"),
        (&balancing, "6.1.", "6.1+page=4K+numa.marks=not-shared"),
        (&balancing, "6.1.", "6.1+page=4K+numa.shared_huge=move"),
        (&balancing, "6.12.", "6.12+page=4K+numa.memory_files=unmarked"),
        (&balancing, "6.12.", "6.12+page=4K+numa.shared_huge=stay"),
        (&balancing, "6.18.", "6.18+page=4K+numa.huge_marks=as-ptes"),
        (&balancing, "6.18.", "6.18+page=4K+numa.memory_files=marked"),
        (&balancing, "7.3.", "7.3+page=4K+numa.huge_marks=all"),
        (&balancing, "7.3.", "7.3+page=4K+numa.marks=one-reference"),
    ] {
        let kernel = Kernel::parse(rules).unwrap();
        let of_release = all.iter().filter(|one| one.header.release.starts_with(release));
        let rows = of_release.flat_map(|one| rows(one, Some(&kernel)));
        let nr_different = rows.filter(|row| !row.is_equal()).count();
        assert!(nr_different > 0, "{release} under {rules}");
    }
    assert_told_apart("nodes", [((6, 12), "6.18"), ((6, 18), "7.3"), ((7, 3), "6.18")], 5);
}
