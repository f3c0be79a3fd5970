//! Streaming reader: returns a trace as batches of validated rows.
//!
//! Owns the position in the file. Invariants:
//! - I1: memory is bounded by the limits in [`super::schema`], not by the file's length.
//! - I2: after an error or the end, every further call returns `false`.
//! - I3: a panic in the Parquet library on damaged bytes becomes an error.

use std::fmt;
use std::path::Path;

use super::batch::Batch;
use super::checksum;
use super::columns::Columns;
use super::error::{TraceError, guarded};
use super::opened::OpenTrace;
use super::schema::BATCH_ROWS;
use crate::meta::Meta;

const STOPPED: usize = usize::MAX;

impl OpenTrace {
    /// Creates a reader at the first row. Reads the file once to verify its checksum, because the
    /// file may have changed since the last reader.
    ///
    /// # Errors
    /// [`TraceError::Io`] or [`TraceError::Corrupt`].
    pub fn reader(&self) -> Result<Reader, TraceError> {
        checksum::verify(self.source(), self.footer())?;
        Ok(Reader::of(self.clone()))
    }
}

/// Reads a trace from its first row to its last.
pub struct Reader {
    trace: OpenTrace,
    /// Decoders of the current row group, if one is open.
    columns: Option<Columns>,
    nr_left: usize,
    /// Row group to open next; [`STOPPED`] after the end or an error.
    next_group: usize,
    nr_read: u64,
    nr_references: u64,
}

impl Reader {
    /// Opens a trace, checks its footer and reads the file once to verify its checksum.
    ///
    /// # Errors
    /// One of [`TraceError::Io`], [`TraceError::NotATrace`], [`TraceError::Corrupt`],
    /// [`TraceError::NewerSchema`] or [`TraceError::BadMeta`].
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        OpenTrace::open(path)?.reader()
    }

    /// Opens a trace without verifying its checksum, for tests of the decoders on damaged bytes.
    ///
    /// # Errors
    /// As [`Reader::open`], except for checksum errors.
    #[doc(hidden)]
    pub fn open_unverified(path: &Path) -> Result<Self, TraceError> {
        Ok(Self::of(OpenTrace::open(path)?))
    }

    fn of(trace: OpenTrace) -> Self {
        Self { trace, columns: None, nr_left: 0, next_group: 0, nr_read: 0, nr_references: 0 }
    }

    /// Returns the open file, for further readers.
    #[must_use]
    pub fn trace(&self) -> &OpenTrace {
        &self.trace
    }

    /// Returns the footer.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        self.trace.meta()
    }

    /// Returns the number of rows read so far, of [`Meta::nr_rows`].
    #[must_use]
    pub fn nr_read(&self) -> u64 {
        self.nr_read
    }

    /// Returns the file's size in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.trace.source().bytes()
    }

    /// Replaces `batch` with the next rows (at most 65,536). Returns `false` and no rows at the
    /// end.
    ///
    /// # Errors
    /// One of [`TraceError::Io`], [`TraceError::Corrupt`] or [`TraceError::BadRow`]. The batch is
    /// then empty, and every further call returns `false`.
    pub fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        let result = self.fill(batch);
        if result.is_err() {
            batch.clear();
            self.stop();
        }
        result
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        if self.nr_left == 0 && !self.open_group()? {
            return Ok(false);
        }
        let nr_rows = self.nr_left.min(BATCH_ROWS);
        let Some(columns) = self.columns.as_mut() else { unreachable!("a group is open") };
        guarded(|| columns.decode(nr_rows, batch))
            .map_err(|error| TraceError::from_read(self.trace.path(), error))?;
        self.check(batch)?;
        self.nr_left -= nr_rows;
        self.nr_read += nr_rows as u64;
        Ok(true)
    }

    fn open_group(&mut self) -> Result<bool, TraceError> {
        let Some(group) = self.trace.footer().parquet.row_groups().get(self.next_group) else {
            let is_stopped = self.next_group == STOPPED;
            self.stop();
            return if is_stopped { Ok(false) } else { self.check_whole() };
        };
        let columns = guarded(|| Columns::new(self.trace.source(), group))
            .map_err(|error| TraceError::from_read(self.trace.path(), error))?;
        self.nr_left = usize::try_from(group.num_rows()).unwrap_or(0);
        self.columns = Some(columns);
        self.next_group += 1;
        Ok(true)
    }

    fn check(&mut self, batch: &Batch) -> Result<(), TraceError> {
        batch.validate(self.trace.meta()).map_err(|(i, fault)| TraceError::BadRow {
            path: self.trace.path().to_path_buf(),
            row: self.nr_read + i as u64,
            fault,
        })?;
        let sum = self.nr_references.saturating_add(batch.nr_references());
        if sum > self.trace.meta().nr_references {
            return Err(self.miscounted("more"));
        }
        self.nr_references = sum;
        Ok(())
    }

    /// Checks the totals after the last row against the footer. Always returns `false` on success.
    fn check_whole(&self) -> Result<bool, TraceError> {
        if self.nr_references < self.trace.meta().nr_references {
            return Err(self.miscounted("fewer"));
        }
        Ok(false)
    }

    fn miscounted(&self, than: &str) -> TraceError {
        let stated = self.trace.meta().nr_references;
        TraceError::corrupt(
            self.trace.path(),
            format!(
                "its rows contain {than} references than the {stated} that its metadata declares"
            ),
        )
    }

    fn stop(&mut self) {
        self.columns = None;
        self.nr_left = 0;
        self.next_group = STOPPED;
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("path", &self.trace.path())
            .field("nr_read", &self.nr_read)
            .field("nr_rows", &self.trace.meta().nr_rows)
            .finish_non_exhaustive()
    }
}
