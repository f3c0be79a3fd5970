//! An open trace: its file and its footer, for any number of readers.
//!
//! A path is opened only once. Otherwise, another trace could replace the file between two passes,
//! and its rows would be checked against the wrong footer.
//!
//! Invariants:
//! - I1: all readers and the digest use the opened file and the footer that was read when it was
//!   opened.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use super::digest::digest_of;
use super::error::{TraceError, guarded};
use super::footer::{self, Footer, MAGIC};
use super::source::Source;
use crate::disk::open_regular;
use crate::meta::{Meta, PlainRun};

/// An open trace. Clones share the file.
#[derive(Clone, Debug)]
pub struct OpenTrace {
    source: Arc<Source>,
    footer: Arc<Footer>,
}

impl OpenTrace {
    /// Returns whether the regular file at `path` starts like a trace. Does not read its footer.
    #[must_use]
    pub fn looks_like(path: &Path) -> bool {
        let mut begin = [0; MAGIC.len()];
        open_regular(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok()
            && begin == *MAGIC
    }

    /// Opens a trace and checks its footer.
    ///
    /// # Errors
    /// As [`Reader::open`](super::reader::Reader::open), except for checksum errors.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let source = Arc::new(Source::open(path)?);
        let footer = guarded(|| Ok(footer::read(&source)))
            .unwrap_or_else(|error| Err(TraceError::from_read(path, error)))?;
        Ok(Self { source, footer: Arc::new(footer) })
    }

    /// Returns the file's digest ([`digest`](super::digest::digest)).
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn digest(&self) -> Result<String, TraceError> {
        let Some(digest) = self.digest_until(&mut || false)? else {
            unreachable!("the digest is never stopped");
        };
        Ok(digest)
    }

    /// Like [`OpenTrace::digest`], but can be stopped, which returns `None`.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn digest_until(
        &self,
        is_stopped: &mut dyn FnMut() -> bool,
    ) -> Result<Option<String>, TraceError> {
        let digest = digest_of(self.source.stream(), is_stopped);
        digest.map_err(|error| TraceError::io(self.path(), "read", error))
    }

    /// Replaces the plain runs in memory: they come from another tool, on the CPU `machine`.
    pub fn set_runs(&mut self, runs: Vec<PlainRun>, machine: &str) {
        let meta = &mut Arc::make_mut(&mut self.footer).meta;
        meta.runs = runs;
        machine.clone_into(&mut meta.machine);
    }

    /// Returns the footer.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.footer.meta
    }

    /// Returns the path it was opened at.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    pub(super) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    pub(super) fn footer(&self) -> &Footer {
        &self.footer
    }
}
