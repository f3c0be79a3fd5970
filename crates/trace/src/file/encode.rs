//! Columns of a row group become Parquet pages: the counterpart of [`super::columns`].
//!
//! A chunk is a page with the dictionary, plain, and pages of [`BATCH_ROWS`] numbers in it; from the
//! first page on that makes the dictionary larger than [`DICTIONARY_BYTES_MAX`], plain values. The
//! library writes the same, and hashes each value to do so: half of the CPU time of a recording went
//! there. CPU time of recording cc1 -O0 with these encoders to that with the library's, QEMU's part of it
//! included: 0.73 [0.61 .. 0.78], n = 5 pairs on a busy machine; the file is 2% larger.
//!
//! Measured on 13.7 million rows of `cc1 -O1` recorded with lackey (12.1 references a row) and on
//! 10 million of [`ZipfMix`](crate::generate::ZipfMix) (10.5), one core of a Xeon server, all pages
//! decoded by the library. Dictionary numbers are now unpacked here (`unpack`), in 0.42 times the
//! time for a trace of `cc1 -O2`, so that the first and last rows are too slow beside the others:
//!
//! | encoding | cc1: bytes a row | million rows read/s | mix: bytes a row | million rows read/s |
//! |---|---|---|---|---|
//! | dictionaries, zstd 3 (chosen) | 0.73 | 146 | 2.72 | 121 |
//! | `addr`, `len` delta binary packed | 1.71 | 97 | 4.15 | 99 |
//! | `addr`, `len` plain | 1.05 | 69 | 3.20 | 68 |
//! | dictionaries, zstd 9 | 0.69 | 99 | 2.71 | 114 |
//!
//! That is 0.06 and 0.26 bytes per reference. A program returns to few pages, so 12-bit numbers of
//! a dictionary beat differences of addresses that jump between text, stack and heap. Only a group
//! that touches more than 131,072 pages (512 MiB) overflows the dictionary of 1 MiB and stores the
//! rest of its addresses plain: 4.4 bytes a row at worst. A larger dictionary was no better there.
//!
//! Owns the encoding. Does not own the properties ([`super::schema`]) or the file.

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriteSpec, PageWriter as _};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;

use super::batch::Batch;
use super::checksum::Sink;
use super::dictionary::Dictionary;
use super::schema::{BATCH_ROWS, Column};
use crate::event::Op;

/// Level of zstd; the module has the measurement.
const ZSTD_LEVEL: i32 = 3;

/// Bytes of a dictionary, which stay in the second-level cache of whoever reads.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;

/// Rows of one number in a row that are stored as a run.
const RUN_MIN: usize = 64;

/// Rows that are packed together.
const GROUP: usize = 8;

/// Encodes row groups; keeps its memory from one to the next.
pub(super) struct Encoder {
    columns: Vec<ColumnDescPtr>,
    compressor: Compressor<'static>,
    dictionary: Dictionary,
    numbers: Vec<u32>,
    page: Vec<u8>,
}

/// A chunk in the making.
struct Chunk {
    pages: TrackedWrite<Vec<u8>>,
    nr_uncompressed: usize,
}

impl Encoder {
    /// An encoder for the columns of a trace.
    pub(super) fn new(columns: Vec<ColumnDescPtr>) -> Result<Self, ParquetError> {
        Ok(Self {
            columns,
            compressor: Compressor::new(ZSTD_LEVEL)?,
            dictionary: Dictionary::default(),
            numbers: Vec::new(),
            page: Vec::new(),
        })
    }

    /// Writes `rows` as a row group.
    pub(super) fn encode(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, Sink>,
        rows: &Batch,
    ) -> Result<(), ParquetError> {
        self.column(group, Column::Thread, rows.threads())?;
        self.column(group, Column::Op, rows.ops())?;
        self.column(group, Column::Addr, rows.addrs())?;
        self.column(group, Column::Len, rows.lens())?;
        self.column(group, Column::Pos, rows.positions())?;
        self.column(group, Column::Aux, rows.auxes())?;
        self.column(group, Column::Flags, rows.flags())?;
        self.column(group, Column::File, rows.files())
    }

    fn column<T: Copy + PartialEq + Into<u64>>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, Sink>,
        column: Column,
        values: &[T],
    ) -> Result<(), ParquetError> {
        let data = self.data_pages(column, values)?;
        let mut chunk = Chunk { pages: TrackedWrite::new(Vec::new()), nr_uncompressed: 0 };
        let dictionary = self.dictionary_page(column)?;
        chunk.write(dictionary)?;
        let data_offset = chunk.pages.bytes_written();
        for page in data {
            chunk.write(page)?;
        }
        let described = self.columns[column as usize].clone();
        append(group, described, chunk, (values.len(), data_offset))
    }

    /// The data pages of a column; its dictionary is complete then.
    fn data_pages<T: Copy + PartialEq + Into<u64>>(
        &mut self,
        column: Column,
        values: &[T],
    ) -> Result<Vec<CompressedPage>, ParquetError> {
        self.dictionary.begin(DICTIONARY_BYTES_MAX / column.value_bytes());
        self.numbers.clear();
        let mut nr_numbered = 0;
        for rows in values.chunks(BATCH_ROWS) {
            if !self.number(rows) {
                break;
            }
            nr_numbered += rows.len();
        }
        let numbers = std::mem::take(&mut self.numbers);
        let width = width_of(self.dictionary.values().len());
        let mut pages = Vec::new();
        for rows in numbers[..nr_numbered].chunks(BATCH_ROWS) {
            self.page.clear();
            pack(rows, width, &mut self.page);
            pages.push(self.data_page(rows.len(), Encoding::RLE_DICTIONARY)?);
        }
        self.numbers = numbers;
        for rows in values[nr_numbered..].chunks(BATCH_ROWS) {
            self.page.clear();
            plain(rows.iter().map(|&value| value.into()), column, &mut self.page);
            pages.push(self.data_page(rows.len(), Encoding::PLAIN)?);
        }
        Ok(pages)
    }

    /// Appends the numbers of `rows`; false if the dictionary has no room.
    fn number<T: Copy + PartialEq + Into<u64>>(&mut self, rows: &[T]) -> bool {
        let Some((&first, rest)) = rows.split_first() else { return true };
        let (dictionary, numbers) = (&mut self.dictionary, &mut self.numbers);
        // Most columns of most pages hold one value.
        if rest.iter().all(|value| *value == first) {
            let fits = dictionary.number(std::iter::once(first.into()), numbers);
            let number = numbers.last().copied().unwrap_or(0);
            numbers.extend(std::iter::repeat_n(number, rest.len()));
            return fits;
        }
        dictionary.number(rows.iter().map(|&value| value.into()), numbers)
    }

    fn data_page(&mut self, nr: usize, encoding: Encoding) -> Result<CompressedPage, ParquetError> {
        let buf = self.compressed()?;
        let page = Page::DataPage {
            buf,
            num_values: u32::try_from(nr)?,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        Ok(CompressedPage::new(page, self.page.len()))
    }

    fn dictionary_page(&mut self, column: Column) -> Result<CompressedPage, ParquetError> {
        self.page.clear();
        let values = self.dictionary.values();
        let num_values = u32::try_from(values.len())?;
        plain(values.iter().copied(), column, &mut self.page);
        let buf = self.compressed()?;
        let page =
            Page::DictionaryPage { buf, num_values, encoding: Encoding::PLAIN, is_sorted: false };
        Ok(CompressedPage::new(page, self.page.len()))
    }

    fn compressed(&mut self) -> Result<Bytes, ParquetError> {
        Ok(self.compressor.compress(&self.page)?.into())
    }
}

impl Chunk {
    fn write(&mut self, page: CompressedPage) -> Result<(), ParquetError> {
        let spec: PageWriteSpec = SerializedPageWriter::new(&mut self.pages).write_page(page)?;
        self.nr_uncompressed += spec.uncompressed_size;
        Ok(())
    }
}

/// Appends a chunk of `nr_rows` rows, whose data pages begin at `data_offset`.
fn append(
    group: &mut SerializedRowGroupWriter<'_, Sink>,
    described: ColumnDescPtr,
    chunk: Chunk,
    (nr_rows, data_offset): (usize, usize),
) -> Result<(), ParquetError> {
    let bytes = Bytes::from(chunk.pages.into_inner()?);
    let metadata = ColumnChunkMetaData::builder(described)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
        .set_num_values(i64::try_from(nr_rows)?)
        .set_total_compressed_size(i64::try_from(bytes.len())?)
        .set_total_uncompressed_size(i64::try_from(chunk.nr_uncompressed)?)
        .set_dictionary_page_offset(Some(0))
        .set_data_page_offset(i64::try_from(data_offset)?)
        .build()?;
    let close = ColumnCloseResult {
        bytes_written: bytes.len() as u64,
        rows_written: nr_rows as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    group.append_column(&bytes, close)
}

/// Values as the file has them where there is no dictionary: little-endian, of op its name.
fn plain(values: impl Iterator<Item = u64>, column: Column, page: &mut Vec<u8>) {
    let nr_bytes = column.value_bytes();
    for value in values {
        if column == Column::Op {
            let op = u8::try_from(value).ok().and_then(Op::from_number);
            let name = op.map_or("", Op::name);
            // A name has a few letters.
            page.extend_from_slice(&u32::try_from(name.len()).unwrap_or(0).to_le_bytes());
            page.extend_from_slice(name.as_bytes());
        } else {
            page.extend_from_slice(&value.to_le_bytes()[..nr_bytes]);
        }
    }
}

/// Bits that the largest number of a dictionary of `nr` values needs.
fn width_of(nr: usize) -> u32 {
    usize::BITS - nr.saturating_sub(1).leading_zeros()
}

/// Appends numbers of `width` bits as runs of one number and as packed groups ([`super::unpack`]).
fn pack(numbers: &[u32], width: u32, page: &mut Vec<u8>) {
    // A dictionary has fewer than 2^32 values.
    page.push(u8::try_from(width).unwrap_or(u8::MAX));
    let (mut packed, mut at) = (0, 0);
    while at < numbers.len() {
        let number = numbers[at];
        let nr_same = numbers[at..].iter().take_while(|other| **other == number).count();
        let is_last = at + nr_same == numbers.len();
        if nr_same < RUN_MIN && !(packed == at && is_last) {
            at = (at + GROUP).min(numbers.len());
            continue;
        }
        put_groups(&numbers[packed..at], width, page);
        // What follows a run begins with a whole group.
        let nr_run = if is_last { nr_same } else { nr_same / GROUP * GROUP };
        put_varint((nr_run as u64) << 1, page);
        let nr_bytes = width.div_ceil(8) as usize;
        page.extend_from_slice(&number.to_le_bytes()[..nr_bytes]);
        at += nr_run;
        packed = at;
    }
    put_groups(&numbers[packed..], width, page);
}

fn put_groups(numbers: &[u32], width: u32, page: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    let nr_groups = numbers.len().div_ceil(GROUP);
    put_varint((nr_groups as u64) << 1 | 1, page);
    let (mut word, mut nr_bits) = (0_u64, 0);
    let padding = nr_groups * GROUP - numbers.len();
    for &number in numbers.iter().chain(std::iter::repeat_n(&0, padding)) {
        word |= u64::from(number) << nr_bits;
        nr_bits += width;
        if nr_bits >= u32::BITS {
            page.extend_from_slice(&word.to_le_bytes()[..4]);
            word >>= u32::BITS;
            nr_bits -= u32::BITS;
        }
    }
    // Eight numbers fill whole bytes.
    page.extend_from_slice(&word.to_le_bytes()[..nr_bits.div_ceil(8) as usize]);
}

fn put_varint(mut value: u64, page: &mut Vec<u8>) {
    while value >= 0x80 {
        page.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    page.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::unpack::Numbers;
    use super::super::values::Values;
    use super::*;

    proptest! {
        #[test]
        fn packed_numbers_come_back(runs in runs(), width in 17_u32..=32) {
            let numbers: Vec<u32> = runs.iter().flat_map(|&(number, nr)| vec![number; nr]).collect();
            let nr_values = numbers.iter().max().map_or(1, |&max| max as usize + 1);
            for width in [width_of(nr_values), width] {
                let mut page = Vec::new();
                pack(&numbers, width, &mut page);
                let dictionary: Vec<u32> = (0..u32::try_from(nr_values).unwrap_or(0)).collect();
                let mut read = Numbers::default();
                prop_assert!(read.begin(&page).is_some());
                let mut values = Values::default();
                prop_assert!(read.take(numbers.len(), &dictionary, &mut values).is_some());
                prop_assert_eq!(values.as_slice(), &numbers[..]);
            }
        }
    }

    fn runs() -> impl Strategy<Value = Vec<(u32, usize)>> {
        let nr = prop_oneof![1..4_usize, 60..70_usize, 200..210_usize];
        let number = prop_oneof![0..3_u32, 0..70_000_u32];
        prop::collection::vec((number, nr), 1..60)
    }
}
