//! The first stop of a new thread and its parent's report of it: either may come first.
//!
//! Invariant B1: a new thread does not run before its birth has been reported: otherwise its faults
//! and calls could not be attributed.

use std::collections::BTreeSet;

/// Threads by what is known of them.
#[derive(Debug, Default)]
pub(super) struct Births {
    /// Reported.
    born: BTreeSet<i32>,
    /// Reported, and not seen to stop yet.
    awaited: BTreeSet<i32>,
    /// Stopped, and not reported yet.
    held: BTreeSet<i32>,
}

/// What a `SIGSTOP` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BirthStop {
    /// The first stop of a thread that was reported: it runs.
    First,
    /// The first stop of a thread that was not reported yet: it waits for that.
    Early,
    /// A signal like any other.
    Signal,
}

impl Births {
    /// A thread stopped by `SIGSTOP`.
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

    /// A birth was reported; whether the thread stands still and may run now.
    pub(super) fn reported(&mut self, tid: i32) -> bool {
        self.born.insert(tid);
        let is_held = self.held.remove(&tid);
        if !is_held {
            self.awaited.insert(tid);
        }
        is_held
    }

    /// A thread has ended: its number may come again.
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
