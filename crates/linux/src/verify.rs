//! Does a change help a program? The program with and without it, alternately, on this kernel.
//!
//! ```text
//!   round 1   plain  changed      each run: prepare (not timed), run (timed), in turn
//!   round 2   changed  plain
//!   round 3   plain  changed      ratio of a round = changed / plain of that round
//! ```
//!
//! Owns one timed run of a command ([`run`]), the rounds ([`rounds`]) and what they say
//! ([`verdict`]). Does not own what a change is: that is a [`rounds::Arm`].
//!
//! Invariants:
//! - V1: no process of a started command is left, however this process ends.
//! - V2: a ratio compares two runs of one round.
//! - V3: a run that failed is never a value.

pub mod rounds;
pub mod run;
pub mod verdict;

use std::io;

/// Why a command could not be compared with itself.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// It could not be started.
    #[error("cannot start {command}: {source}{remedy}")]
    Start {
        /// The program.
        command: String,
        /// Cause.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// It ended with an error: times of failing runs say nothing.
    #[error(
        "{command} {how} in the {arm} run of round {round}; a failed run cannot be compared \
         (--show-output shows its output)"
    )]
    Failed {
        /// The program.
        command: String,
        /// `exited with 1`, `was killed by signal 11`.
        how: String,
        /// Which arm.
        arm: &'static str,
        /// From 1; 0 is the round that is not counted.
        round: usize,
    },
    /// The change could not be put into effect or taken back.
    #[error("the {arm} runs cannot be prepared: {source}")]
    Prepare {
        /// Which arm.
        arm: &'static str,
        /// Cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A system call failed.
    #[error("{call} failed: {source}")]
    Call {
        /// Which.
        call: &'static str,
        /// Cause.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests;
