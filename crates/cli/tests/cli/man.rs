//! Every verb has a manual page, without formatter warnings and with the right variables.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Place, text};

fn pages(place: &Place) -> Vec<(String, PathBuf)> {
    place.done("man -o man1");
    let entries = fs::read_dir(place.path("man1")).unwrap();
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    entries.map(|entry| entry.unwrap().path()).map(|path| (name(&path), path)).collect()
}

fn verbs(place: &Place, verb: &str) -> Vec<String> {
    let help = place.done(&format!("{verb} --help"));
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter(|line| !line.starts_with("   ")).filter_map(|line| {
        let name = line.split_whitespace().next()?;
        (name != "help").then(|| format!("{verb} {name}").trim().to_owned())
    });
    let names: Vec<String> = names.collect();
    names.iter().flat_map(|name| [vec![name.clone()], verbs(place, name)].concat()).collect()
}

#[test]
fn every_verb_has_a_page() {
    let place = Place::new();
    let made: BTreeSet<String> = pages(&place).into_iter().map(|(name, _)| name).collect();
    let all = verbs(&place, "");
    assert!(all.contains(&"trace gen zipf".to_owned()), "{all:?}");
    let expected = all.iter().map(|verb| format!("folio-{}", verb.replace(' ', "-")));
    let expected: BTreeSet<String> = expected.chain(["folio".to_owned()]).collect();
    assert_eq!(made, expected);
    assert_eq!(place.done("man"), fs::read_to_string(place.path("man1/folio.1")).unwrap());
    let zipf = fs::read_to_string(place.path("man1/folio-trace-gen-zipf.1")).unwrap();
    assert_eq!(place.done("man trace gen zipf"), zipf);
    assert!(place.fails("man nothing").contains("no verb `nothing`"));
}

#[test]
fn every_manual_page_has_its_sections_and_valid_references() {
    let place = Place::new();
    let pages = pages(&place);
    for (name, path) in &pages {
        let page = fs::read_to_string(path).unwrap();
        let sections = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\""];
        let at = sections.map(|section| page.find(&format!("\n.SH {section}\n")));
        assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{name}: {at:?}");
        let (_, see) = page.split_once("\n.SH \"SEE ALSO\"\n").unwrap();
        assert!(!see.trim().is_empty(), "{name}: SEE ALSO is empty");
        for other in see.split(", ").filter(|other| other.starts_with("\\fBfolio")) {
            let other = other.trim_start_matches("\\fB").split("\\fR").next().unwrap();
            let other = other.replace('\\', "");
            assert!(
                pages.iter().any(|(known, _)| *known == other),
                "{name}: {other} is not a page"
            );
        }
    }
    let run = fs::read_to_string(place.path("man1/folio-run.1")).unwrap();
    for section in ["NOTES", "ENVIRONMENT", "FILES", "EXAMPLES"] {
        assert!(run.contains(&format!("\n.SH {section}\n")), "{section}");
    }
    assert!(run.contains("folio run \\-\\- cc1"), "examples look as in the help");
}

#[test]
fn formatters_accept_every_page() {
    let place = Place::new();
    let pages = pages(&place);
    let formatters: [&[&str]; 2] =
        [&["groff", "-t", "-man", "-ww", "-z"], &["mandoc", "-Tlint", "-Wwarning"]];
    for args in formatters {
        let mut nr_read = 0;
        for (name, path) in &pages {
            let mut command = Command::new(args[0]);
            let Ok(output) = command.args(&args[1..]).arg(path).output() else {
                largefolio_testkit::skipped!("no {0}: apt-get install {0}", args[0]);
                break;
            };
            let printed = text(&output.stdout) + &text(&output.stderr);
            assert!(output.status.success() && printed.is_empty(), "{name}: {args:?}: {printed}");
            nr_read += 1;
        }
        assert!(nr_read == 0 || nr_read == pages.len());
    }
}

fn own_variables() -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<PathBuf> = ["cli", "linux", "preload", "recorder"]
        .iter()
        .map(|c| crates.join(c).join("src"))
        .collect();
    let mut variables = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = fs::read_to_string(&path).unwrap();
            let starts = source.match_indices("\"LARGEFOLIO_").map(|(at, _)| &source[at + 1..]);
            let is_name = |letter: char| letter.is_ascii_uppercase() || letter == '_';
            let names = starts.map(|rest| rest.split(|letter| !is_name(letter)).next().unwrap());
            variables.extend(names.filter(|name| !name.contains("TEST")).map(str::to_owned));
        }
    }
    variables
}

#[test]
fn every_variable_of_ours_is_in_the_pages() {
    let place = Place::new();
    let all: String =
        pages(&place).iter().map(|(_, path)| fs::read_to_string(path).unwrap()).collect();
    let variables = own_variables();
    assert!(variables.contains("LARGEFOLIO_PRELOAD"), "{variables:?}");
    for variable in variables {
        assert!(all.contains(&variable), "no page says what {variable} is for");
    }
}
