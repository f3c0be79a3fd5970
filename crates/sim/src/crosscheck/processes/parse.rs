//! Reading programs and what a kernel answered.
//!
//! A recording is outside data: numbers are checked against the window's limits, and what is
//! allocated is in proportion to the text.

use super::program::{NR_PAGES_MAX, NR_SLOTS, Program, Range};
use super::recording::{Answer, Change, Header, Recording, Run};
use super::world::{Page, PageState};

/// A line that is not of the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a line of a copy-on-write recording: {0:?}")]
pub struct ParseError(String);

impl ParseError {
    pub(super) fn new(line: &str) -> Self {
        Self(line.chars().take(120).collect())
    }
}

/// The words of one line.
pub(super) struct Words<'a> {
    line: &'a str,
    rest: &'a str,
}

impl<'a> Words<'a> {
    pub(super) fn new(line: &'a str) -> Self {
        Self { line, rest: line.trim_start() }
    }

    fn error(&self) -> ParseError {
        ParseError::new(self.line)
    }

    /// The rest of the line.
    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    pub(super) fn word(&mut self) -> Result<&'a str, ParseError> {
        let (word, rest) = self.rest.split_once(' ').unwrap_or((self.rest, ""));
        self.rest = rest.trim_start();
        if word.is_empty() { Err(self.error()) } else { Ok(word) }
    }

    /// A number, at most `max`.
    pub(super) fn number(&mut self, max: u64) -> Result<u64, ParseError> {
        let value = self.word()?.parse().ok().filter(|value| *value <= max);
        value.ok_or_else(|| self.error())
    }

    pub(super) fn slot(&mut self) -> Result<usize, ParseError> {
        Ok(self.number(NR_SLOTS as u64 - 1)? as usize)
    }

    /// `FIRST` or `FIRST NR`.
    pub(super) fn range(&mut self) -> Result<Range, ParseError> {
        let first = self.number(NR_PAGES_MAX - 1)?;
        let has_nr = self.rest.starts_with(|first: char| first.is_ascii_digit());
        let nr = if has_nr { self.number(NR_PAGES_MAX - first)? } else { 1 };
        if nr == 0 { Err(self.error()) } else { Ok(Range { first, nr }) }
    }
}

/// The recordings of a text: the output of `probe/cow.c`.
///
/// # Errors
/// The first line that is not of the format.
pub(super) fn recording(name: &str, text: &str) -> Result<Recording, ParseError> {
    let mut found =
        Recording { name: name.to_owned(), header: Header::default(), runs: Vec::new() };
    // Orders are written once for each label of a program.
    let mut orders = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# cow ") {
            found.header = header(rest)?;
        } else if line.starts_with("program") {
            orders.clear();
            found.runs.push(Run { program: Program::of_line(line)?, ..Run::default() });
        } else {
            let run = found.runs.last_mut().ok_or_else(|| ParseError::new(line))?;
            line_of_run(run, &mut orders, line)?;
        }
    }
    Ok(found)
}

fn header(text: &str) -> Result<Header, ParseError> {
    let mut header = Header::default();
    for word in text.split(' ') {
        match word.split_once('=') {
            Some(("page", value)) => {
                header.page_bytes = value.parse().map_err(|_| ParseError::new(text))?;
            }
            Some(("arch", value)) => value.clone_into(&mut header.arch),
            Some(("release", value)) => value.clone_into(&mut header.release),
            Some(("disk", value)) => value.clone_into(&mut header.disk),
            Some(("pmds", value)) => header.hides_pmds = value == "unknown",
            _ => {}
        }
    }
    Ok(header)
}

fn line_of_run(run: &mut Run, orders: &mut Vec<u8>, line: &str) -> Result<(), ParseError> {
    let wrong = || ParseError::new(line);
    if let Some(step) = line.strip_prefix("> ") {
        run.program.steps.push(step.parse()?);
        run.answers.push(Answer::default());
    } else if let Some(event) = line.strip_prefix("~ ") {
        run.disturbances.push(event.to_owned());
    } else if line == "end" {
        run.is_complete = true;
    } else if let Some(error) = line.strip_prefix("! ") {
        let answer = run.answers.last_mut().ok_or_else(wrong)?;
        answer.error = Some(error.parse().map_err(|_| wrong())?);
    } else if let Some(nr) = line.strip_prefix("c ") {
        let answer = run.answers.last_mut().ok_or_else(wrong)?;
        answer.nr_cached = Some(nr.parse().map_err(|_| wrong())?);
    } else {
        let change = change(line, orders)?;
        if change.range.end() > run.program.nr_pages {
            return Err(wrong());
        }
        run.answers.last_mut().ok_or_else(wrong)?.changes.push(change);
    }
    Ok(())
}

/// `SLOT FIRST[+NR] STATE [FLAGS] [=SUM]`.
fn change(line: &str, orders: &mut Vec<u8>) -> Result<Change, ParseError> {
    let wrong = || ParseError::new(line);
    let mut words = Words::new(line);
    let slot = words.slot()?;
    let pages = words.word()?;
    let (first, nr) = pages.split_once('+').unwrap_or((pages, "1"));
    let first = first.parse().ok().filter(|first| *first < NR_PAGES_MAX).ok_or_else(wrong)?;
    let nr = nr.parse().ok().filter(|nr| (1..=NR_PAGES_MAX).contains(nr)).ok_or_else(wrong)?;
    let state = words.word()?;
    let (flags, sum) = words.rest().split_once('=').unwrap_or((words.rest(), ""));
    let sum = if sum.is_empty() { None } else { Some(sum.parse().map_err(|_| wrong())?) };
    let page = page(state, orders).ok_or_else(wrong)?;
    let has = |flag| flags.contains(flag);
    let (is_exclusive, is_pmd, is_file) = (has('x'), has('H'), has('f'));
    let state = PageState { page, is_exclusive, is_pmd, is_file, sum };
    Ok(Change { slot, range: Range { first, nr }, state })
}

/// Labels of one program are small; this bounds what a text can make us hold.
const NR_LABELS_MAX: usize = 1 << 16;

/// `-`, `z`, `Z.INDEX`, `LABEL[:ORDER][.INDEX]`.
fn page(text: &str, orders: &mut Vec<u8>) -> Option<Page> {
    if text == "-" {
        return Some(Page::Absent);
    }
    if text == "z" {
        return Some(Page::Zero);
    }
    let (folio, index) = text.split_once('.').unwrap_or((text, "0"));
    let index = index.parse().ok().filter(|index| u64::from(*index) < NR_PAGES_MAX)?;
    if folio == "Z" {
        return Some(Page::HugeZero { index });
    }
    let (label, order) = folio.split_once(':').unwrap_or((folio, ""));
    let label = label.parse::<usize>().ok().filter(|label| *label < NR_LABELS_MAX)?;
    if orders.len() <= label {
        orders.resize(label + 1, 0);
    }
    if !order.is_empty() {
        orders[label] = order.parse().ok().filter(|order| *order <= 13)?;
    }
    Some(Page::Folio { label: label as u64, order: orders[label], index })
}
