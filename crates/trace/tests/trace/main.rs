//! Tests of the trace crate through its public interface.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "test data is small"
)]

mod checksum;
mod common;
mod execs;
mod foreign;
mod generators;
mod hostile;
mod links;
mod roundtrip;
mod swap;
