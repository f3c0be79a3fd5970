//! The share of programs that agree, by kind of machine: for recordings with known differences.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use largefolio_lab::crosscheck::processes::{ProgramRow, Programs};
use largefolio_lab::crosscheck::{Recording, read_all};
use largefolio_sim::kernel::Kernel;

use super::{recordings, rows};

/// A kernel on one kind of machine.
#[derive(Default)]
pub(super) struct Kind {
    pub(super) nr: usize,
    pub(super) nr_equal: usize,
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

    pub(super) const fn percent(&self) -> usize {
        self.nr_steps_equal * 100 / self.nr_steps
    }
}

/// Splits `deb_7.2_amd64_lists/k64.txt` into `deb_7.2_amd64_lists` and `k64`.
fn parts(recording: &Recording<Programs>) -> (String, String) {
    let (kind, file) = recording.name.rsplit_once('/').unwrap();
    (kind.to_owned(), file.trim_end_matches(".txt").to_owned())
}

pub(super) fn table(kinds: &BTreeMap<String, Kind>) -> String {
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

/// The recordings of a kind, or of the folder that an environment variable names.
pub(super) fn recordings_or(kind: &str, variable: &str) -> Vec<Recording<Programs>> {
    let Some(dir) = std::env::var_os(variable) else { return recordings(kind) };
    let mut all = Vec::new();
    read_all(Path::new(&dir), &mut |recording| all.push(recording)).unwrap();
    all
}

/// Compares all programs, and passes each one's first difference to `show`.
pub(super) fn judge(all: &[Recording<Programs>], show: impl Fn(&str)) -> BTreeMap<String, Kind> {
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    for recording in all {
        let (kind, sizes) = parts(recording);
        assert!(recording.body.runs.iter().all(|run| run.is_complete), "{}", recording.name);
        for (run, row) in recording.body.runs.iter().zip(rows(recording, None)) {
            if !row.is_equal() {
                show(&format!("{}: {row}", recording.name));
            }
            kinds.entry(kind.clone()).or_default().add(&sizes, run.nr_steps(), &row);
        }
    }
    kinds
}

/// Asserts that the recorded kernel's own rules explain at least `nr_more` programs more than those
/// of another kernel, for each pair of archives (the start of their names) and other rules.
pub(super) fn assert_explains_more(kind: &str, pairs: &[(&str, &str)], nr_more: usize) {
    let all = recordings(kind);
    for (of, rules) in pairs {
        let kernel = Kernel::parse(rules).unwrap();
        let of = all.iter().filter(|one| one.name.starts_with(of));
        let nr_equal = |kernel: Option<&Kernel>| -> usize {
            let rows = of.clone().flat_map(|one| rows(one, kernel));
            rows.filter(ProgramRow::is_equal).count()
        };
        let (own, other) = (nr_equal(None), nr_equal(Some(&kernel)));
        assert!(own >= other + nr_more, "{rules}: {own} and {other} equal");
    }
}
