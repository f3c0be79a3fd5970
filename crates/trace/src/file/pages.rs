//! Pages of one column, checked before a decoder sees them, with `op` turned into numbers.
//!
//! Owns the translation of op names and the checks that keep a declared count from becoming an
//! allocation or a panic in a decoder. Invariants:
//! - I1: a dictionary holds exactly as many values as it declares, and comes once, first.
//! - I2: the data pages of a column hold together no more values than the row group has rows.
//! - I3: only encodings that the decoders know for the column's type are let through.

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::serialized_reader::SerializedPageReader;

use super::schema::Column;
use super::source::Source;
use crate::event::Op;

/// Page reader between the library's and a column's decoder.
pub(super) struct Pages {
    inner: SerializedPageReader<Source>,
    column: Column,
    nr_values_left: usize,
    has_dictionary: bool,
}

impl Pages {
    pub(super) fn new(inner: SerializedPageReader<Source>, column: Column, nr_rows: usize) -> Self {
        Self { inner, column, nr_values_left: nr_rows, has_dictionary: false }
    }

    fn check(&mut self, page: Page) -> Result<Page, ParquetError> {
        match page {
            Page::DictionaryPage { .. } => self.check_dictionary(page),
            Page::DataPage { .. }
            | Page::DataPageV2 {
                num_nulls: 0,
                def_levels_byte_len: 0,
                rep_levels_byte_len: 0,
                ..
            } => self.check_data(page),
            Page::DataPageV2 { .. } => Err(self.column.bad("has nulls")),
        }
    }

    fn check_dictionary(&mut self, page: Page) -> Result<Page, ParquetError> {
        let Page::DictionaryPage { buf, num_values, encoding, is_sorted } = page else {
            unreachable!("the caller matched a dictionary");
        };
        if std::mem::replace(&mut self.has_dictionary, true) {
            return Err(self.column.bad("has two dictionaries"));
        }
        if !matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY) {
            return Err(self.column.bad("has a dictionary in an unknown encoding"));
        }
        let nr_values = num_values as usize;
        let buf = if self.column == Column::Op { op_numbers(&buf, nr_values)?.into() } else { buf };
        if buf.len() != nr_values.saturating_mul(self.column.value_bytes()) {
            return Err(self.column.bad("has a dictionary of another size than it declares"));
        }
        Ok(Page::DictionaryPage { buf, num_values, encoding, is_sorted })
    }

    fn check_data(&mut self, mut page: Page) -> Result<Page, ParquetError> {
        let nr_values = page.num_values() as usize;
        self.nr_values_left = match self.nr_values_left.checked_sub(nr_values) {
            Some(left) if nr_values > 0 => left,
            _ => return Err(self.column.bad("has a page of zero or too many values")),
        };
        match page.encoding() {
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY if self.has_dictionary => {}
            Encoding::PLAIN if self.column == Column::Op => {
                let (Page::DataPage { buf, .. } | Page::DataPageV2 { buf, .. }) = &mut page else {
                    unreachable!("the caller matched a data page");
                };
                *buf = op_numbers(buf, nr_values)?.into();
            }
            Encoding::PLAIN | Encoding::DELTA_BINARY_PACKED if self.column != Column::Op => {}
            _ => return Err(self.column.bad("has a page in an encoding that traces do not use")),
        }
        Ok(page)
    }
}

/// Turns `nr_values` length-prefixed op names into their numbers, a byte each.
fn op_numbers(names: &[u8], nr_values: usize) -> Result<Vec<u8>, ParquetError> {
    let mut numbers = Vec::new();
    let mut rest = names;
    for _ in 0..nr_values {
        let (name, tail) = split_name(rest)
            .ok_or_else(|| ParquetError::General("column op ends inside a name".to_owned()))?;
        let op = Op::ALL.into_iter().find(|op| op.name().as_bytes() == name).ok_or_else(|| {
            let name = String::from_utf8_lossy(&name[..name.len().min(32)]);
            ParquetError::General(format!("op {name:?} is not known"))
        })?;
        numbers.push(op as u8);
        rest = tail;
    }
    Ok(numbers)
}

fn split_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        match self.inner.get_next_page()? {
            Some(page) => self.check(page).map(Some),
            None => Ok(None),
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        Err(self.column.bad("is read in order only"))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        Err(self.column.bad("is read in order only"))
    }
}

impl Iterator for Pages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}
