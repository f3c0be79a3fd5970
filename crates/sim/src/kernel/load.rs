//! Reads kernel files and merges each over the one it is based on.

use std::path::Path;

use largefolio_mm::rules::Rules;
use serde::Deserialize;
use toml::Table;

use super::builtin::KERNELS;
use super::check::check;
use super::{Kernel, KernelError, packaged, policy, since, table, unverified};
use crate::datafile::{DataFileError, line_of, parse};
use crate::names::nearest;

const DEPTH_MAX: usize = 16;
/// Base page size if neither the file nor a machine sets one.
const DEFAULT_PAGE: &str = "4K";
const PAGE: &str = "page";
const DESCRIPTION: &str = "description";
/// Properties of the described system that the rules do not cover.
const GAPS: &str = "gaps";

/// Hint for a path that does not exist, because a `,` or `+` may have cut it.
const CUT_PATH: &str = "a `,` ends a path, and so does a `+`, unless there is a file with the \
                        whole name";

#[derive(Deserialize)]
struct File {
    description: String,
    #[serde(flatten)]
    rules: Table,
}

pub(super) fn by_name(name: &str) -> Result<Kernel, KernelError> {
    from_table(name, resolve(name, table_of(name)?)?)
}

pub(super) fn from_table(name: &str, mut table: Table) -> Result<Kernel, KernelError> {
    let is_page_given = table.contains_key(PAGE);
    table.entry(PAGE).or_insert_with(|| toml::Value::String(DEFAULT_PAGE.to_owned()));
    packaged::take(name, &mut table)?;
    since::take(name, &mut table)?;
    let unverified = unverified::take(name, &mut table)?;
    let policy = policy::take(name, &mut table)?;
    let gaps = table::take(name, &mut table, GAPS)?.unwrap_or_default();
    let file: File = table.try_into().map_err(|error| mistake(name, &error))?;
    let rules: Rules = file.rules.try_into().map_err(|error| mistake(name, &error))?;
    check(&rules).map_err(|message| {
        let place = message.split([' ', ':']).next().unwrap_or_default().to_owned();
        bad(name, &place, message)
    })?;
    let note = unverified.as_ref().map(|unverified| unverified.sentence(name));
    let (name, description) = (name.to_owned(), file.description);
    Ok(Kernel { name, description, rules, is_page_given, unverified, gaps, note, policy })
}

/// Rewords an error of the TOML library for kernel files.
fn mistake(origin: &str, error: &toml::de::Error) -> KernelError {
    let text = error.to_string();
    let (message, place) = match text.trim().split_once("\nin `") {
        Some((message, place)) => (message, place.trim_end_matches('`')),
        None => (text.trim(), ""),
    };
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let Some((name, expected)) = unknown else {
        let what = if place.is_empty() { String::new() } else { format!("{place}: ") };
        return bad(origin, place, format!("{what}{}", message.replace('\n', "; ")));
    };
    let place = if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    let hint = nearest(name, expected.split('`').skip(1).step_by(2));
    bad(origin, &place, format!("there is no rule '{place}'; {hint}"))
}

fn bad(origin: &str, place: &str, message: String) -> KernelError {
    let path = Path::new(origin);
    let is_file = path.extension().is_some_and(|extension| extension == "toml");
    match is_file.then(|| KERNELS.read(path)) {
        Some(Ok((text, origin))) => {
            let line = line_of(&text, place);
            DataFileError::Syntax { origin, line, message }.into()
        }
        _ => KernelError::BadFile { origin: origin.to_owned(), message },
    }
}

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
    if let Some(unverified) = &kernel.unverified {
        unverified::put(unverified, &mut table).map_err(unwritable)?;
    }
    if !kernel.gaps.is_empty() {
        let gaps = toml::Value::try_from(&kernel.gaps).map_err(unwritable)?;
        table.insert(GAPS.to_owned(), gaps);
    }
    if let Some(policy) = &kernel.policy {
        policy::put(policy, &mut table)?;
    }
    Ok(table)
}

fn table_of(name: &str) -> Result<Table, KernelError> {
    let mut table = written_table_of(name)?;
    rename(&mut table);
    Ok(table)
}

/// Reads `collapse.shmem` of files from before `shmem.enabled`.
fn rename(table: &mut Table) {
    let Some(toml::Value::Table(collapse)) = table.get_mut("collapse") else { return };
    let Some(value) = collapse.remove("shmem") else { return };
    let shmem = table.entry("shmem").or_insert_with(|| toml::Value::Table(Table::new()));
    if let toml::Value::Table(shmem) = shmem {
        shmem.entry("enabled").or_insert(value);
    }
}

fn written_table_of(name: &str) -> Result<Table, KernelError> {
    if let Some(text) = KERNELS.text(name) {
        return Ok(parse(text, name)?);
    }
    let path = Path::new(name);
    let is_file = path.extension().is_some_and(|extension| extension == "toml");
    if !is_file && name.contains('/') {
        let (name, hint) = (name.to_owned(), CUT_PATH.to_owned());
        return Err(DataFileError::Unknown { of: &KERNELS, name, hint }.into());
    } else if !is_file {
        KERNELS.named(name)?;
    }
    let (text, origin) = KERNELS.read(path)?;
    Ok(parse(&text, &origin)?)
}

/// Merges `table` over the files that it is based on.
pub(super) fn resolve(origin: &str, table: Table) -> Result<Table, KernelError> {
    let mut layers = vec![table];
    while let Some(base) = layers.last_mut().and_then(|layer| layer.remove("based-on")) {
        let Some(base) = base.as_str().map(str::to_owned) else {
            let message = "based-on: expected a kernel name".to_owned();
            return Err(KernelError::BadFile { origin: origin.to_owned(), message });
        };
        if layers.len() == DEPTH_MAX {
            let origin = origin.to_owned();
            return Err(KernelError::TooDeep { origin, limit: DEPTH_MAX });
        }
        let mut layer = table_of(&base)?;
        packaged::take(&base, &mut layer)?;
        since::take(&base, &mut layer)?;
        layers.push(layer);
    }
    let mut merged = Table::new();
    for layer in layers.into_iter().rev() {
        merge(&mut merged, layer);
    }
    Ok(merged)
}

/// Merges the sections of rules. Values in them, such as an exec rule with its size, are replaced.
fn merge(base: &mut Table, over: Table) {
    /// Not sections: each is one value.
    const REPLACED: [&str; 3] = ["disks", GAPS, policy::POLICY];
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(old)), toml::Value::Table(new))
                if !REPLACED.contains(&key.as_str()) =>
            {
                old.extend(new);
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}
