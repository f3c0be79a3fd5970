//! Records real programs under QEMU. Tests run in parallel. For a process to kill or
//! interrupt, a test starts this program again.

mod arm64;
mod buffers;
mod differences;
mod execve;
mod links;
mod memory;
mod process;
mod recorded;
mod signals;
#[path = "../support/mod.rs"]
mod support;
