//! Random programs about `MADV_COLLAPSE` and about files on disk, run by real kernels, replayed and
//! compared page by page after each step (`recordings/README.md`, "Collapse").

use largefolio_lab::crosscheck::Recording;
use largefolio_lab::crosscheck::processes::{
    ProcessProgram, ProgramOptions, ProgramRow, Programs, Topic, generate,
};
use largefolio_mm::units::PageSize;

use super::assert_told_apart;

/// Programs that still differ, by recording (docs/differences.md, `READ_ONLY_THP_FOR_FS`).
const NOT_EXPLAINED: [(&str, &[u64]); 2] = [
    ("built_6.1-read-only-thp_amd64/disk_ext4.txt", &[50_264, 50_291, 50_298]),
    (
        "built_6.1-read-only-thp_amd64/disk_xfs.txt",
        &[50_000, 50_096, 50_160, 50_173, 50_183, 50_199, 50_215, 50_287, 50_292, 50_295, 50_296],
    ),
];

pub(crate) fn is_known(recording: &Recording<Programs>, row: &ProgramRow) -> bool {
    let of = |(name, seeds): &(&str, &[u64])| *name == recording.name && seeds.contains(&row.seed);
    NOT_EXPLAINED.iter().any(of)
}

#[test]
fn rules_of_another_kernel_are_told_apart() {
    largefolio_testkit::only_in_test_all!("replays these recordings");
    assert_told_apart("collapse", [((7, 2), "7.1"), ((7, 1), "7.2"), ((6, 12), "6.18")], 5);
}

#[test]
fn programs_with_64k_pages_have_one_block() {
    let page = PageSize::K64;
    assert!(Topic::Collapse.fits(page, page.pmd_order()));
    let mut nr_whole = 0;
    for seed in 0..50 {
        let options =
            ProgramOptions { topic: Topic::Collapse, page, orders: Vec::new(), nr_steps: 60 };
        let program = generate(seed, &options);
        let text = program.to_string();
        assert_eq!(ProcessProgram::all_of("test", &text).unwrap(), [program]);
        nr_whole += text.matches("collapse 0 8192").count();
    }
    assert!(nr_whole > 100, "{nr_whole} requests for the block");
}
