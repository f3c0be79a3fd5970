//! Decodes the eight columns of a row group in parallel into a batch.
//!
//! This module decodes only the encodings that the writer uses: dictionary numbers, and plain
//! values once a dictionary is full. The Parquet library decodes all others. The values are checked
//! later, for the whole batch.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescPtr;

use super::batch::Batch;
use super::pages::Pages;
use super::schema::Column;
use super::source::Source;
use super::unpack::Numbers;
use super::values::Values;

pub(super) struct Columns {
    thread: Decoder<u32>,
    op: Decoder<u8>,
    addr: Decoder<u64>,
    len: Decoder<u64>,
    pos: Decoder<u64>,
    aux: Decoder<u64>,
    flags: Decoder<u32>,
    file: Decoder<u32>,
}

impl Columns {
    pub(super) fn new(
        source: &Arc<Source>,
        group: &RowGroupMetaData,
    ) -> Result<Self, ParquetError> {
        Ok(Self {
            thread: Decoder::new(source, group, Column::Thread)?,
            op: Decoder::new(source, group, Column::Op)?,
            addr: Decoder::new(source, group, Column::Addr)?,
            len: Decoder::new(source, group, Column::Len)?,
            pos: Decoder::new(source, group, Column::Pos)?,
            aux: Decoder::new(source, group, Column::Aux)?,
            flags: Decoder::new(source, group, Column::Flags)?,
            file: Decoder::new(source, group, Column::File)?,
        })
    }

    pub(super) fn decode(&mut self, nr_rows: usize, batch: &mut Batch) -> Result<(), ParquetError> {
        self.thread.take(nr_rows, &mut batch.threads)?;
        self.op.take(nr_rows, &mut batch.ops)?;
        self.addr.take(nr_rows, &mut batch.addrs)?;
        self.len.take(nr_rows, &mut batch.lens)?;
        self.pos.take(nr_rows, &mut batch.positions)?;
        self.aux.take(nr_rows, &mut batch.auxes)?;
        self.flags.take(nr_rows, &mut batch.flags)?;
        self.file.take(nr_rows, &mut batch.files)
    }
}

trait Value: Copy + Default + PartialEq + Sized {
    type Stored: DataType;

    fn of_stored(stored: &<Self::Stored as DataType>::T) -> Self;

    /// Reads values in plain encoding, little-endian; `None` if `bytes` are too few.
    fn read_plain(bytes: &[u8], values: &mut [Self]) -> Option<()>;

    const NR_BYTES: usize = size_of::<Self>();
}

/// An op number. [`Pages`] has already replaced the name with a byte.
impl Value for u8 {
    type Stored = Int32Type;

    fn of_stored(stored: &i32) -> Self {
        Self::try_from(*stored).unwrap_or(Self::MAX)
    }

    fn read_plain(bytes: &[u8], values: &mut [Self]) -> Option<()> {
        values.copy_from_slice(bytes.get(..values.len())?);
        Some(())
    }
}

impl Value for u32 {
    type Stored = Int32Type;

    fn of_stored(stored: &i32) -> Self {
        stored.cast_unsigned()
    }

    fn read_plain(bytes: &[u8], values: &mut [Self]) -> Option<()> {
        read_words(bytes, values, Self::from_le_bytes)
    }
}

impl Value for u64 {
    type Stored = Int64Type;

    fn of_stored(stored: &i64) -> Self {
        stored.cast_unsigned()
    }

    fn read_plain(bytes: &[u8], values: &mut [Self]) -> Option<()> {
        read_words(bytes, values, Self::from_le_bytes)
    }
}

fn read_words<T, const N: usize>(
    bytes: &[u8],
    values: &mut [T],
    from: impl Fn([u8; N]) -> T,
) -> Option<()> {
    let words = bytes.as_chunks().0.get(..values.len())?;
    values.iter_mut().zip(words).for_each(|(value, word)| *value = from(*word));
    Some(())
}

struct Decoder<T: Value> {
    pages: Pages,
    column: Column,
    described: ColumnDescPtr,
    dictionary: Vec<T>,
    numbers: Numbers,
    values: Encoded<T>,
    nr_left: usize,
}

enum Encoded<T: Value> {
    Numbers,
    Plain { bytes: Bytes, at: usize },
    Other { reader: Box<ColumnReaderImpl<T::Stored>>, read: Vec<<T::Stored as DataType>::T> },
}

impl<T: Value> Decoder<T> {
    fn new(
        source: &Arc<Source>,
        group: &RowGroupMetaData,
        column: Column,
    ) -> Result<Self, ParquetError> {
        let nr_rows = usize::try_from(group.num_rows())?;
        let chunk = group.column(column as usize);
        let pages = SerializedPageReader::new(Arc::clone(source), chunk, nr_rows, None)?;
        Ok(Self {
            pages: Pages::new(pages, column, nr_rows),
            column,
            described: chunk.column_descr_ptr(),
            dictionary: Vec::new(),
            numbers: Numbers::default(),
            values: Encoded::Numbers,
            nr_left: 0,
        })
    }

    /// Appends the next `nr_rows` values to `target`. Fewer values are an error.
    fn take(&mut self, nr_rows: usize, target: &mut Values<T>) -> Result<(), ParquetError> {
        while target.len() < nr_rows {
            if self.nr_left == 0 {
                self.next_page(nr_rows - target.len())?;
                continue;
            }
            let nr = self.nr_left.min(nr_rows - target.len());
            self.take_of_page(nr, target)?;
            self.nr_left -= nr;
        }
        Ok(())
    }

    fn take_of_page(&mut self, nr: usize, target: &mut Values<T>) -> Result<(), ParquetError> {
        let column = self.column;
        let ends_early = || column.bad("contains a page that ends early");
        match &mut self.values {
            Encoded::Numbers => self
                .numbers
                .take(nr, &self.dictionary, target)
                .ok_or_else(|| column.bad("ends early or has a number outside its dictionary")),
            Encoded::Plain { bytes, at } => {
                let rest = bytes.get(*at..).unwrap_or_default();
                T::read_plain(rest, target.append(nr)).ok_or_else(ends_early)?;
                *at += nr * T::NR_BYTES;
                Ok(())
            }
            Encoded::Other { reader, read } => {
                read.clear();
                reader.read_records(nr, None, None, read)?;
                if read.len() != nr {
                    return Err(ends_early());
                }
                for (value, stored) in target.append(nr).iter_mut().zip(&*read) {
                    *value = T::of_stored(stored);
                }
                Ok(())
            }
        }
    }

    /// Reads the next page: a dictionary or data.
    fn next_page(&mut self, nr_missing: usize) -> Result<(), ParquetError> {
        let Some(page) = self.pages.get_next_page()? else {
            return Err(self.column.bad(&format!("ends {nr_missing} rows early")));
        };
        let (nr_values, encoding) = (page.num_values() as usize, page.encoding());
        let bytes = page.buffer();
        if let Page::DictionaryPage { .. } = page {
            self.dictionary = vec![T::default(); nr_values];
            return T::read_plain(bytes, &mut self.dictionary)
                .ok_or_else(|| self.column.bad("has a dictionary that ends early"));
        }
        self.values = match encoding {
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                self.numbers
                    .begin(bytes)
                    .ok_or_else(|| self.column.bad("has an impossible bit width"))?;
                Encoded::Numbers
            }
            Encoding::PLAIN => Encoded::Plain { bytes: bytes.clone(), at: 0 },
            _ => {
                let page: Box<dyn PageReader> = Box::new(OnePage(Some(page)));
                let reader = Box::new(ColumnReaderImpl::new(Arc::clone(&self.described), page));
                Encoded::Other { reader, read: Vec::new() }
            }
        };
        self.nr_left = nr_values;
        Ok(())
    }
}

struct OnePage(Option<Page>);

impl PageReader for OnePage {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        Ok(self.0.take())
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        Err(ParquetError::General("a page is read in order only".to_owned()))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        Err(ParquetError::General("a page is read in order only".to_owned()))
    }
}

impl Iterator for OnePage {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}
