//! Checks the documentation: every page is in the book, and every link and anchor has a target.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{files_below, root};

fn pages(directory: &Path) -> Vec<PathBuf> {
    files_below(directory, "md")
}

fn prose(text: &str) -> Vec<String> {
    let mut is_fenced = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced && !line.starts_with("    ") {
            let parts = line.split('`').enumerate().filter(|(nr, _)| nr % 2 == 0);
            lines.push(parts.map(|(_, part)| part).collect());
        }
    }
    lines
}

fn links(text: &str) -> Vec<String> {
    let of_line = |line: &String| -> Vec<String> {
        let ends = line.match_indices("](").map(|(at, _)| &line[at + 2..]);
        ends.map(|rest| rest.split(')').next().unwrap().to_owned()).collect()
    };
    prose(text).iter().flat_map(of_line).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut nr_by_anchor: BTreeMap<String, usize> = BTreeMap::new();
    let mut is_fenced = false;
    let set = text.split("<a id=\"").skip(1).filter_map(|rest| rest.split_once("\"></a>"));
    let mut anchors: BTreeSet<String> = set.map(|(id, _)| id.to_owned()).collect();
    for line in text.lines() {
        is_fenced ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if is_fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let nr = nr_by_anchor.entry(anchor.clone()).and_modify(|nr| *nr += 1).or_insert(0);
        anchors.insert(if *nr == 0 { anchor } else { format!("{anchor}-{nr}") });
    }
    anchors
}

fn fault(page: &Path, link: &str) -> Option<String> {
    if link.starts_with("https://") || link.starts_with("http://") {
        return None;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(p, a)| (p, Some(a)));
    let target = if path.is_empty() { page.to_owned() } else { page.parent().unwrap().join(path) };
    let Ok(target) = target.canonicalize() else { return Some("no such file".to_owned()) };
    let docs = root().join("docs");
    if page.starts_with(&docs) && !target.starts_with(&docs) {
        return Some("leads out of docs/, which the book cannot follow".to_owned());
    }
    let anchor = anchor?;
    let is_there = anchors(&fs::read_to_string(&target).unwrap()).contains(anchor);
    (!is_there).then(|| format!("{} has no such heading", target.display()))
}

#[test]
fn every_link_and_anchor_leads_somewhere() {
    let top = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
    let top = top.map(|name| root().join(name));
    let mut nr_links = 0;
    for page in pages(&root().join("docs")).into_iter().chain(top) {
        for link in links(&fs::read_to_string(&page).unwrap()) {
            nr_links += 1;
            let fault = fault(&page, &link);
            assert_eq!(fault, None, "{}: ({link})", page.strip_prefix(root()).unwrap().display());
        }
    }
    assert!(nr_links > 100, "{nr_links} links: the test no longer recognises them");
}

#[test]
fn the_book_has_every_page_once() {
    let docs = root().join("docs");
    let summary = docs.join("SUMMARY.md");
    let listed = links(&fs::read_to_string(&summary).unwrap());
    let once: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice in docs/SUMMARY.md");
    let all = pages(&docs);
    let below = |page: &PathBuf| page.strip_prefix(&docs).unwrap().to_str().unwrap().to_owned();
    for page in all.iter().filter(|page| **page != summary).map(below) {
        assert!(once.contains(&page), "{page} is missing in docs/SUMMARY.md");
    }
}

#[test]
fn a_page_begins_with_its_title() {
    for page in pages(&root().join("docs")) {
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.starts_with("# "), "{}: begins with no title", page.display());
    }
}

#[test]
fn links_in_code_are_none_and_headings_make_anchors() {
    let text =
        "# What root adds\n[a](b.md) `[c](d.md)`\n    [e](f.md)\n```\n[g](h.md)\n```\n[i](j#k)";
    assert_eq!(links(text), ["b.md", "j#k"]);
    let headings =
        anchors("# A `b`, c-d?\n## Twice\n## Twice\n#!/bin/sh\n<a id=\"B.4\"></a>**B.4**");
    let expected = ["B.4", "a-b-c-d", "twice", "twice-1"].map(str::to_owned);
    assert_eq!(headings, BTreeSet::from(expected));
    let here = root().join("docs/index.md");
    for (link, expected) in [
        ("guide/maps.md#what-root-adds", None),
        ("nothing.md", Some("no such file")),
        ("guide/maps.md#nothing", Some("no such heading")),
        ("../README.md", Some("leads out")),
    ] {
        let fault = fault(&here, link);
        assert_eq!(fault.is_none(), expected.is_none(), "{link}: {fault:?}");
        assert!(fault.unwrap_or_default().contains(expected.unwrap_or_default()), "{link}");
    }
}
