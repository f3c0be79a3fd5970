//! Checks help texts below the options: each line must fit the terminal.

use std::fs;

use super::{files_below, root};

/// Width of help: `max_term_width` in `cli/src/cli.rs`. Longer lines would be wrapped again.
const WIDTH: usize = 100;

fn texts(source: &str) -> Vec<&str> {
    let starts = source.match_indices("_help = \"\\\n").map(|(at, start)| at + start.len());
    let text = |start: usize| {
        let rest = &source[start..];
        let is_end = |(at, _): &(usize, &str)| !rest[..*at].ends_with('\\');
        let end = rest.match_indices('"').find(is_end).map_or(rest.len(), |(at, _)| at);
        &rest[..end]
    };
    starts.map(text).collect()
}

#[test]
fn no_line_of_help_is_broken_twice() {
    let folders =
        ["crates/cli/src/verbs", "crates/lab/src/verbs"].map(|folder| root().join(folder));
    let sources = folders.iter().flat_map(|folder| files_below(folder, "rs")).collect::<Vec<_>>();
    let mut nr_texts = 0;
    for path in &sources {
        let source = fs::read_to_string(path).unwrap();
        for text in texts(&source) {
            nr_texts += 1;
            for line in text.lines() {
                let path = path.display();
                assert!(line.chars().count() <= WIDTH, "{path}: wider than {WIDTH}: {line}");
            }
        }
    }
    assert!(nr_texts > 20, "{nr_texts} texts: the test no longer recognises them");
}

#[test]
fn a_text_ends_with_its_literal() {
    let source = "#[command(after_help = \"\\\nSay \\\"yes\\\"\nor no\")]\nabout = \"x\"";
    assert_eq!(texts(source), ["Say \\\"yes\\\"\nor no"]);
}
