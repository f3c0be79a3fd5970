//! Verbs that read what others made: as root they first give up everything else.

use std::path::{Path, PathBuf};

use largefolio_linux::confine::{self, Files};
use largefolio_trace::disk;

use crate::console;

/// Confines this process to `read` and the results at `write`, if it is root's. It goes on if the
/// kernel refuses, and says so.
pub(crate) fn to<'a>(read: &[PathBuf], write: impl IntoIterator<Item = &'a Path>) {
    let to_file = write.into_iter().filter(|path| !disk::is_stdout(path));
    let write = to_file.map(Path::to_owned).collect();
    of_root(&Files { read: read.to_vec(), write, fill: None });
}

/// Confines this process to `read` and the data set in `fill`, if it is root's.
pub(crate) fn to_fill(read: &[PathBuf], fill: &Path) {
    of_root(&Files { read: read.to_vec(), write: Vec::new(), fill: Some(fill.to_owned()) });
}

fn of_root(files: &Files) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    if let Err(error) = confine::to(files) {
        console::warn(&format!(
            "{error}: input files are read with all rights of root; run folio as another user if you \
             do not trust them"
        ));
    }
}
