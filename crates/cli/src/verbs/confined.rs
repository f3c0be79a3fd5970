//! Confines verbs that read untrusted files: if root runs them, they first drop all other access
//! permissions.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::{Context as _, Result};
use largefolio_linux::confine::{self, Confined, Files};
use largefolio_trace::disk::MadeDirs;
use largefolio_trace::{disk, shown};

use crate::console;

/// Prints the warning once, even if a verb confines itself twice.
static TOLD: Once = Once::new();

/// If run by root, confines this process to reading `read` and writing the results at `write`.
/// Warns and continues if the kernel refuses.
pub fn to<'a>(read: &[PathBuf], write: impl IntoIterator<Item = &'a Path>) {
    confine_root(&Files { read: read.to_vec(), write: files(write), ..Files::default() });
}

pub fn to_with_temporary<'a>(read: &[PathBuf], write: impl IntoIterator<Item = &'a Path>) {
    let fill = Some(env::temp_dir());
    confine_root(&Files { read: read.to_vec(), write: files(write), fill, ..Files::default() });
}

/// If run by root, confines this process to `read` and to the data set in `fill`, whose directory
/// it creates first. A new directory is removed again if no data set is written.
///
/// # Errors
/// If the directory cannot be created.
pub(crate) fn to_fill(read: &[PathBuf], fill: &Path) -> Result<MadeDirs> {
    // If there is a file in its place, that error is reported later.
    let made = if is_root() && !fill.exists() {
        MadeDirs::make(fill).with_context(|| format!("cannot make {}", shown(fill)))?
    } else {
        MadeDirs::default()
    };
    to_fill_made(read, fill, &made);
    Ok(made)
}

pub(crate) fn to_fill_made(read: &[PathBuf], fill: &Path, made: &MadeDirs) {
    let (fill, empty) = (Some(fill.to_owned()), made.above().map(Path::to_owned));
    confine_root(&Files { read: read.to_vec(), fill, empty, ..Files::default() });
}

fn files<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Vec<PathBuf> {
    paths.into_iter().filter(|path| !disk::is_stdout(path)).map(Path::to_owned).collect()
}

fn confine_root(files: &Files) {
    if !is_root() {
        return;
    }
    let why = match confine::to(files) {
        // The documentation covers restrictions that an older kernel lacks.
        Ok(Confined::Whole | Confined::Partly) => return,
        Ok(Confined::MemoryOnly) => "this kernel has no Landlock".to_owned(),
        Err(error) => error.to_string(),
    };
    TOLD.call_once(|| {
        console::warn(&format!(
            "{why}: input files are read with full root privileges; run folio as another user if \
             you do not trust them"
        ));
    });
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
