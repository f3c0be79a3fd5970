//! Operations of the memory manager that a benchmark times, each with separate set-up, or that a
//! study counts.
//!
//! Nothing here reads a clock: the caller times the call.

mod anon;
mod count;
mod file;
mod gigantic;

pub use anon::{AnonBench, AnonBenchError};
pub use count::{AnonOperation, Counted};
pub use file::FileBench;
pub use gigantic::{GIGANTIC_BYTES, fault_gigantic};

use largefolio_mm::rules::Arch;

/// What is timed in the model stands beside this machine.
const ARCH: Arch = if cfg!(target_arch = "aarch64") { Arch::Arm64 } else { Arch::X86_64 };
