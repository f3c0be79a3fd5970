//! Turns references into rows: references with the same (thread, op, page) share one row with a
//! count.
//!
//! Owns the window of rows that a later reference can still join. A program alternates between a
//! few pages (text, stack, heap), so the window holds several rows, not only the last. Invariants:
//! - I1: rows come out in the order of their first references, and the counts add up to the input.
//! - I2: the order in which (thread, op, page) triples first appear is kept.
//! - I3: nothing moves across an event that is not a reference: it closes all rows.
//! - I4: at most 64 rows wait, in eight windows.
//! - I5: rows have no links, because a link is a distance in rows, and sharing rows would change
//!   that distance.
//!
//! The window loses the order of *repeated* references inside it. With eight rows it reorders only
//! accesses to recently touched pages. No fault, readahead or reclaim decision depends on that
//! order, and a TLB of any modelled size holds all these pages.

use std::collections::VecDeque;

use crate::event::Event;
use crate::validate::REFERENCE_PAGE_BYTES;

/// Rows of a thread that a reference can still join.
pub const WINDOW_ROWS: usize = 8;

/// Total waiting rows of all threads. It limits how long an idle thread's open row delays others.
const NR_ROWS_MAX: usize = 8 * WINDOW_ROWS;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    row: Event,
    /// Whether a reference can still join: the row is among its thread's last [`WINDOW_ROWS`].
    is_open: bool,
}

/// Merges references to the same page; see the module.
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
    waiting: VecDeque<Waiting>,
}

impl RunBuffer {
    /// Takes the next event in program order and appends completed rows to `rows`.
    ///
    /// A reference can have any address in its page, and can itself be a run.
    pub fn push(&mut self, event: Event, rows: &mut Vec<Event>) {
        if event.op.is_reference() {
            self.push_reference(event, rows);
        } else {
            self.flush(rows);
            rows.push(event);
        }
    }

    /// Appends all waiting rows to `rows`, at the end or before a point that keeps the order.
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

    /// Adds to a row of the window, or closes the thread's oldest row if the window is full.
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
