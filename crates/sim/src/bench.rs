//! Memory manager operations for benchmarks and studies, each with separate set-up.
//!
//! Nothing here reads a clock: the caller times the call.

mod anon;
mod count;
mod file;

pub use anon::{AnonBench, AnonBenchError};
pub use count::{AnonOperation, Counted};
pub use file::FileBench;

use largefolio_mm::rules::Arch;

/// The host's architecture, so that model times are comparable with its kernel.
pub const ARCH: Arch = if cfg!(target_arch = "aarch64") { Arch::Arm64 } else { Arch::X86_64 };
