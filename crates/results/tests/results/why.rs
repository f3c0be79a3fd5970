//! Which rule makes the difference: shares that add up, and rules known in advance.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use largefolio_results::Forms as _;
use largefolio_results::predict::verdict::NR_ROWS_MAX;
use largefolio_results::predict::{
    Goal, Options, PredictResult, Settings, TextStyle, TraceInfo, Verdict, text,
};
use largefolio_sim::explain::{
    Effect, Explained, NR_CELLS_MAX, NR_PAIRS_MAX, Why, WhyError, WhyQuestion, check,
};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{ReplayError, ReplayRequest, replay};
use largefolio_testkit::skeleton::between;
use largefolio_trace::OpenTrace;
use largefolio_trace::generate::{Workload, ZipfMix};

use super::support::html;

fn request(kernels: &[&str], machines: &[&str]) -> ReplayRequest {
    let kernels = kernels.iter().map(|name| Kernel::parse(name).unwrap()).collect();
    let machines = machines.iter().map(|name| Machine::named(name).unwrap()).collect();
    ReplayRequest::new(kernels, machines)
}

fn explained(
    path: &Path,
    kernels: [&str; 2],
    machines: &[&str],
    results: &[&str],
) -> PredictResult {
    let request = request(&kernels, machines);
    check(&request).unwrap();
    let specs = request.specs().unwrap();
    let trace = &OpenTrace::open(path).unwrap();
    let (meta, rows) = replay(path, &specs, &mut |_| {}).unwrap();
    let results: Vec<String> = results.iter().map(|name| (*name).to_owned()).collect();
    let (nr_rows, results) = (meta.nr_rows, results.as_slice());
    let question = WhyQuestion { trace, nr_rows, specs: &specs, rows: &rows, results };
    let (mut last, mut end) = (0, 0);
    let mut on_progress = |nr_done, nr_all| {
        assert!(last <= nr_done && nr_done <= nr_all, "{last} {nr_done} {nr_all}");
        (last, end) = (nr_done, nr_all);
        ControlFlow::Continue(())
    };
    let why = Some(question.answer(&mut on_progress).unwrap());
    assert_eq!(last, end, "all rows that were announced were replayed");
    let trace = TraceInfo::new("trace.folio", &meta);
    let options = Options { why, ..Options::default() };
    PredictResult::new(Vec::new(), trace, Settings::new(&request), rows, options)
}

fn answer(report: &PredictResult) -> &Why {
    &report.why.as_ref().unwrap()[0]
}

/// Checks Y1 and Y2, and that explained results differ.
fn check_sums(why: &Why) {
    assert!(why.nr_cells <= 3 * why.switches.len() + NR_PAIRS_MAX, "{} cells", why.nr_cells);
    for result in &why.results {
        let Explained { metric, difference, effects, interactions, together, .. } = result;
        assert_eq!(result.after - result.before, *difference, "{metric}");
        assert_ne!(*difference, 0, "{metric}");
        assert_eq!(effects.iter().map(|one| one.in_order).sum::<i128>(), *difference, "{metric}");
        let alone: i128 = effects.iter().map(|one| one.alone).sum();
        let pairs: i128 = interactions.iter().map(|pair| pair.value).sum();
        assert_eq!(alone + pairs + together, *difference, "{metric}");
        for effect in effects {
            assert!(why.switches[effect.switch].has_effect, "{metric}");
        }
    }
}

#[test]
fn shares_of_recorded_programs_add_up_for_every_result() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let programs = [
        ("cc1", ["6.16", "6.18"], "altra"),
        ("demo", ["7.1", "7.3+page=16K"], "grace-4k"),
        ("perf", ["6.1", "6.12"], "zen4"),
        ("python3", ["7.2", "6.19"], "altra"),
    ];
    let nr_programs = if largefolio_testkit::is_whole() { programs.len() } else { 2 };
    for (trace, kernels, machine) in programs.into_iter().take(nr_programs) {
        let path = traces.join(trace).with_extension("folio");
        let report = explained(&path, kernels, &[machine], &[]);
        let why = answer(&report);
        assert!(why.results.len() > 5, "{trace}: {} results", why.results.len());
        check_sums(why);
        // Every CSV number that differs is a result, and nothing else is. Exceptions:
        // numbers that are changes themselves, and times missing on one side.
        let csv = PredictResult { why: None, ..report.clone() }.csv().unwrap();
        let mut cells: BTreeMap<[String; 3], [Option<i128>; 2]> = BTreeMap::new();
        for row in csv::Reader::from_reader(csv.as_bytes()).records() {
            let row = row.unwrap();
            let (kernel, name) = (&row[0], [6, 7, 9].map(|column| row[column].to_owned()));
            let value = row[8].parse().unwrap();
            cells.entry(name).or_default()[usize::from(kernel == kernels[1])] = Some(value);
        }
        let differing = cells.into_iter().filter_map(|(name, values)| {
            let is_time = name[2] == "ns";
            let [before, after] = values.map(|value| value.or((!is_time).then_some(0)));
            let both = [before?, after?];
            let is_change = name[0].starts_with("run_change_");
            (both[0] != both[1] && !is_change).then_some((name, both))
        });
        let cells: BTreeMap<_, _> = differing.collect();
        let results = why.results.iter().map(|result| {
            let size = result.folio_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
            let name = [result.metric.clone(), size, result.unit.to_string()];
            (name, [result.before, result.after])
        });
        let results: BTreeMap<_, _> = results.collect();
        let of_one: Vec<_> = results.iter().filter(|one| cells.get(one.0) != Some(one.1)).collect();
        let of_other: Vec<_> =
            cells.iter().filter(|one| results.get(one.0) != Some(one.1)).collect();
        assert_eq!((of_one, of_other), (vec![], vec![]), "{trace}: results, cells");
        assert!(why.results.iter().any(|result| result.unit == "ns"), "{trace}: time");
    }
}

fn zipf() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("zipf.folio");
    let mix = ZipfMix { nr_runs: 5_000, filesystem: "xfs".into(), ..ZipfMix::default() };
    mix.write(&path).unwrap();
    (dir, path)
}

#[test]
fn one_known_rule_makes_the_whole_difference() {
    let (_dir, path) = zipf();
    let after = "6.18+fault-around=4K+khugepaged-scan-sleep=100ms+collapse.dirty=written-back";
    let report = explained(&path, ["6.18", after], &["altra"], &["faults_total"]);
    let why = answer(&report);
    check_sums(why);
    assert_eq!((why.switches.len(), why.nr_idle()), (3, 2));
    let (_, faults) = why.shown().next().unwrap();
    let [effect] = faults.effects.as_slice() else { panic!("{faults:?}") };
    assert_eq!(why.switches[effect.switch].name(), "fault_around_bytes");
    assert_eq!(why.switches[effect.switch].origin(), "edit");
    assert!(faults.difference > 0);
    let shares = [effect.alone, effect.left_out, effect.in_order];
    assert_eq!(shares, [faults.difference; 3]);
    assert!(faults.interactions.is_empty() && faults.together == 0);
    let text = text(&report);
    assert!(text.contains("3 rules differ; 2 of them change no result."), "{text}");
    assert!(text.contains("fault_around_bytes (an edit) makes +"), "{text}");
    assert!(!text.contains("scan_sleep_ms"), "{text}");
}

#[test]
fn the_verdict_finds_the_rules_that_the_whole_answer_has() {
    let (_dir, path) = zipf();
    let (kernels, machines) = (["6.1", "7.3+fault-around=4K"], ["altra"]);
    let report = explained(&path, kernels, &machines, &["faults_total"]);
    let why = answer(&report);
    let (_, faults) = why.shown().next().unwrap();
    let specs = request(&kernels, &machines).specs().unwrap();
    let trace = &OpenTrace::open(&path).unwrap();
    let question =
        |nr_rows| WhyQuestion { trace, nr_rows, specs: &specs, rows: &report.rows, results: &[] };
    let mut verdict = Verdict::new(Goal::Faults, &report.rows);
    let (mut last, mut all) = (0, 0);
    let mut on_progress = |nr_done, nr_all| {
        assert!(last <= nr_done && nr_done <= nr_all);
        (last, all) = (nr_done, nr_all);
        ControlFlow::Continue(())
    };
    verdict.search(&question(report.trace.nr_rows), &mut on_progress).unwrap();
    assert!(all > 0 && last == all, "{last} of {all}");
    let causes = verdict.answers[0].causes.clone().unwrap();
    assert!((1..=NR_CELLS_MAX).contains(&causes.nr_cells) && causes.nr_cells < why.nr_cells / 4);
    #[expect(clippy::cast_precision_loss, reason = "a count of a small trace")]
    let percent = |value: i128| 100.0 * value as f64 / faults.before as f64;
    let mut sum = causes.others;
    for cause in &causes.rules {
        let is_it = |effect: &&Effect| why.switches[effect.switch].rules == cause.switch.rules;
        let effect = faults.effects.iter().find(is_it).unwrap();
        assert!((cause.points - percent(effect.in_order)).abs() < 1e-9, "{cause:?} {effect:?}");
        sum += cause.points;
    }
    // Rules that cancel out within a half are not found.
    assert!(!causes.rules.is_empty());
    assert!((sum - percent(faults.difference)).abs() < 1e-9);
    // A trace that is too long is searched only on request.
    let mut verdict = Verdict::new(Goal::Faults, &report.rows);
    verdict.search(&question(NR_ROWS_MAX + 1), &mut |_, _| panic!("replayed")).unwrap();
    assert_eq!(verdict.answers[0].causes, None);
}

#[test]
fn two_rules_that_work_only_together_are_an_interaction() {
    let (_dir, path) = zipf();
    // A size that inherits depends on the setting that it inherits from.
    let before = "6.18+anon-2M=never";
    let after = "6.18+anon-2M=never+anon-64K=inherit+thp=always";
    let report = explained(&path, [before, after], &["altra"], &["faults_anon"]);
    let why = answer(&report);
    check_sums(why);
    let (_, faults) = why.shown().next().unwrap();
    assert!(faults.difference < 0);
    assert!(faults.effects.iter().all(|effect| effect.alone == 0), "{faults:?}");
    assert!(faults.effects.iter().all(|effect| effect.left_out == faults.difference));
    let [pair] = faults.interactions.as_slice() else { panic!("{faults:?}") };
    assert_eq!((pair.value, faults.together), (faults.difference, 0));
    let text = text(&report);
    assert!(text.contains("anon.size_kib.64 with anon.thp"), "{text}");
    let needed = "Without anon.size_kib.64 (an edit), most of the difference disappears";
    assert!(text.contains(needed), "{text}");
}

#[test]
fn each_machine_has_its_own_answer() {
    let (_dir, path) = zipf();
    let report = explained(&path, ["7.2", "7.2+page=64K"], &["altra", "grace-64k"], &[]);
    let [altra, grace] = report.why.as_deref().unwrap() else { panic!("two machines") };
    assert_eq!(altra.switches.len(), 1);
    check_sums(altra);
    assert!(grace.switches.is_empty() && grace.results.is_empty() && grace.nr_cells == 0);
    let text = text(&report);
    assert!(
        text.contains("7.2 -> 7.2+page=64K on altra, 4K -> 64K pages: 1 rule differs"),
        "{text}"
    );
    assert!(text.contains("on grace-64k, 64K pages: the two kernels have the same rules."));
}

#[test]
fn kernels_without_a_difference_are_answered() {
    let (_dir, path) = zipf();
    let report = explained(&path, ["7.1", "7.0+readahead.beyond_end=end-first"], &["altra"], &[]);
    assert!(text(&report).contains("on altra, 4K pages: the two kernels have the same rules"));
    let report = explained(&path, ["7.3", "7.3+collapse.dirty=fails"], &["altra"], &[]);
    assert!(text(&report).contains("1 rule differs, but no result does"), "{}", text(&report));
}

#[test]
fn what_is_not_two_kernels_is_refused() {
    let message = |kernels: &[&str]| check(&request(kernels, &["altra"])).unwrap_err().to_string();
    assert!(message(&["7.2"]).contains("two kernels, but one was given"));
    assert!(message(&["6.1", "6.12", "7.2"]).contains("3 were given"));
    assert!(message(&["7.2", "7.2"]).contains("both are 7.2"));
}

#[test]
fn an_unknown_result_is_refused_and_a_stop_is_obeyed() {
    let (_dir, path) = zipf();
    let request = request(&["6.18", "7.2"], &["altra"]);
    let specs = request.specs().unwrap();
    let (meta, rows) = replay(&path, &specs, &mut |_| {}).unwrap();
    let requested = ["fault_total".to_owned()];
    let question = WhyQuestion {
        trace: &OpenTrace::open(&path).unwrap(),
        nr_rows: meta.nr_rows,
        specs: &specs,
        rows: &rows,
        results: &requested,
    };
    let error = question.answer(&mut |_, _| panic!("nothing is replayed")).unwrap_err().to_string();
    assert!(error.contains("'fault_total'") && error.contains("faults_total"), "{error}");
    let question = WhyQuestion { results: &[], ..question };
    let error = question.answer(&mut |_, _| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(error, WhyError::Replay(ReplayError::Stopped)), "{error}");
}

#[test]
fn the_page_has_a_waterfall_for_each_result_that_is_shown() {
    let (_dir, path) = zipf();
    let report = explained(&path, ["6.16", "7.2"], &["altra"], &["faults_total", "reads_windows"]);
    let why = answer(&report);
    let shown: Vec<usize> = why.shown().map(|(nr, _)| nr).collect();
    assert_eq!(shown.len(), 2, "{:?}", why.results);
    let page = html(&report);
    let section = between(&page, "<section id=\"why\">", "</section>");
    assert_eq!(section[0].matches("waterfall").count(), 2);
    let json = serde_json::to_value(&report).unwrap();
    let marked = between(section[0], "<data value=\"", "\">");
    assert!(marked.len() >= 6, "{marked:?}");
    for number in marked {
        let (value, at) = number.split_once("\" data-at=\"").unwrap();
        let expected = json.pointer(at).unwrap_or_else(|| panic!("nothing at {at}"));
        assert_eq!(value, expected.to_string(), "{at}");
    }
    for nr in shown {
        let at = format!("data-at=\"/why/0/results/{nr}/difference\"");
        assert!(section[0].contains(&at), "{at}");
    }
}

#[test]
fn the_csv_has_every_share() {
    let (_dir, path) = zipf();
    let report = explained(&path, ["6.16", "7.2"], &["altra"], &[]);
    let text = report.csv().unwrap();
    let cells = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = text.lines().skip(1).map(cells).collect();
    for result in &answer(&report).results {
        let size = result.folio_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        let sum = |parts: &[&str]| {
            let of = rows.iter().filter(|row| {
                row[7] == result.metric && row[8] == size && parts.contains(&row[9].as_str())
            });
            of.map(|row| row[12].parse::<i128>().unwrap()).sum::<i128>()
        };
        for parts in [&["difference"][..], &["in_order"], &["alone", "interaction", "together"]] {
            assert_eq!(sum(parts), result.difference, "{} {parts:?}", result.metric);
        }
    }
}

fn text(report: &PredictResult) -> String {
    text::text(report, TextStyle { width: 400, ..TextStyle::default() })
}
