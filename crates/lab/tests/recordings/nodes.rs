//! Random programs about memory policies, run by real kernels on two NUMA nodes, replayed and compared
//! page by page after each step (`recordings/README.md`, "Nodes").

use largefolio_lab::crosscheck::processes::Programs;
use largefolio_lab::crosscheck::{Aspect, Recording};
use largefolio_sim::kernel::Kernel;

use super::{assert_told_apart, recordings, rows};

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

#[test]
fn nodes_of_pages_are_judged() {
    let differences = |text: &str| -> Vec<Aspect> {
        let recording = Recording::<Programs>::parse("here", text).unwrap();
        let verdicts = recording.check(None).unwrap();
        verdicts[0].differences.iter().map(|one| one.aspect).collect()
    };
    assert_eq!(differences(MOVED), []);
    for (from, to, aspect) in [
        ("x @1 =16385", "x =16385", Aspect::Node),
        ("2.1 x =0", "2.1 x @1 =0", Aspect::Node),
        ("0 0 2:4.0 x =16385\n0 1+15 2.1 x =0\n", "", Aspect::Node),
        ("2:4.0 x =16385", "1 x =16385", Aspect::Frame),
    ] {
        let wrong = MOVED.replacen(from, to, 1);
        assert!(differences(&wrong).contains(&aspect), "{from:?} {:?}", differences(&wrong));
    }
}

/// A folio that moved while PTEs mapped it is split by its next move, or is not (R.4.5).
#[test]
fn rules_of_another_kernel_are_told_apart() {
    largefolio_testkit::only_in_test_all!("replays these recordings");
    let all = recordings("nodes");
    for (release, rules) in [
        ("6.12.", "6.12+page=4K+anon.moved=whole"),
        ("6.12.", "6.12+page=4K+anon.area_merge=any"),
        ("6.18.", "6.18+page=4K+anon.moved=queued"),
        ("7.3.", "7.3+page=4K+anon.moved=whole"),
    ] {
        let kernel = Kernel::parse(rules).unwrap();
        let of_release = all.iter().filter(|one| one.header.release.starts_with(release));
        let rows = of_release.flat_map(|one| rows(one, Some(&kernel)));
        let nr_different = rows.filter(|row| !row.is_equal()).count();
        assert!(nr_different > 0, "{release} under {rules}");
    }
    assert_told_apart("nodes", [((6, 12), "6.18"), ((6, 18), "7.3"), ((7, 3), "6.18")], 5);
}
