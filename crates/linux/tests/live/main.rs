//! The running kernel: folios counted and made, text moved, workloads recorded.
//!
//! What belongs to the whole machine - settings, loop devices, tracefs instances - is guarded by a
//! lock on a file (`turn`), which holds between threads of this program and between processes. What
//! must be alone in its process, or killed, is this program, started again.

mod blocks;
mod census;
mod collapse;
mod crosscheck;
mod held;
mod program;
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
