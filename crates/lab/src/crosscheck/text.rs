//! Lines, words and numbers of a recording.

use std::collections::BTreeMap;

use largefolio_trace::shown;

/// Characters of a malformed line that an error prints.
const NR_SHOWN: usize = 120;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {what}; recordings/README.md describes the format", shown(name))]
pub struct ParseError {
    pub name: String,
    /// Line, from 1.
    pub line: usize,
    pub what: String,
}

/// The parsed value, or a description of the error.
pub type Parsed<T> = Result<T, String>;

/// Calls `read` for each line until one fails. Skips empty lines.
pub(super) fn each_line(
    name: &str,
    text: &str,
    read: &mut dyn FnMut(&[&str]) -> Parsed<()>,
) -> Result<(), ParseError> {
    for (nr, line) in text.lines().enumerate() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if !fields.is_empty() {
            read(&fields).map_err(|what| {
                let name = name.to_owned();
                ParseError { name, line: nr + 1, what }
            })?;
        }
    }
    Ok(())
}

#[derive(Debug)]
pub struct Pairs<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Pairs<'a> {
    pub(super) fn of(fields: &[&'a str]) -> Self {
        Self(fields.iter().filter_map(|word| word.split_once('=')).collect())
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).copied()
    }

    /// Returns the value of `key`, or an empty string.
    pub(super) fn text(&self, key: &str) -> String {
        self.get(key).unwrap_or_default().to_owned()
    }

    pub(super) fn number(&self, key: &str) -> Parsed<Option<u64>> {
        self.get(key).map(number).transpose()
    }
}

pub(super) fn unknown<T>(fields: &[&str]) -> Parsed<T> {
    let line: String = fields.join(" ").chars().take(NR_SHOWN).collect();
    Err(format!("unknown line {line:?}"))
}

pub(super) fn not_a_number(word: &str) -> String {
    format!("{word:?} is not a number")
}

pub(super) fn number(word: &str) -> Parsed<u64> {
    word.parse().map_err(|_| not_a_number(word))
}

pub(super) fn number_to(max: u64, word: &str) -> Parsed<u64> {
    let value = number(word)?;
    if value <= max { Ok(value) } else { Err(format!("{value} is more than {max}")) }
}

pub(super) fn hex(word: &str) -> Parsed<u64> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    u64::from_str_radix(digits, 16).map_err(|_| not_a_number(word))
}

pub(super) fn reason(fields: &[&str]) -> Parsed<String> {
    let text = fields.join(" ");
    if text.chars().any(char::is_control) {
        return Err(format!("{text:?} is not a valid reason: it contains control characters"));
    }
    Ok(text)
}
