//! Merges many small parts into one, so that a million rows take a few hundred files.
//!
//! ```text
//!   write    _part-HASH.parquet.merging   the rows of all of them, whole or not at all
//!   remove   part-..                      each of them
//!   rename   part-HASH.parquet
//! ```
//!
//! If a merge is interrupted, the next sweep completes it ([`finish`]). On object storage, data
//! sets can contain more such files: a part that arrives while others wait for their names must
//! also wait (`python/largefolio/_storage.py`).
//!
//! Invariants:
//! - G1: a row is in a part or in a merging file. A reader of the parts never sees it twice.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use largefolio_sim::sweep::CellId;
use largefolio_trace::disk;

use super::error::SweepError;
use super::part::{BYTES_MAX, Part};
use super::part_file::{AddError, SetAside, hash, hash_of, part_name, read_part, set_aside};
use super::{IsStopped, go_on};
use crate::predict::parquet::file_of_all;

/// Parts per merge; each has about 16 rows, the number of cells in a task.
pub(super) const NR_PARTS: usize = 256;
/// A part with more rows was already merged.
const SMALL_ROWS: usize = 64;
/// Maximum memory of a part to merge. A merge holds all parts in memory, and the result
/// must not be too large to read. Sixteen rows take 130 kB.
const SMALL_BYTES: u64 = BYTES_MAX / (2 * NR_PARTS as u64);

/// Prefix and suffix of a merged part's name while the parts that it replaces are removed.
const HIDDEN: &str = "_";
const MERGING: &str = ".merging";

/// Returns whether a part should be merged. A part with large rows is left alone.
pub(super) fn is_small(part: &Part) -> bool {
    part.cells().len() <= SMALL_ROWS && part.nr_bytes() <= SMALL_BYTES
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Merged {
    Part(String),
    /// The parts stay because the merged part could not be read again.
    Refused,
    Stopped,
}

/// Merges the parts `names` in `dir`. It can be stopped until the merged part is written.
pub(super) fn merge(
    dir: &Path,
    names: &[String],
    is_stopped: IsStopped<'_>,
) -> Result<Merged, AddError> {
    let mut rows: Vec<RecordBatch> = Vec::new();
    for name in names {
        if is_stopped() {
            return Ok(Merged::Stopped);
        }
        let path = dir.join(name);
        let io = |source| AddError::Io { path: path.clone(), source };
        let bytes = disk::read_whole(&path, BYTES_MAX).map_err(io)?;
        // Reading it cannot fail: it was checked when it was added, or this sweep wrote it.
        let part = Part::read(bytes).map_err(|why| io(io::Error::other(why.to_string())))?;
        rows.extend(part.into_batches());
    }
    let rows = alike(rows)?;
    let bytes = file_of_all(&rows)?;
    drop(rows);
    // Checked before the parts are removed: if the next sweep refused the merged part, it would
    // compute the rows again.
    let Ok(part) = Part::read(bytes) else { return Ok(Merged::Refused) };
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
    Ok(Merged::Part(name))
}

/// Returns `rows` with only the metadata that all of them share. Their versions may differ.
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

/// Completes the merge of a killed sweep with the files `names` in `dir`; sets damaged files aside.
///
/// On object storage, every part that arrives after the first merge waits under such a name. A file
/// may therefore replace others that are merging too, and a part may exist under both names. The
/// largest file goes first, because the files whose rows it holds are in its way or already have
/// their place.
pub(super) fn finish(
    dir: &Path,
    names: &[String],
    is_stopped: IsStopped<'_>,
) -> Result<Vec<SetAside>, SweepError> {
    let (merging, quarantined) = merging(dir, names, is_stopped)?;
    if merging.is_empty() {
        return Ok(quarantined);
    }
    let parts = Parts::read(dir, names, is_stopped)?;
    let mut placed: BTreeSet<CellId> = BTreeSet::new();
    for Merging { file, name, cells } in merging {
        go_on(is_stopped)?;
        let within: BTreeSet<&str> = parts.within(&cells).filter(|part| *part != name).collect();
        // Its rows cover the files that it replaces. Another file covers all other rows.
        let stands = |cell| placed.contains(cell) || parts.has_outside(cell, &within);
        if cells.iter().all(stands) {
            remove(&dir.join(&file))?;
            continue;
        }
        for part in within {
            remove(&dir.join(part))?;
        }
        let (from, to) = (dir.join(&file), dir.join(&name));
        fs::rename(&from, &to).map_err(|error| SweepError::io("rename", &from, error))?;
        placed.extend(cells);
    }
    Ok(quarantined)
}

/// Removes a replaced file, which may already be gone.
fn remove(path: &Path) -> Result<(), SweepError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|error| SweepError::io("remove", path, error)),
    }
}

struct Merging {
    file: String,
    name: String,
    cells: Vec<CellId>,
}

fn merging(
    dir: &Path,
    names: &[String],
    is_stopped: IsStopped<'_>,
) -> Result<(Vec<Merging>, Vec<SetAside>), SweepError> {
    let (mut whole, mut quarantined) = (Vec::new(), Vec::new());
    for file in names {
        let Some(name) = part_of(file) else { continue };
        go_on(is_stopped)?;
        match read_part(dir.join(file), name)? {
            Ok(part) => whole.push(Merging {
                file: file.clone(),
                name: name.to_owned(),
                cells: part.cells().to_vec(),
            }),
            Err(why) => quarantined.push(set_aside(dir, file, why)?),
        }
    }
    whole.sort_by_key(|merging| Reverse(merging.cells.len()));
    Ok((whole, quarantined))
}

fn part_of(file: &str) -> Option<&str> {
    file.strip_prefix(HIDDEN)?.strip_suffix(MERGING)
}

/// Parts that a merge may replace. Each is read once, however many files are merging.
#[derive(Default)]
struct Parts<'a> {
    names: Vec<(&'a str, usize)>,
    of_cells: BTreeMap<CellId, usize>,
}

impl<'a> Parts<'a> {
    fn read(
        dir: &Path,
        names: &'a [String],
        is_stopped: IsStopped<'_>,
    ) -> Result<Self, SweepError> {
        let mut parts = Self::default();
        for name in names.iter().filter(|name| hash_of(name).is_some()) {
            go_on(is_stopped)?;
            // Damaged parts are reported when the parts are added.
            let Ok(part) = read_part(dir.join(name), name)? else { continue };
            let nr = parts.names.len();
            parts.names.push((name, part.cells().len()));
            parts.of_cells.extend(part.cells().iter().map(|cell| (cell.clone(), nr)));
        }
        Ok(parts)
    }

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

    fn has_outside(&self, cell: &CellId, names: &BTreeSet<&str>) -> bool {
        self.of_cells.get(cell).is_some_and(|&nr| !names.contains(self.names[nr].0))
    }
}

#[cfg(test)]
mod tests;
