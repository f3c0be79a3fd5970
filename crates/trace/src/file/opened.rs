//! A trace that was opened: its file and its footer, for as many readers as are needed.
//!
//! Owns what all passes over a trace have in common. A path is opened once: between two passes
//! another trace may take its place, and rows of that one would be held against the wrong footer.
//!
//! Invariants:
//! - I1: all readers, and the digest, are of the file that was opened, with the footer that it had
//!   then.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use super::digest::digest_of;
use super::error::{TraceError, guarded};
use super::footer::{self, Footer, MAGIC};
use super::source::Source;
use crate::disk::open_regular;
use crate::meta::Meta;

/// An open trace. A clone is of the same file.
#[derive(Clone, Debug)]
pub struct OpenTrace {
    source: Arc<Source>,
    footer: Arc<Footer>,
}

impl OpenTrace {
    /// Whether the regular file at `path` begins as a trace does; no rows and no footer are read.
    #[must_use]
    pub fn looks_like(path: &Path) -> bool {
        let mut begin = [0; MAGIC.len()];
        open_regular(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok()
            && begin == *MAGIC
    }

    /// Opens a trace and checks its footer.
    ///
    /// # Errors
    /// As [`Reader::open`](super::reader::Reader::open), without those of the checksum.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let source = Arc::new(Source::open(path)?);
        let footer = guarded(|| Ok(footer::read(&source)))
            .unwrap_or_else(|error| Err(TraceError::from_read(path, error)))?;
        Ok(Self { source, footer: Arc::new(footer) })
    }

    /// The digest of the file ([`digest`](super::digest::digest)).
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn digest(&self) -> Result<String, TraceError> {
        let Some(digest) = self.digest_until(&mut || false)? else {
            unreachable!("nobody stops it");
        };
        Ok(digest)
    }

    /// [`OpenTrace::digest`] that may be stopped; nothing if it was.
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

    /// What the footer says.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.footer.meta
    }

    /// Where it was opened.
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
