//! Keeps recordings.

use std::path::Path;

use largefolio_trace::{disk, shown};

use crate::Error;

/// Writes a recording into a directory.
///
/// # Errors
/// If the file cannot be written completely.
pub fn keep_text(directory: &Path, name: &str, text: &str) -> Result<(), Error> {
    let path = directory.join(format!("{name}.txt"));
    disk::write_whole(&path, text.as_bytes())
        .map_err(Error::system(format!("cannot write {}", shown(&path))))
}
