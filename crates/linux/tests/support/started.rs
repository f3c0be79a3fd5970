//! Starts programs that a test has just written.
#![expect(unreachable_pub, reason = "each test binary uses it")]
#![expect(clippy::expect_used, reason = "a test helper fails")]

use std::io;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

/// Starts a program. A child forked by another thread holds our descriptors until its exec,
/// including one open for writing. A program just written is busy until then.
pub fn started(command: &mut Command) -> Child {
    for _ in 0..200 {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                thread::sleep(Duration::from_millis(10));
            }
            started => return started.expect("a program that starts"),
        }
    }
    panic!("{command:?} stays busy")
}
