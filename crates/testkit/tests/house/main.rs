//! The repository keeps its own rules: dependencies, sizes, unsafe code, links, references, help.
#![expect(clippy::unwrap_used, reason = "a repository that cannot be read fails the test")]

use std::path::{Path, PathBuf};

mod book;
mod crates;
mod docs;
mod help;

/// The top of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}
