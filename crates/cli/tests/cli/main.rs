//! Tests of the program from outside: its output and exit codes.
#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::path::PathBuf;

mod advise;
mod anchor;
mod calibrate;
mod canary;
mod compat;
mod completions;
mod effect;
mod errors;
mod fifos;
mod help;
mod install;
mod lasting;
mod limits;
mod man;
mod maps;
mod maps_host;
mod maps_live;
mod maps_stalls;
mod names;
mod pages;
mod parquet;
mod policy;
mod predict;
mod processes;
mod questions;
mod record;
mod record_live;
mod regions;
mod report;
mod results;
mod run;
mod schema;
mod schemas;
mod support;
mod swap;
mod sweep;
mod trace;
mod tune;
mod verify;

/// The program that the tests run.
fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin!("folio").to_owned()
}
