//! Repeats an output until Ctrl-C.
//!
//! Owns the waiting. While [`Rounds`] exists, SIGINT, SIGTERM and SIGHUP end the next wait instead
//! of the process, so the output is complete.

use std::io;
use std::time::{Duration, Instant};

use crate::signals::Signals;

/// A signal just before a sleep is noticed after this delay.
const SLICE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct Rounds {
    signals: Signals,
    every: Duration,
    next: Instant,
}

impl Rounds {
    /// Starts the first round immediately.
    ///
    /// # Errors
    /// If the signals cannot be watched.
    pub fn new(every: Duration) -> io::Result<Self> {
        Ok(Self { signals: Signals::watch()?, every, next: Instant::now() })
    }

    /// Starts the first round now, after preparations.
    pub fn begin(&mut self) {
        self.next = Instant::now();
    }

    /// Whether a signal has arrived, which ends the next wait.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.signals.received().is_some()
    }

    /// Waits for the next round. Returns false if a signal ended the wait.
    #[must_use]
    pub fn wait(&mut self) -> bool {
        // Skips rounds after one that took too long.
        self.next = (self.next + self.every).max(Instant::now());
        loop {
            if self.signals.received().is_some() {
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
