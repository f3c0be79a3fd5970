//! Files of the page cache that were asked for.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use largefolio_linux::census::file::{self, CachedFiles, Empty, FileError};
use largefolio_trace::shown;

/// What is cached of `files` and of those below `dir`; `None` where none is asked for.
pub(super) fn look(
    files: &[PathBuf],
    dir: Option<&Path>,
    again: &[String],
) -> Result<Option<CachedFiles>> {
    if files.is_empty() && dir.is_none() {
        return Ok(None);
    }
    let mut cached = match file::cached(files, Empty::Keep) {
        Err(error @ FileError::NoPfns) => bail!("{error}; run: sudo {}", again.join(" ")),
        other => other?,
    };
    if let Some(dir) = dir {
        let below = file::below(dir).with_context(|| format!("cannot read {}", shown(dir)))?;
        let more = file::cached(&below, Empty::Count)?;
        cached.files.extend(more.files);
        cached.nr_empty += more.nr_empty;
        // Files come and go in a directory; only the names that were given are errors.
    }
    Ok(Some(cached))
}
