//! References become rows: runs of the same (thread, op, page) share one row with a count.
//!
//! Owns the window in which a later reference may still join an earlier row. A program alternates
//! between a few pages (text, stack, heap), so the window looks back several rows and not only at
//! the last. Invariants:
//! - I1: rows come out in the order of their first reference, counts add up to what came in.
//! - I2: the order in which (thread, op, page) triples first appear is kept.
//! - I3: nothing moves across an event that is not a reference: it closes all rows.
//! - I4: at most 64 rows wait, eight windows.
//! - I5: rows have no links: a link counts rows, and those that share one are counted no more.
//!
//! What the window gives up is the order of *repeated* references inside it: with eight rows of
//! history that reorders accesses to pages that were all touched moments ago, which no fault,
//! readahead or reclaim decision sees, and which a TLB of any size modelled would all hold.

use std::collections::VecDeque;

use crate::event::Event;
use crate::validate::REFERENCE_PAGE_BYTES;

/// Rows of a thread that a reference may still join.
pub const WINDOW_ROWS: usize = 8;

/// Rows that wait in all, over the threads: an idle thread's open row holds others back no longer.
const NR_ROWS_MAX: usize = 8 * WINDOW_ROWS;

/// A row that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    row: Event,
    /// Whether a reference may still join: the row is one of its thread's last [`WINDOW_ROWS`].
    is_open: bool,
}

/// Collapses same-page runs of references; see the module.
///
/// ```
/// use largefolio_trace::{Event, Op, runs::RunBuffer};
/// let (mut runs, mut rows) = (RunBuffer::default(), Vec::new());
/// for addr in [0x1000, 0x1004, 0x7ff8, 0x1008] {
///     runs.push(Event::references(0, Op::Exec, addr, 1), &mut rows);
/// }
/// runs.flush(&mut rows);
/// let counts: Vec<_> = rows.iter().map(|row| (row.addr, row.len)).collect();
/// assert_eq!(counts, [(0x1000, 3), (0x7000, 1)]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct RunBuffer {
    /// In the order of their first reference.
    waiting: VecDeque<Waiting>,
}

impl RunBuffer {
    /// Takes the next event in program order; appends the rows that are complete to `rows`.
    ///
    /// A reference may have any address (it is rounded down to its page) and may itself be a run.
    pub fn push(&mut self, event: Event, rows: &mut Vec<Event>) {
        if event.op.is_reference() {
            self.push_reference(event, rows);
        } else {
            self.flush(rows);
            rows.push(event);
        }
    }

    /// Appends all waiting rows to `rows`: at the end, and before what must not be reordered.
    pub fn flush(&mut self, rows: &mut Vec<Event>) {
        rows.extend(self.waiting.drain(..).map(|waiting| waiting.row));
    }

    fn push_reference(&mut self, mut event: Event, rows: &mut Vec<Event>) {
        event.addr &= !(REFERENCE_PAGE_BYTES - 1);
        event.flags = 0;
        if self.join(&event) {
            return;
        }
        self.waiting.push_back(Waiting { row: event, is_open: true });
        let is_over = |len| len > NR_ROWS_MAX;
        while is_over(self.waiting.len()) || self.waiting.front().is_some_and(|w| !w.is_open) {
            rows.extend(self.waiting.pop_front().map(|waiting| waiting.row));
        }
    }

    /// Adds to a row of the window; otherwise closes the thread's oldest row if it has all it may.
    fn join(&mut self, event: &Event) -> bool {
        let mut nr_own = 0;
        for waiting in self.waiting.iter_mut().rev() {
            let row = &mut waiting.row;
            if row.thread != event.thread {
                continue;
            }
            if row.addr == event.addr && row.op == event.op {
                let Some(count) = row.len.checked_add(event.len) else { return false };
                row.len = count;
                return true;
            }
            nr_own += 1;
            if nr_own == WINDOW_ROWS {
                waiting.is_open = false;
                return false;
            }
        }
        false
    }
}
