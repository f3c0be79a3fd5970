//! Reads bytes of the file for the Parquet library and checks every size.
//!
//! Owns the open file. Invariants:
//! - I1: no read goes outside the file, so no buffer is larger than the file.
//! - I2: before a page header is returned, its declared sizes are compared with [`PAGE_BYTES_MAX`],
//!   and the number of values in a dictionary with the dictionary's size. The library allocates
//!   memory based on these numbers.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::error::TraceError;
use super::schema::{PAGE_BYTES_MAX, PAGE_HEADER_BYTES_MAX};
use super::shape::PAGE_HEADER;
use super::thrift::Outline;
use crate::disk;

const UNCOMPRESSED_SIZE: usize = 2;
const COMPRESSED_SIZE: usize = 3;
const DATA: usize = 5;
const DICTIONARY: usize = 7;
const DATA_2: usize = 8;
/// Fields of these structures: the number of values, and the encodings.
const NR_VALUES: usize = 1;
const ENCODING_OF: [(usize, usize); 2] = [(DATA, 2), (DATA_2, 4)];

/// Minimum bytes of a dictionary value: a 32-bit number, or the length of a text.
const DICTIONARY_VALUE_BYTES: u64 = 4;
/// Parquet's numbers of the encodings `PLAIN`, `PLAIN_DICTIONARY` and `RLE_DICTIONARY`.
const SIMPLE: [u64; 3] = [0, 2, 8];

#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    file: File,
    len: u64,
}

impl Source {
    /// Opens a regular file. Refuses anything else before it can block.
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        let file = disk::open_regular(path).map_err(|e| TraceError::from_open(path, e))?;
        let len = file.metadata().map_err(|e| TraceError::io(path, "open", e))?.len();
        Ok(Self { path: path.to_path_buf(), file, len })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.len
    }

    pub(super) fn read(&self, start: u64, len: usize) -> io::Result<Vec<u8>> {
        let end = start.checked_add(len as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes)
    }

    pub(super) fn read_into(&self, start: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, start)
    }

    pub(super) const fn stream(&self) -> Stream<'_> {
        Stream { file: &self.file, at: 0 }
    }
}

/// Reads a file in order. Each stream has its own position, because readers share the descriptor.
#[derive(Debug)]
pub(super) struct Stream<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Stream<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let nr_read = self.file.read_at(bytes, self.at)?;
        self.at += nr_read as u64;
        Ok(nr_read)
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Source {
    type T = Cursor<Vec<u8>>;

    /// Returns the page header at `start`. The library calls this for nothing else.
    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let left = self.len.saturating_sub(start);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(PAGE_HEADER_BYTES_MAX);
        let mut bytes = self.read(start, len)?;
        bytes.truncate(PageHeader::of(&bytes, start)?.len);
        Ok(Cursor::new(bytes))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if length as u64 > PAGE_BYTES_MAX {
            return Err(ParquetError::General(format!("a page of {length} bytes is impossible")));
        }
        Ok(self.read(start, length)?.into())
    }
}

/// A page header with possible sizes (I2).
pub(super) struct PageHeader {
    pub(super) len: usize,
    pub(super) page_bytes: u64,
    /// Whether the values are plain or dictionary numbers. Other encodings repeat their number.
    pub(super) is_simple: bool,
}

impl PageHeader {
    /// Parses the header at the beginning of `bytes`, which come from position `start` of a file.
    pub(super) fn of(bytes: &[u8], start: u64) -> Result<Self, ParquetError> {
        let outline = Outline::of(bytes, &PAGE_HEADER)
            .ok_or_else(|| ParquetError::General(format!("no page header at byte {start}")))?;
        let size = |field| outline.number(field).filter(|&bytes| bytes <= PAGE_BYTES_MAX);
        let (page_bytes, _) =
            size(UNCOMPRESSED_SIZE).zip(size(COMPRESSED_SIZE)).ok_or_else(|| {
                let what = format!("the page at byte {start} declares an impossible size");
                ParquetError::General(what)
            })?;
        let number = |structure, field| {
            let outline = outline.within(structure, bytes, &PAGE_HEADER)?;
            Some(outline.number(field).unwrap_or(u64::MAX))
        };
        let nr_values = number(DICTIONARY, NR_VALUES).unwrap_or(0);
        if nr_values.saturating_mul(DICTIONARY_VALUE_BYTES) > page_bytes {
            let what = format!("the dictionary at byte {start} declares more values than it has");
            return Err(ParquetError::General(what));
        }
        let mut encodings = ENCODING_OF.iter().filter_map(|&(of, field)| number(of, field));
        let is_simple = encodings.all(|encoding| SIMPLE.contains(&encoding));
        Ok(Self { len: outline.len, page_bytes, is_simple })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(uncompressed: &[u8], compressed: &[u8]) -> (tempfile::TempDir, Source) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("header");
        let bytes = [&[0x15, 0][..], &[0x15], uncompressed, &[0x15], compressed, &[0]].concat();
        std::fs::write(&path, bytes).unwrap();
        let source = Source::open(&path).unwrap();
        (dir, source)
    }

    #[test]
    fn a_page_header_is_passed_on_to_its_last_byte() {
        let (_dir, source) = header(&[8], &[6]);
        assert_eq!(source.get_read(0).unwrap().into_inner(), [0x15, 0, 0x15, 8, 0x15, 6, 0]);
    }

    #[test]
    fn a_page_that_declares_gigabytes_is_refused() {
        let (two_gib, eight_mib) = ([0xfe, 0xff, 0xff, 0xff, 0x0f], [0x80, 0x80, 0x80, 0x08]);
        assert!(header(&eight_mib, &[6]).1.get_read(0).is_ok());
        let (_dir, source) = header(&two_gib, &[6]);
        let error = source.get_read(0).unwrap_err().to_string();
        assert!(error.contains("impossible size"), "{error}");
        assert!(header(&[8], &two_gib).1.get_read(0).is_err());
        assert!(header(&[1], &[6]).1.get_read(0).is_err(), "a negative size");
    }

    fn described(delta: u8, structure: &[u8]) -> Result<PageHeader, ParquetError> {
        let bytes = [&[0x15, 4, 0x15, 16, 0x15, 16, delta << 4 | 0xc], structure, &[0, 0]].concat();
        PageHeader::of(&bytes, 0)
    }

    #[test]
    fn a_dictionary_declares_no_more_values_than_it_has_bytes_for() {
        assert!(described(4, &[0x15, 4, 0x15, 0]).is_ok());
        for nr_values in [&[6][..], &[0x80, 0x80, 0x80, 0x08], &[1], &[]] {
            let field = if nr_values.is_empty() { &[][..] } else { &[0x15] };
            let header = described(4, &[field, nr_values].concat());
            let error = header.err().expect("refused").to_string();
            assert!(error.contains("more values than it has"), "{nr_values:?}: {error}");
        }
    }

    #[test]
    fn how_values_are_written_is_known_from_the_header() {
        let is_simple = |delta, structure: &[u8]| described(delta, structure).unwrap().is_simple;
        // PLAIN, RLE_DICTIONARY, DELTA_LENGTH_BYTE_ARRAY; -1.
        for (encoding, expected) in [(0, true), (16, true), (12, false), (1, false)] {
            assert_eq!(is_simple(2, &[0x15, 2, 0x15, encoding]), expected, "{encoding}");
            assert_eq!(is_simple(5, &[0x15, 2, 0x35, encoding]), expected, "{encoding}, version 2");
        }
        assert!(!is_simple(2, &[0x15, 2]), "none");
    }

    #[test]
    fn nothing_outside_the_file_is_read() {
        let (_dir, source) = header(&[8], &[6]);
        assert!(source.read(6, 1).is_ok());
        assert!(source.read(6, 2).is_err());
        assert!(source.read(u64::MAX, 2).is_err());
        assert!(source.get_read(7).is_err());
        assert!(source.get_bytes(0, usize::MAX).is_err());
    }
}
