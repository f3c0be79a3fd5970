//! Whose turn it is where tests share the machine.

#![expect(clippy::unwrap_used, reason = "a test that has no turn fails")]

use std::fs::File;
use std::path::Path;

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(File);

/// Settings of the machine stay as they are; others may look at the same time.
pub(crate) fn steady() -> Turn {
    let file = open();
    file.lock_shared().unwrap();
    Turn(file)
}

/// Nobody else looks at the machine or changes it.
pub(crate) fn alone() -> Turn {
    let file = open();
    file.lock().unwrap();
    Turn(file)
}

fn open() -> File {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("live.lock");
    File::options().create(true).truncate(false).write(true).open(path).unwrap()
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Not by closing: a child that was forked and has not executed yet holds a copy.
        self.0.unlock().unwrap();
    }
}
