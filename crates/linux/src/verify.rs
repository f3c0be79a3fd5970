//! Checks whether a change helps a program: runs it with and without the change, alternately.
//!
//! ```text
//!   round 1   plain  changed      each run: prepare (untimed), then run (timed)
//!   round 2   changed  plain      with a server: start it, wait until it is ready, time the load,
//!   round 3   plain  changed                     sample both, stop it
//!             ratio of a round = changed / plain of that round
//! ```
//!
//! [`crate::timed_run`] times one command and [`rounds`] alternates the arms. [`proof`] selects the
//! rounds in which the change took effect; [`verdict`] and [`threshold`] judge them. A
//! [`rounds::Arm`] owns the change.
//!
//! Invariants:
//! - V1: no process of a started command is left, even if this process is killed. Only a daemon
//!   without a cgroup outlives folio's own SIGKILL.
//! - V2: a ratio compares two runs of one round.
//! - V3: a failed run is never a value.
//! - V4: a round in which the change was not in effect is never a value.

pub mod metric;
pub mod proof;
pub mod rounds;
pub mod server;
pub mod threshold;
pub mod verdict;

use crate::timed_run::TimedRunError;

#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Run(#[from] TimedRunError),
    /// It failed. Times of failing runs mean nothing.
    #[error(
        "{command} {how} in the {arm} run of round {round}; a failed run cannot be compared \
         (--show-output shows its output)"
    )]
    Failed {
        command: String,
        how: String,
        arm: &'static str,
        /// From 1. 0 is the round that does not count.
        round: usize,
    },
    #[error("the {arm} runs cannot be prepared: {source}")]
    Prepare { arm: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{option} {how} in the {arm} run of round {round}")]
    Script { option: &'static str, how: String, arm: &'static str, round: usize },
    #[error("the {arm} run of round {round} has no metric: {why} (--show-output shows its output)")]
    Metric { why: String, arm: &'static str, round: usize },
    #[error("the server was not ready within {seconds} s: --ready: {why}{output}")]
    NotReady { seconds: u64, why: String, output: String },
    #[error("the server {how} {when}{output}")]
    ServerEnded { how: String, when: &'static str, output: String },
}

#[cfg(test)]
mod tests;
