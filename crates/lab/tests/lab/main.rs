//! Tests of `folio-lab` from outside: its output and exit codes.
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot continue")]

use std::path::PathBuf;

mod bench;
mod crosscheck;
mod crosscheck_plan;
mod help;
#[path = "../../../cli/tests/cli/schema.rs"]
mod schema;
mod schemas;
mod study;
#[expect(dead_code, reason = "the tests of folio use all of it")]
#[path = "../../../cli/tests/cli/support.rs"]
mod support;

/// The program that the tests run.
fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin!("folio-lab").to_owned()
}
