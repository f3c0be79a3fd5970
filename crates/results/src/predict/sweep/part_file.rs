//! A part as a file: its name, which is derived from its content, how it is read, and how it is
//! renamed if it is damaged.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use largefolio_trace::{disk, shown};
use serde::{Deserialize, Serialize};

use super::error::SweepError;
use super::part::{BYTES_MAX, NoPart, Part};

const PART: &str = "part-";
pub(super) const PARQUET: &str = ".parquet";
const BROKEN: &str = ".broken";
/// Prefix of names that readers of the whole directory skip.
const HIDDEN: &str = "_";
/// Hex digits of the hash in a name: 128 bits.
const NR_DIGITS: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    pub file: String,
    pub now: String,
    pub why: String,
}

/// Reads the file at `path`, which was written as the part `name`; returns the reason if it is
/// damaged.
pub(super) fn read_part(path: PathBuf, name: &str) -> Result<Result<Part, String>, SweepError> {
    let bytes = match disk::read_whole(&path, BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) => return damage(&path, error).map(Err),
    };
    if hash_of(name) != Some(hash(&bytes).as_str()) {
        return Ok(Err("it is damaged: its content does not match its name".to_owned()));
    }
    match Part::read(bytes) {
        Ok(part) => Ok(Ok(part)),
        Err(NoPart::OtherColumns) => Err(SweepError::OtherColumns { path }),
        Err(NoPart::Damaged(why)) => Ok(Err(why)),
    }
}

/// Describes why a file cannot be read: it is not a regular file, or it is a link that is broken or
/// leads out of the directories that a confined process may read.
pub(super) fn damage(path: &Path, error: io::Error) -> Result<String, SweepError> {
    if disk::is_foreign(&error) {
        return Ok(error.to_string());
    }
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink()) {
        return Ok(format!("it is a link that cannot be followed: {error}"));
    }
    Err(SweepError::io("read", path, error))
}

#[derive(Debug, thiserror::Error)]
pub(super) enum AddError {
    #[error("{}: {source}", shown(path))]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Parquet(#[from] parquet::errors::ParquetError),
}

/// Renames `name` in `dir` so that it no longer looks like a part or a manifest.
pub(super) fn set_aside(dir: &Path, name: &str, why: String) -> Result<SetAside, SweepError> {
    let path = dir.join(name);
    let first = format!("{HIDDEN}{}{BROKEN}", name.trim_start_matches(HIDDEN));
    let others = (2..).map(|nr: u32| format!("{first}-{nr}"));
    // Earlier set-aside files stay. Only the holder of the lock creates such names.
    let is_free = |name: &String| fs::symlink_metadata(dir.join(name)).is_err();
    let now = std::iter::once(first.clone()).chain(others).find(is_free).unwrap_or(first);
    fs::rename(&path, dir.join(&now)).map_err(|error| SweepError::io("rename", &path, error))?;
    Ok(SetAside { file: name.to_owned(), now, why })
}

/// Returns the hash in a part's name, or `None` for any other name.
pub(super) fn hash_of(name: &str) -> Option<&str> {
    let hash = name.strip_prefix(PART)?.strip_suffix(PARQUET)?;
    (hash.len() == NR_DIGITS && hash.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(hash)
}

pub(super) fn part_name(hash: &str) -> String {
    format!("{PART}{hash}{PARQUET}")
}

pub(super) fn hash(bytes: &[u8]) -> String {
    let mut digits = blake3::hash(bytes).to_hex().to_string();
    digits.truncate(NR_DIGITS);
    digits
}
