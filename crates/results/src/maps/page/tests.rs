//! Pages of simulated machines, one of which is too large for a page.

use std::path::Path;

use largefolio_linux::census::Held;
use largefolio_linux::census::folios::{Cell, MemoryKind, Size, Tally};
use largefolio_linux::census::maps::Vma;
use largefolio_linux::census::process::{Mapping, Process};
use largefolio_linux::census::{Census, take};
use largefolio_linux::reasons::{CensusQuestion, Finding, findings};
use largefolio_linux::remedies::verbs::LiveVerbs;
use largefolio_linux::system::MemSystem;

use super::*;

const HOSTILE: &str = "/lib/</script><script>window.harmed=1</script>\u{1b}[31m\u{202e}";

fn system() -> MemSystem {
    let linux = Path::new(env!("CARGO_MANIFEST_DIR")).join("../linux");
    MemSystem::from_dir(linux.join("fixtures/proc/6.18"))
}

fn reading(census: Census, findings: Vec<Finding>) -> Reading {
    let release = "6.18.44".to_owned();
    Reading { release, census: Some(census), findings, ..Reading::default() }
}

fn page(reading: &Reading) -> String {
    let command = ["folio".to_owned(), "maps".to_owned()];
    of_summary(&Summary::of(reading, &command, &system()), title(reading)).unwrap().html()
}

#[test]
fn runs_of_a_strip_are_those_of_the_census() {
    let system = system();
    let census = take(&system, &[100]).unwrap();
    let question = CensusQuestion {
        system: &system,
        limit: &|_| None,
        verbs: &LiveVerbs::default(),
        nr_max: 100,
    };
    let judged = findings(&census, &question);
    let mapped = census.processes[0].tally.sum(|kind, _| kind != MemoryKind::Other);
    let reading = reading(census, judged);
    let command = ["folio".to_owned()];
    let summary = Summary::of(&reading, &command, &system);
    let runs = || summary.strips.iter().flat_map(|strip| &strip.runs);
    let pages: u64 = runs().map(|run| run[1]).sum();
    assert_eq!(pages * 4096, mapped.mapped_bytes());
    let pmd: u64 = runs().filter(|run| run[3] == 0).map(|run| run[1]).sum();
    assert_eq!(pmd * 4096, mapped.pmd_bytes);
    for strip in &summary.strips {
        let ends = strip.runs.windows(2).all(|two| two[0][0] + two[0][1] <= two[1][0]);
        let last = strip.runs.last().map_or(0, |run| run[0] + run[1]);
        assert!(ends && last <= strip.nr_pages, "{}", strip.name);
    }
    let page = page(&reading);
    assert!(page.contains("id=\"places\"") && page.contains("Bytes by reason"));
}

fn large() -> Reading {
    let mut tally = Tally::default();
    for order in 0..10 {
        for kind in MemoryKind::ALL {
            let bytes = 1 << 30;
            let cell = Cell { aligned_bytes: bytes, partial_bytes: bytes, ..Cell::default() };
            tally.add(kind, Size::Order(order), &cell);
        }
    }
    let long = "x".repeat(3000);
    let vma = |nr: u64| Vma {
        range: nr << 32..(nr + 1) << 32,
        permissions: *b"r-xp",
        pos: 0,
        device: (8, 1),
        inode: nr,
        path: format!("{HOSTILE}{nr}{long}").into(),
        is_deleted: false,
    };
    let mapping = |nr| Mapping { vma: vma(nr), tally: tally.clone(), touched: None };
    let mappings: Vec<Mapping> = (1..30).map(mapping).collect();
    let process = |pid| Process {
        pid,
        name: "<b>name".to_owned(),
        mappings: mappings.clone(),
        tally: tally.clone(),
        held: Held::default(),
        nr_bad_lines: 0,
    };
    let small = take(&system(), &[100]).unwrap();
    let processes = (1..30).map(process).collect();
    let census = Census { processes, totals: tally.clone(), ..small };
    reading(census, Vec::new())
}

#[test]
fn pages_are_bounded_and_escape_names() {
    let reading = large();
    let command = ["folio".to_owned()];
    let mut summary = Summary::of(&reading, &command, &system());
    let runs: Vec<[u64; 4]> = (0..2048).map(|nr| [nr << 20, 1 << 19, nr % 10, nr % 5]).collect();
    for nr in 0..24 {
        summary.strips.push(StripData {
            name: format!("{HOSTILE}{nr}"),
            about: String::new(),
            is_file: nr < 12,
            nr_pages: 2048 << 20,
            cell_pages: 1,
            runs: runs.clone(),
        });
    }
    let page = of_summary(&summary, title(&reading)).unwrap().html();
    assert!(page.len() < 3 << 20, "{} bytes", page.len());
    assert!(page.contains("And 5 smaller processes; --json lists all of them."));
    let (body, rest) = page.split_once("<script type=\"application/json\"").unwrap();
    assert!(!body.contains("<script") && !body.contains("<b>name"), "a name became an element");
    assert!(!body.contains(['\u{1b}', '\u{202e}']), "a control character came through");
    assert_eq!(rest.matches("</script>").count(), 2, "a name ended the data");
}
