//! Only the readers in `proc`, and `system` below them, may name `/proc` and `/sys`.

#![expect(clippy::unwrap_used, reason = "sources that cannot be read fail the test")]

use std::fs;
use std::path::{Path, PathBuf};

/// Lists the files of this crate. A link is a file of another crate.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Returns code lines, without tests, that have a string with such a path.
fn named(code: &str) -> Vec<&str> {
    let code = code.split_once("#[cfg(test)]").map_or(code, |(code, _)| code);
    let starts = ["\"/proc", "\"/sys", "\"proc/", "\"sys/"];
    let is_named = |line: &&str| starts.iter().any(|start| line.contains(start));
    code.lines().filter(|line| !line.trim_start().starts_with("//")).filter(is_named).collect()
}

#[test]
fn proc_and_sys_are_named_by_their_readers_alone() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut nr_readers = 0;
    for path in rust_files(&src) {
        let name = path.strip_prefix(&src).unwrap().to_str().unwrap();
        let content = fs::read_to_string(&path).unwrap();
        let paths = named(&content);
        let is_reader = ["proc/", "system/", "proc.rs", "system.rs"];
        if is_reader.iter().any(|start| name.starts_with(start)) {
            nr_readers += usize::from(!paths.is_empty());
        } else if !name.ends_with("tests.rs") && !name.contains("/tests/") {
            assert_eq!(paths, [""; 0], "{name}: ask crate::proc");
        }
    }
    assert!(nr_readers > 5, "the search finds nothing where they are named");
    assert_eq!(
        named("let a = \"/proc/x\";\n// \"/sys\"\n#[cfg(test)]\n\"/sys\""),
        ["let a = \"/proc/x\";"]
    );
}
