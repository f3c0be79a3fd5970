//! Checks crate dependencies, file lengths and the places of unsafe code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{files_below, root};

const DEPENDENCIES: &str = "```dependencies\n";
const PREFIX: &str = "largefolio-";
const UNSAFE_CRATES: &[&str] =
    &["bulk", "linux", "ranges", "c", "recorder", "preload", "regions", "lab"];
const FILE_LINES_MAX: usize = 800;
/// A longer test module moves to its own file.
const INLINE_TEST_LINES_MAX: usize = 150;

fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let own = |value: &serde_json::Value| value.as_str()?.strip_prefix(PREFIX).map(str::to_owned);
    let uses = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|d| d["kind"] != "dev").filter_map(|d| own(&d["name"])).collect()
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.map(|package| (own(&package["name"]).unwrap(), uses(package))).collect()
}

fn drawn(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let (_, rest) = text.split_once(DEPENDENCIES).unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let line = |line: &str| {
        let (name, uses) = line.split_once("->").unwrap();
        (name.trim().to_owned(), uses.split_whitespace().map(str::to_owned).collect())
    };
    block.lines().map(line).collect()
}

#[test]
fn crates_use_exactly_what_architecture_draws() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert_eq!(edges(), drawn(&text), "left: Cargo.toml files, right: ARCHITECTURE.md");
    assert!(edges().values().any(|uses| !uses.is_empty()), "no crate uses another: not recognised");
}

#[test]
fn a_module_with_submodules_stands_beside_its_folder() {
    for path in sources() {
        let inside = path.strip_prefix(root()).unwrap();
        let is_tests = inside.components().any(|part| part.as_os_str() == "tests");
        assert!(is_tests || !path.ends_with("mod.rs"), "{}: name it FOLDER.rs", path.display());
    }
}

fn sources() -> Vec<PathBuf> {
    let all = files_below(&root().join("crates"), "rs");
    assert!(all.len() > 500, "only {} files are seen", all.len());
    all
}

fn code_lines(text: &str) -> usize {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    text.lines().filter(is_code).count()
}

#[test]
fn no_file_is_too_long() {
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
        assert!(
            lines <= INLINE_TEST_LINES_MAX,
            "{name}: {lines} lines of tests in the code's file"
        );
    }
}

#[test]
fn every_file_says_what_it_owns() {
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        let head = text.lines().take(12).any(|line| line.starts_with("//!"));
        let is_tests = path.strip_prefix(root()).unwrap().to_string_lossy().contains("tests");
        assert!(head || is_tests, "{} has no module doc", path.display());
    }
}

/// The test runner hides a passing test's output, so a printed skip would be silent.
#[test]
fn a_test_that_skips_says_so_where_it_is_seen() {
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        let is_held_back = text.split("println!(").skip(1).any(|rest| {
            rest.trim_start().strip_prefix('"').is_some_and(|rest| rest.starts_with("SKIP"))
        });
        assert!(!is_held_back, "{}: use largefolio_testkit::skipped!", path.display());
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

fn nr_unsafe(text: &str) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let in_line = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        code.split(|c| !is_word(c)).filter(|word| *word == "unsafe").count()
    };
    text.lines().map(in_line).sum()
}

#[test]
fn the_list_of_unsafe_code_is_complete() {
    let mut counted = BTreeMap::new();
    for name in UNSAFE_CRATES {
        let folder = root().join("crates").join(name).join("src");
        let paths = sources().into_iter().filter(|path| path.starts_with(&folder));
        let nr: usize = paths.map(|path| nr_unsafe(&fs::read_to_string(path).unwrap())).sum();
        counted.insert((*name).to_owned(), nr);
    }
    let mut listed = BTreeMap::new();
    let text = fs::read_to_string(root().join("docs/design/unsafe.md")).unwrap();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let [name, nr, why] = row.trim_matches('|').split('|').collect::<Vec<_>>()[..] else {
            panic!("not three cells: {row}")
        };
        assert!(why.trim().len() > 9, "without a reason: {row}");
        listed.insert(name.trim().trim_matches('`').to_owned(), nr.trim().parse().unwrap());
    }
    assert_eq!(counted, listed, "left: the source, right: docs/design/unsafe.md");
    assert_eq!(nr_unsafe("unsafe fn a() {} // unsafe\n#![deny(unsafe_code)]\nunsafe { b() }"), 2);
}
