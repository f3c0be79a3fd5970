//! A number that a program or a command prints, and what to think of it.
//!
//! Owns the search in a text, which is anybody's, and whether more is better. A number is finite and not
//! below 0: a ratio of others says nothing.

use std::sync::LazyLock;

use regex_lite::{Regex, RegexBuilder};
use serde::Deserialize;

/// Largest number that is believed.
const NUMBER_MAX: f64 = 1e18;
/// Compiled size of a pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Bytes of a text that an error shows.
const SHOWN_BYTES: usize = 60;

/// Which direction is the better one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Better {
    /// Time, memory.
    #[default]
    Lower,
    /// Work done in a time.
    Higher,
}

/// Where the number is.
#[derive(Clone, Debug)]
pub enum Source {
    /// A quantity that each run has, by its name.
    Quantity(&'static str),
    /// What a shell command prints after each run.
    Command(String),
    /// The first group of the last match in the command's output, or the whole match.
    Pattern(Box<Regex>),
}

/// What a verdict is about.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Where it is.
    pub source: Source,
    /// What people call it.
    pub name: String,
    /// Behind the number.
    pub unit: String,
    /// Its direction.
    pub better: Better,
}

/// A number that programs print, by a word of its name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Known {
    word: String,
    is_higher_better: bool,
    #[serde(default)]
    unit: String,
    #[expect(dead_code, reason = "for readers of the table")]
    source: String,
}

#[derive(Deserialize)]
struct Table {
    metric: Vec<Known>,
}

static TABLE: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let table = toml::from_str::<Table>(include_str!("metrics.toml"));
    // A test reads the table.
    table.map(|table| table.metric).unwrap_or_default()
});

impl Metric {
    /// Wall time, user time and their like: less is better.
    #[must_use]
    pub fn quantity(name: &'static str) -> Self {
        let (unit, better) = (String::new(), Better::Lower);
        Self { source: Source::Quantity(name), name: name.to_owned(), unit, better }
    }

    /// What `text`, a pattern or a command, is known to print; `None` where the table has no word of it.
    fn known(text: &str) -> Option<(Better, &'static Known)> {
        let text = text.to_lowercase();
        let is_in = |word: &str| {
            text.match_indices(word).any(|(at, _)| {
                let is_end = |c: Option<char>| !c.is_some_and(|c| c.is_ascii_alphanumeric());
                is_end(text[..at].chars().next_back())
                    && is_end(text[at + word.len()..].chars().next())
            })
        };
        let known = TABLE.iter().find(|known| is_in(&known.word))?;
        Some((if known.is_higher_better { Better::Higher } else { Better::Lower }, known))
    }

    /// A number in `source`, which `text` describes; `None` where the direction is neither given nor
    /// known.
    #[must_use]
    pub fn printed(
        source: Source,
        text: &str,
        better: Option<Better>,
        unit: Option<String>,
    ) -> Option<Self> {
        let known = Self::known(text);
        let better = better.or_else(|| known.map(|(better, _)| better))?;
        let unit = unit.or_else(|| known.map(|(_, known)| known.unit.clone()));
        let name = known.map_or("metric", |(_, known)| &known.word).to_owned();
        Some(Self { source, name, unit: unit.unwrap_or_default(), better })
    }
}

/// A pattern of a user.
///
/// # Errors
/// What is wrong with it.
pub fn pattern(text: &str) -> Result<Regex, String> {
    if text.is_empty() {
        return Err("an empty pattern matches everything".to_owned());
    }
    let built = RegexBuilder::new(text).multi_line(true).size_limit(PATTERN_BYTES_MAX).build();
    built.map_err(|error| error.to_string())
}

/// The number that a text consists of.
///
/// # Errors
/// What is there instead.
pub fn number(text: &[u8]) -> Result<f64, String> {
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    let what = || {
        let end = text.floor_char_boundary(SHOWN_BYTES);
        if text.is_empty() { "nothing".to_owned() } else { format!("{:?}", &text[..end]) }
    };
    // `inf`, `nan` and hexadecimal are no numbers here.
    let is_plain = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    let value = text.chars().all(is_plain).then(|| text.parse::<f64>().ok()).flatten();
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return Err(format!("expected one number, got {}", what()));
    };
    if (0.0..=NUMBER_MAX).contains(&value) {
        return Ok(value);
    }
    Err(format!("expected a number from 0 to {NUMBER_MAX:e}, got {}", what()))
}

/// The number that a pattern finds last.
///
/// # Errors
/// No match, or a match that is no number.
pub fn find(pattern: &Regex, text: &[u8]) -> Result<f64, String> {
    let text = String::from_utf8_lossy(text);
    let Some(found) = pattern.captures_iter(&text).last() else {
        return Err("the pattern matches nothing in the output".to_owned());
    };
    let part = found.get(1).or_else(|| found.get(0));
    number(part.map_or("", |part| part.as_str()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_number_and_nothing_else() {
        assert_eq!(number(b" 12.5\n"), Ok(12.5));
        assert_eq!(number(b"1e3"), Ok(1000.0));
        for (text, said) in [
            (&b""[..], "nothing"),
            (b"12 ms", "12 ms"),
            (b"nan", "nan"),
            (b"inf", "inf"),
            (b"1e999", "1e999"),
            (b"1e19", "from 0 to"),
            (b"-1", "from 0 to"),
            (b"0x10", "0x10"),
            (b"\xff\x00\x1b[31m", "expected one number"),
            (b"1\n2", "expected one number"),
        ] {
            let error = number(text).unwrap_err();
            assert!(error.contains(said) && !error.contains('\u{1b}'), "{error}");
        }
        assert!(number(&vec![b'9'; 1 << 20]).unwrap_err().len() < 200);
    }

    #[test]
    fn the_last_match_counts() {
        let tps = pattern("tps = ([0-9.]+)").unwrap();
        assert_eq!(find(&tps, b"tps = 1\n\xff\ntps = 2.5 (x)\n"), Ok(2.5));
        assert!(find(&tps, b"tps: 1").unwrap_err().contains("matches nothing"));
        assert!(find(&tps, b"tps = ...").unwrap_err().contains("one number"));
        assert_eq!(find(&pattern("^[0-9]+$").unwrap(), b"a\n7\n"), Ok(7.0));
        assert!(
            pattern("(").is_err() && pattern("").is_err() && pattern("(a{1000}){1000}").is_err()
        );
    }

    #[test]
    fn the_table_is_read_and_a_word_is_not_a_part_of_one() {
        assert!(TABLE.len() > 5 && TABLE.iter().all(|known| !known.word.is_empty()));
        let of = |text: &str| {
            Metric::printed(Source::Command(String::new()), text, None, None)
                .map(|metric| (metric.better, metric.name, metric.unit))
        };
        assert_eq!(of("tps = ([0-9.]+)"), Some((Better::Higher, "tps".into(), "/s".into())));
        assert_eq!(of("Latency ([0-9]+)").unwrap().0, Better::Lower);
        assert_eq!(of("https://x"), None);
        assert_eq!(of("value ([0-9]+)"), None);
    }
}
