//! Repeats an output until Ctrl-C.
//!
//! Owns the waiting. While [`Rounds`] lives, SIGINT, SIGTERM and SIGHUP end the next wait instead of
//! the process, so that what is printed is whole.

use std::io;
use std::time::{Duration, Instant};

use crate::signals::Signals;

/// A signal that comes just before a sleep is noticed this much later.
const SLICE: Duration = Duration::from_millis(50);

/// Rounds in progress.
#[derive(Debug)]
pub struct Rounds {
    signals: Signals,
    every: Duration,
    next: Instant,
}

impl Rounds {
    /// The first round begins now.
    ///
    /// # Errors
    /// When the signals cannot be watched.
    pub fn new(every: Duration) -> io::Result<Self> {
        Ok(Self { signals: Signals::watch()?, every, next: Instant::now() })
    }

    /// Waits for the next round; whether there is one.
    #[must_use]
    pub fn wait(&mut self) -> bool {
        // Rounds that took longer than their time are left out, not made up for.
        self.next = (self.next + self.every).max(Instant::now());
        loop {
            if self.signals.seen().is_some() {
                return false;
            }
            let left = self.next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(SLICE));
        }
    }
}
