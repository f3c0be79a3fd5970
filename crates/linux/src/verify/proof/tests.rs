//! Artificial rounds, with a change that is visible, invisible or disturbed.

use std::collections::BTreeMap;

use super::super::metric::Metric;
use super::super::threshold::{Threshold, ThresholdOutcome};
use super::super::verdict::{Judged, VerifyQuestion};
use super::*;
use crate::timed_run::Sample;
use crate::timed_run::memory_sample::MemorySample;

fn run(faults: u64, large_mib: u64) -> LoadRun {
    let small = 256 - large_mib;
    let folios = BTreeMap::from([(4096, small << 20), (2 << 20, large_mib << 20)]);
    LoadRun {
        sample: Sample { nr_minor_faults: faults, ..Sample::default() },
        memory: Some(MemorySample { folios, page_bytes: 4096, ..MemorySample::default() }),
        ..LoadRun::default()
    }
}

fn rounds(pairs: impl IntoIterator<Item = (LoadRun, LoadRun)>) -> Rounds {
    let (plain, changed) = pairs.into_iter().unzip();
    Rounds { plain, changed, ..Rounds::default() }
}

fn nrs(proved: &Proved) -> Vec<usize> {
    proved.dropped.iter().map(|dropped| dropped.nr).collect()
}

#[test]
fn rounds_in_which_both_arms_are_equal_are_dropped() {
    let changed = |at: u64| if at % 4 == 3 { run(6021, 0) } else { run(650, 250) };
    let all = rounds((0..20).map(|at| (run(6021 + at % 3, 0), changed(at))));
    let proved = prove(&all, Trace::Required);
    assert_eq!(nrs(&proved), [4, 8, 12, 16, 20]);
    assert_eq!((proved.rounds.plain.len(), proved.rounds.changed.len()), (15, 15));
    assert_eq!(proved.traces, ["folios", "faults"]);
    assert_eq!(proved.dropped[0].why, "folios differ less than in other rounds");
    // A change that may be invisible drops no round.
    let proved = prove(&all, Trace::Possible);
    assert_eq!((proved.dropped.len(), proved.nr_unlike), (0, 5));
    assert_eq!(proved.traces, ["folios", "faults"]);
}

#[test]
fn faults_and_memory_are_compared_over_all_rounds_and_time_over_those_that_count() {
    // Every third changed run takes twice the memory and twice the faults. The others equal plain
    // ones.
    let of = |at: u64| if at % 3 == 2 { run(12_000, 128) } else { run(6000, 0) };
    let mut all = rounds((0..40).map(|at| (run(6000, 0), of(at))));
    all.plain[0].disturbance = Some("thp.enabled was always".to_owned());
    let metric = Metric::quantity("wall");
    let limit = |text: &str| Threshold::parse(text).unwrap();
    let thresholds = vec![limit("minor faults>+50%"), limit("large folios>+50%")];
    for (trace, nr_counted) in [(Trace::Required, 13), (Trace::Possible, 39)] {
        let (metric, thresholds) = (metric.clone(), thresholds.clone());
        let judged = Judged::of(&all, &VerifyQuestion { metric, margin: 0.01, trace, thresholds });
        let n = |name: &str| judged.compared.iter().find(|one| one.name == name).unwrap().plain.n;
        assert_eq!((n("wall"), n("minor faults"), n("memory")), (nr_counted, 39, 39), "{trace:?}");
        assert_eq!(judged.outcomes[0], ThresholdOutcome::Passed, "{trace:?}");
    }
}

#[test]
fn rounds_with_the_effect_are_kept_where_they_are_few() {
    let of = |nr_equal| {
        let changed = |at: u64| if at < nr_equal { run(6021, 0) } else { run(650, 250) };
        prove(&rounds((0..20).map(|at| (run(6021, 0), changed(at)))), Trace::Required)
    };
    assert_eq!(of(15).rounds.plain.len(), 5);
    // This few can be chance.
    assert_eq!(of(16).rounds.plain.len(), 0);
}

#[test]
fn a_change_that_never_shows_proves_nothing_where_it_must() {
    let all = rounds((0..20).map(|at| (run(6021 + at % 2, 0), run(6021, 0))));
    let proved = prove(&all, Trace::Required);
    assert_eq!(proved.dropped.len(), 20);
    assert!(proved.dropped[0].why.contains("the same folios and faults"));
    let proved = prove(&all, Trace::Possible);
    assert_eq!((proved.dropped.len(), proved.traces.len()), (0, 0));
}

#[test]
fn noise_is_no_trace() {
    // Faults already vary by a fifth in the plain arm.
    let noisy = |at: u64| run(6000 + (at * 7919 % 13) * 100, 0);
    let all = rounds((0..20).map(|at| (noisy(at), noisy(at + 5))));
    assert_eq!(prove(&all, Trace::Required).rounds.plain.len(), 0);
}

#[test]
fn a_delay_that_both_arms_have_at_times_is_no_trace() {
    // A server that starts a process occasionally: most runs are equal, some differ.
    let of = |at: u64| run(if at % 5 == 2 { 7000 } else { 6000 }, 0);
    let all = rounds((0..10).map(|at| (of(at), of(at + 1))));
    let proved = prove(&all, Trace::Possible);
    assert_eq!((proved.dropped.len(), proved.traces.len()), (0, 0));
}

#[test]
fn a_page_more_or_less_of_a_small_program_is_no_trace() {
    let all = rounds((0..20).map(|at| (run(80, 0), run(80 + at % 2 * 31, 0))));
    let proved = prove(&all, Trace::Possible);
    assert_eq!((proved.dropped.len(), proved.traces.len()), (0, 0));
    let all = rounds((0..20).map(|_| (run(80, 0), run(112, 0))));
    assert_eq!(prove(&all, Trace::Possible).traces, ["faults"]);
}

#[test]
fn a_setting_that_somebody_changed_spoils_a_round_whatever_is_seen() {
    let mut all = rounds((0..12).map(|_| (run(6021, 0), run(650, 250))));
    all.plain[4].disturbance = Some("thp.enabled was always".to_owned());
    all.changed[7].disturbance = Some("thp.enabled was never".to_owned());
    for trace in [Trace::Required, Trace::Possible] {
        let proved = prove(&all, trace);
        assert_eq!(nrs(&proved), [5, 8]);
        assert_eq!(proved.dropped[1].why, "thp.enabled was never");
    }
}

#[test]
fn without_looks_faults_are_the_proof() {
    let blind = |run: LoadRun| LoadRun { memory: None, ..run };
    let all = rounds((0..12).map(|_| (blind(run(6021, 0)), blind(run(650, 250)))));
    let proved = prove(&all, Trace::Required);
    assert_eq!((proved.dropped.len(), proved.traces), (0, vec!["faults"]));
    assert_eq!(prove(&Rounds::default(), Trace::Required), Proved::default());
}
