//! The order of tests that share the machine.

#![expect(clippy::unwrap_used, reason = "a test that has no turn fails")]

use std::fs::File;
use std::path::Path;

/// Held until dropped.
#[derive(Debug)]
pub(crate) struct Turn(File);

/// Settings stay unchanged; other tests may read them at the same time.
pub(crate) fn steady() -> Turn {
    let file = open();
    file.lock_shared().unwrap();
    Turn(file)
}

/// No other test reads or changes the machine.
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
        // Not by closing: a forked child holds a copy until its exec.
        self.0.unlock().unwrap();
    }
}
