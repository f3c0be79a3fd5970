//! A number that a program or a command prints, and whether more is better.
//!
//! Owns the search in an untrusted text, and the direction, which `direction` guesses. A number must be
//! finite and not negative, because a ratio of other numbers means nothing.

mod direction;

use regex_lite::{Regex, RegexBuilder};

use direction::DirectionWord;

pub use direction::NoDirection;

const NUMBER_MAX: f64 = 1e18;
const PATTERN_BYTES_MAX: usize = 1 << 20;
const SHOWN_BYTES: usize = 60;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Better {
    #[default]
    Lower,
    Higher,
}

#[derive(Clone, Debug)]
pub enum Source {
    Quantity(&'static str),
    Command(String),
    /// The first group of the last match in the command's output, or the whole match.
    Pattern(Box<Regex>),
}

#[derive(Clone, Debug)]
pub struct Metric {
    pub source: Source,
    pub name: String,
    pub unit: String,
    pub better: Better,
}

impl Metric {
    #[must_use]
    pub fn quantity(name: &'static str) -> Self {
        let (unit, better) = (String::new(), Better::Lower);
        Self { source: Source::Quantity(name), name: name.to_owned(), unit, better }
    }

    pub(super) fn is_looked_at(&self) -> bool {
        matches!(self.source, Source::Quantity("memory"))
    }

    /// Returns the metric for a number in `source`. `text` is the command or pattern.
    ///
    /// # Errors
    /// The direction is neither specified nor known.
    pub fn printed(
        source: Source,
        text: &str,
        better: Option<Better>,
        unit: Option<String>,
    ) -> Result<Self, NoDirection> {
        let is_pattern = matches!(source, Source::Pattern(_));
        let known = if is_pattern {
            direction::guess_for_pattern(text)
        } else {
            direction::guess_for_command(text)
        };
        let known = match better {
            None => Some(known?),
            // An explicit direction wins. A word then only names the quantity.
            Some(better) if is_pattern => direction::adjacent(text, better),
            Some(better) => known.ok().filter(|known| known.better() == better),
        };
        let better = better.or_else(|| known.map(DirectionWord::better)).unwrap_or_default();
        let unit = unit.or_else(|| known.map(|known| known.unit.clone()));
        let name = known.map_or("metric", |known| &known.word).to_owned();
        Ok(Self { source, name, unit: unit.unwrap_or_default(), better })
    }
}

/// Compiles a user's pattern.
///
/// # Errors
/// The pattern's error.
pub fn pattern(text: &str) -> Result<Regex, String> {
    if text.is_empty() {
        return Err("an empty pattern matches everything".to_owned());
    }
    let built = RegexBuilder::new(text).multi_line(true).size_limit(PATTERN_BYTES_MAX).build();
    built.map_err(|error| error.to_string())
}

/// Parses a text that consists of one number.
///
/// # Errors
/// If the text is not a number; the error describes the text.
pub fn number(text: &[u8]) -> Result<f64, String> {
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    let what = || {
        let end = text.floor_char_boundary(SHOWN_BYTES);
        if text.is_empty() { "nothing".to_owned() } else { format!("{:?}", &text[..end]) }
    };
    // Rejects `inf`, `nan` and hexadecimal.
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

/// Returns the number in a pattern's last match.
///
/// # Errors
/// No match, or a match that is not a number.
pub fn find(pattern: &Regex, text: &[u8]) -> Result<f64, String> {
    let text = String::from_utf8_lossy(text);
    let Some(captures) = pattern.captures_iter(&text).last() else {
        return Err("the pattern matches nothing in the output".to_owned());
    };
    let part = captures.get(1).or_else(|| captures.get(0));
    number(part.map_or("", |part| part.as_str()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_number_and_nothing_else() {
        assert_eq!(number(b" 12.5\n"), Ok(12.5));
        assert_eq!(number(b"1e3"), Ok(1000.0));
        for (text, expected) in [
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
            assert!(error.contains(expected) && !error.contains('\u{1b}'), "{error}");
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
    fn a_number_has_the_name_of_its_word_and_the_direction_that_was_said() {
        let of = |text: &str, better| {
            let source = Source::Pattern(Box::new(pattern(text).unwrap()));
            let metric = Metric::printed(source, text, better, None)?;
            Ok::<_, NoDirection>((metric.better, metric.name, metric.unit))
        };
        let higher = (Better::Higher, "tps".to_owned(), "/s".to_owned());
        assert_eq!(of("tps = ([0-9.]+)", None), Ok(higher));
        assert_eq!(of("value ([0-9]+)", None), Err(NoDirection::NoWord));
        let both = "elapsed: ([0-9.]+) us per transaction, [0-9]+ tps";
        assert!(matches!(of(both, None), Err(NoDirection::Both { .. })));
        let expected = (Better::Lower, "elapsed".to_owned(), String::new());
        assert_eq!(of(both, Some(Better::Lower)), Ok(expected));
        let expected = (Better::Higher, "metric".to_owned(), String::new());
        assert_eq!(of("([0-9]+) events in 10 seconds", Some(Better::Higher)), Ok(expected));
    }
}
