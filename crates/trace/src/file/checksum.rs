//! The checksum in the footer detects damage that would still decode, before the first row is read.
//!
//! Owns the covered bytes and the text form: `LEN DATA META` under [`CHECKSUM_KEY`]. `DATA` is the
//! CRC-32 of the first `LEN` bytes of the file. Invariants:
//! - I1: `LEN` is the end of the last row group, so it covers every byte that rows come from.
//! - I2: `META` covers the metadata's JSON and the footer's description of the row groups (rows,
//!   places, sizes, codecs). A damaged footer therefore cannot lead to other bytes or rows.
//! - I3: verification uses one buffer of [`BUFFER_BYTES`] for a trace of any length.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use crc32fast::Hasher;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

use super::error::TraceError;
use super::footer::Footer;
use super::schema::CHECKSUM_KEY;
use super::source::Source;
use crate::disk::Whole;

/// Buffer size for verifying, large enough that system calls cost little.
const BUFFER_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checksum {
    pub(super) len: u64,
    pub(super) data: u32,
    pub(super) meta: u32,
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:08x} {:08x}", self.len, self.data, self.meta)
    }
}

impl FromStr for Checksum {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let len = words.next().and_then(|word| word.parse().ok()).ok_or(())?;
        let mut crc = || words.next().and_then(|word| u32::from_str_radix(word, 16).ok()).ok_or(());
        let (data, meta) = (crc()?, crc()?);
        if words.next().is_some() { Err(()) } else { Ok(Self { len, data, meta }) }
    }
}

#[derive(Debug)]
pub(super) struct Sink {
    whole: Whole,
    hasher: Hasher,
}

impl Sink {
    pub(super) fn new(whole: Whole) -> Self {
        Self { whole, hasher: Hasher::new() }
    }

    pub(super) fn commit(&mut self) -> io::Result<()> {
        self.whole.commit()
    }

    pub(super) fn crc(&self) -> u32 {
        self.hasher.clone().finalize()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let nr_written = self.whole.write(bytes)?;
        self.hasher.update(&bytes[..nr_written]);
        Ok(nr_written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.whole.flush()
    }
}

/// Returns the CRC-32 of the metadata's JSON and the row groups' layout (I2).
pub(super) fn meta_crc(json: &str, groups: &[RowGroupMetaData]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(json.as_bytes());
    for group in groups {
        hasher.update(&group.num_rows().to_le_bytes());
        for number in group.columns().iter().flat_map(layout_of) {
            hasher.update(&number.to_le_bytes());
        }
    }
    hasher.finalize()
}

/// Returns the place and compression of a column chunk; -1 = no dictionary.
fn layout_of(chunk: &ColumnChunkMetaData) -> [i64; 6] {
    [
        chunk.num_values(),
        chunk.dictionary_page_offset().unwrap_or(-1),
        chunk.data_page_offset(),
        chunk.compressed_size(),
        chunk.uncompressed_size(),
        // Without the level, which the file does not store.
        i64::from(matches!(chunk.compression(), Compression::ZSTD(_))),
    ]
}

pub(super) fn verify(source: &Source, footer: &Footer) -> Result<(), TraceError> {
    let bad = |what: &str| Err(TraceError::corrupt(source.path(), what));
    let Some(stored) = footer.value_of(CHECKSUM_KEY) else {
        return bad("it has no checksum, like all traces from older versions");
    };
    let Ok(stored) = stored.parse::<Checksum>() else {
        return bad("its checksum is unreadable");
    };
    let is_meta_intact = stored.meta == meta_crc(footer.json(), footer.parquet.row_groups());
    if !is_meta_intact || stored.len != footer.rows_end {
        return bad("its metadata does not match its checksum");
    }
    let data = data_crc(source, stored.len)
        .map_err(|error| TraceError::from_read(source.path(), ParquetError::from(error)))?;
    if stored.data != data {
        return bad("its rows do not match their checksum");
    }
    Ok(())
}

fn data_crc(source: &Source, len: u64) -> io::Result<u32> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut at = 0;
    while at < len {
        let nr_bytes = usize::try_from(len - at).unwrap_or(usize::MAX).min(BUFFER_BYTES);
        source.read_into(at, &mut buffer[..nr_bytes])?;
        hasher.update(&buffer[..nr_bytes]);
        at += nr_bytes as u64;
    }
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_read_as_it_is_written() {
        let sum = Checksum { len: 4, data: 0xab, meta: u32::MAX };
        assert_eq!(sum.to_string(), "4 000000ab ffffffff");
        assert_eq!(sum.to_string().parse(), Ok(sum));
    }

    #[test]
    fn other_texts_are_no_checksums() {
        for text in ["", "4", "4 ab", "4 ab cd ef", "x ab cd", "4 xy cd", "-4 ab cd", "4  ab cd"] {
            assert_eq!(text.parse::<Checksum>(), Err(()), "{text}");
        }
    }
}
