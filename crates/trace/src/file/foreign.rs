//! Checks a foreign Parquet file in memory before the Parquet library reads it.
//!
//! Owns these checks, as [`super::source`] and [`super::footer`] do for traces. The caller checks
//! the columns.

use std::io::Cursor;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};

use super::footer::{self, TAIL_BYTES};
use super::schema::{PAGE_BYTES_MAX, PAGE_HEADER_BYTES_MAX};
use super::source::PageHeader;

/// A Parquet file whose structures are all walked before the library reads them.
#[derive(Debug)]
pub struct ForeignParquet {
    bytes: Bytes,
    left: AtomicU64,
}

impl ForeignParquet {
    /// Wraps the file's bytes. No page can be read before [`Self::allow`].
    #[must_use]
    pub const fn new(bytes: Bytes) -> Self {
        Self { bytes, left: AtomicU64::new(0) }
    }

    /// Allows its pages this many decompressed bytes in total, such as the size that the footer
    /// declares. Each page is read once. The limit also bounds every value's length, however often
    /// the value is repeated.
    pub fn allow(&mut self, page_bytes: u64) {
        self.left = AtomicU64::new(page_bytes);
    }

    /// Reads the footer.
    ///
    /// # Errors
    /// A damaged footer, one that the library would read differently than it was written, or one
    /// with longer lists than largefolio writes.
    pub fn metadata(&self) -> Result<ParquetMetaData, ParquetError> {
        let cut = || ParquetError::General("the file ends before its footer".to_owned());
        let tail_at = self.bytes.len().checked_sub(TAIL_BYTES).ok_or_else(cut)?;
        let tail: [u8; TAIL_BYTES] = self.bytes[tail_at..].try_into().map_err(|_| cut())?;
        let len = footer::len_of(tail).ok_or_else(cut)?;
        let at = usize::try_from(len).ok().and_then(|len| tail_at.checked_sub(len));
        let bytes = &self.bytes[at.ok_or_else(cut)?..tail_at];
        footer::check(bytes).map_err(|what| ParquetError::General(what.to_owned()))?;
        ParquetMetaDataReader::decode_metadata(bytes)
    }

    fn piece(&self, start: u64, len: usize) -> Result<Bytes, ParquetError> {
        let start = usize::try_from(start).ok();
        let range = start.and_then(|start| Some(start..start.checked_add(len)?));
        match range.filter(|range| range.end <= self.bytes.len()) {
            Some(range) => Ok(self.bytes.slice(range)),
            None => Err(ParquetError::EOF(
                "the file ends before a page that its footer lists".to_owned(),
            )),
        }
    }
}

impl Length for ForeignParquet {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl ChunkReader for ForeignParquet {
    type T = Cursor<Bytes>;

    /// Returns the page header at `start`. The library calls this for nothing else.
    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let left = usize::try_from(self.len().saturating_sub(start)).unwrap_or(usize::MAX);
        let bytes = self.piece(start, left.min(PAGE_HEADER_BYTES_MAX))?;
        let PageHeader { len, page_bytes, is_simple } = PageHeader::of(&bytes, start)?;
        if !is_simple {
            let what = format!("the page at byte {start} has an encoding that folio does not use");
            return Err(ParquetError::General(what));
        }
        let take = |left: u64| left.checked_sub(page_bytes);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(|_| Cursor::new(bytes.slice(..len))).map_err(|_| {
            let what = format!("the page at byte {start} is larger than the footer declares");
            ParquetError::General(what)
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if length as u64 > PAGE_BYTES_MAX {
            return Err(ParquetError::General(format!("a page of {length} bytes is impossible")));
        }
        self.piece(start, length)
    }
}
