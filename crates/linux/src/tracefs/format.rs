//! The `format` files of events: where an event has its fields.
//!
//! Positions differ between kernels. Invariant F1: nothing in the text or in an event's data is
//! trusted; a field outside the data has no value.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// The kernel's number of an event.
pub(crate) const NUMBER: Field = Field { offset: 0, size: 2 };

/// Returns the event id, the fields in the order of `names`, and the thread's field.
pub(crate) fn parse(text: &str, names: &[&str]) -> Option<(u64, Vec<Field>, Field)> {
    let number = text.lines().find_map(|line| line.strip_prefix("ID: ")?.trim().parse().ok())?;
    let fields: BTreeMap<&str, Field> = text.lines().filter_map(field).collect();
    let places: Option<Vec<Field>> = names.iter().map(|name| fields.get(name).copied()).collect();
    Some((number, places?, *fields.get("common_pid")?))
}

/// Parses a line such as `field:unsigned long address; offset:8; size:8; signed:0;`, with tabs.
fn field(line: &str) -> Option<(&str, Field)> {
    let mut parts = line.trim().split(';').map(str::trim);
    let name = parts.next()?.strip_prefix("field:")?.rsplit(' ').next()?;
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse().ok();
    let (offset, size) = (number("offset:")?, number("size:")?);
    Some((name.trim_start_matches('*'), Field { offset, size }))
}

pub(crate) fn value(data: &[u8], field: Field) -> Option<u64> {
    let bytes = data.get(field.offset..field.offset.checked_add(field.size)?)?;
    let mut word = [0; 8];
    word.get_mut(..field.size)?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}
