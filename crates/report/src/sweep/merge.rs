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

use std::collections::BTreeSet;
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
use super::part::Part;
use crate::parquet::file_of_all;

/// Parts that become one: 16 rows each, as many as there are cells in a task.
pub(super) const NR_PARTS: usize = 256;
/// A part with more rows was merged already.
pub(super) const SMALL_ROWS: usize = 64;

/// What a name begins and ends with while the parts go that it takes the place of.
const HIDDEN: &str = "_";
const MERGING: &str = ".merging";

/// Makes one part of those called `names` in `dir`; its name.
pub(super) fn merge(dir: &Path, names: &[String]) -> Result<String, AddError> {
    let mut rows: Vec<RecordBatch> = Vec::new();
    for name in names {
        let path = dir.join(name);
        let io = |source| AddError::Io { path: path.clone(), source };
        let bytes = disk::read_whole(&path, PART_BYTES_MAX).map_err(io)?;
        // It was whole when it was taken in, or written by this sweep.
        let part = Part::read(bytes).map_err(|why| io(io::Error::other(why.to_string())))?;
        rows.extend(part.into_batches());
    }
    let bytes = file_of_all(&alike(rows)?)?;
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
    Ok(name)
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
    for merging in names.iter().filter(|name| name.ends_with(MERGING)) {
        let Some(name) = merging.strip_prefix(HIDDEN).and_then(|name| name.strip_suffix(MERGING))
        else {
            continue;
        };
        let cells = match cells_of(dir, merging, name)? {
            Ok(cells) => cells,
            Err(why) => {
                aside.push(set_aside(dir, merging, why)?);
                continue;
            }
        };
        for part in names.iter().filter(|part| hash_of(part).is_some()) {
            let path = dir.join(part);
            let is_merged = match cells_of(dir, part, part)? {
                Ok(own) => own.is_subset(&cells),
                Err(_) => false, // Told where the parts are taken in.
            };
            if is_merged {
                fs::remove_file(&path).map_err(|error| SweepError::io("remove", &path, error))?;
            }
        }
        let (from, to) = (dir.join(merging), dir.join(name));
        fs::rename(&from, to).map_err(|error| SweepError::io("rename", &from, error))?;
    }
    Ok(aside)
}

/// Cells of the file `file`, which was written as the part `name`; why not, if it is damaged.
fn cells_of(
    dir: &Path,
    file: &str,
    name: &str,
) -> Result<Result<BTreeSet<CellId>, String>, SweepError> {
    let path = dir.join(file);
    // One that another merged file has taken the place of.
    if !path.exists() {
        return Ok(Ok(BTreeSet::new()));
    }
    let part = read_part(path, name)?;
    Ok(part.map(|part| part.cells().iter().cloned().collect()))
}
