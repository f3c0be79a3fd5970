//! Reading kernel files: a file over the one it is based on.

use std::path::Path;

use largefolio_mm::rules::anon::SizeMode;
use largefolio_mm::rules::collapse::SLEEP_MS_MAX;
use largefolio_mm::rules::sizes::size_name;
use largefolio_mm::rules::{Exec, Rules, StartOrder};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Table;

use super::builtin::KERNELS;
use super::{Kernel, KernelError, judged, packaged, policy, since};
use crate::datafile::{DataFileError, line_of, parse};
use crate::names::nearest;
use crate::size::parse_bytes;

/// Longest chain of `based-on`.
const DEPTH_MAX: usize = 16;
/// Base page of a kernel that is asked about without a machine.
const DEFAULT_PAGE: &str = "4K";
/// Key of the base page.
const PAGE: &str = "page";
/// Key of the line for people.
const DESCRIPTION: &str = "description";

/// Where a path that is none may have been cut.
const CUT_PATH: &str = "a `,` in a path ends it, and so does a `+`, unless there is a file of the \
                        whole name";

#[derive(Deserialize)]
struct File {
    description: String,
    #[serde(flatten)]
    rules: Table,
}

/// The preset `name`, or the file at that path.
pub(super) fn by_name(name: &str) -> Result<Kernel, KernelError> {
    from_table(name, resolve(name, table_of(name)?)?)
}

/// The kernel that `table` describes; `name` names it, in errors too.
pub(super) fn from_table(name: &str, mut table: Table) -> Result<Kernel, KernelError> {
    let is_page_given = table.contains_key(PAGE);
    table.entry(PAGE).or_insert_with(|| toml::Value::String(DEFAULT_PAGE.to_owned()));
    packaged::take(name, &mut table)?;
    since::take(name, &mut table)?;
    let not_judged = judged::take(name, &mut table)?;
    let policy = policy::take(name, &mut table)?;
    let file: File = table.try_into().map_err(|error| mistake(name, &error))?;
    let rules: Rules = file.rules.try_into().map_err(|error| mistake(name, &error))?;
    check(&rules).map_err(|message| {
        let place = message.split([' ', ':']).next().unwrap_or_default().to_owned();
        bad(name, &place, message)
    })?;
    let note = not_judged.as_ref().map(|said| said.sentence(name));
    let (name, description) = (name.to_owned(), file.description);
    Ok(Kernel { name, description, rules, is_page_given, not_judged, note, policy })
}

/// What the TOML library says of a table, in the words of a kernel file.
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

/// The error of a kernel file, with the line of `place` if `origin` is a file.
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

/// Takes the value of `key` out of the kernel file `origin`, if it is there.
pub(super) fn take<T: DeserializeOwned>(
    origin: &str,
    table: &mut Table,
    key: &str,
) -> Result<Option<T>, KernelError> {
    let Some(value) = table.remove(key) else { return Ok(None) };
    let bad = |error: toml::de::Error| KernelError::BadFile {
        origin: origin.to_owned(),
        message: format!("{key}: {}", error.message()),
    };
    value.try_into().map(Some).map_err(bad)
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
    if let Some(said) = &kernel.not_judged {
        judged::put(said, &mut table).map_err(unwritable)?;
    }
    if let Some(policy) = &kernel.policy {
        policy::put(policy, &mut table)?;
    }
    Ok(table)
}

/// Values that no kernel can have (`Rules` I1, I2; `AnonRules` I1, I2).
pub(super) fn check(rules: &Rules) -> Result<(), String> {
    let around = rules.fault_around_bytes;
    if !around.is_power_of_two() {
        return Err(format!("fault_around_bytes = {around}: expected a power of two"));
    }
    let min = rules.min_folio_bytes;
    if min != 0 && !min.is_power_of_two() {
        return Err(format!("min_folio_bytes = {min}: expected 0 or a power of two"));
    }
    for (name, bytes) in
        [("exec", exec_bytes(rules.fault.exec)), ("start_order", start_bytes(rules))]
    {
        if bytes.is_some_and(|bytes| !bytes.is_power_of_two()) {
            return Err(format!("fault.{name}: expected a power of two of bytes"));
        }
    }
    for (name, bytes) in [
        ("exec_min_bytes", rules.order.exec_min_bytes),
        ("mmap_state_bytes", rules.order.mmap_state_bytes),
    ] {
        if bytes != 0 && !bytes.is_power_of_two() {
            return Err(format!("order.{name} = {bytes}: expected 0 or a power of two"));
        }
    }
    for kib in rules.anon.size_kib.keys() {
        let bytes =
            parse_bytes(&format!("{kib}K")).filter(|bytes| (bytes >> 10).to_string() == *kib);
        if bytes.and_then(|bytes| rules.anon.clone().set_size(bytes, SizeMode::Never)).is_none() {
            return Err(format!(
                "anon.size_kib.{kib}: expected a power of two of KiB, at least 16, and sizes = \
                 \"per-size\""
            ));
        }
    }
    for (name, percent) in [
        ("dirty_background_ratio", rules.reclaim.dirty_background_ratio),
        ("compaction_proactiveness", rules.reclaim.compaction_proactiveness),
    ] {
        if percent > 100 {
            return Err(format!("reclaim.{name} = {percent}: expected 0 to 100"));
        }
    }
    for (name, ms) in [
        ("scan_sleep_ms", rules.collapse.scan_sleep_ms),
        ("alloc_sleep_ms", rules.collapse.alloc_sleep_ms),
    ] {
        if ms > SLEEP_MS_MAX {
            return Err(format!("collapse.{name} = {ms}: expected at most {SLEEP_MS_MAX}"));
        }
    }
    let limit_bytes = 1_u64 << 40;
    for (name, value) in [("readahead_bytes", rules.readahead_bytes), ("io_bytes", rules.io_bytes)]
    {
        if value > limit_bytes {
            return Err(format!("{name} = {value}: expected at most {}", size_name(limit_bytes)));
        }
    }
    Ok(())
}

const fn exec_bytes(exec: Exec) -> Option<u64> {
    match exec {
        Exec::Block { bytes } | Exec::Window { bytes } => Some(bytes),
        Exec::None | Exec::ArchWindow => None,
    }
}

const fn start_bytes(rules: &Rules) -> Option<u64> {
    match rules.fault.start_order {
        StartOrder::Size { bytes } => Some(bytes),
        StartOrder::Ramp => None,
    }
}

/// The table of the preset `name`, or of the file at that path.
fn table_of(name: &str) -> Result<Table, KernelError> {
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

/// Lays `over` on `base`: the tables of rules are merged, values (an exec rule with its size
/// included) are replaced.
fn merge(base: &mut Table, over: Table) {
    const MERGED: [&str; 8] =
        ["readahead", "fault", "filesystems", "anon", "clear", "collapse", "reclaim", "sizes"];
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
