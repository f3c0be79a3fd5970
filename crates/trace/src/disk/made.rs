//! Directories of a result, which go again if there is no result.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories that were made. Those that are still empty are removed when this is dropped, unless
/// [`MadeDirs::keep`] was called.
#[derive(Debug, Default)]
#[must_use = "they are removed when this is dropped"]
pub struct MadeDirs {
    /// The outermost first.
    dirs: Vec<PathBuf>,
}

impl MadeDirs {
    /// Makes the directory at `path` and those above it, as far as they are missing.
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
    /// The system's; what was made until then is removed.
    pub fn make(path: &Path) -> io::Result<Self> {
        let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
        let mut missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
        missing.reverse();
        let mut made = Self::default();
        for dir in missing {
            match fs::create_dir(dir) {
                Ok(()) => made.dirs.push(dir.to_owned()),
                // Somebody was faster; it is theirs.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(made)
    }

    /// Where the outermost was made: nobody can remove it without a right on this directory.
    #[must_use]
    pub fn above(&self) -> Option<&Path> {
        let above = self.dirs.first()?.parent()?;
        Some(if above.as_os_str().is_empty() { Path::new(".") } else { above })
    }

    /// There is a result: they stay.
    pub fn keep(&mut self) {
        self.dirs.clear();
    }
}

impl Drop for MadeDirs {
    fn drop(&mut self) {
        for dir in self.dirs.iter().rev() {
            // Whoever has put something there wants it to stay.
            if fs::remove_dir(dir).is_err() {
                return;
            }
        }
    }
}
