//! Tests of the running kernel: count and make folios, move text, record workloads.
//!
//! A file lock (`turn`) protects machine-wide state such as settings, loop devices and tracefs
//! instances. It works between threads and between processes. A test that needs its own process, or
//! a process to kill, starts this program again.

mod blocks;
mod census;
mod collapse;
mod held;
mod refusals;
mod remap;
mod stale;
#[path = "../support/started.rs"]
mod started;
mod starts;
mod stubs;
#[path = "../support/mod.rs"]
mod support;
mod turn;
mod warm;
