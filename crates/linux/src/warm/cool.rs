//! The opposite of warming: a file's pages out of the cache, so that the kernel fills it by itself.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::Advice;

/// Takes the pages of the file at `path` out of the cache. Dirty ones are written first, mapped ones
/// stay: whoever runs the file keeps it as it is.
///
/// # Errors
/// The file cannot be opened for reading, or not be written back.
pub fn cool(path: &Path) -> io::Result<()> {
    // A pipe would wait for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    file.sync_data()?;
    Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
}
