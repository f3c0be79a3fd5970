//! Checks the book of kernel behaviour, `docs/behaviour`: it contains every rule that code, data or
//! a document names, once, and every page states how its rules are known.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::root;

const SOURCES: &[&str] = &[
    "crates",
    "docs",
    "kernels",
    "machines",
    "studies",
    "tunings",
    "scripts",
    "python",
    "probe",
    "recordings/README.md",
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "schemas",
];
const TEXTS: &[&str] =
    &["rs", "md", "toml", "py", "pyi", "sh", "c", "h", "css", "js", "snap", "ipynb", "svg", "txt"];
const BOOK: &str = "docs/behaviour ";
const GONE: &[&str] = &["BEHAVIOUR.md", "HOST.md", "DESIGN.md"];
/// Begins the kernel functions that a file models.
const HEAD: &str = "Corresponds to: ";
/// Says in a file that the book does not describe its kernel functions.
const NO_RULE: &str = "No rule in the book covers";
/// This file contains the forbidden names.
const SELF: &str = "crates/testkit/tests/house/book.rs";

fn texts(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        let is_text = path.extension().is_some_and(|e| TEXTS.iter().any(|text| e == *text));
        return is_text.then(|| path.to_owned()).into_iter().collect();
    }
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let visible = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    visible.flat_map(|entry| texts(&entry.path())).collect()
}

fn sources() -> Vec<(String, String)> {
    let root = root();
    let paths = SOURCES.iter().flat_map(|source| texts(&root.join(source)));
    let name = |path: &Path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    let paths = paths.filter(|path| name(path) != SELF);
    paths.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
}

fn pages() -> Vec<(String, String)> {
    let of_book = |(name, _): &(String, String)| name.starts_with("docs/behaviour/");
    sources().into_iter().filter(of_book).collect()
}

fn anchors(text: &str) -> Vec<&str> {
    let starts = text.split("<a id=\"").skip(1);
    starts.filter_map(|rest| rest.split_once("\"></a>")).map(|(id, _)| id).collect()
}

fn rules() -> BTreeMap<String, String> {
    let mut rules = BTreeMap::new();
    for (page, text) in pages() {
        for id in anchors(&text) {
            let before = rules.insert(id.to_owned(), page.clone());
            assert_eq!(before, None, "{page}: the anchor {id} is in the book already");
        }
    }
    rules
}

/// Length of the rule number at the start of `text`, such as `B.4.10`; `None` if it has none.
fn rule_len(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    if !matches!(bytes.first(), Some(b'A'..=b'R')) {
        return None;
    }
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut end = 1;
    while bytes.get(end) == Some(&b'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    let is_word = bytes.get(end).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    (end > 1 && !is_word).then_some(end)
}

/// The rule numbers in a line: `A.3.2`, but not `ABA.3`, `x.A.3` or `A.3b`.
fn references(line: &str) -> Vec<&str> {
    let mut files = Vec::new();
    let mut before = ' ';
    for (at, here) in line.char_indices() {
        let is_inside = before.is_alphanumeric() || before == '_' || before == '.';
        let is_range = line[..at].ends_with("..");
        before = here;
        if let Some(len) = rule_len(&line[at..])
            && (!is_inside || is_range)
        {
            files.push(&line[at..at + len]);
        }
    }
    files
}

/// The text after each mention of the book: a rule, or a section letter.
fn named_after(line: &str) -> Vec<&str> {
    let is_number = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let ends = line.match_indices(BOOK).map(|(at, _)| &line[at + BOOK.len()..]);
    ends.map(|rest| rest.split(|c| !is_number(c)).next().unwrap().trim_end_matches('.')).collect()
}

/// The convention cited in the comment of a kernel's value, such as `# 0.4: 128 KiB`.
fn convention(line: &str) -> Option<&str> {
    let comment = line.split_once("# ")?.1;
    let word = comment.split([':', ' ', ';']).next()?;
    word.starts_with("0.").then_some(word)
}

#[test]
fn every_reference_names_a_rule_of_the_book() {
    let rules = rules();
    let mut nr_references = 0;
    let mut files = BTreeSet::new();
    for (name, text) in sources() {
        for (nr, line) in text.lines().enumerate() {
            let convention = convention(line).filter(|_| name.starts_with("kernels/"));
            let named = references(line).into_iter().chain(named_after(line));
            for rule in named.chain(convention) {
                let place = format!("{name}:{}", nr + 1);
                assert!(rules.contains_key(rule), "{place}: docs/behaviour has no rule {rule}");
                nr_references += 1;
                files.insert(name.clone());
            }
        }
    }
    let nr_files = files.len();
    assert!(nr_references > 1000, "{nr_references} references: the test no longer recognises them");
    assert!(nr_files > 150, "{nr_files} files with references: the test no longer reads all");
}

/// Code cites a difference by words of its passage: `docs/differences.md, "last folio"`.
#[test]
fn every_cited_difference_is_on_its_page() {
    const CITATION: &str = "docs/differences.md, \"";
    let page = fs::read_to_string(root().join("docs/differences.md")).unwrap().to_lowercase();
    let mut nr_citations = 0;
    for (name, text) in sources() {
        for words in text.split(CITATION).skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(page.contains(&words.to_lowercase()), "{name}: no difference has \"{words}\"");
            nr_citations += 1;
        }
    }
    assert!(nr_citations > 3, "{nr_citations} citations: the test no longer recognises them");
}

#[test]
fn no_note_is_cited_that_a_reader_does_not_have() {
    for (name, text) in sources() {
        for (nr, line) in text.lines().enumerate() {
            let gone = GONE.iter().find(|gone| line.contains(**gone));
            assert_eq!(gone, None, "{name}:{}: name the rule in docs/behaviour", nr + 1);
        }
    }
}

#[test]
fn a_link_to_a_rule_leads_to_the_rule_it_shows() {
    let rules = rules();
    let mut nr_links = 0;
    let is_page = |name: &str| Path::new(name).extension().is_some_and(|e| e == "md");
    for (name, text) in sources().iter().filter(|(name, _)| is_page(name)) {
        let links = text.split('[').skip(1).filter_map(|rest| rest.split_once("]("));
        for (shown, rest) in links {
            let target = rest.split(')').next().unwrap();
            let Some((path, anchor)) = target.split_once('#') else { continue };
            let Some(page) = rules.get(anchor) else { continue };
            let is_rule = rule_len(shown) == Some(shown.len());
            assert!(!is_rule || shown == anchor, "{name}: [{shown}] leads to {anchor}");
            let file = path.rsplit('/').next().filter(|file| !file.is_empty());
            let file = file.unwrap_or_else(|| name.rsplit('/').next().unwrap());
            assert!(page.ends_with(&format!("/{file}")), "{name}: {anchor} is in {page}");
            nr_links += 1;
        }
    }
    assert!(nr_links > 100, "{nr_links} links: the test no longer recognises them");
}

#[test]
fn a_page_has_one_section_and_says_how_its_rules_are_known() {
    for (page, text) in pages().iter().filter(|(page, _)| !page.ends_with("/index.md")) {
        assert!(text.contains("**How this page is known.**"), "{page}: how are its rules known?");
        let begins = text.lines().take(8).any(|line| line.contains("This page"));
        assert!(begins, "{page}: does not begin with its scope");
        assert!(text.contains("\n|") || text.contains("\n    "), "{page}: no picture, no table");
    }
}

#[test]
fn rule_numbers_are_told_from_other_text() {
    let line =
        "`A.3.2`, (B.4.10): D.1 .. D.3; L.1..L.5. H.6.4 g, E.g. 7.2.A.1 N.x NA.1 C.1_a K.12b";
    let expected = ["A.3.2", "B.4.10", "D.1", "D.3", "L.1", "L.5", "H.6.4"];
    assert_eq!(references(line), expected);
    assert_eq!(references("M.5. I.1-I.4, ä A.1"), ["M.5", "I.1", "I.4", "A.1"]);
    let line =
        "docs/behaviour H; (docs/behaviour 0.4) `docs/behaviour D.2-D.3, E` docs/behaviour J..";
    assert_eq!(named_after(line), ["H", "0.4", "D.2", "J"]);
    assert_eq!(convention("io_bytes = 131072  # 0.4: raised by drivers"), Some("0.4"));
    assert_eq!(convention("ramp = \"inherited\"  # A.5.3"), None);
    assert_eq!(anchors("<a id=\"A.1\"></a>**A.1** <a id=\"x\"></a>"), ["A.1", "x"]);
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn answered(text: &str) -> Vec<String> {
    let head = text.lines().skip_while(|line| !line.starts_with("//!"));
    let head = head.take_while(|line| line.starts_with("//!"));
    let mut lines = head.map(|line| line.trim_start_matches("//!").trim());
    let Some(first) = lines.find(|line| line.starts_with(HEAD)) else {
        return vec![];
    };
    let rest = lines.take_while(|line| !line.is_empty());
    let names = std::iter::once(first).chain(rest).flat_map(quoted);
    names.map(ToOwned::to_owned).collect()
}

/// A reader searches for a kernel function and must come to a file that leads to its rule.
#[test]
fn a_file_that_models_kernel_functions_leads_to_a_rule() {
    let mut functions = BTreeSet::new();
    for (name, text) in sources() {
        let is_model =
            ["crates/mm/src/", "crates/owner-word/src/"].iter().any(|of| name.starts_with(of));
        let modelled = answered(&text);
        let has_line = text.contains("Corresponds to");
        assert_eq!(
            is_model && has_line,
            !modelled.is_empty(),
            "{name}: a head has one line \"{HEAD}\""
        );
        for function in modelled {
            let word = function.strip_prefix("struct ").unwrap_or(&function);
            let is_name = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            assert!(is_name && !word.is_empty(), "{name}: `{function}` is not a kernel's function");
            let leads = text.lines().any(|line| !references(line).is_empty());
            assert!(
                leads || text.contains(NO_RULE),
                "{name} models {function}: name its rule in docs/behaviour, or write \"{NO_RULE} ..\""
            );
            functions.insert(function);
        }
    }
    let nr = functions.len();
    assert!(nr > 250, "{nr} functions: the test no longer recognises them");
}
