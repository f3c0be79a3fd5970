//! Short names of edits: `exec-block=64K` for `fault.exec.block.bytes=64K`.
//!
//! Owns the table of names (`edits.toml`) and the rules for each value. [`super::rule`] applies the
//! rules.

use std::sync::LazyLock;

use largefolio_mm::rules::Rules;
use largefolio_mm::rules::anon::SizeMode;
use largefolio_mm::rules::shmem::ShmemSizeMode;
use serde::Deserialize;

use crate::size::parse_bytes;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditHelp {
    pub name: String,
    pub value: String,
    pub help: String,
    /// `VALUE: PATH=VALUE ..`
    #[serde(default)]
    means: Vec<String>,
}

#[derive(Deserialize)]
struct Table {
    edit: Vec<EditHelp>,
}

pub static EDITS: LazyLock<Vec<EditHelp>> =
    LazyLock::new(|| match toml::from_str::<Table>(include_str!("edits.toml")) {
        Ok(table) => table.edit,
        Err(error) => unreachable!("the table of edits is part of the program: {error}"),
    });

const VALUE: char = '#';
const ANY_RULE: &str = "TABLE.RULE";
/// Edits for one folio size, and their maps in a kernel file.
const OF_SIZES: [(&str, &str); 2] = [("anon-", "anon.size_kib"), ("shmem-", "shmem.size_kib")];
/// Edits for one device, and its rule.
const DISKS: [(&str, &str); 2] = [("readahead-", "readahead_bytes"), ("io-", "io_bytes")];
const DISK_LEN_MAX: usize = 64;
const SLEEP_MS_MAX: u64 = 86_400_000;

pub(super) fn find(name: &str) -> Option<&'static EditHelp> {
    let mut prefixes = DISKS.iter().chain(&OF_SIZES).map(|(prefix, _)| *prefix);
    let whole = EDITS.iter().find(|known| known.name == name && name != ANY_RULE);
    whole.or_else(|| {
        let prefix = prefixes.find(|prefix| name.starts_with(prefix))?;
        EDITS.iter().find(|known| known.name.starts_with(prefix))
    })
}

pub(super) fn names<'a>() -> impl Iterator<Item = &'a str> {
    EDITS.iter().map(|known| known.name.as_str()).filter(|name| *name != ANY_RULE)
}

pub(super) struct Setting {
    pub(super) path: String,
    pub(super) value: String,
}

impl EditHelp {
    pub(super) fn settings(&self, name: &str, value: &str, rules: &Rules) -> Option<Vec<Setting>> {
        if let Some((map, size)) = size_edit(name) {
            let path = size_path(map, size).filter(|path| has_size(rules, path))?;
            return Some(vec![Setting { path, value: value.replace('_', "-") }]);
        }
        if let Some(path) = disk_path(name) {
            return Some(vec![Setting { path, value: parse_bytes(value)?.to_string() }]);
        }
        self.meant(value)
    }

    pub(super) fn paths(&self, name: &str, value: &str) -> Option<Vec<String>> {
        if let Some((map, size)) = size_edit(name) {
            return Some(vec![size_path(map, size)?]);
        }
        if let Some(path) = disk_path(name) {
            return Some(vec![path]);
        }
        Some(self.meant(value)?.into_iter().map(|setting| setting.path).collect())
    }

    fn meant(&self, value: &str) -> Option<Vec<Setting>> {
        let (value, rules) = self.means.iter().find_map(|meaning| {
            let (form, rules) = meaning.split_once(": ")?;
            Some((taken(form, value)?, rules))
        })?;
        let setting = |rule: &str| {
            let (path, taken) = rule.split_once('=')?;
            Some(Setting { path: path.to_owned(), value: taken.replace(VALUE, &value) })
        };
        rules.split(' ').map(setting).collect()
    }
}

fn taken(form: &str, value: &str) -> Option<String> {
    let number = match form {
        "BYTES" => parse_bytes(value)?,
        "POWER-OF-TWO" => parse_bytes(value).filter(|bytes| bytes.is_power_of_two())?,
        "NUMBER" => value.parse().ok()?,
        "MILLISECONDS" => {
            let ms = value.strip_suffix("ms").unwrap_or(value).parse().ok()?;
            (1..=SLEEP_MS_MAX).contains(&ms).then_some(ms)?
        }
        _ => return (form == "WHATEVER" || form == value).then(|| value.to_owned()),
    };
    Some(number.to_string())
}

/// Splits `anon-64K` or `shmem-64K` into the map of its rule and the size.
fn size_edit(name: &str) -> Option<(&'static str, &str)> {
    if EDITS.iter().any(|known| known.name == name) {
        return None;
    }
    OF_SIZES.iter().find_map(|(prefix, map)| Some((*map, name.strip_prefix(prefix)?)))
}

fn size_path(map: &str, size: &str) -> Option<String> {
    Some(format!("{map}.{}", parse_bytes(size)? >> 10))
}

/// Whether the kernel has a control of this size.
fn has_size(rules: &Rules, path: &str) -> bool {
    let Some((map, kib)) = path.rsplit_once('.') else { return false };
    let bytes = kib.parse::<u64>().map_or(0, |kib| kib << 10);
    match map {
        "shmem.size_kib" => rules.shmem.clone().set_size(bytes, ShmemSizeMode::Never).is_some(),
        _ => rules.anon.clone().set_size(bytes, SizeMode::Never).is_some(),
    }
}

/// Returns the rule of an edit for one device; `None` for other edits and impossible names.
fn disk_path(name: &str) -> Option<String> {
    let (disk, rule) =
        DISKS.iter().find_map(|(prefix, rule)| Some((name.strip_prefix(prefix)?, rule)))?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!_-".contains(&byte);
    let is_name = (1..=DISK_LEN_MAX).contains(&disk.len()) && disk.bytes().all(is_plain);
    is_name.then(|| format!("disks.{disk}.{rule}"))
}
