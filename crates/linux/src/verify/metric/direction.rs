//! Guesses whether more is better from the words around a printed number.
//!
//! ```text
//!   elapsed: ([0-9.]+) us per transaction, [0-9]+ tps    the pattern
//!   elapsed: @ us per transaction, # tps                 its outline: `@` the number, `#` another one
//! ```
//!
//! Owns the table of words. A wrong guess would report a slowdown as a gain. Nothing is guessed if
//! words for both directions occur, or if the only word is not next to the number.

use std::iter::Peekable;
use std::ops::Range;
use std::str::Chars;
use std::sync::LazyLock;

use serde::Deserialize;

use super::Better;

const THE_NUMBER: char = '@';
const ANOTHER: char = '#';

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DirectionWord {
    pub(super) word: String,
    is_higher_better: bool,
    /// Whether the word is a unit, which must be adjacent to its number. A name can be further
    /// away.
    #[serde(default)]
    is_unit: bool,
    #[serde(default)]
    pub(super) unit: String,
    #[expect(dead_code, reason = "for readers of the table")]
    source: String,
}

#[derive(Deserialize)]
struct Table {
    metric: Vec<DirectionWord>,
}

static TABLE: LazyLock<Vec<DirectionWord>> = LazyLock::new(|| {
    let table = toml::from_str::<Table>(include_str!("words.toml"));
    table.map(|table| table.metric).unwrap_or_default()
});

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDirection {
    #[error("state whether more or less of the metric is better")]
    NoWord,
    /// The text has a word of each direction.
    #[error(
        "'{lower}' means less is better, '{higher}' means more is better: which one is the metric?"
    )]
    Both { lower: String, higher: String },
    #[error(
        "'{word}' is not next to the number and may refer to a different one; specify whether \
         lower or higher is better"
    )]
    Elsewhere { word: String },
}

impl DirectionWord {
    pub(super) fn better(&self) -> Better {
        if self.is_higher_better { Better::Higher } else { Better::Lower }
    }
}

#[derive(Clone, Debug)]
struct WordPlace {
    known: &'static DirectionWord,
    range: Range<usize>,
}

pub(super) fn guess_for_command(text: &str) -> Result<&'static DirectionWord, NoDirection> {
    one_direction(&all_in(&text.to_lowercase()))
}

pub(super) fn guess_for_pattern(pattern: &str) -> Result<&'static DirectionWord, NoDirection> {
    let outline = outline(pattern).to_lowercase();
    let places = all_in(&outline);
    let first = one_direction(&places)?;
    let Some(at) = outline.find(THE_NUMBER) else { return Ok(first) };
    nearest(&outline, at, &places)
        .ok_or_else(|| NoDirection::Elsewhere { word: first.word.clone() })
}

pub(super) fn adjacent(pattern: &str, better: Better) -> Option<&'static DirectionWord> {
    let outline = outline(pattern).to_lowercase();
    let at = outline.find(THE_NUMBER)?;
    nearest(&outline, at, &all_in(&outline)).filter(|known| known.better() == better)
}

fn one_direction(places: &[WordPlace]) -> Result<&'static DirectionWord, NoDirection> {
    let first = |better| places.iter().map(|one| one.known).find(|known| known.better() == better);
    match (first(Better::Lower), first(Better::Higher)) {
        (Some(lower), Some(higher)) => {
            Err(NoDirection::Both { lower: lower.word.clone(), higher: higher.word.clone() })
        }
        (one, other) => one.or(other).ok_or(NoDirection::NoWord),
    }
}

/// Returns the table's words in `text`, in table order. Skips parts of longer words, and units of
/// other numbers.
fn all_in(text: &str) -> Vec<WordPlace> {
    let is_whole = |range: &Range<usize>| {
        let is_end = |c: Option<char>| !c.is_some_and(|c| c.is_ascii_alphanumeric());
        is_end(text[..range.start].chars().next_back()) && is_end(text[range.end..].chars().next())
    };
    let of = |known: &'static DirectionWord| {
        let places = text.match_indices(known.word.as_str());
        places.map(move |(at, word)| WordPlace { known, range: at..at + word.len() })
    };
    let all = TABLE.iter().flat_map(of).filter(|one| is_whole(&one.range));
    all.filter(|one| !(one.known.is_unit && is_of_another(&text[..one.range.start]))).collect()
}

/// Returns whether a unit after `before` belongs to another number or to a rate.
fn is_of_another(before: &str) -> bool {
    let before = before.trim_end();
    let is_rate = before.ends_with('/') || before.split_whitespace().next_back() == Some("per");
    is_rate || before.ends_with(|c: char| c.is_ascii_digit() || c == ANOTHER)
}

/// Returns the word closest to the number at `at`, unless another number's text is in between.
fn nearest(outline: &str, at: usize, places: &[WordPlace]) -> Option<&'static DirectionWord> {
    let gap = |one: &WordPlace| {
        let (from, to) = (one.range.end.min(at + 1), one.range.start.max(at));
        let gap = if one.range.end <= at { &outline[from..at] } else { &outline[at + 1..to] };
        is_of_one(gap, one.known.is_unit).then_some((gap.len(), one.known))
    };
    places.iter().filter_map(gap).min_by_key(|(nr_bytes, _)| *nr_bytes).map(|(_, known)| known)
}

fn is_of_one(gap: &str, is_unit: bool) -> bool {
    let mut words = gap.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit());
    let has_other = if is_unit { words.next().is_some() } else { words.any(is_number) };
    !has_other && !gap.contains([ANOTHER, ',', ';'])
}

fn outline(pattern: &str) -> String {
    let mut outline = String::new();
    let mut letters = pattern.chars().peekable();
    while let Some(c) = letters.next() {
        let sign = match c {
            '\\' => escaped(letters.next()),
            '[' => class(&mut letters),
            '.' if matches!(letters.peek(), Some('*' | '+')) => ANOTHER,
            '|' => ANOTHER,
            '(' if letters.peek() == Some(&'?') => {
                letters.by_ref().find(|c| matches!(c, ':' | '>' | ')'));
                continue;
            }
            '(' => {
                skip_group(&mut letters);
                if outline.contains(THE_NUMBER) { ANOTHER } else { THE_NUMBER }
            }
            '{' => {
                letters.by_ref().find(|c| *c == '}');
                continue;
            }
            ')' | '*' | '+' | '?' | '^' | '$' | THE_NUMBER | ANOTHER => continue,
            c if c.is_whitespace() => ' ',
            c => c,
        };
        if sign != ' ' || !outline.ends_with(' ') {
            outline.push(sign);
        }
    }
    outline
}

fn escaped(letter: Option<char>) -> char {
    match letter {
        Some('d') => ANOTHER,
        Some(c) if c.is_ascii_punctuation() && c != THE_NUMBER && c != ANOTHER => c,
        _ => ' ',
    }
}

fn class(letters: &mut Peekable<Chars<'_>>) -> char {
    let inside = letters.clone();
    let is_without = letters.next_if_eq(&'^').is_some();
    while let Some(c) = letters.next() {
        match c {
            '\\' => drop(letters.next()),
            ']' => break,
            _ => {}
        }
    }
    let nr_letters = inside.clone().count() - letters.clone().count();
    let inside: String = inside.take(nr_letters).collect();
    let has_digit = inside.contains("\\d") || inside.contains(|c: char| c.is_ascii_digit());
    if has_digit && !is_without { ANOTHER } else { ' ' }
}

fn skip_group(letters: &mut Peekable<Chars<'_>>) {
    let mut depth = 1;
    while depth > 0 {
        match letters.next() {
            None => return,
            Some('\\') => drop(letters.next()),
            Some('[') => drop(class(letters)),
            Some('(') => depth += 1,
            Some(')') => depth -= 1,
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        assert!(TABLE.len() > 5 && TABLE.iter().all(|known| !known.word.is_empty()));
    }

    fn of(pattern: &str) -> Result<(Better, &'static str), NoDirection> {
        guess_for_pattern(pattern).map(|known| (known.better(), known.word.as_str()))
    }

    #[test]
    fn a_word_next_to_the_number_says_the_direction() {
        for (pattern, better, word) in [
            ("tps = ([0-9.]+)", Better::Higher, "tps"),
            ("Latency ([0-9]+)", Better::Lower, "latency"),
            ("([0-9.]+) requests per second", Better::Higher, "requests per second"),
            (r"([\d.]+)\s+requests\s+per\s+second", Better::Higher, "requests per second"),
            (r"throughput \(MB/s\):[ \t]*(\d+)", Better::Higher, "throughput"),
            ("p99 latency: ([0-9.]+) ms", Better::Lower, "latency"),
            ("tps[^0-9]*([0-9]+)", Better::Higher, "tps"),
            ("(?:in )?([0-9.]+) seconds?", Better::Lower, "seconds"),
            ("tps ([0-9.]+) in 10 seconds", Better::Higher, "tps"),
            ("[0-9]+ runs, elapsed ([0-9.]+)", Better::Lower, "elapsed"),
        ] {
            assert_eq!(of(pattern), Ok((better, word)), "{pattern}");
        }
    }

    #[test]
    fn words_of_both_directions_decide_nothing() {
        let pattern = "elapsed: ([0-9.]+) us per transaction, [0-9]+ tps";
        let (lower, higher) = ("elapsed".to_owned(), "tps".to_owned());
        let both = NoDirection::Both { lower, higher };
        assert_eq!(of(pattern), Err(both.clone()));
        assert_eq!(guess_for_command("grep tps log | cut -f elapsed").unwrap_err(), both);
        assert_eq!(adjacent(pattern, Better::Lower).unwrap().word, "elapsed");
        assert!(adjacent(pattern, Better::Higher).is_none());
    }

    #[test]
    fn a_word_of_another_number_decides_nothing() {
        for pattern in [
            "([0-9]+) events in 10 seconds",
            "([0-9]+) events in [0-9]+ seconds",
            "([0-9]+) events per seconds",
            "value ([0-9]+)",
            "https://x",
            "^[0-9]+$",
        ] {
            assert_eq!(of(pattern), Err(NoDirection::NoWord), "{pattern}");
        }
        for (pattern, word) in [
            ("elapsed: 5 s, events: ([0-9]+)", "elapsed"),
            ("elapsed, ([0-9]+) events", "elapsed"),
            ("elapsed.*events: ([0-9]+)", "elapsed"),
            (r"([0-9]+) events, latency (\d+)", "latency"),
            ("([0-9]+) events in seconds", "seconds"),
        ] {
            assert_eq!(of(pattern), Err(NoDirection::Elsewhere { word: word.into() }), "{pattern}");
        }
    }

    #[test]
    fn outlines_of_whatever_a_pattern_is() {
        let long = "(".repeat(10_000) + &"[\\]".repeat(10_000);
        for (pattern, expected) in [
            ("a(b[)](c))d (e)", "a@d #"),
            ("x{3}y?z+", "xyz"),
            (r"\(\d\@", "(# "),
            ("(?i)(?P<tps>1)", "1"),
            ("[", " "),
            (long.as_str(), "@"),
            ("ä@#(", "ä@"),
        ] {
            assert_eq!(outline(pattern), expected);
        }
    }
}
