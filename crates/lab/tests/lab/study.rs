//! `folio-lab study`: the counted rows, the document, exit codes and errors.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Place, text};

const BEGIN: &str = "<!-- tables: written by crates/lab/tests/lab/study.rs -->\n```text\n";
const END: &str = "```\n<!-- end of tables -->";
/// All studies except `pressure`, which replays hundreds of cells, and `policies`, which has its
/// own page.
const STUDIES: &str = "exec-order exec-order-arm64 fragmentation shared clear exec-readahead exec-headline \
                       file-thp owners sizes history";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn traces() -> String {
    format!("--traces {}", root().join("traces").display())
}

const CURVE: &str = r#"name = "small"
title = "Small"
source = "nothing is published"
setup = "generated"
[workloads.mix]
kind = "zipf"
files = 2
file-size = "1M"
anon-size = "3M"
runs = 3000
run-max = 4
exec-percent = 30
write-percent = 50
anon-percent = 80
seed = 1
[[curves]]
title = "A mix"
workload = "mix"
machine = "altra"
filesystem = "xfs"
limits = ["2%", "50%", "100%", "1000%"]
swap = "64M"
beside = { name = "two lists", edit = "lru=lists" }
lines = [
    { name = "base pages", kernel = "7.2+exec-window=4K" },
    { name = "2M", kernel = "7.2+exec-window=2M+readahead=2M+thp=always" },
]
counts = [{ what = "Major faults", count = "faults.major" }]
"#;

pub(crate) fn small(rest: &str) -> String {
    format!(
        "name = \"mine\"\ntitle = \"Mine\"\nsource = \"a document\"\nsetup = \"none\"\n\
         [cells.a]\nmodel = {{ do = \"clear\", kernel = \"6.19\", size = \"2M\" }}\n\
         [cells.b]\nmodel = {{ do = \"clear\", kernel = \"7.0\", size = \"2M\" }}\n\
         [[tables]]\ntitle = \"Table\"\nbefore = \"a\"\nafter = \"b\"\n\
         [[tables.rows]]\nwhat = \"pieces\"\n{rest}\n"
    )
}

/// Exit 0 means that every row moves in the direction stated in its study, and that only the rows
/// that say so disagree with the published numbers.
#[test]
fn every_row_goes_the_way_it_is_known_to_go_and_the_document_shows_it() {
    largefolio_testkit::only_in_test_all!("replays the studies");
    let place = Place::new();
    let listed = place.done("study --list");
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|n| !["pressure", "policies"].contains(n))
        .collect();
    assert_eq!(names, STUDIES.split_whitespace().collect::<Vec<_>>());
    shows("docs/design/tables/studies.txt", &place.done(&format!("study {STUDIES} {}", traces())));
}

#[test]
fn the_document_shows_where_large_folios_hurt() {
    largefolio_testkit::only_in_test_all!("replays the studies");
    let place = Place::new();
    shows("docs/design/tables/pressure.txt", &place.done(&format!("study pressure {}", traces())));
}

#[test]
fn the_document_shows_what_policies_do() {
    largefolio_testkit::only_in_test_all!("replays the studies");
    let place = Place::new();
    shows("docs/design/tables/policies.txt", &place.done(&format!("study policies {}", traces())));
}

fn shows(document: &str, shown: &str) {
    let path = root().join(document);
    let document = fs::read_to_string(&path).unwrap();
    let begin = document.find(BEGIN).unwrap() + BEGIN.len();
    let end = document.find(END).unwrap();
    if std::env::var_os("LARGEFOLIO_UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{}{shown}{}", &document[..begin], &document[end..])).unwrap();
        return;
    }
    assert!(document[begin..end] == *shown, "LARGEFOLIO_UPDATE_DOCS=1 updates {}", path.display());
}

/// Only a table with such numbers has the column.
#[test]
fn instructions_in_a_kernel_are_a_column_next_to_the_models_numbers() {
    let place = Place::new();
    let counts = "in-kernel = { before = 5000, after = 1500, unit = \"instructions per store\", \
                  counted = [\"one:off:keep_rest:64\", \"two:off:keep_rest:64\"] }";
    fs::write(place.path("small.toml"), small(&format!("count = \"units\"\n{counts}"))).unwrap();
    let shown = place.done("study --file small.toml");
    assert!(shown.contains("in a kernel"), "{shown}");
    assert!(shown.contains("5,000 -> 1,500 (-70.0%) [1]"), "{shown}");
    let note = "[1] in a kernel: instructions per store, one:off:keep_rest:64 -> two:off:keep_rest";
    assert!(shown.contains(note), "{shown}");
    let csv = place.done("study --file small.toml --csv");
    assert!(csv.contains(",5000,1500,-70,instructions per store,"), "{csv}");
    fs::write(place.path("small.toml"), small("count = \"units\"")).unwrap();
    assert!(!place.done("study --file small.toml").contains("in a kernel"));
}

/// A program with 1 MiB of text and a 3 MiB heap below its limits.
#[test]
fn a_program_below_limits_is_drawn_for_each_kernel() {
    let place = Place::new();
    fs::write(place.path("small.toml"), CURVE).unwrap();
    let shown = place.done("study --file small.toml");
    assert!(shown.contains("100% = "), "{shown}");
    assert!(shown.contains("worse than base pages: 2M at "), "{shown}");
    assert!(shown.contains("limit") && shown.contains("(no memory)"), "{shown}");
    let json = place.done("study --file small.toml --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let curve = &json["studies"][0]["curves"][0];
    let peak = curve["peak_bytes"].as_u64().unwrap();
    assert_eq!(curve["limits"][1]["bytes"].as_u64().unwrap(), peak / 2);
    let lines = curve["counts"][0]["lines"].as_array().unwrap();
    // Generations find a page to evict even in 25 pages; two lists do not.
    for series in lines.iter().map(|line| &line["beside"]) {
        assert_eq!(series["ended"]["2"], "out_of_memory");
        assert!(series["values"][0].is_null());
    }
    for series in lines.iter().flat_map(|line| [&line["own"], &line["beside"]]) {
        let (half, whole) = (&series["values"][1], &series["values"][2]);
        assert!(half.as_f64() >= whole.as_f64(), "{series}");
    }
    let csv = place.done("study --file small.toml --csv");
    assert!(csv.contains("\"Major faults, 2M, 50%\"") && csv.contains("no memory"), "{csv}");
    let twice = CURVE.replace("\"50%\"", "\"200%\"");
    fs::write(place.path("small.toml"), twice).unwrap();
    assert!(place.fails("study --file small.toml").contains("ascending shares"));
}

/// Two generated programs under three kernels: gains, costs, and losses.
#[test]
fn kernels_over_many_programs_are_compared_and_drawn() {
    let place = Place::new();
    let (head, _) = CURVE.split_once("[[curves]]").unwrap();
    let other = head[head.find("[workloads.mix]").unwrap()..].replace(".mix]", ".other]");
    let frontier = r#"
[[frontiers]]
title = "Two mixes"
workloads = ["mix", "other"]
machine = "altra"
filesystem = "xfs"
lines = [
    { name = "own", kernel = "7.2" },
    { name = "64K", kernel = "7.2+thp=always+anon-64K=always" },
    { name = "4K", kernel = "7.2+exec-window=4K+readahead=4K" },
]
counts = [
    { what = "Faults", count = "faults.total" },
    { what = "Read", count = "reads.bytes", unit = "KiB" },
]
"#;
    let other = other.replace("seed = 1", "seed = 2");
    fs::write(place.path("two.toml"), format!("{head}{other}{frontier}")).unwrap();
    let shown = place.done("study --file two.toml");
    assert!(shown.contains("on the frontier of faults and read: 64K, 4K\n"), "{shown}");
    assert!(shown.contains("4K loses faults in 2 of 2: "), "{shown}");
    let json = place.done("study --file two.toml --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let frontier_json = &json["studies"][0]["frontiers"][0];
    let percent = |line: usize, count: usize, program: usize| {
        frontier_json["lines"][line]["changes"][count]["percent"][program].as_f64().unwrap()
    };
    for program in 0..2 {
        assert_eq!((percent(0, 0, program), percent(0, 1, program)), (0.0, 0.0));
        assert!(percent(1, 0, program) < -1.0 && percent(1, 1, program).abs() < 1.0);
        assert!(percent(2, 0, program) > 1.0 && percent(2, 1, program) < -1.0);
        let values =
            |line: usize| frontier_json["lines"][line]["changes"][0]["values"][program].as_f64();
        let change = (values(2).unwrap() / values(0).unwrap() - 1.0) * 100.0;
        assert!((change - percent(2, 0, program)).abs() < 1e-9);
    }
    let csv = place.done("study --file two.toml --csv");
    assert!(csv.contains(", Faults, 64K\""), "{csv}");
    // A program that runs out of memory under one line is that line's loss, and no mean includes
    // it.
    let large = other.replace("\"3M\"", "\"8M\"");
    let small = frontier.replace("\"xfs\"", "\"xfs\"\nmemory = \"3M\"");
    fs::write(place.path("two.toml"), format!("{head}{large}{small}")).unwrap();
    let shown = place.done("study --file two.toml");
    assert!(shown.contains("no memory under 64K"), "{shown}");
    assert!(shown.contains("64K loses faults in 2 of 2"), "{shown}");
    // No mean includes a missing program, and no winner is named.
    let absent = frontier.replace("workloads = [\"mix\", \"other\"]", "traces = [\"nothing\"]");
    fs::write(place.path("two.toml"), format!("{head}{absent}")).unwrap();
    let shown = place.done("study --file two.toml --traces .");
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        shown.contains("not included in the means:")
            && shown.contains("nothing: no trace ./nothing.folio"),
        "{shown}"
    );
    assert!(
        shown.contains("no program has all of these numbers") && !shown.contains("loses"),
        "{shown}"
    );
    let alone = frontier.replace("workloads = [\"mix\", \"other\"]", "traces = []");
    fs::write(place.path("two.toml"), format!("{head}{alone}")).unwrap();
    assert!(place.fails("study --file two.toml").contains("1 to 64 traces and workloads"));
}

/// Counts are exact: any model change that affects one shows here.
#[test]
fn counted_rows_are_what_they_were() {
    largefolio_testkit::only_in_test_all!("replays the studies");
    let place = Place::new();
    let json = place.done(&format!("study {STUDIES} --json {}", traces()));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema_version"], 3);
    let mut lines = Vec::new();
    for study in json["studies"].as_array().unwrap() {
        for table in study["tables"].as_array().unwrap() {
            for row in table["rows"].as_array().unwrap() {
                if row["how"]["kind"] == "counted" {
                    let (what, ours) = (row["what"].as_str().unwrap(), &row["ours"]);
                    let (before, after) = (&ours["before"], &ours["after"]);
                    let of = row["how"]["of"].as_str().unwrap();
                    lines.push(format!("{} | {what} | {of} | {before} | {after}", study["study"]));
                }
            }
        }
    }
    assert!(lines.len() > 150, "{} counted rows", lines.len());
    insta::assert_snapshot!("study_counted", lines.join("\n"));
}

#[test]
fn a_study_of_ones_own_is_compared_and_its_exit_is_the_answer() {
    let place = Place::new();
    let agrees = "published = { before = 512, after = 3 }\ncount = \"units\"";
    fs::write(place.path("mine.toml"), small(agrees)).unwrap();
    let shown = place.done("study --file mine.toml");
    assert!(
        shown.contains("512 -> 3 (-99.4%)  512 -> 3 (-99.4%)  0pp       within 10%"),
        "{shown}"
    );
    let csv = place.done("study --file mine.toml --csv");
    assert!(csv.contains("\nmine,Table,pieces,512,3,-99.4"), "{csv}");
    fs::write(place.path("mine.toml"), small("published = { change = 3 }\ncount = \"units\""))
        .unwrap();
    let output = place.run("study --file mine.toml");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("pieces: should agree, but does not"), "{output:?}");
}

#[test]
fn what_is_wrong_is_an_error_with_its_line() {
    let place = Place::new();
    fs::write(place.path("mine.toml"), small("count = \"unit\"")).unwrap();
    let message = place.fails("study --file mine.toml");
    assert!(
        message.contains("mine.toml:13: ") && message.contains("did you mean units"),
        "{message}"
    );
    assert!(place.fails("study owner").contains("did you mean owners?"));
    assert!(place.fails("study --file none.toml").contains("none.toml"));
    assert!(place.fails("study --rounds 3").contains("--live"));
    assert!(place.fails("study --list --json").contains("cannot be used with"));
}

/// A file from version 1.0.
#[test]
fn an_earlier_study_is_read() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/1.0/study.toml");
    let message = Place::new().done(&format!("study --file {file}"));
    assert!(message.contains("Text of libraries on 4K and on 2M folios (series 003)"), "{message}");
}

#[test]
fn a_trace_that_is_missing_leaves_rows_empty_and_names_the_remedy() {
    let place = Place::new();
    let output = place.run("study sizes --traces nowhere");
    assert_eq!(output.status.code(), Some(2), "no row has a number");
    assert!(text(&output.stderr).contains("`make traces` records them"), "{output:?}");
    assert!(text(&output.stdout).contains("no trace nowhere/cc1.folio"), "{output:?}");
}

#[test]
fn the_list_has_every_study_with_its_source() {
    let list = Place::new().done("study --list");
    for name in [
        "exec-order",
        "clear",
        "exec-readahead",
        "exec-headline",
        "file-thp",
        "owners",
        "sizes",
        "history",
    ] {
        assert!(list.lines().any(|line| line.starts_with(name)), "{name}: {list}");
    }
    assert!(list.contains("[docs/behaviour J.5]"), "{list}");
}

#[test]
fn both_sides_of_a_row_are_measured_on_this_kernel() {
    if !rustix::process::geteuid().is_root() {
        largefolio_testkit::skipped!("study --live: settings of folio sizes are root's");
        return;
    }
    let output = Place::new().run("study owners --live --rounds 1");
    let (result, message) = (text(&output.stdout), text(&output.stderr));
    // A single round may go either way, so the exit status stays 0.
    assert_eq!(output.status.code(), Some(0), "{message}");
    let row =
        result.lines().find(|line| line.contains("stores that copy against stores that keep"));
    assert!(row.is_some_and(|row| row.contains("measured, other CPU, n = 1")), "{row:?}");
}
