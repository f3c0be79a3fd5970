//! Checks the pages of one column before decoding, and converts `op` names to numbers.
//!
//! Owns the conversion of op names, and the checks that prevent a declared count from causing an
//! allocation or a panic in a decoder. Invariants:
//! - I1: a dictionary holds exactly as many values as it declares, and comes once, first.
//! - I2: neither the data pages of a column nor its dictionary hold more values than the row group
//!   has rows.
//! - I3: only encodings that the decoders know for the column's type are accepted.
//! - I4: a page has only a few bytes per value. Reading stops at the first page with more, which
//!   has at most [`PAGE_BYTES_MAX`](super::schema::PAGE_BYTES_MAX). Otherwise, a file of a few
//!   kilobytes could hold a million pages that decompress to that size.

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::serialized_reader::SerializedPageReader;

use super::schema::Column;
use super::source::Source;
use crate::event::Op;

/// Maximum bytes per value in a page. The longest op name takes 14 with its length.
const VALUE_BYTES_MAX: usize = 20;
/// Additional bytes per page. Known writers pad a delta block to 512 bytes.
const MORE_BYTES_MAX: usize = 1024;

pub(super) struct Pages {
    inner: SerializedPageReader<Source>,
    checks: Checks,
}

impl Pages {
    pub(super) fn new(inner: SerializedPageReader<Source>, column: Column, nr_rows: usize) -> Self {
        Self { inner, checks: Checks::new(column, nr_rows) }
    }
}

struct Checks {
    column: Column,
    nr_rows: usize,
    nr_values_left: usize,
    has_dictionary: bool,
}

impl Checks {
    const fn new(column: Column, nr_rows: usize) -> Self {
        Self { column, nr_rows, nr_values_left: nr_rows, has_dictionary: false }
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
        if nr_values > self.nr_rows {
            return Err(self.column.bad("has a dictionary with more values than rows"));
        }
        let buf = if self.column == Column::Op { op_numbers(&buf, nr_values)?.into() } else { buf };
        if buf.len() != nr_values.saturating_mul(self.column.value_bytes()) {
            return Err(self.column.bad("has a dictionary whose size is not the declared one"));
        }
        Ok(Page::DictionaryPage { buf, num_values, encoding, is_sorted })
    }

    fn check_data(&mut self, mut page: Page) -> Result<Page, ParquetError> {
        let nr_values = page.num_values() as usize;
        self.nr_values_left = match self.nr_values_left.checked_sub(nr_values) {
            Some(left) if nr_values > 0 => left,
            _ => return Err(self.column.bad("has a page of zero or too many values")),
        };
        let nr_bytes_max = nr_values.saturating_mul(VALUE_BYTES_MAX).saturating_add(MORE_BYTES_MAX);
        if page.buffer().len() > nr_bytes_max {
            return Err(self.column.bad("has a page with more bytes than its values need"));
        }
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

fn op_numbers(names: &[u8], nr_values: usize) -> Result<Vec<u8>, ParquetError> {
    let mut numbers = Vec::new();
    let mut rest = names;
    for _ in 0..nr_values {
        let (name, tail) = split_name(rest)
            .ok_or_else(|| ParquetError::General("column op ends inside a name".to_owned()))?;
        let op = Op::ALL.into_iter().find(|op| op.name().as_bytes() == name).ok_or_else(|| {
            let name = String::from_utf8_lossy(&name[..name.len().min(32)]);
            ParquetError::General(format!("op {name:?} is unknown"))
        })?;
        numbers.push(op as u8);
        rest = tail;
    }
    if !rest.is_empty() {
        return Err(ParquetError::General("column op has bytes after its last name".to_owned()));
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
            Some(page) => self.checks.check(page).map(Some),
            None => Ok(None),
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        Err(self.checks.column.bad("is read in order only"))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        Err(self.checks.column.bad("is read in order only"))
    }
}

impl Iterator for Pages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn data(nr_values: u32, nr_bytes: usize, encoding: Encoding) -> Page {
        Page::DataPage {
            buf: Bytes::from(vec![0; nr_bytes]),
            num_values: nr_values,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        }
    }

    fn dictionary(nr_values: u32, bytes: Vec<u8>) -> Page {
        let (buf, encoding) = (Bytes::from(bytes), Encoding::PLAIN);
        Page::DictionaryPage { buf, num_values: nr_values, encoding, is_sorted: false }
    }

    fn refusal(checks: &mut Checks, page: Page) -> String {
        checks.check(page).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_page_that_is_larger_than_its_values_is_refused() {
        let mut checks = Checks::new(Column::Addr, 1 << 20);
        for (nr_values, nr_bytes) in [(1, 8), (2, 512), (1000, 8000)] {
            assert!(checks.check(data(nr_values, nr_bytes, Encoding::PLAIN)).is_ok());
        }
        for encoding in [Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED] {
            let error = refusal(&mut checks, data(1, 8 << 20, encoding));
            assert!(error.contains("more bytes than its values"), "{error}");
        }
    }

    #[test]
    fn a_dictionary_has_as_many_values_as_there_are_rows_at_most() {
        assert!(Checks::new(Column::Addr, 3).check(dictionary(3, vec![0; 24])).is_ok());
        let error = refusal(&mut Checks::new(Column::Addr, 3), dictionary(4, vec![0; 32]));
        assert!(error.contains("more values than rows"), "{error}");
        let name = [&4_u32.to_le_bytes()[..], b"read"].concat();
        assert!(Checks::new(Column::Op, 1).check(dictionary(1, name.clone())).is_ok());
        let error = refusal(&mut Checks::new(Column::Op, 1), dictionary(1, name.repeat(2)));
        assert!(error.contains("bytes after its last name"), "{error}");
    }
}
