//! Verbs that read what others made: as root they first give up everything else.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::{Context as _, Result};
use largefolio_linux::confine::{self, Confined, Files};
use largefolio_trace::disk::MadeDirs;
use largefolio_trace::{disk, shown};

use crate::console;

/// A verb that narrows its rights twice says it once.
static TOLD: Once = Once::new();

/// Confines this process to `read` and the results at `write`, if it is root's. It goes on if the
/// kernel refuses, and says so.
pub(crate) fn to<'a>(read: &[PathBuf], write: impl IntoIterator<Item = &'a Path>) {
    of_root(&Files { read: read.to_vec(), write: files(write), ..Files::default() });
}

/// As [`to`]; temporary files may come and go as well.
pub(crate) fn to_with_temporary<'a>(read: &[PathBuf], write: impl IntoIterator<Item = &'a Path>) {
    let fill = Some(env::temp_dir());
    of_root(&Files { read: read.to_vec(), write: files(write), fill, ..Files::default() });
}

/// Confines this process to `read` and the data set in `fill`, which is made before, if it is root's.
/// What was made goes again if there will be none.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn to_fill(read: &[PathBuf], fill: &Path) -> Result<MadeDirs> {
    // A file in its place has an error of its own.
    let made = if is_root() && !fill.exists() {
        MadeDirs::make(fill).with_context(|| format!("cannot make {}", shown(fill)))?
    } else {
        MadeDirs::default()
    };
    to_fill_made(read, fill, &made);
    Ok(made)
}

/// As [`to_fill`], once it is made.
pub(crate) fn to_fill_made(read: &[PathBuf], fill: &Path, made: &MadeDirs) {
    let (fill, empty) = (Some(fill.to_owned()), made.above().map(Path::to_owned));
    of_root(&Files { read: read.to_vec(), fill, empty, ..Files::default() });
}

fn files<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Vec<PathBuf> {
    paths.into_iter().filter(|path| !disk::is_stdout(path)).map(Path::to_owned).collect()
}

fn of_root(files: &Files) {
    if !is_root() {
        return;
    }
    let why = match confine::to(files) {
        // What a kernel does not know yet is in the documentation.
        Ok(Confined::Whole | Confined::Partly) => return,
        Ok(Confined::MemoryOnly) => "this kernel has no Landlock".to_owned(),
        Err(error) => error.to_string(),
    };
    TOLD.call_once(|| {
        console::warn(&format!(
            "{why}: input files are read with all rights of root; run folio as another user if you do \
             not trust them"
        ));
    });
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
