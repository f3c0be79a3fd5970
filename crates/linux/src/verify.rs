//! Does a change help a program? The program with and without it, alternately, on this kernel.
//!
//! ```text
//!   round 1   plain  changed      each run: prepare (not timed), run (timed), in turn
//!   round 2   changed  plain      with a server: start it, wait until it is ready, time the load,
//!   round 3   plain  changed                     look at both, stop it
//!             ratio of a round = changed / plain of that round
//! ```
//!
//! Owns one timed run of a command ([`run`]) and its processes (`family`), a server ([`server`]), numbers
//! that programs print ([`metric`]), the rounds ([`rounds`]), in which of them the change took effect
//! ([`proof`], by [`mod@look`]) and what they say
//! ([`verdict`], [`threshold`]). Does not own what a change is: that is a
//! [`rounds::Arm`].
//!
//! Invariants:
//! - V1: no process of a started command is left, however this process ends; a daemon outlives folio's own
//!   SIGKILL where it has no control group.
//! - V2: a ratio compares two runs of one round.
//! - V3: a run that failed is never a value.
//! - V4: a round in which the change did not take effect is never a value.

pub(crate) mod family;
pub mod look;
pub mod metric;
pub mod output;
pub mod proof;
pub mod rounds;
pub mod run;
pub mod server;
pub mod threshold;
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
    /// A command of the user beside the rounds failed.
    #[error("{option} {how} in the {arm} run of round {round}")]
    Script {
        /// `--prepare`.
        option: &'static str,
        /// `exited with 1`.
        how: String,
        /// Which arm.
        arm: &'static str,
        /// As in [`VerifyError::Failed`].
        round: usize,
    },
    /// There is no number to compare.
    #[error("no metric in the {arm} run of round {round}: {why} (--show-output shows its output)")]
    Metric {
        /// What is there instead.
        why: String,
        /// Which arm.
        arm: &'static str,
        /// As in [`VerifyError::Failed`].
        round: usize,
    },
    /// The server does not come up.
    #[error("the server was not ready within {seconds} s: --ready: {why}{output}")]
    NotReady {
        /// How long.
        seconds: u64,
        /// What its question got.
        why: String,
        /// The end of its output.
        output: String,
    },
    /// The server has ended.
    #[error("the server {how} {when}{output}")]
    ServerEnded {
        /// `exited with 1`.
        how: String,
        /// `before it was ready`.
        when: &'static str,
        /// The end of its output.
        output: String,
    },
    /// A process does not end though it was killed.
    #[error("{what} was killed and does not end; the rounds cannot go on beside it")]
    Immortal {
        /// Which.
        what: String,
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

fn failed(call: &'static str) -> impl FnOnce(io::Error) -> VerifyError {
    move |source| VerifyError::Call { call, source }
}

#[cfg(test)]
mod tests;
