//! Replays recordings of real kernels and compares; this file has the helpers for programs of
//! processes.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be replayed fails the test")]

mod clear;
mod collapse;
mod cow;
mod damaged;
mod files;
mod hugetlb;
mod kinds;
mod limited;
mod nodes;
mod shmem;
mod swap;
mod zswap;

use std::collections::BTreeSet;
use std::path::Path;

use largefolio_lab::crosscheck::processes::{
    ProcessProgram, ProgramOptions, ProgramRow, Programs, Topic, ZswapTopic, generate,
};
use largefolio_lab::crosscheck::{Recording, read_all};
use largefolio_mm::units::{Order, PageSize};
use largefolio_sim::kernel::{Kernel, version};
use largefolio_testkit::is_in_sample;
use rayon::prelude::*;

fn recordings(kind: &str) -> Vec<Recording<Programs>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings").join(kind);
    let mut all = Vec::new();
    read_all(&dir, &mut |recording| all.push(recording)).unwrap();
    all
}

fn rows(recording: &Recording<Programs>, kernel: Option<&Kernel>) -> Vec<ProgramRow> {
    let verdicts = recording.check(kernel).unwrap();
    recording.body.runs.iter().zip(verdicts).map(|(run, one)| ProgramRow::new(run, one)).collect()
}

/// Returns the programs in the sample that differ, and the known differences that do not; and the
/// numbers of all programs and of their kernels.
fn unexpected(kind: &str, is_known: IsKnown) -> (Vec<String>, usize, usize) {
    let (mut nr_programs, mut unexpected, mut kernels) = (0, Vec::new(), BTreeSet::new());
    for recording in &recordings(kind) {
        assert!(recording.body.runs.iter().all(|run| run.is_complete), "{}", recording.name);
        nr_programs += recording.body.runs.len();
        kernels.insert((version(&recording.header.release), recording.header.page_bytes));
        if !is_in_sample(&recording.name) {
            continue;
        }
        let rows = rows(recording, None);
        let is_wrong = |row: &&ProgramRow| row.is_equal() == is_known(recording, row);
        let text = |row: &ProgramRow| format!("{}: {row}", recording.name);
        unexpected.extend(rows.iter().filter(is_wrong).map(text));
    }
    (unexpected, nr_programs, kernels.len())
}

/// Compares `table` with the table of this test file in `docs/design/tables/fidelity.txt`.
/// `LARGEFOLIO_UPDATE_DOCS=1` writes it.
fn document(file: &str, table: &str) {
    let begin = format!("<!-- table: written by crates/lab/tests/recordings/{file} -->\n");
    let end = "\n<!-- end of table -->";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design/tables/fidelity.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let begin = text.find(&begin).unwrap() + begin.len();
    let end = begin + text[begin..].find(end).unwrap();
    if std::env::var_os("LARGEFOLIO_UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{}{table}{}", &text[..begin], &text[end..])).unwrap();
        return;
    }
    assert_eq!(&text[begin..end], table, "LARGEFOLIO_UPDATE_DOCS=1 updates {}", path.display());
}

/// Asserts that the comparison can fail: more than `nr_min` programs of the recorded kernel differ
/// under the other kernel's rules. Skips self-built kernels, which have rules of their own and
/// would differ under any others.
fn assert_told_apart(kind: &str, pairs: [((u32, u32), &str); 3], nr_min: usize) {
    let all = recordings(kind);
    for (recorded, rules) in pairs {
        let kernel = Kernel::parse(&format!("{rules}+page=4K")).unwrap();
        let of_kernel = all.iter().filter(|one| {
            version(&one.header.release) == Some(recorded)
                && one.header.page_bytes == 4096
                && !one.header.kernel().unwrap().name.starts_with("recorded/")
        });
        let nr_different: usize = of_kernel
            .map(|one| rows(one, Some(&kernel)).iter().filter(|row| !row.is_equal()).count())
            .sum();
        assert!(nr_different > nr_min, "{recorded:?} under {rules}: {nr_different}");
    }
}

/// On 6.12, parts of a file's area are advised one after another; the kernel does not scan it, the
/// model does (docs/differences.md, `READ_ONLY_THP_FOR_FS`).
const ADVISED_LATE: u64 = 52_002;

type IsKnown = fn(&Recording<Programs>, &ProgramRow) -> bool;
type Kind = (&'static str, IsKnown, (usize, usize));

/// Kinds of random programs, the known differences, and how many programs and kernels there are:
/// far fewer mean that the test did not find the archives.
const KINDS: [Kind; 7] = [
    ("collapse", collapse::is_known, (3_524, 10)),
    ("cow", cow::is_disturbed, (3_820, 11)),
    ("hugetlb", |_, _| false, (1_700, 10)),
    ("shmem", |_, _| false, (960, 8)),
    ("nodes", |_, _| false, (1_600, 4)),
    ("balancing", nodes::is_known, (650, 5)),
    ("khugepaged", |_, row| row.seed == ADVISED_LATE, (482, 2)),
];

#[test]
fn model_equals_the_recorded_kernels() {
    // A worker's own panic would be printed in whichever test started the workers.
    let of_kind = |&(kind, is_known, (nr_programs_min, nr_kernels_min)): &Kind| {
        let (mut wrong, nr_programs, nr_kernels) = unexpected(kind, is_known);
        if nr_programs < nr_programs_min || nr_kernels < nr_kernels_min {
            wrong.push(format!("{kind}: {nr_programs} programs of {nr_kernels} kernels"));
        }
        wrong
    };
    let wrong: Vec<String> = KINDS.par_iter().flat_map(of_kind).collect();
    let shown = &wrong[..wrong.len().min(10)];
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), shown.join("\n"));
}

#[test]
fn programs_are_read_back_as_written() {
    let topics: [(Topic, &[u8]); 14] = [
        (Topic::Collapse, &[4, 9]),
        (Topic::Disk, &[9]),
        (Topic::DiskSizes, &[9]),
        (Topic::Hugetlb, &[9]),
        (Topic::Khugepaged, &[4, 9]),
        (Topic::DiskKhugepaged, &[9]),
        (Topic::Swap, &[4]),
        (Topic::Swap, &[9]),
        (Topic::Zswap(ZswapTopic::Pages), &[4]),
        (Topic::Zswap(ZswapTopic::Groups), &[4]),
        (Topic::Cow, &[2, 4]),
        (Topic::Locked, &[2, 4]),
        (Topic::Nodes, &[4, 9]),
        (Topic::Shmem, &[]),
    ];
    let seeds = (0..50).flat_map(|seed| [(seed, PageSize::K4), (seed, PageSize::K16)]);
    for (seed, page) in seeds {
        for (topic, orders) in topics {
            let orders = orders.iter().copied().map(Order::new).collect();
            let options = ProgramOptions { topic, page, orders, nr_steps: 60 };
            let program = generate(seed, &options);
            assert_eq!(ProcessProgram::all_of("test", &program.to_string()).unwrap(), [program]);
        }
    }
}
