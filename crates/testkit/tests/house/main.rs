//! Checks the repository's rules: dependencies, sizes, unsafe code, links, references, help.
#![expect(clippy::unwrap_used, reason = "a repository that cannot be read fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

mod book;
mod crates;
mod docs;
mod help;
mod imports;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files_below(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            files.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|own| own == extension) {
            files.push(path);
        }
    }
    files.sort();
    files
}
