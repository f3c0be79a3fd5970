//! Tests that record workloads and programs on the running kernel.

mod crosscheck;
mod program;
mod run;
mod settings;
#[expect(dead_code, reason = "the live tests of linux use all of it")]
#[path = "../../../linux/tests/support/mod.rs"]
mod support;
#[expect(dead_code, reason = "the live tests of linux use all of it")]
#[path = "../../../linux/tests/live/turn.rs"]
mod turn;
