//! The opposite of warming: drops a file's pages, so the kernel fills the cache in its usual way.

use std::io;
use std::path::Path;

use largefolio_trace::disk::open_regular;
use rustix::fs::Advice;

/// Drops the cached pages of the file at `path`. Writes dirty pages first. Mapped pages stay, so
/// running programs are not affected.
///
/// # Errors
/// The file cannot be opened for reading or written back.
pub fn cool(path: &Path) -> io::Result<()> {
    let file = open_regular(path)?;
    file.sync_data()?;
    Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
}
