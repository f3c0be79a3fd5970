//! What a test says that cannot run here.

use std::io::{self, Write as _};

/// Says that the test, or a part of it, is skipped, and why.
///
/// ```
/// largefolio_testkit::skipped!("needs root");
/// ```
#[macro_export]
macro_rules! skipped {
    ($($why:tt)*) => { $crate::say_skipped(module_path!(), &format!($($why)*)) };
}

/// What [`skipped!`](crate::skipped) says of a test in `module`. The runner shows it whatever becomes
/// of the test: it holds back what goes through `eprintln!`, not what is written to stderr.
pub fn say_skipped(module: &str, why: &str) {
    // Nobody reads a closed stderr.
    let _ = writeln!(io::stderr(), "SKIPPED in {module}: {why}");
}
