//! The rows of a row group, stored as dictionary numbers until the group is written.
//!
//! Numbering slows down every row of a recording. Rows of references therefore arrive as [`Run`]s,
//! in which four columns vary and four hold one value for thousands of rows.
//!
//! Invariants:
//! - W1: all columns have the same number of rows.
//! - W2: `ends` has one entry per full page of [`BATCH_ROWS`] rows: the column's state at the
//!   page's end.
//! - W3: memory is [`GROUP_ROWS`](super::schema::GROUP_ROWS) numbers for four columns (8 MB) plus
//!   the dictionaries: 12 bytes per distinct value, with at most one value per row and column.

use std::ops::Range;

use super::batch::NO_FILE;
use super::dictionary::Dictionary;
use super::schema::{BATCH_ROWS, Column};
use crate::event::{Event, ThreadId};
use crate::run::Run;

#[derive(Debug, Default)]
pub(super) struct Rows {
    thread: Steady,
    op: Varied,
    addr: Varied,
    len: Varied,
    pos: Steady,
    aux: Steady,
    flags: Varied,
    file: Steady,
    total: usize,
}

#[derive(Debug, Default)]
struct Varied {
    dictionary: Dictionary,
    numbers: Vec<u32>,
    /// Length of the dictionary at the end of each page.
    ends: Vec<usize>,
}

#[derive(Debug, Default)]
struct Steady {
    dictionary: Dictionary,
    /// Each number with its count of consecutive rows. A page starts with a new run.
    runs: Vec<(u32, u32)>,
    ends: Vec<SteadyEnd>,
    is_new_page: bool,
}

#[derive(Clone, Copy, Debug)]
struct SteadyEnd {
    nr_values: usize,
    nr_runs: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers<'a> {
    Rows(&'a [u32]),
    Runs(&'a [(u32, u32)]),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RowsPage<'a> {
    pub(super) numbers: Numbers<'a>,
    pub(super) nr_rows: usize,
    pub(super) nr_values: usize,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.total
    }

    fn room(&self) -> usize {
        BATCH_ROWS - self.total % BATCH_ROWS
    }

    pub(super) fn push(&mut self, event: &Event) {
        self.thread.push(event.thread.into(), 1);
        self.op.push(event.op as u64);
        self.addr.push(event.addr);
        self.len.push(event.len);
        self.pos.push(event.pos, 1);
        self.aux.push(event.aux, 1);
        self.flags.push(event.flags.into());
        self.file.push(event.file.unwrap_or(NO_FILE).into(), 1);
        self.grown(1);
    }

    pub(super) fn push_runs(&mut self, thread: ThreadId, runs: &[Run]) {
        let mut rest = runs;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(self.room()));
            self.op.extend(now.iter().map(|run| run.op_number().into()));
            self.addr.extend(now.iter().map(|run| run.addr()));
            self.len.extend(now.iter().map(|run| run.count()));
            self.flags.extend(now.iter().map(|run| run.link().into()));
            self.thread.push(thread.into(), now.len());
            self.file.push(NO_FILE.into(), now.len());
            self.pos.push(0, now.len());
            self.aux.push(0, now.len());
            self.grown(now.len());
            rest = later;
        }
    }

    fn grown(&mut self, nr: usize) {
        self.total += nr;
        if self.total.is_multiple_of(BATCH_ROWS) {
            self.varied().into_iter().for_each(Varied::end_page);
            self.steady().into_iter().for_each(Steady::end_page);
        }
    }

    pub(super) fn clear(&mut self) {
        self.varied().into_iter().for_each(Varied::clear);
        self.steady().into_iter().for_each(Steady::clear);
        self.total = 0;
    }

    fn varied(&mut self) -> [&mut Varied; 4] {
        [&mut self.op, &mut self.addr, &mut self.len, &mut self.flags]
    }

    fn steady(&mut self) -> [&mut Steady; 4] {
        [&mut self.thread, &mut self.pos, &mut self.aux, &mut self.file]
    }

    pub(super) fn values(&self, column: Column) -> &[u64] {
        match self.column(column) {
            Either::Varied(column) => column.dictionary.values(),
            Either::Steady(column) => column.dictionary.values(),
        }
    }

    pub(super) fn pages(&self, column: Column) -> impl Iterator<Item = RowsPage<'_>> {
        let starts = (0..self.total).step_by(BATCH_ROWS).enumerate();
        let column = self.column(column);
        starts.map(move |(nr, start)| {
            let nr_rows = BATCH_ROWS.min(self.total - start);
            let (numbers, nr_values) = match column {
                Either::Varied(column) => column.page(nr, start..start + nr_rows),
                Either::Steady(column) => column.page(nr),
            };
            RowsPage { numbers, nr_rows, nr_values }
        })
    }

    fn column(&self, column: Column) -> Either<'_> {
        match column {
            Column::Thread => Either::Steady(&self.thread),
            Column::Op => Either::Varied(&self.op),
            Column::Addr => Either::Varied(&self.addr),
            Column::Len => Either::Varied(&self.len),
            Column::Pos => Either::Steady(&self.pos),
            Column::Aux => Either::Steady(&self.aux),
            Column::Flags => Either::Varied(&self.flags),
            Column::File => Either::Steady(&self.file),
        }
    }
}

#[derive(Clone, Copy)]
enum Either<'a> {
    Varied(&'a Varied),
    Steady(&'a Steady),
}

impl Varied {
    fn push(&mut self, value: u64) {
        self.numbers.push(self.dictionary.number_of(value));
    }

    #[inline]
    fn extend(&mut self, values: impl ExactSizeIterator<Item = u64>) {
        self.dictionary.number(values, &mut self.numbers);
    }

    fn end_page(&mut self) {
        self.ends.push(self.dictionary.values().len());
    }

    fn page(&self, nr: usize, rows: Range<usize>) -> (Numbers<'_>, usize) {
        let nr_values = self.ends.get(nr).copied();
        let nr_values = nr_values.unwrap_or_else(|| self.dictionary.values().len());
        (Numbers::Rows(&self.numbers[rows]), nr_values)
    }

    fn clear(&mut self) {
        self.dictionary.clear();
        self.numbers.clear();
        self.ends.clear();
    }
}

impl Steady {
    fn push(&mut self, value: u64, nr: usize) {
        let number = self.dictionary.number_of(value);
        // A page has fewer rows than 2^32.
        let nr = u32::try_from(nr).unwrap_or(u32::MAX);
        match self.runs.last_mut() {
            Some(last) if last.0 == number && !self.is_new_page => last.1 += nr,
            _ => self.runs.push((number, nr)),
        }
        self.is_new_page = false;
    }

    fn end_page(&mut self) {
        let nr_values = self.dictionary.values().len();
        self.ends.push(SteadyEnd { nr_values, nr_runs: self.runs.len() });
        self.is_new_page = true;
    }

    fn page(&self, nr: usize) -> (Numbers<'_>, usize) {
        let start = nr.checked_sub(1).map_or(0, |before| self.ends[before].nr_runs);
        let now = SteadyEnd { nr_values: self.dictionary.values().len(), nr_runs: self.runs.len() };
        let end = self.ends.get(nr).copied().unwrap_or(now);
        (Numbers::Runs(&self.runs[start..end.nr_runs]), end.nr_values)
    }

    fn clear(&mut self) {
        self.dictionary.clear();
        self.runs.clear();
        self.ends.clear();
        self.is_new_page = false;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::Op;

    fn column(rows: &Rows, column: Column) -> Vec<u64> {
        let values = rows.values(column);
        let mut all = Vec::new();
        for page in rows.pages(column) {
            let before = all.len();
            let values = &values[..page.nr_values];
            match page.numbers {
                Numbers::Rows(numbers) => all.extend(numbers.iter().map(|&nr| values[nr as usize])),
                Numbers::Runs(runs) => {
                    for &(number, nr) in runs {
                        all.extend(std::iter::repeat_n(values[number as usize], nr as usize));
                    }
                }
            }
            assert_eq!(all.len() - before, page.nr_rows);
        }
        all
    }

    fn read(page: u64, nr: u64) -> Run {
        Run::new(Op::Read, page << 12, 1 + nr % 5, u32::try_from(nr % 16).unwrap()).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn rows_are_those_that_were_pushed(
            parts in prop::collection::vec((0_u32..3, 1_usize..40_000, any::<bool>()), 1..12),
        ) {
            let mut rows = Rows::default();
            for _ in 0..2 {
                let mut events = Vec::new();
                for &(thread, nr, is_call) in &parts {
                    let runs: Vec<Run> = (0..nr as u64).map(|nr| read(nr * nr % 977, nr)).collect();
                    rows.push_runs(thread, &runs);
                    events.extend(runs.iter().map(|run| run.event(thread)));
                    let call = Event { file: Some(1), pos: nr as u64, ..Event::new(thread, Op::Open) };
                    if is_call {
                        rows.push(&call);
                        events.push(call);
                    }
                }
                prop_assert_eq!(rows.len(), events.len());
                let expected = |of: fn(&Event) -> u64| events.iter().map(of).collect::<Vec<_>>();
                prop_assert_eq!(column(&rows, Column::Thread), expected(|event| event.thread.into()));
                prop_assert_eq!(column(&rows, Column::Op), expected(|event| event.op as u64));
                prop_assert_eq!(column(&rows, Column::Addr), expected(|event| event.addr));
                prop_assert_eq!(column(&rows, Column::Len), expected(|event| event.len));
                prop_assert_eq!(column(&rows, Column::Pos), expected(|event| event.pos));
                prop_assert_eq!(column(&rows, Column::Aux), expected(|event| event.aux));
                prop_assert_eq!(column(&rows, Column::Flags), expected(|event| event.flags.into()));
                let file = |event: &Event| event.file.unwrap_or(NO_FILE).into();
                prop_assert_eq!(column(&rows, Column::File), expected(file));
                rows.clear();
            }
        }
    }
}
