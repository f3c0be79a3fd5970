//! Matches a new thread's first stop with its parent's report: either may come first.
//!
//! Invariant B1: a new thread does not run until its birth has been reported. Otherwise its faults
//! and calls could not be attributed.

use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Births {
    born: BTreeSet<i32>,
    /// Reported, but not stopped yet.
    awaited: BTreeSet<i32>,
    /// Stopped, but not reported yet.
    held: BTreeSet<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BirthStop {
    /// The first stop of a reported thread: it runs.
    First,
    /// The first stop of a thread not reported yet: it waits.
    Early,
    /// An ordinary signal.
    Signal,
}

impl Births {
    pub(super) fn stopped(&mut self, tid: i32) -> BirthStop {
        if self.awaited.remove(&tid) {
            BirthStop::First
        } else if self.born.contains(&tid) {
            BirthStop::Signal
        } else {
            self.held.insert(tid);
            BirthStop::Early
        }
    }

    /// Handles a reported birth; returns whether the thread is stopped and may run now.
    pub(super) fn reported(&mut self, tid: i32) -> bool {
        self.born.insert(tid);
        let is_held = self.held.remove(&tid);
        if !is_held {
            self.awaited.insert(tid);
        }
        is_held
    }

    /// A thread has ended: its id can be reused.
    pub(super) fn ended(&mut self, tid: i32) {
        self.born.remove(&tid);
        self.awaited.remove(&tid);
        self.held.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_stops_before_it_is_reported_is_held_until_then() {
        let mut births = Births::default();
        assert_eq!(births.stopped(8), BirthStop::Early);
        assert!(births.reported(8));
        assert_eq!(births.stopped(8), BirthStop::Signal);
    }

    #[test]
    fn a_thread_that_is_reported_first_runs_from_its_first_stop_on() {
        let mut births = Births::default();
        assert!(!births.reported(8));
        assert_eq!(births.stopped(8), BirthStop::First);
        assert_eq!(births.stopped(8), BirthStop::Signal);
        births.ended(8);
        assert_eq!(births.stopped(8), BirthStop::Early);
    }
}
