//! Recordings of real programs under QEMU and valgrind. Tests run side by side; what is killed or
//! interrupted is this program, started again.

mod arm64;
mod execve;
mod links;
mod memory;
mod process;
mod recorded;
mod signals;
#[path = "../support/mod.rs"]
mod support;
mod valgrind;
