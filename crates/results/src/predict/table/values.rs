//! The types of column values, and their Arrow arrays.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, StringArray, StructArray,
    UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Fields};
use largefolio_sim::metrics::{Groups, Member, Value};

use super::{Row, TableError};

/// The field name of list elements in the Parquet format.
const ELEMENT: &str = "element";
const COUNT: &str = "count";

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
    Flag(fn(&Row<'_>) -> bool),
    Strings(fn(&Row<'_>) -> Vec<String>),
    Metric(&'static Value),
}

impl Values {
    pub(super) fn data_type(&self) -> DataType {
        match self {
            Self::Absent | Self::Text(_) | Self::MaybeText(_) => DataType::Utf8,
            Self::Number(_) => DataType::UInt64,
            Self::Count(_) | Self::Known(_) => DataType::Int64,
            Self::Flag(_) => DataType::Boolean,
            Self::Strings(_) => DataType::List(Arc::new(element(DataType::Utf8))),
            Self::Metric(value) => match value {
                Value::Count(_) | Value::Known(_) => DataType::Int64,
                Value::Real(_) | Value::Rounded(..) => DataType::Float64,
                Value::Sizes(sizes) => list_of(counts(count(sizes.key), sizes.members)),
                Value::Names(key, _) => list_of(vec![text(key), count(COUNT)].into()),
                Value::Groups(groups) => list_of(counts(text(groups.key), framed(groups))),
            },
        }
    }

    pub(super) const fn is_nullable(&self) -> bool {
        match self {
            Self::Absent | Self::MaybeText(_) | Self::Known(_) => true,
            Self::Metric(value) => {
                matches!(value, Value::Known(_) | Value::Real(_) | Value::Rounded(..))
            }
            _ => false,
        }
    }

    pub(super) fn array(&self, name: &str, rows: &[Row<'_>]) -> Result<ArrayRef, TableError> {
        let outcomes = rows.iter().map(|row| row.outcome);
        Ok(match self {
            Self::Absent => Arc::new(StringArray::new_null(rows.len())),
            Self::Text(of) => Arc::new(StringArray::from_iter_values(rows.iter().map(of))),
            Self::MaybeText(of) => Arc::new(rows.iter().map(of).collect::<StringArray>()),
            Self::Number(of) => Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))),
            Self::Count(of) => ints(name, rows.iter().map(|row| Some(of(row))))?,
            Self::Known(of) => ints(name, rows.iter().map(of))?,
            Self::Flag(of) => {
                Arc::new(BooleanArray::from(rows.iter().map(of).collect::<Vec<bool>>()))
            }
            Self::Strings(of) => strings(&rows.iter().map(of).collect::<Vec<_>>())?,
            Self::Metric(value) => match value {
                Value::Count(of) => ints(name, outcomes.map(|outcome| Some(of(outcome))))?,
                Value::Known(of) => ints(name, outcomes.map(of))?,
                Value::Real(of) | Value::Rounded(of, _) => {
                    Arc::new(outcomes.map(of).collect::<Float64Array>())
                }
                Value::Sizes(sizes) => {
                    let rows: Vec<_> = outcomes.map(sizes.rows).collect();
                    let keys = ints(name, rows.iter().flatten().map(|(size, _)| Some(*size)))?;
                    let fields = counts(count(sizes.key), sizes.members);
                    let known = rows
                        .iter()
                        .flatten()
                        .map(|(_, counts)| counts.iter().copied().map(Some).collect());
                    table(name, fields, keys, &known.collect::<Vec<_>>(), &lengths(&rows))?
                }
                Value::Names(key, of) => {
                    let rows: Vec<_> = outcomes.map(of).collect();
                    let keys =
                        StringArray::from_iter_values(rows.iter().flat_map(|row| row.keys()));
                    let known = rows.iter().flat_map(|row| row.values()).map(|&nr| vec![Some(nr)]);
                    let fields = vec![text(key), count(COUNT)].into();
                    let lengths: Vec<usize> = rows.iter().map(|row| row.len()).collect();
                    table(name, fields, Arc::new(keys), &known.collect::<Vec<_>>(), &lengths)?
                }
                Value::Groups(groups) => {
                    let rows: Vec<_> = outcomes.map(groups.rows).collect();
                    let keys = rows.iter().flatten().map(|(key, _)| key);
                    let keys = Arc::new(StringArray::from_iter_values(keys));
                    let known: Vec<_> =
                        rows.iter().flatten().map(|(_, counts)| counts.clone()).collect();
                    let fields = counts(text(groups.key), framed(groups));
                    table(name, fields, keys, &known, &lengths(&rows))?
                }
            },
        })
    }
}

fn framed(groups: &Groups) -> &'static [Member] {
    &groups.members[..groups.nr_framed]
}

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, false)
}

fn count(name: &str) -> Field {
    Field::new(name, DataType::Int64, false)
}

fn counts(key: Field, members: &[Member]) -> Fields {
    std::iter::once(key).chain(members.iter().map(|member| count(member.name))).collect()
}

fn lengths<T>(rows: &[Vec<T>]) -> Vec<usize> {
    rows.iter().map(Vec::len).collect()
}

fn ints(column: &str, values: impl Iterator<Item = Option<u64>>) -> Result<ArrayRef, TableError> {
    let values = values.map(|value| value.map(|value| signed(column, value)).transpose());
    Ok(Arc::new(Int64Array::from(values.collect::<Result<Vec<_>, _>>()?)))
}

/// Returns a list of structs per row: `keys`, and as many of the `counts` as `fields` names.
fn table(
    name: &str,
    fields: Fields,
    keys: ArrayRef,
    counts: &[Vec<Option<u64>>],
    lengths: &[usize],
) -> Result<ArrayRef, TableError> {
    let mut columns = vec![keys];
    for at in 0..fields.len() - 1 {
        columns.push(ints(name, counts.iter().map(|counts| counts[at]))?);
    }
    list(fields, columns, lengths.iter().copied())
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

fn strings(rows: &[Vec<String>]) -> Result<ArrayRef, TableError> {
    let values = Arc::new(StringArray::from_iter_values(rows.iter().flatten()));
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(Vec::len));
    let of = Arc::new(element(DataType::Utf8));
    Ok(Arc::new(ListArray::try_new(of, offsets, values, None)?))
}

/// Converts a count to a signed integer (T1).
fn signed(column: &str, value: u64) -> Result<i64, TableError> {
    i64::try_from(value).map_err(|_| TableError::TooLarge { column: column.to_owned(), value })
}
