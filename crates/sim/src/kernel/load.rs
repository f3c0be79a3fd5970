//! Reading kernel files: a file over the one it is based on.

use std::io::ErrorKind;
use std::path::Path;

use largefolio_mm::rules::Rules;
use largefolio_trace::disk::read_text;
use serde::Deserialize;
use toml::Table;

use super::{Kernel, KernelError, builtin, packaged};
use crate::names::nearest;

/// Longest chain of `based-on`.
const DEPTH_MAX: usize = 16;
/// Base page of a kernel that is asked about without a machine.
const DEFAULT_PAGE: &str = "4K";
/// Key of the base page.
const PAGE: &str = "page";
/// Key of the line for people.
const DESCRIPTION: &str = "description";
/// A kernel file is a page of text; more is not a kernel file.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Deserialize)]
struct File {
    description: String,
    #[serde(flatten)]
    rules: Table,
}

/// The preset `name`, or the file at that path.
pub(super) fn by_name(name: &str) -> Result<Kernel, KernelError> {
    from_table(name, resolve(name, parse(name, &text_of(name)?)?)?)
}

/// The kernel that `table` describes; `name` names it, in errors too.
pub(super) fn from_table(name: &str, mut table: Table) -> Result<Kernel, KernelError> {
    let is_page_given = table.contains_key(PAGE);
    table.entry(PAGE).or_insert_with(|| toml::Value::String(DEFAULT_PAGE.to_owned()));
    packaged::take(name, &mut table)?;
    let bad = |message: String| KernelError::BadFile { origin: name.to_owned(), message };
    let file: File = table.try_into().map_err(|e: toml::de::Error| bad(e.message().to_owned()))?;
    let rules: Rules =
        file.rules.try_into().map_err(|e: toml::de::Error| bad(e.to_string().trim().to_owned()))?;
    check(&rules).map_err(bad)?;
    let name = name.to_owned();
    Ok(Kernel { name, description: file.description, rules, is_page_given, note: None })
}

/// The table of a kernel file that says all of `kernel`.
pub(super) fn to_table(kernel: &Kernel) -> Result<Table, KernelError> {
    let unwritable = |error: toml::ser::Error| KernelError::BadFile {
        origin: kernel.name.clone(),
        message: error.to_string(),
    };
    let mut table = Table::new();
    table.insert(DESCRIPTION.to_owned(), toml::Value::String(kernel.description.clone()));
    table.extend(Table::try_from(&kernel.rules).map_err(unwritable)?);
    if !kernel.is_page_given {
        table.remove(PAGE);
    }
    Ok(table)
}

/// Values that no kernel can have (`Rules` I1, I2).
pub(super) fn check(rules: &Rules) -> Result<(), String> {
    let around = rules.fault_around_bytes;
    if !around.is_power_of_two() {
        return Err(format!("fault_around_bytes = {around}: expected a power of two"));
    }
    let min = rules.min_folio_bytes;
    if min != 0 && !min.is_power_of_two() {
        return Err(format!("min_folio_bytes = {min}: expected 0 or a power of two"));
    }
    let limit_bytes = 1_u64 << 40;
    for (name, value) in [("readahead_bytes", rules.readahead_bytes), ("io_bytes", rules.io_bytes)]
    {
        if value > limit_bytes {
            return Err(format!("{name} = {value}: expected at most {limit_bytes}"));
        }
    }
    Ok(())
}

fn text_of(name: &str) -> Result<String, KernelError> {
    if let Some(text) = builtin::text(name) {
        return Ok(text.to_owned());
    }
    let path = Path::new(name);
    if path.extension().is_none_or(|extension| extension != "toml") {
        let hint = nearest(name, Kernel::names());
        return Err(KernelError::UnknownName { name: name.to_owned(), hint });
    }
    read_text(path, FILE_BYTES_MAX).map_err(|source| match source.kind() {
        ErrorKind::FileTooLarge => {
            let message =
                format!("more than {FILE_BYTES_MAX} bytes is too large for a kernel file");
            KernelError::BadFile { origin: name.to_owned(), message }
        }
        _ => KernelError::Io { path: path.to_owned(), source },
    })
}

/// Lays `table` over what it is based on.
pub(super) fn resolve(origin: &str, table: Table) -> Result<Table, KernelError> {
    let mut layers = vec![table];
    while let Some(base) = layers.last_mut().and_then(|layer| layer.remove("based-on")) {
        let Some(base) = base.as_str().map(str::to_owned) else {
            let message = "based-on: expected the name of a kernel".to_owned();
            return Err(KernelError::BadFile { origin: origin.to_owned(), message });
        };
        if layers.len() == DEPTH_MAX {
            let origin = origin.to_owned();
            return Err(KernelError::TooDeep { origin, limit: DEPTH_MAX });
        }
        let mut layer = parse(&base, &text_of(&base)?)?;
        packaged::take(&base, &mut layer)?;
        layers.push(layer);
    }
    let mut merged = Table::new();
    for layer in layers.into_iter().rev() {
        merge(&mut merged, layer);
    }
    Ok(merged)
}

pub(super) fn parse(origin: &str, text: &str) -> Result<Table, KernelError> {
    text.parse::<Table>().map_err(|e| KernelError::BadFile {
        origin: origin.to_owned(),
        message: e.to_string().trim().to_owned(),
    })
}

/// Lays `over` on `base`: the tables of rules are merged, values (an exec rule with its size
/// included) are replaced.
fn merge(base: &mut Table, over: Table) {
    const MERGED: [&str; 7] =
        ["readahead", "fault", "filesystems", "anon", "clear", "collapse", "sizes"];
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(old)), toml::Value::Table(new))
                if MERGED.contains(&key.as_str()) =>
            {
                old.extend(new);
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}
