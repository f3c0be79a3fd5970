//! `folio predict`.

use serde_json::Value;

use crate::support::{Place, text};

const CELLS: &str = "--kernel 6.12,7.2+page=64K --machine altra,grace-64k";

/// Every column is complete or named. Without a terminal, progress is printed in lines.
#[test]
fn long_work_reports_progress_and_keeps_finished_columns() {
    let place = Place::new();
    place.done("trace gen zipf --files 2 --file-size 8M --anon-size 8M --runs 300000 -o mix.folio");
    let args = "predict mix.folio --kernel 6.1,6.12,6.18,7.2 --machine altra --json";
    let run = |more: &str, every_ms: &str| {
        let mut command = place.command(&format!("{args} {more}"));
        let output = command.env("LARGEFOLIO_PROGRESS_MS", every_ms).output().unwrap();
        (output.status.code(), text(&output.stderr), output.stdout)
    };
    let (code, stderr, _) = run("", "1");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("folio: replaying: about ") && stderr.contains(" in all"), "{stderr}");
    assert!(
        stderr
            .lines()
            .any(|line| line.starts_with("folio: replaying: ") && line.contains("% after"))
    );
    let (code, stderr, all) = run("", "600000");
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "short work is done in silence");
    let all: Value = serde_json::from_slice(&all).unwrap();
    // On any machine, finished columns are the same as without --within, and the others are named.
    for within in ["1s", "10m"] {
        let (code, stderr, some) = run(&format!("--within {within}"), "600000");
        if code == Some(2) {
            assert!(
                stderr.contains("--within ended the replay before the first columns"),
                "{stderr}"
            );
            continue;
        }
        let some: Value = serde_json::from_slice(&some).unwrap();
        let rows = some["rows"].as_array().unwrap();
        let nr_absent = some["not_replayed"].as_array().map_or(0, Vec::len);
        assert_eq!(rows.len() + nr_absent, 4);
        for (row, whole) in rows.iter().zip(all["rows"].as_array().unwrap()) {
            assert_eq!((&row["kernel"], &row["faults"]), (&whole["kernel"], &whole["faults"]));
        }
    }
}

/// A limit that is too small is the answer for its column; the other columns are still compared.
#[test]
fn too_little_memory_is_a_result_and_no_error() {
    let place = Place::with_trace();
    let json = |args: &str, code: i32| {
        let output = place.run(&format!("predict mix.folio --json {args}"));
        assert_eq!(output.status.code(), Some(code), "{args}: {}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let some = json("--machine grace-4k,grace-64k --kernel 6.12,7.2 --cgroup 2M", 0);
    let names = |all: &Value| -> Vec<String> {
        all.as_array().unwrap().iter().map(|one| one["machine"].as_str().unwrap().into()).collect()
    };
    assert_eq!(names(&some["rows"]), ["grace-4k", "grace-4k"]);
    assert_eq!(names(&some["unfit"]), ["grace-64k", "grace-64k"]);
    let shown =
        place.done("predict mix.folio --machine grace-64k,grace-4k --kernel 6.12 --cgroup 2M");
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("does not fit in memory with grace-64k, 64K pages"), "{shown}");
    assert!(shown.contains("(--cgroup 2M)"), "{shown}");
    let csv = "predict mix.folio --machine grace-64k,grace-4k --kernel 6.12 --cgroup 2M --csv";
    assert!(text(&place.run(csv).stderr).contains("does not fit in memory with grace-64k"));
    let none = json("--machine grace-64k --kernel 6.12 --cgroup 256K", 1);
    assert!(none["rows"].as_array().unwrap().is_empty() && none["unfit"].is_array());
    let output = place.run("predict mix.folio --machine grace-64k --kernel 6.12 --cgroup 256K");
    let shown = text(&output.stdout);
    assert!(shown.contains("does not fit") && shown.contains("nothing to compare"), "{shown}");
}

/// Bytes are the same everywhere, so `--goal memory` has one answer for all machines.
#[test]
fn memory_is_compared_across_machines_and_an_edit_does_not_explain_itself() {
    let place = Place::with_trace();
    let args = "predict mix.folio --kernel 6.12 --machine grace-4k,grace-64k";
    let shown = place.done(&format!("{args} --goal memory"));
    assert!(shown.contains("\ngrace-4k, 4K pages is best for memory"), "{shown}");
    assert!(
        !shown.contains("columns with the same") && !shown.contains("What makes the difference"),
        "{shown}"
    );
    let shown = place.done(&format!("{args} --goal faults"));
    assert!(shown.contains("On grace-4k: ") && shown.contains("On grace-64k: "), "{shown}");
    let edited = "predict mix.folio --kernel 6.12,6.12+page=64K --machine altra --goal memory";
    let shown = place.done(edited);
    assert!(shown.contains("is best for memory"), "{shown}");
    assert!(!shown.contains("What makes the difference"), "{shown}");
}

#[test]
fn cells_come_in_the_order_kernels_machines_seeds() {
    let place = Place::with_trace();
    let result = json(
        &place,
        "--kernel 6.18,6.12,6.18 --machine grace-64k,altra,altra --seed 2,1,2 --fragmentation 500",
    );
    let cells: Vec<_> = result["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| format!("{} {} {}", row["kernel"], row["machine"], row["seed"]))
        .collect();
    let expected = [
        "\"6.18\" \"grace-64k\" 2",
        "\"6.18\" \"grace-64k\" 1",
        "\"6.18\" \"altra\" 2",
        "\"6.18\" \"altra\" 1",
        "\"6.12\" \"grace-64k\" 2",
        "\"6.12\" \"grace-64k\" 1",
        "\"6.12\" \"altra\" 2",
        "\"6.12\" \"altra\" 1",
    ];
    assert_eq!(cells, expected);
}

#[test]
fn the_same_command_gives_the_same_bytes() {
    let place = Place::with_trace();
    let args = format!("predict mix.folio {CELLS} --fragmentation 500 --seed 3 --json");
    assert_eq!(place.done(&args), place.done(&args));
}

#[test]
fn a_result_can_go_to_a_file() {
    let place = Place::with_trace();
    let printed = place.done("predict mix.folio --csv");
    assert_eq!(place.done("predict mix.folio --csv -o out.csv"), "");
    assert_eq!(std::fs::read_to_string(place.path("out.csv")).unwrap(), printed);
}

#[test]
fn a_newer_kernel_gets_the_newest_rules_and_a_note() {
    const NOTE: &str =
        "Linux 8.0 is newer than the kernels this version knows; using the rules of 7.3";
    let place = Place::with_trace();
    let output = place
        .run("predict mix.folio --kernel 7.3+page=64K,8.0+page=64K,6.12 --machine altra --json");
    assert_eq!(text(&output.stderr), format!("folio: warning: {NOTE}\n"));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["settings"]["rules_notes"], serde_json::json!([NOTE]));
    let kernels: Vec<_> =
        result["rows"].as_array().unwrap().iter().map(|row| row["kernel"].clone()).collect();
    assert_eq!(kernels, ["7.3+page=64K", "6.12"]);
    let stderr = place.fails("predict mix.folio --kernel 6.81");
    assert!(stderr.contains("there is no kernel '6.81'"), "{stderr}");
}

#[test]
fn unverified_kernels_are_marked_everywhere() {
    const NOTE: &str = "no recording checks the rules of 6.6";
    const SHOWN: &str = "not checked: no recording of a real kernel checks the rules of \
                         6.6: ";
    let place = Place::with_trace();
    let args = "predict mix.folio --kernel 6.6+page=64K,6.12 --machine altra";
    let output = place.run(&format!("{args} --json"));
    assert!(text(&output.stderr).starts_with(&format!("folio: warning: {NOTE}: ")));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result["settings"]["rules_notes"][0].as_str().unwrap().starts_with(NOTE));
    assert_eq!(
        [&result["rows"][0], &result["rows"][1]].map(|row| row["is_judged"] == true),
        [false, true]
    );
    let csv = place.done(&format!("{args} --csv"));
    for line in csv.lines().skip(1) {
        let expected = if line.starts_with("6.6+page=64K,") { "false" } else { "true" };
        assert_eq!(line.rsplit(',').nth(2), Some(expected), "{line}");
    }
    let shown = place.done(args).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(SHOWN), "{shown}");
    place.done(&format!("{args} --report mix.html"));
    assert!(std::fs::read_to_string(place.path("mix.html")).unwrap().contains(SHOWN));
    let why = place.done("predict mix.folio --kernel 6.6,6.12 --why --csv");
    assert!(why.lines().count() > 1 && why.lines().skip(1).all(|line| line.ends_with(",false,")));
    for line in place.done("predict --list").lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let is_one = ["5.14", "5.15", "6.6", "6.8"].contains(&name);
        assert_eq!(line.contains("not checked"), is_one, "{line}");
    }
}

#[test]
fn json_names_schema_tool_command_trace_and_settings() {
    let place = Place::with_trace();
    let result = json(&place, "--kernel 6.12 --memory 1G --fs xfs --fragmentation 10");
    assert_eq!(result["schema_version"], 2);
    assert_eq!(result["tool_version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(result["command_line"][0], "folio");
    assert_eq!(result["command_line"][2], "mix.folio");
    assert_eq!(result["trace"]["path"], "mix.folio");
    assert_eq!(result["trace"]["nr_rows"], 20_004);
    assert_eq!(result["settings"]["memory_bytes"], 1 << 30);
    assert_eq!(result["settings"]["unusable_permille"], 10);
    assert_eq!(result["settings"]["filesystem"], "xfs");
    assert_eq!(result["rows"][0]["cache"], "cold");
}

#[test]
fn a_warm_cache_reads_nothing() {
    let place = Place::with_trace();
    let result = json(&place, "--kernel 6.12 --warm");
    assert_eq!(result["rows"][0]["cache"], "warm");
    assert_eq!(result["rows"][0]["reads"]["bytes"], 0);
    assert!(place.done("predict mix.folio --warm").contains("warm page cache"));
}

#[test]
fn time_is_estimated_for_machines_whose_costs_are_known() {
    let place = Place::with_trace();
    let result = json(&place, "--kernel 6.12 --machine cascadelake,milan");
    let [known, unknown] = [0, 1].map(|row| &result["rows"][row]["estimate"]);
    // The total is the sum of the causes, and each cause is the sum of its terms.
    let causes = known["causes"].as_object().unwrap();
    let sum: u64 = causes.values().map(|cause| cause["ns"].as_u64().unwrap()).sum();
    assert_eq!(known["total_ns"].as_u64(), Some(sum));
    for cause in causes.values() {
        let terms = cause["terms"].as_array().unwrap().iter();
        let sum: u64 = terms.map(|term| term["ns"].as_u64().unwrap()).sum();
        assert_eq!(cause["ns"].as_u64(), Some(sum));
    }
    assert_eq!(known["walks"], "native");
    assert_eq!(known["difference_ns"], 0);
    assert!(unknown["total_ns"].is_null() && unknown["difference_ns"].is_null());
    assert!(unknown["not_known"].as_array().unwrap().contains(&Value::from("costs.fault")));

    let args = "predict mix.folio --kernel 6.12 --machine cascadelake,milan";
    assert!(!place.done(args).contains("Estimated time"));
    let table = place.done(&format!("{args} --time"));
    for text in ["Estimated time", "cascadelake, assumed: ", "milan, not known: ", "not known"] {
        assert!(table.contains(text), "{text}: {table}");
    }
}

#[test]
fn a_virtual_machine_walks_two_page_tables() {
    let place = Place::with_trace();
    let estimates = |args: &str| {
        let row = json(&place, &format!("--kernel 6.12 --machine cascadelake {args}"));
        let row = &row["rows"][0];
        let kinds = row["tlb"]["walk_kinds"].clone();
        (row["estimate"]["causes"]["walk"]["ns"].as_u64().unwrap(), kinds)
    };
    let ((native, lines), (nested, same)) = (estimates(""), estimates("--nested"));
    assert_eq!(lines, same, "counts do not depend on the options");
    assert!(native < nested);
    assert!(place.done("predict mix.folio --kernel 6.12 --time --nested").contains("nested walks"));
}

#[test]
fn a_filesystem_without_large_folios_has_base_pages_only() {
    let place = Place::with_trace();
    let result = json(&place, "--kernel 7.2 --fs none");
    let sizes = result["rows"][0]["cached_bytes"].as_object().unwrap();
    assert_eq!(sizes.keys().collect::<Vec<_>>(), ["4096"]);
}

#[test]
fn seeds_without_fragmentation_draw_a_warning() {
    let place = Place::with_trace();
    let output = place.run("predict mix.folio --machine altra --seed 1,2 --csv");
    assert!(text(&output.stderr).contains("--fragmentation"), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        place.done("predict mix.folio --machine altra --seed 1,1 --csv")
    );
    let output =
        place.run("predict mix.folio --machine altra --seed 1,2 --csv --fragmentation 500");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn csv_has_the_numbers_of_the_json() {
    let place = Place::with_trace();
    let result = json(&place, CELLS);
    let csv = place.done(&format!("predict mix.folio {CELLS} --csv"));
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let (mut nr_numbers, mut nr_times) = (0, 0);
    for record in reader.records() {
        let record = record.unwrap();
        let row = cell(&result, &record[0], &record[1]);
        if let Some(end) = record[6].strip_prefix("run_") {
            let (pointer, scale) = match end.strip_prefix("change_") {
                Some(end) => (format!("/estimate/run_change/{end}"), 1e4),
                None => (format!("/estimate/run/ns/{end}"), 1.0),
            };
            let expected = row.pointer(&pointer).and_then(Value::as_f64).unwrap() * scale;
            assert!((record[8].parse::<f64>().unwrap() - expected).abs() < 0.5, "{pointer}");
            nr_times += 1;
            continue;
        }
        let pointer = pointer_of(&record[6], &record[7]);
        let expected = row.pointer(&pointer).unwrap_or_else(|| panic!("no {pointer}"));
        assert_eq!(record[8], expected.to_string(), "{pointer}");
        assert_eq!(record[2], row["page_bytes"].to_string());
        assert_eq!(record[5], row["memory_bytes"].to_string());
        nr_numbers += 1;
    }
    // Every integer of the rows except page_bytes, seed, memory_bytes, swap_bytes, nr_cpus and
    // estimate.run.runs.
    let nr_expected: usize =
        result["rows"].as_array().unwrap().iter().map(|row| nr_integers(row) - 6).sum();
    assert_eq!(nr_numbers, nr_expected);
    assert!(nr_times > 0, "no run times");
}

fn pointer_of(metric: &str, folio_bytes: &str) -> String {
    let (head, rest) = metric.split_once('_').unwrap_or((metric, ""));
    match (head, rest) {
        ("text" | "data" | "shmem" | "anon", "aligned" | "unaligned") => {
            format!("/folios/{head}/by_size/{folio_bytes}/{rest}_bytes")
        }
        ("text" | "data" | "shmem" | "anon", _) => format!("/folios/{head}/{rest}_bytes"),
        ("sizes", _) => format!("/anon_sizes/{folio_bytes}/{rest}"),
        ("asked", _) => format!("/asked/{folio_bytes}/{rest}"),
        ("unusable", _) => format!("/unusable_at_start/{folio_bytes}"),
        ("pressure", _) => format!("/pressure/{rest}"),
        ("memory", _) if rest.starts_with("stat_") => {
            format!("/memory_stat/{}", &rest["stat_".len()..])
        }
        ("statistics", _) => {
            let prefix = ["machine_exact", "machine", "total_exact", "total"];
            let prefix = prefix.iter().find(|prefix| rest.starts_with(*prefix)).unwrap();
            let name = &rest[prefix.len() + 1..];
            let unit = if name == "mapmax" { "" } else { "_bytes" };
            format!("/statistics/{prefix}/{name}{unit}")
        }
        ("page", "table_bytes") => "/page_table_bytes".to_owned(),
        ("cached", _) => format!("/cached_bytes/{folio_bytes}"),
        ("reads", "") => "/reads/bytes".to_owned(),
        ("reads", "used") => "/reads/used_bytes".to_owned(),
        ("tlb", _) => match rest.split_once('_') {
            Some((side @ ("instruction" | "data"), what)) => format!("/tlb/{side}/{what}"),
            Some(("walk", what)) if what.starts_with("kinds_") => {
                let (kind, what) = what["kinds_".len()..].split_once('_').unwrap();
                let what = what.replace("lines_", "lines/");
                format!("/tlb/walk_kinds/{kind}/{what}")
            }
            _ => format!("/tlb/{rest}"),
        },
        ("cleared", _) => format!("/cleared_bytes/{folio_bytes}"),
        ("copied", "in_one_go") => format!("/copied_bytes/{folio_bytes}"),
        ("latency", "max" | "p99") => format!("/latency/{rest}_bytes"),
        ("latency", "max_time" | "p99_time") => {
            format!("/latency/{}_ns", rest.trim_end_matches("_time"))
        }
        ("latency", "size_stretches") => format!("/latency/sizes/{folio_bytes}/stretches"),
        ("latency", "size_max") => format!("/latency/sizes/{folio_bytes}/max_bytes"),
        ("time", "total" | "known") => format!("/estimate/{rest}_ns"),
        ("time", cause) => format!("/estimate/causes/{cause}/ns"),
        ("pmd", _) => format!("/pmd_refused/{}", rest.trim_start_matches("refused_")),
        ("zeroed" | "copied", _) => format!("/{head}_pages"),
        _ => format!("/{head}/{rest}"),
    }
}

fn nr_integers(value: &Value) -> usize {
    match value {
        Value::Number(number) => usize::from(number.is_u64()),
        Value::Array(values) => values.iter().map(nr_integers).sum(),
        // The terms and differences of an estimate repeat other values; requests over time are only
        // in the JSON.
        Value::Object(values) => values
            .iter()
            .filter(|(key, _)| {
                !matches!(
                    key.as_str(),
                    "terms" | "difference_ns" | "asked_tenths" | "aged" | "processes"
                )
            })
            .map(|(_, value)| nr_integers(value))
            .sum(),
        _ => 0,
    }
}

fn json(place: &Place, args: &str) -> Value {
    serde_json::from_str(&place.done(&format!("predict mix.folio {args} --json"))).unwrap()
}

fn cell<'a>(result: &'a Value, kernel: &str, machine: &str) -> &'a Value {
    let mut rows = result["rows"].as_array().unwrap().iter();
    rows.find(|row| row["kernel"] == kernel && row["machine"] == machine).unwrap()
}

#[test]
fn loaders_can_annotate_files() {
    let place = Place::with_trace();
    let info = place.done("trace info mix.folio --json");
    let info: Value = serde_json::from_str(&info).unwrap();
    let path = info["meta"]["files"][0]["path"].as_str().unwrap().to_owned();
    let plain = json(&place, "--kernel 6.12 --fs xfs");
    let annotated = json(&place, &format!("--kernel 6.12 --fs xfs --annotate {path}=64K"));
    assert_eq!(annotated["settings"]["annotations"][0], format!("{path}=64K"));
    let cached = |result: &Value| result["rows"][0]["cached_bytes"]["65536"].as_u64().unwrap_or(0);
    assert!(cached(&annotated) > cached(&plain), "{} {}", cached(&annotated), cached(&plain));
    let stderr = place.fails("predict mix.folio --annotate nothing=64K");
    assert!(stderr.contains("--annotate nothing=64K: no file in the trace matches"), "{stderr}");
    let args = format!("predict mix.folio --machine grace-64k --annotate {path}=16K");
    assert!(place.fails(&args).contains("16K is smaller than the base page size, 64K"));
    assert!(place.fails("predict mix.folio --annotate x").contains("'x' is not FILE=SIZE"));
}

#[test]
fn images_are_laid_out_in_a_column_per_page_size() {
    let place = Place::with_trace();
    place.done("trace gen library --calls 20000 -o library.folio");
    let stdout = place.done("predict library.folio --kernel 7.2 --linked 4K,2M");
    assert!(stdout.contains("linked for 4K |") && stdout.contains("linked for 2M"), "{stdout}");
    assert!(stdout.contains("A trace does not contain ELF headers"), "{stdout}");
    let stdout = place.done("predict library.folio --kernel 7.2 --linked 2M --json");
    let result: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(result["rows"][0]["linked"], serde_json::json!(["2M"]));
    for (args, cause) in [
        ("--linked 3K", "'3K' is not a page size to link for"),
        ("--linked 4M", "cannot link for 4M"),
        ("--linked libc=2M", "no program or library of that name; known: [library], [program]"),
        ("--linked 4K --machine grace-64k", "grace-64k has base pages of 64K"),
    ] {
        let stderr = place.fails(&format!("predict library.folio {args}"));
        assert!(stderr.contains(cause), "{stderr}");
    }
    place.done("predict library.folio --kernel 7.2 --linked 4K,2M --sweep set");
    let stdout = place.done("predict library.folio --kernel 7.2 --linked 2M,64K --sweep set");
    assert!(stdout.contains("1 cell done, 1 found"), "{stdout}");
}

#[test]
fn a_control_is_held_against_the_machines_base_page() {
    let place = Place::with_trace();
    let stderr = place.fails("predict mix.folio --kernel 7.2+sizes=16K:exec --machine grace-64k");
    assert!(
        stderr.contains("7.2+sizes=16K:exec: 16K is smaller than the base page size, 64K"),
        "{stderr}"
    );
    // Commas separate kernels, slashes separate sizes; the plus in always+exec does not begin an
    // edit.
    let kernels =
        "--kernel 7.2,7.2+sizes=64K:always+exec/2M:always+readahead=1M,7.1+sizes.xfs=64K:exec";
    let rows = json(&place, kernels)["rows"].as_array().unwrap().len();
    assert_eq!(rows, 3);
    let list = place.done("predict --list");
    for expected in ["+sizes=..", "+sizes.FS=..", "+start-order=..", "+around-credit=.."] {
        assert!(list.contains(expected), "{expected} is missing in\n{list}");
    }
}

#[test]
fn why_names_the_deciding_rule() {
    let place = Place::with_trace();
    let args = "predict mix.folio --kernel 6.12,6.12+fault-around=4K+clear=merged --fs xfs --why";
    let stdout = place.done(args);
    assert!(stdout.contains("2 rules differ"), "{stdout}");
    assert!(stdout.contains("fault_around_bytes (an edit) makes +"), "{stdout}");
    let sentence = stdout.find("\n- faults +").unwrap();
    assert!(sentence < stdout.find("in order").unwrap(), "the sentence comes before the table");
    let only = place.done(&format!("{args}=reads_windows,faults_around"));
    assert!(only.contains("faults_around -100.0%") && !only.contains("- faults +"), "{only}");
    assert_eq!(place.done(args), stdout, "the same command gives the same bytes");

    let result = json(&place, "--kernel 6.12,6.12+fault-around=4K --why");
    let why = &result["why"][0];
    assert_eq!(why["switches"][0]["rules"][0]["rule"], "fault_around_bytes");
    assert_eq!(why["switches"][0]["rules"][0]["to"], "4096");
    let results = why["results"].as_array().unwrap();
    let faults = results.iter().find(|result| result["metric"] == "faults_total").unwrap();
    assert_eq!(faults["effects"][0]["in_order"], faults["difference"]);
    assert!(json(&place, "--kernel 6.12,7.2").get("why").is_none());

    place.done("predict mix.folio --kernel 6.12,7.2 --why --report why.html -o why.txt");
    let page = std::fs::read_to_string(place.path("why.html")).unwrap();
    assert!(page.contains("<section id=\"why\">"));
}

#[test]
fn why_needs_two_kernels_and_a_supported_form() {
    let place = Place::with_trace();
    let fails = |args: &str| place.fails(&format!("predict mix.folio {args}"));
    assert!(fails("--why").contains("--why compares two kernels, but 3 were given"));
    assert!(fails("--why --kernel 7.2").contains("but one was given; name exactly two"));
    assert!(fails("--why --kernel 7.2,7.2").contains("both are 7.2"));
    assert!(fails("--why=fault_total --kernel 6.12,7.2").contains("did you mean faults_total"));
    for other in ["--parquet -o x.parquet", "--sweep cells", "--time", "--runtime 2s"] {
        let stderr = fails(&format!("--why --kernel 6.12,7.2 {other}"));
        assert!(stderr.contains("cannot be used with"), "{stderr}");
    }
    let same =
        place.done("predict mix.folio --kernel 7.1,7.0+readahead.beyond_end=end-first --why");
    assert!(same.contains("the two kernels have the same"), "{same}");
    let page = place.done("predict mix.folio --kernel 7.2,7.2+page=16K --machine altra --why");
    assert!(page.contains("4K -> 16K pages: 1 rule differs"), "{page}");
    assert!(page.contains("page (an edit)"), "{page}");
}
