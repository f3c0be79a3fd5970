//! The types of column values, and their Arrow arrays.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, StringArray, StructArray,
    UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Fields};

use super::{Row, TableError};

/// The field name of list elements in the Parquet format.
const ELEMENT: &str = "element";
const COUNT: &str = "count";

#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) key: &'static str,
    pub(super) counts: &'static [&'static str],
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub(super) key: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) key: &'static str,
    pub(super) counts: &'static [&'static str],
}

type ByName = Vec<(String, Vec<u64>)>;

type BySize = Vec<(u64, Vec<u64>)>;

pub(super) enum Values {
    /// Null; filled in later by the caller.
    Absent,
    Text(for<'a> fn(&Row<'a>) -> &'a str),
    MaybeText(for<'a> fn(&Row<'a>) -> Option<&'a str>),
    /// An unsigned number, for values that are never subtracted.
    Number(fn(&Row<'_>) -> u64),
    Count(fn(&Row<'_>) -> u64),
    /// A count, or null if it is not known.
    Known(fn(&Row<'_>) -> Option<u64>),
    /// A ratio, or null.
    Ratio(fn(&Row<'_>) -> Option<f64>),
    Flag(fn(&Row<'_>) -> bool),
    Words(fn(&Row<'_>) -> Vec<String>),
    Sizes(&'static Sizes, fn(&Row<'_>) -> BySize),
    Named(&'static Named, fn(&Row<'_>) -> ByName),
    Names(&'static Names, for<'a> fn(&Row<'a>) -> &'a BTreeMap<&'static str, u64>),
}

impl Values {
    pub(super) fn data_type(&self) -> DataType {
        match self {
            Self::Absent | Self::Text(_) | Self::MaybeText(_) => DataType::Utf8,
            Self::Number(_) => DataType::UInt64,
            Self::Count(_) | Self::Known(_) => DataType::Int64,
            Self::Ratio(_) => DataType::Float64,
            Self::Flag(_) => DataType::Boolean,
            Self::Words(_) => DataType::List(Arc::new(element(DataType::Utf8))),
            Self::Sizes(sizes, _) => list_of(sizes.fields()),
            Self::Named(named, _) => list_of(named.fields()),
            Self::Names(names, _) => list_of(names.fields()),
        }
    }

    pub(super) const fn is_nullable(&self) -> bool {
        matches!(self, Self::Absent | Self::MaybeText(_) | Self::Known(_) | Self::Ratio(_))
    }

    pub(super) fn array(&self, name: &str, rows: &[Row<'_>]) -> Result<ArrayRef, TableError> {
        let signed = |value: u64| signed(name, value);
        Ok(match self {
            Self::Absent => Arc::new(StringArray::new_null(rows.len())),
            Self::Text(of) => Arc::new(StringArray::from_iter_values(rows.iter().map(of))),
            Self::MaybeText(of) => Arc::new(rows.iter().map(of).collect::<StringArray>()),
            Self::Number(of) => Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))),
            Self::Count(of) => {
                let counts = rows.iter().map(|row| signed(of(row)));
                Arc::new(Int64Array::from(counts.collect::<Result<Vec<_>, _>>()?))
            }
            Self::Known(of) => {
                let counts = rows.iter().map(|row| of(row).map(signed).transpose());
                Arc::new(Int64Array::from(counts.collect::<Result<Vec<_>, _>>()?))
            }
            Self::Ratio(of) => Arc::new(rows.iter().map(of).collect::<Float64Array>()),
            Self::Flag(of) => {
                Arc::new(BooleanArray::from(rows.iter().map(of).collect::<Vec<bool>>()))
            }
            Self::Words(of) => words(&rows.iter().map(of).collect::<Vec<_>>())?,
            Self::Sizes(sizes, of) => {
                sizes.array(name, &rows.iter().map(of).collect::<Vec<_>>())?
            }
            Self::Named(named, of) => {
                named.array(name, &rows.iter().map(of).collect::<Vec<_>>())?
            }
            Self::Names(names, of) => {
                names.array(name, &rows.iter().map(of).collect::<Vec<_>>())?
            }
        })
    }
}

impl Sizes {
    fn fields(&self) -> Fields {
        let names = std::iter::once(&self.key).chain(self.counts);
        names.map(|&name| Field::new(name, DataType::Int64, false)).collect()
    }

    fn array(&self, name: &str, rows: &[BySize]) -> Result<ArrayRef, TableError> {
        let mut columns = vec![Vec::new(); 1 + self.counts.len()];
        for (size, counts) in rows.iter().flatten() {
            for (column, &value) in columns.iter_mut().zip(std::iter::once(size).chain(counts)) {
                column.push(signed(name, value)?);
            }
        }
        let columns = columns.into_iter().map(|column| Arc::new(Int64Array::from(column)) as _);
        list(self.fields(), columns.collect(), rows.iter().map(Vec::len))
    }
}

impl Named {
    fn fields(&self) -> Fields {
        let key = Field::new(self.key, DataType::Utf8, false);
        let counts = self.counts.iter().map(|&name| Field::new(name, DataType::Int64, false));
        std::iter::once(key).chain(counts).collect()
    }

    fn array(&self, name: &str, rows: &[ByName]) -> Result<ArrayRef, TableError> {
        let keys = rows.iter().flatten().map(|(key, _)| key);
        let mut columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from_iter_values(keys))];
        for at in 0..self.counts.len() {
            let counts = rows.iter().flatten().map(|(_, counts)| signed(name, counts[at]));
            columns.push(Arc::new(Int64Array::from(counts.collect::<Result<Vec<_>, _>>()?)));
        }
        list(self.fields(), columns, rows.iter().map(Vec::len))
    }
}

impl Names {
    fn fields(&self) -> Fields {
        let key = Field::new(self.key, DataType::Utf8, false);
        Fields::from(vec![key, Field::new(COUNT, DataType::Int64, false)])
    }

    fn array(
        &self,
        name: &str,
        rows: &[&BTreeMap<&'static str, u64>],
    ) -> Result<ArrayRef, TableError> {
        let keys = StringArray::from_iter_values(rows.iter().flat_map(|row| row.keys()));
        let counts = rows.iter().flat_map(|row| row.values()).map(|&value| signed(name, value));
        let counts = Int64Array::from(counts.collect::<Result<Vec<_>, _>>()?);
        let columns = vec![Arc::new(keys) as _, Arc::new(counts) as _];
        list(self.fields(), columns, rows.iter().map(|row| row.len()))
    }
}

fn element(data_type: DataType) -> Field {
    Field::new(ELEMENT, data_type, false)
}

fn list_of(fields: Fields) -> DataType {
    DataType::List(Arc::new(element(DataType::Struct(fields))))
}

/// Returns lists of structs; `lengths` has the number of structs per row.
fn list(
    fields: Fields,
    columns: Vec<ArrayRef>,
    lengths: impl Iterator<Item = usize>,
) -> Result<ArrayRef, TableError> {
    let of = Arc::new(element(DataType::Struct(fields.clone())));
    let structs = Arc::new(StructArray::try_new(fields, columns, None)?);
    Ok(Arc::new(ListArray::try_new(of, OffsetBuffer::from_lengths(lengths), structs, None)?))
}

fn words(rows: &[Vec<String>]) -> Result<ArrayRef, TableError> {
    let values = Arc::new(StringArray::from_iter_values(rows.iter().flatten()));
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(Vec::len));
    let of = Arc::new(element(DataType::Utf8));
    Ok(Arc::new(ListArray::try_new(of, offsets, values, None)?))
}

/// Converts a count to a signed integer (T1).
fn signed(column: &str, value: u64) -> Result<i64, TableError> {
    i64::try_from(value).map_err(|_| TableError::TooLarge { column: column.to_owned(), value })
}
