//! The house: which crate may know which, how large a room may be, where unsafe code may stand.

#![expect(clippy::unwrap_used, reason = "a house that cannot be read fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates on a floor may use those on lower floors: an import points down (ARCHITECTURE.md).
const FLOORS: &[(&str, u32)] = &[
    ("largefolio-cli", 6),
    ("largefolio-python", 6),
    ("largefolio-report", 5),
    ("largefolio-linux", 4),
    ("largefolio-sim", 3),
    ("largefolio-trace", 2),
    ("largefolio-mm", 1),
    ("largefolio-bulk", 0),
];
/// Side rooms: used by nobody, or only by tests.
const SIDE_ROOMS: &[&str] = &["largefolio-preload", "largefolio-recorder", "largefolio-testkit"];
/// The only crates with unsafe code.
const UNSAFE_CRATES: &[&str] = &["bulk", "linux", "recorder", "preload"];
/// Lines of code a file may have; look again past 500.
const FILE_LINES_MAX: usize = 800;
/// Lines of tests beside the code, past which they move to a file of their own.
const INLINE_TEST_LINES_MAX: usize = 150;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Each crate of the workspace and what it depends on, outside of tests.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let of = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|d| d["kind"].as_str() != Some("dev")).map(|d| text(&d["name"])).collect()
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.map(|package| (text(&package["name"]), of(package))).collect()
}

#[test]
fn an_import_points_down() {
    let floor = |name: &str| FLOORS.iter().find(|(known, _)| *known == name).map(|(_, f)| *f);
    for (name, uses) in dependencies() {
        if SIDE_ROOMS.contains(&name.as_str()) {
            let up = uses.iter().find(|used| floor(used).is_some());
            assert_eq!(up, None, "{name} is a side room and uses a floor");
            continue;
        }
        let own = floor(&name).unwrap_or_else(|| panic!("{name} has no floor: add it here"));
        for used in uses {
            assert!(!SIDE_ROOMS.contains(&used.as_str()), "{name} uses {used} outside of tests");
            if let Some(below) = floor(&used) {
                assert!(below < own, "{name} (floor {own}) uses {used} (floor {below})");
            }
        }
    }
}

#[test]
fn the_running_kernel_and_the_model_do_not_know_each_other() {
    let dependencies = dependencies();
    let uses = |name: &str, used: &str| dependencies[name].iter().any(|d| d == used);
    assert!(!uses("largefolio-mm", "largefolio-trace"), "mm knows no trace");
    assert!(!uses("largefolio-trace", "largefolio-mm"), "a trace knows no model");
    assert!(!uses("largefolio-sim", "largefolio-linux"), "sim knows no running kernel");
}

/// Every Rust file below `crates/`.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_rust = path.extension().is_some_and(|extension| extension == "rs");
            if path.is_dir() {
                folders.push(path);
            } else if is_rust {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Lines of `text` that are neither blank nor a comment.
fn code_lines(text: &str) -> usize {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    text.lines().filter(is_code).count()
}

#[test]
fn a_room_is_small_enough_to_be_seen() {
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        let (code, tests) = match text.split_once("\n#[cfg(test)]\nmod tests {") {
            Some((code, tests)) => (code, tests),
            None => (text.as_str(), ""),
        };
        let lines = code_lines(code);
        assert!(lines <= FILE_LINES_MAX, "{}: {lines} lines of code", path.display());
        let lines = code_lines(tests);
        let name = path.display();
        assert!(lines <= INLINE_TEST_LINES_MAX, "{name}: {lines} lines of tests beside the code");
    }
}

#[test]
fn every_file_says_what_it_owns() {
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        let head = text.lines().take(12).any(|line| line.starts_with("//!"));
        let is_tests = path.to_string_lossy().contains("tests");
        assert!(head || is_tests, "{} has no module doc", path.display());
    }
}

#[test]
fn unsafe_code_stands_only_where_it_may() {
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if UNSAFE_CRATES.contains(&name.as_str()) {
            continue;
        }
        let is_binary = path.join("src/main.rs").exists();
        let head = path.join(if is_binary { "src/main.rs" } else { "src/lib.rs" });
        let text = fs::read_to_string(&head).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{} allows unsafe code", head.display());
    }
}
