//! New directories for a result, removed if no result appears.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// New directories. Drop removes the empty ones, unless [`MadeDirs::keep`] was called.
#[derive(Debug, Default)]
#[must_use = "they are removed when this is dropped"]
pub struct MadeDirs {
    dirs: Vec<PathBuf>,
}

impl MadeDirs {
    /// Creates the directory at `path` and its missing parents.
    ///
    /// ```
    /// use largefolio_trace::disk::MadeDirs;
    /// let place = tempfile::tempdir()?;
    /// let made = MadeDirs::make(&place.path().join("a/b"))?;
    /// assert!(place.path().join("a/b").is_dir());
    /// drop(made);
    /// assert!(!place.path().join("a").exists() && place.path().exists());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// System errors. Directories created before the error are removed.
    pub fn make(path: &Path) -> io::Result<Self> {
        let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
        let mut missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
        missing.reverse();
        let mut made = Self::default();
        for dir in missing {
            match fs::create_dir(dir) {
                Ok(()) => made.dirs.push(dir.to_owned()),
                // Another process created it first and owns it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(made)
    }

    /// Returns the parent of the outermost new directory. Removal needs write permission there.
    #[must_use]
    pub fn above(&self) -> Option<&Path> {
        let above = self.dirs.first()?.parent()?;
        Some(if above.as_os_str().is_empty() { Path::new(".") } else { above })
    }

    /// Keeps the directories, because a result exists.
    pub fn keep(&mut self) {
        self.dirs.clear();
    }
}

impl Drop for MadeDirs {
    fn drop(&mut self) {
        for dir in self.dirs.iter().rev() {
            // Keep a directory that is no longer empty.
            if fs::remove_dir(dir).is_err() {
                return;
            }
        }
    }
}
