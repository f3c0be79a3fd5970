//! The opposite of warming: drops a file's pages from the cache, so that the kernel fills it by
//! itself.

use std::io;
use std::path::Path;

use largefolio_trace::disk::open_regular;
use rustix::fs::Advice;

/// Takes the pages of the file at `path` out of the cache. Dirty ones are written first, mapped ones
/// stay: whoever runs the file keeps it as it is.
///
/// # Errors
/// The file cannot be opened for reading, or not be written back.
pub fn cool(path: &Path) -> io::Result<()> {
    let file = open_regular(path)?;
    file.sync_data()?;
    Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
}
