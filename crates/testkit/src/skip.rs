//! Messages of skipped tests.

use std::io::{self, Write as _};

/// Reports that the test, or part of it, is skipped, and why.
///
/// ```
/// largefolio_testkit::skipped!("needs root");
/// ```
#[macro_export]
macro_rules! skipped {
    ($($why:tt)*) => { $crate::say_skipped(module_path!(), &format!($($why)*)) };
}

/// Ends a test that only `make test-all` runs, and says so.
///
/// ```
/// largefolio_testkit::only_in_test_all!("calibrates twice");
/// ```
#[macro_export]
macro_rules! only_in_test_all {
    ($does:literal) => {
        if !$crate::is_whole() {
            $crate::skipped!("only `make test-all` {}", $does);
            return;
        }
    };
}

/// Prints the message of [`skipped!`](crate::skipped) for a test in `module`. The test runner
/// captures `eprintln!`, but always shows direct writes to stderr.
pub fn say_skipped(module: &str, why: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED in {module}: {why}");
}
