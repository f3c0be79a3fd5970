//! Programs that a test starts and that keep their memory until it ends.

#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::started::started;
use crate::support::{compile_in, has};

pub(crate) struct Held {
    pub(crate) child: Child,
    _folder: Option<TempDir>,
}

impl Held {
    pub(crate) fn of(command: &mut Command) -> Self {
        Self::within(None, command)
    }

    pub(crate) fn compiled(source: &str) -> Option<Self> {
        if !has("gcc", "gcc") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = compile_in(folder.path(), source, &[]);
        Some(Self::within(Some(folder), &mut Command::new(path)))
    }

    fn within(folder: Option<TempDir>, command: &mut Command) -> Self {
        let child = started(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        Self { child, _folder: folder }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
