//! A Parquet file in memory that others wrote, for the Parquet library.
//!
//! Owns what is looked at before the library reads such a file, as [`super::source`] and
//! [`super::footer`] do for traces. What the columns are is the caller's to check.

use std::io::Cursor;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};

use super::footer::{self, TAIL_BYTES};
use super::schema::{PAGE_BYTES_MAX, PAGE_HEADER_BYTES_MAX};
use super::source::page_header;

/// A file of which the library reads nothing that was not walked before.
#[derive(Clone, Debug)]
pub struct ForeignParquet(Bytes);

impl ForeignParquet {
    /// The file with these bytes.
    #[must_use]
    pub const fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// Its footer.
    ///
    /// # Errors
    /// One that is damaged, that the library would read in another way than it is written, or that
    /// lists more than a file of ours has.
    pub fn metadata(&self) -> Result<ParquetMetaData, ParquetError> {
        let cut = || ParquetError::General("it ends before its footer".to_owned());
        let tail_at = self.0.len().checked_sub(TAIL_BYTES).ok_or_else(cut)?;
        let tail: [u8; TAIL_BYTES] = self.0[tail_at..].try_into().map_err(|_| cut())?;
        let len = footer::len_of(tail).ok_or_else(cut)?;
        let at = usize::try_from(len).ok().and_then(|len| tail_at.checked_sub(len));
        let bytes = &self.0[at.ok_or_else(cut)?..tail_at];
        footer::check(bytes).map_err(|what| ParquetError::General(what.to_owned()))?;
        ParquetMetaDataReader::decode_metadata(bytes)
    }

    fn piece(&self, start: u64, len: usize) -> Result<Bytes, ParquetError> {
        let start = usize::try_from(start).ok();
        let range = start.and_then(|start| Some(start..start.checked_add(len)?));
        match range.filter(|range| range.end <= self.0.len()) {
            Some(range) => Ok(self.0.slice(range)),
            None => Err(ParquetError::EOF("it ends before a page that it names".to_owned())),
        }
    }
}

impl Length for ForeignParquet {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

impl ChunkReader for ForeignParquet {
    type T = Cursor<Bytes>;

    /// The page header at `start`; the library calls this for nothing else.
    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let left = usize::try_from(self.len().saturating_sub(start)).unwrap_or(usize::MAX);
        let bytes = self.piece(start, left.min(PAGE_HEADER_BYTES_MAX))?;
        let len = page_header(&bytes, start)?;
        Ok(Cursor::new(bytes.slice(..len)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if length as u64 > PAGE_BYTES_MAX {
            return Err(ParquetError::General(format!("a page of {length} bytes is impossible")));
        }
        self.piece(start, length)
    }
}
