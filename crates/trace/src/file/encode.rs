//! Encodes the columns of a row group as Parquet pages: the counterpart of [`super::columns`].
//!
//! A chunk contains a dictionary page in plain encoding, then one page of dictionary numbers per
//! [`BATCH_ROWS`](super::schema::BATCH_ROWS) rows. If a page would make the dictionary larger than
//! [`DICTIONARY_BYTES_MAX`], it and all later pages hold plain values. Rows are numbered when they
//! arrive ([`super::rows`]), which leaves little work here: numbering, packing, compression and
//! file output together take 17 ns of CPU time per row (21 million rows from a recorded build of
//! zlib, one core of a Zen 4 server, n = 2).
//!
//! Numbers take whole bytes ([`width_of`]). The 11 bits that a row of cc1 needs take 1.36 bytes
//! before compression and 0.58 after. With 16 bits, they take 2 bytes, of which 0.28 remain,
//! because a loop in the program produces the same bytes each time. The table shows bytes per row
//! for 6.3 million rows of the same recording at zstd level 3:
//!
//! | column | fewest bits | as chosen |
//! |---|---|---|
//! | addr | 0.583 | 0.282 |
//! | len | 0.374 | 0.211 |
//! | op | 0.082 | 0.082 |
//! | flags | 0.128 | 0.128 |
//!
//! For all columns, zstd level 1 takes 17.2 ns and 0.783 bytes per row. Level 2 takes 18.6 ns and
//! 0.766 bytes, and level 3 takes 20.5 ns and 0.766 bytes (21 million rows).
//!
//! The next table shows why dictionaries are used. It covers 13.7 million rows of `cc1 -O1`
//! recorded with lackey (12.1 references per row) and 10 million rows of
//! [`ZipfMix`](crate::generate::ZipfMix) (10.5), with numbers packed into as few bits as possible,
//! on one core of a Xeon server. The Parquet library decoded all pages; `unpack` takes 0.42 times
//! as long.
//!
//! | encoding | cc1: bytes per row | million rows read/s | mix: bytes per row | million rows read/s |
//! |---|---|---|---|---|
//! | dictionaries, zstd 3 | 0.73 | 146 | 2.72 | 121 |
//! | `addr`, `len` delta binary packed | 1.71 | 97 | 4.15 | 99 |
//! | `addr`, `len` plain | 1.05 | 69 | 3.20 | 68 |
//!
//! A program uses few pages repeatedly, so dictionary numbers are smaller than address differences,
//! which jump between text, stack and heap. Only a group that touches more than 131,072 pages (512
//! MiB) overflows the 1 MiB dictionary. It stores its remaining addresses in plain encoding, which
//! takes 4.4 bytes per row at worst. A larger dictionary did not help.
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

use super::checksum::Sink;
use super::rows::{Numbers, Rows, RowsPage};
use super::schema::Column;
use crate::event::Op;

/// zstd level; the module's documentation has the measurements.
const ZSTD_LEVEL: i32 = 1;

/// Maximum bytes of a dictionary, chosen to fit in a reader's second-level cache.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;

/// Consecutive rows with the same number from which a run is stored.
const RUN_MIN: usize = 64;

const GROUP: usize = 8;

pub(super) struct Encoder {
    columns: Vec<ColumnDescPtr>,
    compressor: Compressor<'static>,
    page: Vec<u8>,
    short: Vec<u32>,
}

struct Chunk {
    pages: TrackedWrite<Vec<u8>>,
    nr_uncompressed: usize,
}

impl Encoder {
    pub(super) fn new(columns: Vec<ColumnDescPtr>) -> Result<Self, ParquetError> {
        Ok(Self {
            columns,
            compressor: Compressor::new(ZSTD_LEVEL)?,
            page: Vec::new(),
            short: Vec::new(),
        })
    }

    pub(super) fn encode(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, Sink>,
        rows: &Rows,
    ) -> Result<(), ParquetError> {
        Column::ALL.into_iter().try_for_each(|column| self.column(group, column, rows))
    }

    fn column(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, Sink>,
        column: Column,
        rows: &Rows,
    ) -> Result<(), ParquetError> {
        // A page that would make the dictionary too large is plain, as are all pages after it.
        let nr_max = DICTIONARY_BYTES_MAX / column.value_bytes();
        let fits = |page: &RowsPage<'_>| page.nr_values <= nr_max;
        let nr_values = rows.pages(column).take_while(fits).last().map_or(0, |page| page.nr_values);
        let mut chunk = Chunk { pages: TrackedWrite::new(Vec::new()), nr_uncompressed: 0 };
        let dictionary = self.dictionary_page(column, &rows.values(column)[..nr_values])?;
        chunk.write(dictionary)?;
        let data_offset = chunk.pages.bytes_written();
        for page in rows.pages(column) {
            self.page.clear();
            let encoding = if fits(&page) {
                pack(page.numbers, width_of(nr_values), &mut self.short, &mut self.page);
                Encoding::RLE_DICTIONARY
            } else {
                plain(values_of(&page, rows.values(column)), column, &mut self.page);
                Encoding::PLAIN
            };
            chunk.write(self.data_page(page.nr_rows, encoding)?)?;
        }
        let described = self.columns[column as usize].clone();
        append(group, described, chunk, (rows.len(), data_offset))
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

    fn dictionary_page(
        &mut self,
        column: Column,
        values: &[u64],
    ) -> Result<CompressedPage, ParquetError> {
        self.page.clear();
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

fn plain(values: impl Iterator<Item = u64>, column: Column, page: &mut Vec<u8>) {
    let nr_bytes = column.value_bytes();
    for value in values {
        if column == Column::Op {
            let op = u8::try_from(value).ok().and_then(Op::from_number);
            let name = op.map_or("", Op::name);
            page.extend_from_slice(&u32::try_from(name.len()).unwrap_or(0).to_le_bytes());
            page.extend_from_slice(name.as_bytes());
        } else {
            page.extend_from_slice(&value.to_le_bytes()[..nr_bytes]);
        }
    }
}

fn values_of<'a>(page: &RowsPage<'a>, values: &'a [u64]) -> Box<dyn Iterator<Item = u64> + 'a> {
    match page.numbers {
        Numbers::Rows(numbers) => Box::new(numbers.iter().map(|&number| values[number as usize])),
        Numbers::Runs(runs) => {
            Box::new(runs.iter().flat_map(|&(number, nr)| {
                std::iter::repeat_n(values[number as usize], nr as usize)
            }))
        }
    }
}

/// Returns the bits per number for a dictionary of `nr` values: a power of two below a byte, or
/// whole bytes up to two. zstd finds the rows of a loop again in such numbers, and they need few
/// shifts.
fn width_of(nr: usize) -> u32 {
    let width = usize::BITS - nr.saturating_sub(1).leading_zeros();
    match width {
        // zstd's time depends on bytes, so several numbers share one.
        0..=4 => width.next_power_of_two() * u32::from(width > 0),
        5..=16 => width.next_multiple_of(u8::BITS),
        _ => width,
    }
}

fn pack(numbers: Numbers<'_>, width: u32, short: &mut Vec<u32>, page: &mut Vec<u8>) {
    // A dictionary has fewer than 2^32 values.
    page.push(u8::try_from(width).unwrap_or(u8::MAX));
    match numbers {
        Numbers::Rows(numbers) => pack_rows(numbers, width, page),
        Numbers::Runs(runs) => pack_runs(runs, width, short, page),
    }
}

fn pack_rows(numbers: &[u32], width: u32, page: &mut Vec<u8>) {
    match numbers.first() {
        // The flags column of a trace without links holds one number.
        Some(&first) if numbers.iter().all(|number| *number == first) => {
            put_run(first, numbers.len(), width, page);
        }
        _ => put_groups(numbers, width, page),
    }
}

fn pack_runs(runs: &[(u32, u32)], width: u32, short: &mut Vec<u32>, page: &mut Vec<u8>) {
    short.clear();
    let is_only = runs.len() == 1;
    for &(number, nr) in runs {
        let nr = nr as usize;
        if nr < RUN_MIN && !is_only {
            short.extend(std::iter::repeat_n(number, nr));
            continue;
        }
        // A run can start only after a complete group.
        let nr_filled = short.len().next_multiple_of(GROUP) - short.len();
        short.extend(std::iter::repeat_n(number, nr_filled));
        put_groups(short, width, page);
        short.clear();
        put_run(number, nr - nr_filled, width, page);
    }
    put_groups(short, width, page);
}

fn put_run(number: u32, nr: usize, width: u32, page: &mut Vec<u8>) {
    put_varint((nr as u64) << 1, page);
    let nr_bytes = width.div_ceil(u8::BITS) as usize;
    page.extend_from_slice(&number.to_le_bytes()[..nr_bytes]);
}

fn put_groups(numbers: &[u32], width: u32, page: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    let nr_groups = numbers.len().div_ceil(GROUP);
    put_varint((nr_groups as u64) << 1 | 1, page);
    let start = page.len();
    page.resize(start + nr_groups * width as usize, 0);
    let target = &mut page[start..];
    // Every number fits into `width` bits.
    match width {
        0 => {}
        8 => target
            .iter_mut()
            .zip(numbers)
            .for_each(|(byte, &number)| *byte = number.to_le_bytes()[0]),
        16 => {
            let cells = target.as_chunks_mut().0.iter_mut();
            cells.zip(numbers).for_each(|(cell, number)| {
                let [low, high, ..] = number.to_le_bytes();
                *cell = [low, high];
            });
        }
        _ => put_bits(numbers, width, target),
    }
}

fn put_bits(numbers: &[u32], width: u32, target: &mut [u8]) {
    let (mut word, mut nr_bits) = (0_u64, 0);
    let mut cells = target.chunks_mut(size_of::<u32>());
    for &number in numbers {
        word |= u64::from(number) << nr_bits;
        nr_bits += width;
        if nr_bits >= u32::BITS
            && let Some(cell) = cells.next()
        {
            cell.copy_from_slice(&word.to_le_bytes()[..cell.len()]);
            word >>= u32::BITS;
            nr_bits -= u32::BITS;
        }
    }
    if let Some(cell) = cells.next() {
        cell.copy_from_slice(&word.to_le_bytes()[..cell.len()]);
    }
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

    use super::super::values::Values;
    use super::*;

    proptest! {
        #[test]
        fn packed_numbers_come_back(runs in runs(), wider in 17_u32..=32) {
            let rows: Vec<u32> =
                runs.iter().flat_map(|&(number, nr)| vec![number; nr as usize]).collect();
            let nr_values = rows.iter().max().map_or(1, |&max| max as usize + 1);
            let dictionary: Vec<u32> = (0..u32::try_from(nr_values).unwrap_or(0)).collect();
            for width in [width_of(nr_values), wider] {
                for numbers in [Numbers::Rows(&rows), Numbers::Runs(&runs)] {
                    let mut page = Vec::new();
                    pack(numbers, width, &mut vec![1, 2], &mut page);
                    let mut read = super::super::unpack::Numbers::default();
                    prop_assert!(read.begin(&page).is_some());
                    let mut values = Values::default();
                    prop_assert!(read.take(rows.len(), &dictionary, &mut values).is_some());
                    prop_assert_eq!(values.as_slice(), &rows[..]);
                }
            }
        }
    }

    fn runs() -> impl Strategy<Value = Vec<(u32, u32)>> {
        let nr = prop_oneof![1..4_u32, 60..70_u32, 200..210_u32];
        let number = prop_oneof![0..3_u32, 0..300_u32, 0..70_000_u32];
        prop::collection::vec((number, nr), 1..60)
    }
}
