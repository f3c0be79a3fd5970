//! A tracefs instance of our own.
//!
//! Owns the instance's life: its buffers and filters are the probe's. It does not touch other
//! instances or the global buffer.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::CrosscheckError;
use super::mount::Detached;
use crate::proc::Task;
use crate::system::Live;

/// Begins the names of our instances; the process id follows.
const PREFIX: &str = "folio-crosscheck-";
/// Without it there is no recording; any other event may be missing.
const NEEDED_EVENT: &str = "filemap/mm_filemap_add_to_page_cache";

/// An instance, removed when dropped.
#[derive(Debug)]
pub(super) struct Instance {
    path: PathBuf,
    /// Holds the mount that `path` goes through.
    _tracefs: Detached,
}

impl Instance {
    /// Makes one, after removing those of processes that are gone.
    pub(super) fn new() -> Result<Self, CrosscheckError> {
        let tracefs = Detached::new("tracefs", None).map_err(|error| refused(&error))?;
        let root = tracefs.path();
        if !root.join("events").join(NEEDED_EVENT).exists() {
            return Err(CrosscheckError::NoEvent(NEEDED_EVENT));
        }
        let instances = root.join("instances");
        remove_stale(&instances);
        let path = instances.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&path).map_err(CrosscheckError::os("make a tracefs instance"))?;
        Ok(Self { path, _tracefs: tracefs })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn refused(error: &io::Error) -> CrosscheckError {
    if error.kind() == io::ErrorKind::PermissionDenied {
        CrosscheckError::NotPermitted { what: "tracefs" }
    } else {
        CrosscheckError::NoTracefs
    }
}

/// Removes the instances of processes that were killed. One that cannot be removed is in use.
fn remove_stale(instances: &Path) {
    let Ok(entries) = fs::read_dir(instances) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        if !Task::of(&Live, pid).exists() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Refused only while a file in it is open; the probe has ended.
        let _ = fs::remove_dir(&self.path);
    }
}
