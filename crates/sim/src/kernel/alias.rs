//! Short names of edits: `exec-block=64K` for `fault.exec.block.bytes=64K`.
//!
//! Owns the table of names (`edits.toml`), and which rules each value of a name stands for. Does not
//! set a rule (that is [`super::rule`]).

use std::sync::LazyLock;

use largefolio_mm::rules::Rules;
use largefolio_mm::rules::anon::SizeMode;
use serde::Deserialize;

use crate::size::parse_bytes;

/// What an edit does, for `--help`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditHelp {
    /// Name before the `=`.
    pub name: String,
    /// Form of the value, in words.
    pub value: String,
    /// What it sets, one line.
    pub help: String,
    /// `VALUE: PATH=VALUE ..`
    #[serde(default)]
    means: Vec<String>,
}

#[derive(Deserialize)]
struct Table {
    edit: Vec<EditHelp>,
}

/// Every edit that has a short name, and the form of all others.
pub static EDITS: LazyLock<Vec<EditHelp>> =
    LazyLock::new(|| match toml::from_str::<Table>(include_str!("edits.toml")) {
        Ok(table) => table.edit,
        Err(error) => unreachable!("the table of edits is part of the program: {error}"),
    });

/// Stands for the value of the edit.
const VALUE: char = '#';
/// Name of the edits that set one rule by its own name.
const ANY_RULE: &str = "TABLE.RULE";
/// What the names of controls of one size of anonymous folios begin with.
const ANON: &str = "anon-";
/// Longest sleep of a setting: a day.
const SLEEP_MS_MAX: u64 = 86_400_000;

/// The short name `name`.
pub(super) fn find(name: &str) -> Option<&'static EditHelp> {
    let is_it = |known: &&EditHelp| match name.strip_prefix(ANON) {
        Some(_) => known.name.starts_with(ANON),
        None => known.name == name && name != ANY_RULE,
    };
    EDITS.iter().find(is_it)
}

/// Short names, in the order they are listed.
pub(super) fn names<'a>() -> impl Iterator<Item = &'a str> {
    EDITS.iter().map(|known| known.name.as_str()).filter(|name| *name != ANY_RULE)
}

/// A rule by its path in a kernel file, and its value.
pub(super) struct Setting {
    pub(super) path: String,
    pub(super) value: String,
}

impl EditHelp {
    /// The rules that `name=value` sets; `None` for a value that the name does not take.
    pub(super) fn settings(&self, name: &str, value: &str, rules: &Rules) -> Option<Vec<Setting>> {
        if let Some(size) = name.strip_prefix(ANON) {
            return Some(vec![anon_size(rules, size, value)?]);
        }
        self.meant(value)
    }

    /// The paths of the same rules.
    pub(super) fn paths(&self, name: &str, value: &str) -> Option<Vec<String>> {
        if let Some(size) = name.strip_prefix(ANON) {
            return Some(vec![anon_path(parse_bytes(size)?)]);
        }
        Some(self.meant(value)?.into_iter().map(|setting| setting.path).collect())
    }

    /// What the table says of `value`.
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

/// The value as a rule has it, if `form` takes it.
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

/// `anon-64K=always`.
fn anon_size(rules: &Rules, size: &str, value: &str) -> Option<Setting> {
    let bytes = parse_bytes(size)?;
    rules.anon.clone().set_size(bytes, SizeMode::Never)?;
    Some(Setting { path: anon_path(bytes), value: value.to_owned() })
}

/// Where the control of anonymous folios of so many bytes stands.
fn anon_path(bytes: u64) -> String {
    format!("anon.size_kib.{}", bytes >> 10)
}
