//! Invalid study files, and comparisons by hand.

use std::ops::ControlFlow;
use std::path::Path;

use serde_json::json;

use super::metric::Number;
use super::*;

/// A study of the model alone, with a row of each kind.
const SMALL: &str = r#"name = "small"
title = "Small"
source = "docs/behaviour J.2"
setup = "none"

[workloads.stubs]
kind = "ret-stubs"
pages = 64
stub-size = "4K"
order = "sequential"
calls = 10
advice = "none"
seed = 1

[cells.before]
model = { do = "clear", kernel = "6.19", size = "2M" }

[cells.after]
model = { do = "clear", kernel = "7.0", size = "2M" }

[cells.stubs]
workload = "stubs"
kernel = "7.0"
machine = "altra"
cache = "cold"

[cells.recorded]
trace = "no-such"
kernel = "7.0"
machine = "altra"

[benches.slow]
do = "fault"
size = "2M"

[benches.fast]
do = "fault"
size = "2M"
subject = "7.0"

[[tables]]
title = "Table"
before = "before"
after = "after"

[[tables.rows]]
what = "pieces"
published = { before = 512, after = 3 }
count = "units"

[[tables.rows]]
what = "pieces, the other way"
published = { change = 10 }
count = "units"
disagrees = "for the test"

[[tables.rows]]
what = "faults"
count = "faults.total"
before = "stubs"
after = "stubs"

[[tables.rows]]
what = "recorded"
published = { before = 1, after = 2 }
count = "faults.total"
before = "recorded"
after = "recorded"

[[tables.rows]]
what = "quoted"
published = { change = 20 }
unit = "GB/s"
bench = true
before = "slow"
after = "fast"
quoted = { before = 1.0, after = 2.0, from = "a document", cpu = "a processor", kernel = "7.0", n = 3 }

[[tables.rows]]
what = "nothing"
published = { before = 1, after = 2 }
none = "not modelled"
in-kernel = { before = 100, after = 40, unit = "instructions", counted = ["a:off:fault:4", "b:off:fault:4"] }
"#;

fn finding_of(text: &str) -> Finding {
    let study = Study::from_toml(text, "small.toml").unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let studies = [study];
    let nowhere = Path::new("no-such-directory");
    let values =
        run(&studies, Folders { traces: nowhere, scratch: scratch.path() }, &mut |_, _| {
            ControlFlow::Continue(())
        })
        .unwrap();
    Finding::new(&studies[0], &values, &Measurements::new())
}

#[test]
fn each_kind_of_row_is_compared_as_it_can_be() {
    let finding = finding_of(SMALL);
    let rows = &finding.tables[0].rows;
    let close: Vec<_> = rows.iter().map(|row| row.closeness).collect();
    let (same, other) = (Some(Closeness::Close), Some(Closeness::Other));
    assert_eq!(close, [same, other, None, None, Some(Closeness::Direction), None]);
    let pieces = rows[0].ours.unwrap();
    assert_eq!((pieces.before, pieces.after), (Some(512.0), Some(3.0)));
    assert_eq!(rows[0].distance, Some(0.0));
    assert_eq!(rows[2].ours.unwrap().change, Some(0.0));
    assert!(matches!(&rows[3].how, Derivation::None { why } if why.contains("no-such.folio")));
    assert_eq!(rows[4].distance, Some(80.0));
    assert_eq!(rows[5].how, Derivation::None { why: "not modelled".to_owned() });
    assert_eq!(finding.surprises().count(), 0);
}

#[test]
fn what_was_counted_in_a_kernel_is_shown_and_not_scored() {
    let row = finding_of(SMALL).tables[0].rows[5].clone();
    assert_eq!(row.in_kernel.unwrap().change(), Some(-60.0));
    assert_eq!((row.score, row.distance), (None, None));
    let from_zero = SMALL.replace("before = 100, after = 40", "before = 0, after = 40");
    let row = finding_of(&from_zero).tables[0].rows[5].clone();
    assert_eq!(row.in_kernel.unwrap().change(), None);
}

#[test]
fn work_that_shall_stop_does() {
    let study = Study::from_toml(SMALL, "small.toml").unwrap();
    let nowhere = Path::new("no-such-directory");
    let mut nr_left = 2;
    let stopped = run(&[study], Folders { traces: nowhere, scratch: nowhere }, &mut |_, _| {
        nr_left -= 1;
        if nr_left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped, Err(StudyError::Stopped)), "{stopped:?}");
}

/// An interrupt stops the writer and removes the partial trace.
#[test]
fn a_trace_that_is_being_generated_is_given_up() {
    let long = SMALL.replace("calls = 10", "calls = 100000");
    let study = Study::from_toml(&long, "small.toml").unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let folders = Folders { traces: Path::new("no-such-directory"), scratch: scratch.path() };
    let stopped = run(&[study], folders, &mut |name, nr_rows| match (name, nr_rows) {
        ("generated", 1..) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert!(matches!(stopped, Err(StudyError::Stopped)), "{stopped:?}");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_row_that_goes_another_way_than_it_says_is_a_surprise() {
    let surprises = |text: &str| -> Vec<String> {
        finding_of(text).surprises().map(|(_, row)| row.what.clone()).collect()
    };
    let silent = SMALL.replace("disagrees = \"for the test\"\n", "");
    assert_eq!(surprises(&silent), ["pieces, the other way"]);
    let wrong = SMALL.replace("change = 10 }", "change = -10 }");
    assert_eq!(surprises(&wrong), ["pieces, the other way"]);
    let other_way = SMALL.replace("before = 512, after = 3", "before = 3, after = 512");
    assert_eq!(surprises(&other_way), ["pieces"]);
}

#[test]
fn a_measurement_takes_the_place_of_what_is_quoted() {
    let study = Study::from_toml(SMALL, "small.toml").unwrap();
    assert_eq!(study.benches().map(|(at, ..)| at).collect::<Vec<_>>(), [(0, 4)]);
    let measured = |change: [f64; 3]| {
        let (cpu, kernel) = (String::new(), String::new());
        let measured = Measured { before: 1.0, after: 0.5, change, n: 7, cpu, kernel };
        let all = Measurements::from([(("small".to_owned(), 0, 4), measured)]);
        Finding::new(&study, &Values::default(), &all).tables[0].rows[4].clone()
    };
    let close = |change| measured(change).closeness;
    assert_eq!(close([-50.0, -60.0, -40.0]), Some(Closeness::Other));
    assert_eq!(close([22.0, 10.0, 40.0]), Some(Closeness::Close));
    assert_eq!(close([30.0, 10.0, 40.0]), Some(Closeness::Factor));
    assert_eq!(close([80.0, 70.0, 90.0]), Some(Closeness::Direction));
    // Rounds with different signs are no change, whatever their median.
    assert_eq!(close([30.0, -10.0, 40.0]), Some(Closeness::Other));
    assert_eq!(measured([30.0, 10.0, 40.0]).distance, Some(10.0));
}

/// Text to replace, its replacement, the error's line, and a part of the message.
const MUTANTS: [(&str, &str, usize, &str); 35] = [
    ("after = 3 }", "after = 3 }\nbasis = [\"recorded\"]", 49, "expected `proxy` or `other-cpu`"),
    (
        "what = \"faults\"",
        "what = \"faults\"\ninputs-of-series = \"8M\"",
        57,
        "need a published number, but this row has none",
    ),
    ("title = \"Small\"", "titel = \"Small\"", 2, "unknown field `titel`"),
    ("setup = \"none\"", "setup = 3", 4, "expected a string"),
    ("kind = \"ret-stubs\"", "kind = \"stubs\"", 7, "unknown variant `stubs`"),
    ("pages = 64", "pages = 0", 6, "workloads.stubs"),
    ("stub-size = \"4K\"", "stub-size = \"4X\"", 6, "expected bytes, such as \"64K\""),
    ("kernel = \"6.19\", size", "kernel = \"6.91\", size", 16, "did you mean"),
    (
        "do = \"clear\", kernel = \"7.0\"",
        "do = \"wipe\", kernel = \"7.0\"",
        19,
        "unknown variant `wipe`",
    ),
    ("workload = \"stubs\"", "workload = \"stub\"", 22, "there is no workload 'stub'"),
    ("workload = \"stubs\"\n", "", 21, "give exactly one of trace, workload and model, not 0"),
    ("machine = \"altra\"\ncache", "machine = \"alta\"\ncache", 24, "there is no machine 'alta'"),
    ("cache = \"cold\"", "cache = \"tepid\"", 25, "expected \"cold\" or \"warm\""),
    ("trace = \"no-such\"", "trace = \"../secret\"", 28, "expected the name of a trace"),
    ("[benches.slow]\ndo = \"fault\"", "[benches.slow]\ndo = \"faults\"", 33, "unknown variant"),
    ("published = { before = 512", "published = { befor = 512", 48, "unknown field `befor`"),
    ("count = \"units\"\n\n", "count = \"unit\"\n\n", 46, "did you mean units"),
    (
        "count = \"units\"\n\n",
        "count = \"units /\"\n\n",
        46,
        "expected field names in a result's JSON",
    ),
    ("count = \"units\"\n\n", "", 46, "give one of count"),
    (
        "count = \"faults.total\"\nbefore = \"stubs\"",
        "count = \"faults.all\"\nbefore = \"stubs\"",
        57,
        "there is no number 'faults.all'",
    ),
    ("calls = 10", "calls = 1000000000000000", 6, "up to 1000000000000064 rows, but 134217728"),
    (
        "\"clear\", kernel = \"6.19\", size = \"2M\"",
        "\"history\", kernel = \"6.19\", size = \"1G\", way = \"read\", \
         filesystem = \"xfs\", call = \"1\"",
        16,
        "1073741824 calls of 1 bytes for a file of 1073741824; expected at most 1048576 calls",
    ),
    ("before = \"slow\"", "before = \"slower\"", 70, "there is no bench 'slower'"),
    ("none = \"not modelled\"", "none = \"not modelled\"\ndisagrees = \"so\"", 79, "can disagree"),
    ("count = \"units\"\n", "count = \"units\"\nunit = \"ms\"\n", 46, "is a count; omit the unit"),
    (
        "count = \"units\"\n",
        "count = \"largest_unit_bytes\"\nunit = \"s\"\n",
        46,
        "use bytes, kB, KiB, MiB, GiB, MB or GB; if that is the unit of the published number, \
         give ours-unit too",
    ),
    (
        "count = \"units\"\n",
        "count = \"largest_unit_bytes\"\nunit = \"bytes\"\nchange = \"points\"\n",
        46,
        "change = \"points\" is for shares",
    ),
    (
        "before = 512,",
        "before = nan,",
        46,
        "published and quoted numbers must be 0 or from 10^-15 to 10^15",
    ),
    ("before = 512, after = 3", "before = 512, after = inf", 46, "published and quoted numbers"),
    ("{ change = 10 }", "{ change = 1e300 }", 51, "published and quoted numbers"),
    ("quoted = { before = 1.0", "quoted = { before = -inf", 70, "published and quoted numbers"),
    ("before = 100, after = 40", "before = 100, after = nan", 79, "published and quoted numbers"),
    ("counted = [\"a:off:fault:4\", ", "counted = [", 83, "an array of length 2"),
    ("cache = \"cold\"", "filesystem = \"xsf\"", 25, "a filesystem called 'xsf'; known: afs"),
    (
        "\"clear\", kernel = \"6.19\", size = \"2M\"",
        "\"history\", kernel = \"6.19\", size = \"1M\", way = \"read\", filesystem = \"ext5\"",
        16,
        "a filesystem called 'ext5'; did you mean ext4?",
    ),
];

#[test]
fn a_file_that_is_wrong_is_answered_with_line_and_expected_form() {
    let mut wrong = Vec::new();
    for (what, by, line, expected) in MUTANTS {
        let text = SMALL.replacen(what, by, 1);
        assert_ne!(text, SMALL, "{what}");
        let error = Study::from_toml(&text, "small.toml").unwrap_err().to_string();
        let place = format!("small.toml:{line}: ");
        if !error.starts_with(&place) || !error.contains(expected) {
            wrong.push(format!("{what} -> {by}, expected {line}, {expected}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_misspelt_filesystem_of_many_cells_is_named_with_its_line() {
    let body = "title = \"t\"\nmachine = \"altra\"\nfilesystem = \"xsf\"\ncounts = [\
        { what = \"f\", count = \"faults.total\" }, { what = \"r\", count = \"reads.bytes\" }]\n\
        lines = [{ name = \"a\", kernel = \"7.0\" }, { name = \"b\", kernel = \"7.2\" }]\n";
    let (nr_lines, known) = (SMALL.lines().count(), "'xsf'; known: afs");
    for (kind, input) in [
        ("curves", "workload = \"stubs\"\nlimits = [\"100%\"]\n"),
        ("frontiers", "workloads = [\"stubs\"]\n"),
    ] {
        let with = |body: &str| {
            let text = format!("{SMALL}[[{kind}]]\n{body}{input}");
            Study::from_toml(&text, "f").map_err(|error| error.to_string())
        };
        let error = with(body).unwrap_err();
        let place = format!("f:{}: {kind}[0].filesystem: ", nr_lines + 4);
        assert!(error.starts_with(&place) && error.contains(known), "{error}");
        assert!(with(&body.replace("xsf", "none")).is_ok(), "{kind}");
        let unit =
            body.replace("count = \"reads.bytes\"", "count = \"reads.bytes\", unit = \"ms\"");
        let error = with(&unit.replace("xsf", "xfs")).unwrap_err();
        assert!(error.contains("'ms' is not a unit of reads.bytes"), "{error}");
    }
}

#[test]
fn a_share_of_nothing_is_not_known() {
    let row = "count = \"faults.total\"\nbefore = \"stubs\"";
    let of = |count: &str| {
        let text = SMALL.replacen(row, &format!("count = \"{count}\"\nbefore = \"stubs\""), 1);
        assert_ne!(text, SMALL);
        finding_of(&text).tables[0].rows[2].clone()
    };
    let row = of("faults.total / faults.cow");
    let why = "not known: a share of 0 (faults.total / faults.cow)".to_owned();
    assert_eq!((row.ours, row.how), (None, Derivation::None { why }));
    assert_eq!(of("faults.wp_reuse / faults.cow").ours.unwrap().after, Some(0.0));
}

#[test]
fn rows_of_a_built_in_study_are_scored_by_what_they_rest_on() {
    let owners = Study::named("owners").unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let values = run(
        std::slice::from_ref(&owners),
        Folders { traces: Path::new("no-such-directory"), scratch: scratch.path() },
        &mut |_, _| ControlFlow::Continue(()),
    );
    let finding = Finding::new(&owners, &values.unwrap(), &Measurements::new());
    let row = |what: &str| {
        let mut rows = finding.tables.iter().flat_map(|table| &table.rows);
        rows.find(|row| row.what.contains(what)).unwrap().clone()
    };
    let altra = row("altra");
    assert_eq!((altra.closeness, altra.score), (Some(Closeness::Close), Some(Score::Coincidence)));
    let Derivation::Estimated { assumed, .. } = &altra.how else { panic!("{:?}", altra.how) };
    assert!(assumed.contains(&"costs.fault".to_owned()), "{assumed:?}");
    assert_eq!(altra.basis, [Basis::Model, Basis::OtherCpu]);
    // Our row counts pages, the published one is a time that falls by two thirds: only the sign
    // agrees.
    let pages = row("pages copied");
    assert_eq!(
        (pages.closeness, pages.score),
        (Some(Closeness::Factor), Some(Score::OtherQuantity))
    );
    assert!(finding.rests_on.is_some_and(|text| text.contains("10 GB/s")));
}

/// The rates in milan.toml come from series 001.
#[test]
fn a_cost_that_cites_the_study_s_own_section_makes_a_row_that_does_not_count() {
    let of_size = |size: &str, machine: &str, source: &str| {
        let cell = |kernel: &str| {
            let cell = format!("do = \"clear\", kernel = \"{kernel}\", size = ");
            (format!("{cell}\"2M\""), format!("{cell}\"{size}\", machine = \"{machine}\""))
        };
        let (old, new) = (cell("6.19"), cell("7.0"));
        let text = SMALL
            .replace("docs/behaviour J.2", source)
            .replace(&old.0, &old.1)
            .replace(&new.0, &new.1)
            .replacen("count = \"units\"", "count = \"estimate.causes.clear.ns\"", 1);
        finding_of(&text).tables[0].rows[0].clone()
    };
    let on = |machine: &str, source: &str| of_size("2M", machine, source);
    let own = on("milan", "docs/behaviour J.2, the table");
    assert_eq!(own.score, Some(Score::OwnInput));
    // A 2M folio is cleared in pieces below 2M, so the rate for that size is not used.
    assert_eq!(own.inputs_of_series.as_deref(), Some("costs.clear of 4K from the machine file"));
    let both = of_size("32M", "milan", "docs/behaviour J.2, the table");
    assert_eq!(
        both.inputs_of_series.as_deref(),
        Some("costs.clear of 2M, costs.clear of 4K from the machine file")
    );
    assert!(own.basis.contains(&Basis::OwnSeries));
    let alike = format!("docs/behaviour J.2{}", 1);
    for (machine, source) in [("zen4", "docs/behaviour J.2"), ("milan", &alike)] {
        assert_ne!(on(machine, source).score, Some(Score::OwnInput), "{machine}, {source}");
    }
}

#[test]
fn a_file_says_what_a_row_rests_on() {
    let first = "published = { before = 512, after = 3 }\n";
    let with = |line: &str| SMALL.replacen(first, &format!("{first}{line}\n"), 1);
    let row = |line: &str| finding_of(&with(line)).tables[0].rows[0].clone();
    let plain = row("");
    assert_eq!((plain.score, plain.level), (Some(Score::Match), Some(Closeness::Close)));
    assert_eq!(plain.basis, [Basis::Model]);
    let typed = row("inputs-of-series = \"512\"");
    assert_eq!(typed.score, Some(Score::OwnInput));
    assert_eq!(typed.basis, [Basis::Model, Basis::OwnSeries]);
    assert_eq!(row("other-quantity = \"pages\"").score, Some(Score::OtherQuantity));
    let some = SMALL.replacen("{ before = 512, after = 3 }", "{ text = \"some\" }", 1);
    let some = finding_of(&some).tables[0].rows[0].clone();
    assert_eq!((some.closeness, some.level, some.score), (None, None, None));
    let proxy = row("basis = [\"other-cpu\", \"proxy\"]").basis;
    assert_eq!(proxy, [Basis::Model, Basis::Proxy, Basis::OtherCpu]);
    // A table's declaration applies to its rows that have a published number.
    let table = SMALL.replace("title = \"Table\"", "title = \"Table\"\nother-quantity = \"pages\"");
    let rows = &finding_of(&table).tables[0].rows;
    let scores: Vec<_> = rows.iter().map(|row| row.score).collect();
    let other = Some(Score::OtherQuantity);
    assert_eq!(scores, [other, other, None, None, other, None]);
    assert_eq!(rows[2].other_quantity, None);
}

/// Few rounds, or rounds with different signs, can be chance.
#[test]
fn a_measurement_that_is_chance_is_no_surprise() {
    let study = Study::from_toml(SMALL, "small.toml").unwrap();
    let surprises = |change: [f64; 3], n| {
        let (cpu, kernel) = (String::new(), String::new());
        let measured = Measured { before: 1.0, after: 0.5, change, n, cpu, kernel };
        let all = Measurements::from([(("small".to_owned(), 0, 4), measured)]);
        let finding = Finding::new(&study, &Values::default(), &all);
        finding.surprises().filter(|(_, row)| row.what == "quoted").count()
    };
    assert_eq!(surprises([-50.0, -60.0, -40.0], 7), 1);
    assert_eq!(surprises([-50.0, -60.0, -40.0], 1), 0);
    assert_eq!(surprises([-5.0, -60.0, 40.0], 7), 0);
}

#[test]
fn what_is_measured_here_is_not_called_published() {
    let reference = |name| Study::named(name).unwrap().reference;
    assert_eq!([reference("history"), reference("owners")], ["measured", "published"]);
}

#[test]
fn every_built_in_study_says_what_of_the_published_work_it_rests_on() {
    for name in names() {
        assert!(Study::named(name).unwrap().rests_on.is_some(), "{name}");
    }
}

#[test]
fn every_built_in_study_is_one_and_has_the_name_of_its_file() {
    for name in names() {
        let study = Study::named(name).unwrap();
        assert_eq!(study.name, name);
        assert!(study.tables.iter().all(|table| !table.rows.is_empty()), "{name}");
    }
    let error = Study::named("owner").unwrap_err().to_string();
    assert!(error.contains("did you mean owners"), "{error}");
}

/// Damages lines of every built-in study: each is refused with a line of the file, or stays a
/// study.
#[test]
fn a_damaged_study_is_refused_with_a_line() {
    let (mut nr_tried, mut nr_refused) = (0, 0);
    for &(name, text) in builtin::STUDIES.built_in {
        let nr_lines = text.lines().count();
        // Every seventh line, because all of them take minutes.
        for at in (0..nr_lines).step_by(7) {
            let damaged: Vec<String> =
                text.lines()
                    .enumerate()
                    .map(|(nr, line)| {
                        if nr == at {
                            line.replacen(['=', '"', '['], "", 1)
                        } else {
                            line.to_owned()
                        }
                    })
                    .collect();
            nr_tried += 1;
            let Err(error) = Study::from_toml(&damaged.join("\n"), "x.toml") else { continue };
            nr_refused += 1;
            let error = error.to_string();
            let line = error.split(':').nth(1).and_then(|line| line.parse().ok());
            let line: usize = line.unwrap_or_else(|| panic!("{name} line {at}: {error}"));
            assert!((1..=nr_lines + 1).contains(&line), "{name} line {at}: {error}");
        }
    }
    // Losing a character in a comment or a long sentence is harmless.
    assert!(nr_refused * 2 > nr_tried, "{nr_refused} of {nr_tried} refused");
}

#[test]
fn a_metric_is_a_sum_or_a_share_and_what_did_not_occur_counts_nothing() {
    let cell = json!({
        "faults": { "total": 6 },
        "folios": { "file": { "mapped_bytes": 8, "by_size": { "65536": { "aligned_bytes": 2 } } } },
        "estimate": { "total_ns": null, "not_known": ["costs.fault"] },
    });
    let of = |text: &str| Metric::parse(text).unwrap().of(&cell);
    assert_eq!(of("faults.total"), Number::Known(6.0));
    assert_eq!(of("faults.total + folios.file.mapped_bytes"), Number::Known(14.0));
    let share = "folios.file.by_size.64K.aligned_bytes / folios.file.mapped_bytes";
    assert_eq!(of(share), Number::Known(0.25));
    assert_eq!(of("folios.file.by_size.2M.aligned_bytes"), Number::Known(0.0));
    let none = "folios.file.by_size.2M.aligned_bytes";
    let of_none = format!("faults.total / {none}");
    assert_eq!(of(&of_none), Number::NotKnown(format!("a share of 0 ({of_none})")));
    assert_eq!(of(&format!("{none} / {none}")), Number::Known(0.0));
    assert_eq!(of("estimate.total_ns"), Number::NotKnown("costs.fault".to_owned()));
    let unknown = |text: &str| Metric::parse(text).unwrap().unknown_in(&cell);
    assert_eq!(unknown(share), None);
    for wrong in ["folios.file.by_size.64K.aligned", "faults", "fault.total", "folios.file.by_size"]
    {
        assert!(unknown(wrong).is_some(), "{wrong}");
    }
    for wrong in ["", "a..b", "a / b / c", "a b", "a +"] {
        assert!(Metric::parse(wrong).is_err(), "{wrong}");
    }
}
