//! Kills during a merge, and parts that are not merged.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, Outcome, replay};
use largefolio_trace::generate::{Workload, ZipfMix};

use super::*;
use crate::predict::parquet::file_of;
use crate::predict::result::{Settings, TraceInfo};
use crate::predict::sweep::NEVER;
use crate::predict::table::{self, Row};

fn outcome(dir: &Path) -> Outcome {
    let path = dir.join("t.folio");
    ZipfMix { nr_runs: 10, nr_files: 1, ..ZipfMix::default() }.write(&path).unwrap();
    let kernel = Kernel::parse("6.12").unwrap();
    let spec = CellSpec::new(kernel, Machine::named("altra").unwrap());
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

fn part(outcome: &Outcome, nr: usize, name_bytes: usize) -> Vec<u8> {
    let trace = TraceInfo { command: vec!["a".repeat(name_bytes)], ..TraceInfo::default() };
    let row = Row { trace: &trace, settings: &Settings::default(), outcome };
    let batch = table::batch_of(&[row]).unwrap();
    file_of(&table::with_cells(&batch, &[format!("{nr:064x}")]).unwrap()).unwrap()
}

fn write(dir: &Path, parts: &[Vec<u8>]) -> Vec<String> {
    let name = |part: &Vec<u8>| {
        let name = part_name(&hash(part));
        fs::write(dir.join(&name), part).unwrap();
        name
    };
    parts.iter().map(name).collect()
}

#[test]
fn parts_of_large_rows_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = outcome(dir.path());
    assert!(is_small(&Part::read(part(&outcome, 1, 10)).unwrap()));
    assert!(!is_small(&Part::read(part(&outcome, 1, 1 << 20)).unwrap()));
}

#[test]
fn parts_that_would_become_one_that_is_refused_stay() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = outcome(dir.path());
    let twice: Vec<_> = [10, 11].map(|bytes| part(&outcome, 1, bytes)).to_vec();
    let names = write(dir.path(), &twice);
    assert_eq!(merge(dir.path(), &names, NEVER).unwrap(), Merged::Refused);
    assert!(names.iter().all(|name| dir.path().join(name).exists()));
    let others: Vec<_> = (3..5).map(|nr| part(&outcome, nr, 10)).collect();
    let names = write(dir.path(), &others);
    assert_eq!(merge(dir.path(), &names, &|| true).unwrap(), Merged::Stopped);
    assert!(names.iter().all(|name| dir.path().join(name).exists()));
    let Merged::Part(merged) = merge(dir.path(), &names, NEVER).unwrap() else { panic!() };
    assert_eq!(read_part(dir.path().join(&merged), &merged).unwrap().unwrap().cells().len(), 2);
    assert!(!names.iter().any(|name| dir.path().join(name).exists()));
}

fn part_of_cells(outcome: &Outcome, cells: &[usize]) -> Vec<u8> {
    let settings = Settings::default();
    let trace = TraceInfo::default();
    let row = || Row { trace: &trace, settings: &settings, outcome };
    let rows: Vec<_> = cells.iter().map(|_| row()).collect();
    let cells: Vec<_> = cells.iter().map(|nr| format!("{nr:064x}")).collect();
    let batch = table::batch_of(&rows).unwrap();
    file_of(&table::with_cells(&batch, &cells).unwrap()).unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stands {
    Not,
    Hidden,
    Named,
    /// Storage copies a file to its new name, then removes the old one.
    Both,
    /// Only half of the copy is written.
    HalfNamed,
    HalfHidden,
}

fn put(dir: &Path, bytes: &[u8], stands: Stands) {
    let name = part_name(&hash(bytes));
    let hidden = format!("{HIDDEN}{name}{MERGING}");
    let half = &bytes[..bytes.len() / 2];
    let (hidden_bytes, named_bytes) = match stands {
        Stands::Not => (None, None),
        Stands::Hidden => (Some(bytes), None),
        Stands::Named => (None, Some(bytes)),
        Stands::Both => (Some(bytes), Some(bytes)),
        Stands::HalfNamed => (Some(bytes), Some(half)),
        Stands::HalfHidden => (Some(half), None),
    };
    for (name, bytes) in [(hidden, hidden_bytes), (name, named_bytes)] {
        if let Some(bytes) = bytes {
            fs::write(dir.join(&name), bytes).unwrap();
        }
    }
}

fn listed(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn nrs_of_parts(dir: &Path) -> Vec<usize> {
    let names = listed(dir);
    let parts = names.iter().filter(|name| hash_of(name).is_some());
    let parts = parts.filter_map(|name| read_part(dir.join(name), name).unwrap().ok());
    let nr = |cell: &CellId| usize::from_str_radix(&cell.to_string(), 16).unwrap();
    let mut nrs: Vec<_> =
        parts.flat_map(|part| part.cells().iter().map(nr).collect::<Vec<_>>()).collect();
    nrs.sort_unstable();
    nrs
}

/// Two merges of one-cell parts, `first` and `second`, and a last merge that replaces nothing.
struct Killed {
    singles: Vec<Vec<u8>>,
    first: Vec<u8>,
    second: Vec<u8>,
}

impl Killed {
    const NR: usize = 7;

    fn new(outcome: &Outcome) -> Self {
        let of = |cells: &[usize]| part_of_cells(outcome, cells);
        let singles = (0..Self::NR).map(|nr| of(&[nr])).collect();
        Self { singles, first: of(&[0, 1, 2]), second: of(&[3, 4, 5]) }
    }

    fn put(&self, dir: &Path, singles: [Stands; Self::NR], merged: [Stands; 2]) {
        for (bytes, stands) in self.singles.iter().zip(singles) {
            put(dir, bytes, stands);
        }
        put(dir, &self.first, merged[0]);
        put(dir, &self.second, merged[1]);
    }
}

/// Covers every state that a kill can leave: no cell is lost or has two rows, and only half-written
/// files count as damaged.
#[test]
fn whatever_was_merging_no_row_is_lost_or_there_twice() {
    use Stands::{Both, HalfHidden, HalfNamed, Hidden, Named, Not};
    let place = tempfile::tempdir().unwrap();
    let killed = Killed::new(&outcome(place.path()));
    let mut nr_states = 0;
    // The first merge's parts were visible when they were merged; the second's were hidden.
    let old = |nr_gone: usize, stands| [0, 1, 2].map(|nr| if nr < nr_gone { Not } else { stands });
    let mut check = |first: [Stands; 3], second: [Stands; 3], last, merged| {
        nr_states += 1;
        let dir = tempfile::tempdir_in(place.path()).unwrap();
        let parts = [&first[..], &second[..], &[last]].concat();
        killed.put(dir.path(), parts.try_into().unwrap(), merged);
        let states = format!("{first:?} {second:?} {last:?} {merged:?}");
        let quarantined = finish(dir.path(), &listed(dir.path()), NEVER).unwrap();
        let nr_half = merged.iter().filter(|stands| **stands == HalfHidden).count();
        assert_eq!(quarantined.len(), nr_half, "{states}");
        assert_eq!(nrs_of_parts(dir.path()), (0..Killed::NR).collect::<Vec<_>>(), "{states}");
        assert!(!listed(dir.path()).iter().any(|name| name.ends_with(MERGING)), "{states}");
    };
    // The merged file is written and nothing is removed: half of the file, one file, or both.
    for last in [Hidden, Named] {
        for merged in [[HalfHidden, Not], [Hidden, Not], [Hidden, HalfHidden], [Hidden, Hidden]] {
            check([Named; 3], [Hidden; 3], last, merged);
        }
        // Parts are removed, from either merge first.
        for nr_first in 0..=3 {
            for nr_second in 0..=3 {
                check(old(nr_first, Named), old(nr_second, Hidden), last, [Hidden, Hidden]);
            }
        }
    }
    // All parts are removed; names are assigned one by one.
    for named in [Named, Both, HalfNamed] {
        for (last, merged) in [
            (Hidden, [named, Hidden]),
            (Hidden, [Hidden, named]),
            (Hidden, [Named, named]),
            (named, [Named, Named]),
        ] {
            check([Not; 3], [Not; 3], last, merged);
        }
    }
    // Storage out of order: the second merge has its name while hidden single parts are left.
    for nr in 0..3 {
        check([Not; 3], old(nr, Hidden), Hidden, [Named, Named]);
        check([Not; 3], old(nr, Hidden), Hidden, [Hidden, Named]);
    }
    assert_eq!(nr_states, 58);
}

/// Stops between any two steps: no row appears twice, and the next sweep completes the merge.
#[test]
fn what_is_stopped_while_it_ends_a_merge_goes_on_from_there() {
    use Stands::{Hidden, Named, Not};
    let place = tempfile::tempdir().unwrap();
    let killed = Killed::new(&outcome(place.path()));
    let dir = tempfile::tempdir_in(place.path()).unwrap();
    let singles = [Not, Named, Named, Not, Hidden, Hidden, Hidden];
    killed.put(dir.path(), singles, [Hidden, Hidden]);
    let mut nr_stopped = 0;
    loop {
        let nr_asked = AtomicUsize::new(0);
        let is_stopped = || nr_asked.fetch_add(1, Relaxed) == nr_stopped;
        match finish(dir.path(), &listed(dir.path()), &is_stopped) {
            Ok(quarantined) => break assert!(quarantined.is_empty()),
            Err(error) => assert!(matches!(error, SweepError::Stopped), "{error}"),
        }
        let nrs = nrs_of_parts(dir.path());
        assert!(nrs.windows(2).all(|pair| pair[0] < pair[1]), "{nrs:?}");
        nr_stopped += 1;
    }
    assert!(nr_stopped > 8, "{nr_stopped}");
    assert_eq!(nrs_of_parts(dir.path()), (0..Killed::NR).collect::<Vec<_>>());
}

#[test]
fn two_files_that_were_merging_end_as_two_parts() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = outcome(dir.path());
    let parts: Vec<_> = (1..4).map(|nr| part(&outcome, nr, 10)).collect();
    let mut names = write(dir.path(), &parts);
    // Other bytes with the same cells make other files.
    for nrs in [1, 2] {
        let bytes = part(&outcome, nrs, 20);
        let file = format!("{HIDDEN}{}{MERGING}", part_name(&hash(&bytes)));
        fs::write(dir.path().join(&file), &bytes).unwrap();
        names.push(file);
    }
    assert!(finish(dir.path(), &names, NEVER).unwrap().is_empty());
    let left = |names: &[String]| names.iter().filter(|n| dir.path().join(n).exists()).count();
    assert_eq!((left(&names[..2]), left(&names[2..3]), left(&names[3..])), (0, 1, 0));
    for file in &names[3..] {
        assert!(dir.path().join(part_of(file).unwrap()).exists());
    }
}
