//! Many small parts become one, so that a million rows are some hundred files.
//!
//! ```text
//!   write    _part-HASH.parquet.merging   the rows of all of them, whole or not at all
//!   remove   part-..                      each of them
//!   rename   part-HASH.parquet
//! ```
//!
//! Whatever ends this, the next sweep brings it to its end ([`finish`]).
//!
//! Invariants:
//! - G1: a row is in a part, or in a file that is merging. A reader of the parts never sees one twice.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use largefolio_sim::sweep::CellId;
use largefolio_trace::disk;

use super::data_set::{
    AddError, PART_BYTES_MAX, SetAside, hash, hash_of, part_name, read_part, set_aside,
};
use super::error::SweepError;
use super::part::{BYTES_MAX, Part};
use crate::parquet::file_of_all;

/// Parts that become one: 16 rows each, as many as there are cells in a task.
pub(super) const NR_PARTS: usize = 256;
/// A part with more rows was merged already.
const SMALL_ROWS: usize = 64;
/// Bytes in memory of a part that is merged: those of all are held at once, and what becomes of them
/// must be a part that is read again. Sixteen rows take 130 kB.
const SMALL_BYTES: u64 = BYTES_MAX / (2 * NR_PARTS as u64);

/// What a name begins and ends with while the parts go that it takes the place of.
const HIDDEN: &str = "_";
const MERGING: &str = ".merging";

/// Whether a part is to be merged; one of large rows is left alone.
pub(super) fn is_small(part: &Part) -> bool {
    part.cells().len() <= SMALL_ROWS && part.nr_bytes() <= SMALL_BYTES
}

/// Makes one part of those called `names` in `dir`; its name, or nothing where they stay because
/// nobody would read that one.
pub(super) fn merge(dir: &Path, names: &[String]) -> Result<Option<String>, AddError> {
    let mut rows: Vec<RecordBatch> = Vec::new();
    for name in names {
        let path = dir.join(name);
        let io = |source| AddError::Io { path: path.clone(), source };
        let bytes = disk::read_whole(&path, PART_BYTES_MAX).map_err(io)?;
        // It was whole when it was taken in, or written by this sweep.
        let part = Part::read(bytes).map_err(|why| io(io::Error::other(why.to_string())))?;
        rows.extend(part.into_batches());
    }
    let rows = alike(rows)?;
    let bytes = file_of_all(&rows)?;
    drop(rows);
    // Before the parts go: the next sweep would compute the rows of a part that it refuses again.
    let Ok(part) = Part::read(bytes) else { return Ok(None) };
    let bytes = part.into_bytes();
    let name = part_name(&hash(&bytes));
    let merging = dir.join(format!("{HIDDEN}{name}{MERGING}"));
    disk::write_whole(&merging, &bytes)
        .map_err(|source| AddError::Io { path: merging.clone(), source })?;
    for name in names {
        let path = dir.join(name);
        fs::remove_file(&path).map_err(|source| AddError::Io { path, source })?;
    }
    let path = dir.join(&name);
    fs::rename(&merging, &path).map_err(|source| AddError::Io { path, source })?;
    Ok(Some(name))
}

/// `rows` with the metadata that all of them have: versions may differ.
fn alike(rows: Vec<RecordBatch>) -> Result<Vec<RecordBatch>, AddError> {
    let Some(first) = rows.first().map(RecordBatch::schema) else { return Ok(rows) };
    let mut common = first.metadata().clone();
    for batch in &rows {
        let schema = batch.schema();
        common.retain(|key, value| schema.metadata().get(key) == Some(value));
    }
    let schema = Arc::new(first.as_ref().clone().with_metadata(common));
    let of_all =
        |batch: &RecordBatch| RecordBatch::try_new(schema.clone(), batch.columns().to_vec());
    let rows: Result<Vec<_>, _> = rows.iter().map(of_all).collect();
    rows.map_err(|error| AddError::Parquet(error.into()))
}

/// Ends what a sweep that was killed was merging, among the files called `names` in `dir`; what of it
/// is damaged is set aside.
pub(super) fn finish(dir: &Path, names: &[String]) -> Result<Vec<SetAside>, SweepError> {
    let mut aside = Vec::new();
    let merging = |file: &String| Some((file.clone(), part_of(file)?.to_owned()));
    let merging: Vec<(String, String)> = names.iter().filter_map(merging).collect();
    if merging.is_empty() {
        return Ok(aside);
    }
    let parts = Parts::read(dir, names)?;
    for (file, name) in &merging {
        let merged = match read_part(dir.join(file), name)? {
            Ok(merged) => merged,
            Err(why) => {
                aside.push(set_aside(dir, file, why)?);
                continue;
            }
        };
        for part in parts.within(merged.cells()) {
            let path = dir.join(part);
            match fs::remove_file(&path) {
                // One that another merged file has taken the place of.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(|error| SweepError::io("remove", &path, error))?,
            }
        }
        let (from, to) = (dir.join(file), dir.join(name));
        fs::rename(&from, &to).map_err(|error| SweepError::io("rename", &from, error))?;
    }
    Ok(aside)
}

/// The part that the file `file` is to become, if that is one that is merging.
fn part_of(file: &str) -> Option<&str> {
    file.strip_prefix(HIDDEN)?.strip_suffix(MERGING)
}

/// Parts that may have to go, each read once however many files are merging.
#[derive(Default)]
struct Parts<'a> {
    /// Names, and how many cells each has.
    names: Vec<(&'a str, usize)>,
    /// The part of each cell.
    of_cells: BTreeMap<CellId, usize>,
}

impl<'a> Parts<'a> {
    fn read(dir: &Path, names: &'a [String]) -> Result<Self, SweepError> {
        let mut parts = Self::default();
        for name in names.iter().filter(|name| hash_of(name).is_some()) {
            // A damaged one is told where the parts are taken in.
            let Ok(part) = read_part(dir.join(name), name)? else { continue };
            let nr = parts.names.len();
            parts.names.push((name, part.cells().len()));
            parts.of_cells.extend(part.cells().iter().map(|cell| (cell.clone(), nr)));
        }
        Ok(parts)
    }

    /// Parts whose cells are all among `cells`.
    fn within(&self, cells: &[CellId]) -> impl Iterator<Item = &'a str> {
        let mut nr_found: BTreeMap<usize, usize> = BTreeMap::new();
        for part in cells.iter().filter_map(|cell| self.of_cells.get(cell)) {
            *nr_found.entry(*part).or_default() += 1;
        }
        nr_found.into_iter().filter_map(|(part, nr)| {
            let (name, nr_cells) = self.names[part];
            (nr == nr_cells).then_some(name)
        })
    }
}

#[cfg(test)]
mod tests {
    use largefolio_sim::kernel::Kernel;
    use largefolio_sim::machine::Machine;
    use largefolio_sim::replay::{CellSpec, Outcome, replay};
    use largefolio_trace::generate::{Workload, ZipfMix};

    use super::*;
    use crate::parquet::file_of;
    use crate::report::{Settings, TraceInfo};
    use crate::table::{self, Row};

    fn outcome(dir: &Path) -> Outcome {
        let path = dir.join("t.folio");
        ZipfMix { nr_runs: 10, nr_files: 1, ..ZipfMix::default() }.write(&path).unwrap();
        let kernel = Kernel::parse("6.12").unwrap();
        let spec = CellSpec::new(kernel, Machine::named("altra").unwrap());
        replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
    }

    /// A part of one row of a program whose name has `name_bytes`.
    fn part(outcome: &Outcome, nr: usize, name_bytes: usize) -> Vec<u8> {
        let trace = TraceInfo { command: vec!["a".repeat(name_bytes)], ..TraceInfo::default() };
        let row = Row { trace: &trace, settings: &Settings::default(), outcome };
        let batch = table::batch_of(&[row]).unwrap();
        file_of(&table::with_cells(&batch, &[format!("{nr:064x}")]).unwrap()).unwrap()
    }

    /// Writes `parts` to `dir`; their names.
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
        // One cell in two rows.
        let twice: Vec<_> = [10, 11].map(|bytes| part(&outcome, 1, bytes)).to_vec();
        let names = write(dir.path(), &twice);
        assert_eq!(merge(dir.path(), &names).unwrap(), None);
        assert!(names.iter().all(|name| dir.path().join(name).exists()));
        let others: Vec<_> = (3..5).map(|nr| part(&outcome, nr, 10)).collect();
        let names = write(dir.path(), &others);
        let merged = merge(dir.path(), &names).unwrap().unwrap();
        assert_eq!(read_part(dir.path().join(&merged), &merged).unwrap().unwrap().cells().len(), 2);
        assert!(!names.iter().any(|name| dir.path().join(name).exists()));
    }

    #[test]
    fn two_files_that_were_merging_end_as_two_parts() {
        let dir = tempfile::tempdir().unwrap();
        let outcome = outcome(dir.path());
        let parts: Vec<_> = (1..4).map(|nr| part(&outcome, nr, 10)).collect();
        let mut names = write(dir.path(), &parts);
        // Other bytes with the same cells, so that they are other files.
        for nrs in [1, 2] {
            let bytes = part(&outcome, nrs, 20);
            let file = format!("{HIDDEN}{}{MERGING}", part_name(&hash(&bytes)));
            fs::write(dir.path().join(&file), &bytes).unwrap();
            names.push(file);
        }
        assert!(finish(dir.path(), &names).unwrap().is_empty());
        let left = |names: &[String]| names.iter().filter(|n| dir.path().join(n).exists()).count();
        assert_eq!((left(&names[..2]), left(&names[2..3]), left(&names[3..])), (0, 1, 0));
        for file in &names[3..] {
            assert!(dir.path().join(part_of(file).unwrap()).exists());
        }
    }
}
