//! Programs in a memory cgroup with a limit and swap space: swap-outs and swap-ins in kernels and
//! in the model.
//!
//! Not all are equal: the table of `docs/design/tables/fidelity.txt` has the numbers, and this test
//! fails when it changes. `LARGEFOLIO_SWAP=DIR` tests another folder's recordings and prints each
//! program's first difference.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use largefolio_lab::crosscheck::processes::{ProgramRow, Programs};
use largefolio_lab::crosscheck::{Recording, read_all};
use largefolio_sim::kernel::Kernel;

use super::{document, recordings, rows};

/// Two LRU kinds of five packaged kernels; fewer mean that the test did not find the archives.
const NR_KINDS_MIN: usize = 10;
/// Minimal percentage of a kernel's steps, per LRU kind, before the first difference of their
/// program.
const EQUAL_PERCENT_MIN: usize = 50;

#[derive(Default)]
struct Kind {
    nr: usize,
    nr_equal: usize,
    nr_steps: usize,
    nr_steps_equal: usize,
    /// Programs and equal programs by file name, which has the enabled sizes.
    by_sizes: BTreeMap<String, (usize, usize)>,
}

impl Kind {
    fn add(&mut self, sizes: &str, nr_steps: usize, row: &ProgramRow) {
        let is_equal = row.is_equal();
        self.nr += 1;
        self.nr_equal += usize::from(is_equal);
        self.nr_steps += nr_steps;
        self.nr_steps_equal += if is_equal { nr_steps } else { row.nr_steps - 1 };
        let (nr, nr_equal) = self.by_sizes.entry(sizes.to_owned()).or_default();
        *nr += 1;
        *nr_equal += usize::from(is_equal);
    }

    const fn percent(&self) -> usize {
        self.nr_steps_equal * 100 / self.nr_steps
    }
}

/// Splits `deb_7.2_amd64_lists/k64.txt` into `deb_7.2_amd64_lists` and `k64`.
fn parts(recording: &Recording<Programs>) -> (String, String) {
    let (kind, file) = recording.name.rsplit_once('/').unwrap();
    (kind.to_owned(), file.trim_end_matches(".txt").to_owned())
}

fn table(kinds: &BTreeMap<String, Kind>) -> String {
    let mut text =
        "| recordings of | programs | equal | steps before a difference | equal by sizes |\n\
                    |---|---|---|---|---|"
            .to_owned();
    for (name, kind) in kinds {
        let by_sizes = kind.by_sizes.iter();
        let by_sizes: Vec<String> =
            by_sizes.map(|(sizes, (nr, equal))| format!("{sizes} {equal}/{nr}")).collect();
        let Kind { nr, nr_equal, .. } = kind;
        let percent = kind.percent();
        write!(text, "\n| {name} | {nr} | {nr_equal} | {percent}% | {} |", by_sizes.join(", "))
            .unwrap();
    }
    text
}

#[test]
fn model_swaps_what_the_recorded_kernels_swapped() {
    largefolio_testkit::only_in_test_all!("replays these recordings");
    let given = std::env::var_os("LARGEFOLIO_SWAP");
    let all = given.as_ref().map_or_else(
        || recordings("swap"),
        |dir| {
            let mut all = Vec::new();
            read_all(Path::new(dir), &mut |recording| all.push(recording)).unwrap();
            all
        },
    );
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    for recording in &all {
        let (kind, sizes) = parts(recording);
        assert!(recording.body.runs.iter().all(|run| run.is_complete), "{}", recording.name);
        for (run, row) in recording.body.runs.iter().zip(rows(recording, None)) {
            if !row.is_equal() {
                println!("{}: {row}", recording.name);
            }
            kinds.entry(kind.clone()).or_default().add(&sizes, run.nr_steps(), &row);
        }
    }
    let table = table(&kinds);
    println!("{table}");
    if given.is_some() {
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
    let all = recordings("swap");
    for (of, rules) in [("deb_7.2_amd64_lists", "6.18"), ("deb_6.12_amd64_lists", "6.1")] {
        let kernel = Kernel::parse(rules).unwrap();
        let of = all.iter().filter(|one| one.name.starts_with(of));
        let nr_equal = |kernel: Option<&Kernel>| -> usize {
            let rows = of.clone().flat_map(|one| rows(one, kernel));
            rows.filter(ProgramRow::is_equal).count()
        };
        let (own, other) = (nr_equal(None), nr_equal(Some(&kernel)));
        assert!(own >= other + 20, "{own} and {other} equal");
    }
}
