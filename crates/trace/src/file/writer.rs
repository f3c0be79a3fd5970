//! Streaming writer: writes rows in program order, one row group at a time.
//!
//! Owns the file until it is complete. Invariants:
//! - I1: `PATH` appears, complete and synced, when [`Writer::finish`] returns; until then no file
//!   has its name ([`Whole`]).
//! - I2: every row and the footer pass [`crate::validate`]. A file id or an execution can come
//!   before its entry in the footer's table, which must exist at the end.
//! - I3: memory use is one row group ([`super::rows`]) for a trace of any length.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;

use super::checksum::{Checksum, Sink, meta_crc};
use super::encode::Encoder;
use super::error::TraceError;
use super::rows::Rows;
use super::schema::{
    CHECKSUM_KEY, GROUP_ROWS, META_KEY, NR_GROUPS_MAX, stored_schema, write_properties,
};
use crate::disk::Whole;
use crate::event::{Event, Op, ThreadId};
use crate::meta::Meta;
use crate::run::Run;
use crate::validate::{
    META_BYTES_MAX, NR_FILES_MAX, NR_REFERENCES_MAX, REFERENCE_PAGE_BYTES, RowFault,
};

/// Estimated bytes per row in the file, for progress reports of rows not yet encoded.
const ROW_BYTES_GUESS: u64 = 2;

/// The totals of a finished trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Final path.
    pub path: PathBuf,
    /// Number of rows.
    pub nr_rows: u64,
    /// References in the rows.
    pub nr_references: u64,
    /// The file's size in bytes.
    pub file_bytes: u64,
}

/// Writes a trace; see the crate's example.
pub struct Writer {
    path: PathBuf,
    meta: Meta,
    /// The encoder; `None` only after the file is finished.
    parquet: Option<SerializedFileWriter<Sink>>,
    encoder: Encoder,
    rows: Rows,
    nr_rows: u64,
    nr_references: u64,
    nr_groups: usize,
    file_max: Option<(u32, u64)>,
    exec_max: Option<(u64, u64)>,
    link_first: Option<(u32, u64)>,
}

impl Writer {
    /// Starts a trace that will appear at `path`.
    ///
    /// # Errors
    /// [`TraceError::Io`] if no file can be created there.
    pub fn create(path: &Path, meta: Meta) -> Result<Self, TraceError> {
        let whole = Whole::create(path).map_err(|e| TraceError::io(path, "create", e))?;
        let parquet = start(whole).map_err(|e| TraceError::from_write(path, e))?;
        Ok(Self {
            path: path.to_path_buf(),
            meta,
            encoder: Encoder::new(parquet.schema_descr().columns().to_vec())
                .map_err(|e| TraceError::from_write(path, e))?,
            parquet: Some(parquet),
            rows: Rows::default(),
            nr_rows: 0,
            nr_references: 0,
            nr_groups: 0,
            file_max: None,
            exec_max: None,
            link_first: None,
        })
    }

    /// Appends a row.
    ///
    /// # Errors
    /// If the row is not legal, [`TraceError::BadRow`], and the row is not appended.
    /// [`TraceError::Io`] or [`TraceError::TooLarge`] from writing a full row group.
    pub fn push(&mut self, event: Event) -> Result<(), TraceError> {
        event.validate().map_err(|fault| self.bad_row(self.nr_rows, fault))?;
        if let Some(file) = event.file {
            self.note_file(file)?;
        }
        if event.op.is_reference() {
            self.count(event.len)?;
            if event.flags != 0 && self.link_first.is_none() {
                self.link_first = Some((event.flags, self.nr_rows));
            }
        }
        if event.op == Op::Execve && self.exec_max.is_none_or(|(max, _)| event.aux > max) {
            self.exec_max = Some((event.aux, self.nr_rows));
        }
        self.rows.push(&event);
        self.nr_rows += 1;
        if self.rows.len() >= GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    /// Appends rows in order.
    ///
    /// # Errors
    /// As [`Writer::push`]. Rows before the failed one are appended.
    pub fn push_rows(&mut self, events: &[Event]) -> Result<(), TraceError> {
        events.iter().try_for_each(|&event| self.push(event))
    }

    /// Appends reference rows of `thread` in order, a recorder's most frequent call.
    ///
    /// ```
    /// # use largefolio_trace::{Meta, Op, Run, Writer};
    /// # let dir = tempfile::tempdir()?;
    /// let mut writer = Writer::create(&dir.path().join("two.folio"), Meta::default())?;
    /// let runs = [Run::new(Op::Exec, 0x40_0000, 12, 0), Run::new(Op::Read, 0x60_1000, 3, 0)];
    /// writer.push_runs(1, &runs.map(|run| run.expect("a legal row")))?;
    /// assert_eq!((writer.nr_rows(), writer.nr_references()), (2, 15));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TraceError::Io`] or [`TraceError::TooLarge`] from writing a full row group.
    pub fn push_runs(&mut self, thread: ThreadId, runs: &[Run]) -> Result<(), TraceError> {
        let mut rest = runs;
        while !rest.is_empty() {
            let room = GROUP_ROWS - self.rows.len();
            let (now, later) = rest.split_at(rest.len().min(room));
            self.count(now.iter().map(|run| run.count()).sum())?;
            if self.link_first.is_none()
                && let Some(nr) = now.iter().position(|run| run.link() > 0)
            {
                self.link_first = Some((now[nr].link(), self.nr_rows + nr as u64));
            }
            self.rows.push_runs(thread, now);
            self.nr_rows += now.len() as u64;
            if self.rows.len() >= GROUP_ROWS {
                self.flush()?;
            }
            rest = later;
        }
        Ok(())
    }

    fn count(&mut self, nr: u64) -> Result<(), TraceError> {
        let sum = self.nr_references.checked_add(nr).filter(|&sum| sum < NR_REFERENCES_MAX);
        self.nr_references = sum.ok_or_else(|| self.too_large("2^62 references".to_owned()))?;
        Ok(())
    }

    /// Returns the metadata, which [`Writer::finish`] writes.
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.meta
    }

    /// Returns the number of rows appended.
    #[must_use]
    pub fn nr_rows(&self) -> u64 {
        self.nr_rows
    }

    /// Returns the references in the rows appended.
    #[must_use]
    pub fn nr_references(&self) -> u64 {
        self.nr_references
    }

    /// Returns the bytes written, plus an estimate for the rows of the current row group.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        let done = self.parquet.as_ref().map_or(0, |parquet| parquet.bytes_written() as u64);
        done + self.rows.len() as u64 * ROW_BYTES_GUESS
    }

    /// Completes the file and gives it its name.
    ///
    /// Sets `schema_version`, `nr_rows` and `nr_references` of the metadata, and also `page_bytes`
    /// and `tool_version` if the caller left them empty.
    ///
    /// # Errors
    /// If the metadata is illegal or does not match the rows, [`TraceError::BadMeta`] or
    /// [`TraceError::BadRow`]; also [`TraceError::TooLarge`] and [`TraceError::Io`]. No file is
    /// then written.
    pub fn finish(mut self) -> Result<Summary, TraceError> {
        self.complete_meta()?;
        if self.rows.len() > 0 {
            self.flush()?;
        }
        let Some(mut parquet) = self.parquet.take() else { unreachable!("taken only here") };
        let file_bytes = self.close(&mut parquet)?;
        Ok(Summary {
            path: self.path,
            nr_rows: self.nr_rows,
            nr_references: self.nr_references,
            file_bytes,
        })
    }

    fn close(&self, parquet: &mut SerializedFileWriter<Sink>) -> Result<u64, TraceError> {
        let json = serde_json::to_string(&self.meta)
            .map_err(|e| TraceError::io(&self.path, "write", e.into()))?;
        if json.len() > META_BYTES_MAX {
            return Err(self.too_large(format!("metadata of {} bytes", json.len())));
        }
        let sum = checksum(parquet, &json).map_err(|e| TraceError::io(&self.path, "write", e))?;
        parquet.append_key_value_metadata(KeyValue::new(META_KEY.to_owned(), json));
        let pair = KeyValue::new(CHECKSUM_KEY.to_owned(), sum.to_string());
        parquet.append_key_value_metadata(pair);
        parquet.finish().map_err(|e| TraceError::from_write(&self.path, e))?;
        parquet.inner_mut().commit().map_err(|e| TraceError::io(&self.path, "write", e))?;
        Ok(parquet.bytes_written() as u64)
    }

    fn complete_meta(&mut self) -> Result<(), TraceError> {
        let meta = &mut self.meta;
        meta.schema_version = meta.schema_version_needed();
        meta.nr_rows = self.nr_rows;
        meta.nr_references = self.nr_references;
        if meta.page_bytes == 0 {
            meta.page_bytes = REFERENCE_PAGE_BYTES;
        }
        if meta.tool_version.is_empty() {
            env!("CARGO_PKG_VERSION").clone_into(&mut meta.tool_version);
        }
        let path = self.path.clone();
        meta.validate().map_err(|fault| TraceError::BadMeta { path, fault })?;
        if let Some((link, row)) = self.link_first.filter(|_| !self.meta.links) {
            return Err(self.bad_row(row, RowFault::UnknownLink(link)));
        }
        let (nr_files, nr_execs) = (self.meta.files.len(), self.meta.execs.len());
        match (self.file_max, self.exec_max) {
            (Some((file, row)), _) if file as usize >= nr_files => {
                Err(self.bad_row(row, RowFault::UnknownFile(file, nr_files)))
            }
            (_, Some((exec, row))) if exec >= nr_execs as u64 => {
                Err(self.bad_row(row, RowFault::UnknownExec(exec, nr_execs)))
            }
            _ => Ok(()),
        }
    }

    fn note_file(&mut self, file: u32) -> Result<(), TraceError> {
        if file as usize >= NR_FILES_MAX {
            return Err(self.bad_row(self.nr_rows, RowFault::UnknownFile(file, NR_FILES_MAX)));
        }
        if self.file_max.is_none_or(|(max, _)| file > max) {
            self.file_max = Some((file, self.nr_rows));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        if self.nr_groups == NR_GROUPS_MAX {
            return Err(self.too_large(format!("{} rows", self.nr_rows)));
        }
        let Some(parquet) = self.parquet.as_mut() else { unreachable!("taken only by finish") };
        let encoder = &mut self.encoder;
        let written = parquet.next_row_group().and_then(|mut group| {
            encoder.encode(&mut group, &self.rows)?;
            group.close()
        });
        written.map_err(|e| TraceError::from_write(&self.path, e))?;
        self.nr_groups += 1;
        self.rows.clear();
        Ok(())
    }

    fn bad_row(&self, row: u64, fault: RowFault) -> TraceError {
        TraceError::BadRow { path: self.path.clone(), row, fault }
    }

    fn too_large(&self, what: String) -> TraceError {
        TraceError::TooLarge { path: self.path.clone(), what }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("path", &self.path)
            .field("nr_rows", &self.nr_rows)
            .finish_non_exhaustive()
    }
}

fn start(whole: Whole) -> Result<SerializedFileWriter<Sink>, ParquetError> {
    SerializedFileWriter::new(Sink::new(whole), stored_schema()?, Arc::new(write_properties()))
}

/// Computes the checksum of the metadata and of all rows, which must already be encoded.
fn checksum(parquet: &mut SerializedFileWriter<Sink>, json: &str) -> io::Result<Checksum> {
    // The encoder buffers, so the sink has all bytes only after a flush.
    parquet.flush()?;
    Ok(Checksum {
        len: parquet.bytes_written() as u64,
        data: parquet.inner().crc(),
        meta: meta_crc(json, parquet.flushed_row_groups()),
    })
}
