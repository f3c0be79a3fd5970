//! Judges scripts from the command to the answer. Needs root and QEMU; prints a message if it
//! skips.

#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use largefolio_lab::Error;
use largefolio_lab::crosscheck::record::{
    Disk, Facts, Filesystem, PlainOptions, ProgramRecorder, RunPlan,
};
use largefolio_lab::crosscheck::result::{RunOutcome, RunResult, RunRow, ScriptCheck, ScriptRun};
use largefolio_lab::crosscheck::run::generate::{Feature, draw};
use largefolio_lab::crosscheck::run::suite::Suite;

use crate::program::is_refusal;
use crate::turn;

/// The scripts of the gate: each is equal.
const IN_GATE: [&str; 18] = [
    "noop",
    "anon-write",
    "anon-read-write",
    "anon-huge",
    "dontneed-huge",
    "fork-read",
    "fork-write",
    "shared-write",
    "heap-grow",
    "file-read-seq",
    "file-write-shared",
    "file-private-mixed",
    "read-big",
    "write-new",
    "write-truncate",
    "fork-both",
    "cold-huge",
    "hugetlb-memfd",
];

fn judged(runs: &[ScriptRun]) -> Option<Vec<RunRow>> {
    let _turn = turn::alone();
    let facts = Facts::of_host();
    let recorder =
        ProgramRecorder::new(facts.clone(), "sudo cargo test").and_then(|mut recorder| {
            recorder.send_khugepaged_to_sleep()?;
            Ok(recorder)
        });
    let recorder = match recorder {
        Err(error) if is_refusal(&error) => return None,
        recorder => recorder.unwrap(),
    };
    let mut result = RunResult::new(&facts.release, Vec::new());
    let check = ScriptCheck { facts: &facts, keep: None, nr_reduced_max: 0 };
    match check.run(&recorder, runs, &mut result, &mut || ()) {
        Err(Error::Crosscheck(error)) if is_refusal(&error) => None,
        judged => {
            judged.unwrap();
            Some(result.rows)
        }
    }
}

fn run_of(suite: &Suite, name: &str, settings: &str) -> ScriptRun {
    let plan = RunPlan { filesystem: Filesystem::Ext4, window_kb: 128, disk: Disk::Best };
    ScriptRun {
        name: name.to_owned(),
        script: suite.scripts[name].clone(),
        plan,
        settings: settings.parse().unwrap(),
        options: PlainOptions::default(),
        known: suite.known(name, settings, plan.filesystem.name()).map(str::to_owned),
        feature: None,
    }
}

/// The suite names each script that differs. If one becomes equal, its mark must go.
#[test]
fn scripts_differ_exactly_where_the_suite_says() {
    let suite = Suite::built_in().unwrap();
    let is_wanted =
        |name: &&String| largefolio_testkit::is_whole() || IN_GATE.contains(&name.as_str());
    let names = suite.scripts.keys().filter(is_wanted);
    let runs: Vec<ScriptRun> = names.map(|name| run_of(&suite, name, "madvise")).collect();
    let Some(rows) = judged(&runs) else { return };
    assert_eq!(rows.len(), runs.len());
    let wrong: Vec<String> =
        rows.iter().filter(|row| !row.is_expected()).map(|row| format!("{row:#?}")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// At least so many of 100 random scripts are equal, for each feature.
const NR_EQUAL_OF_100: usize = 93;
/// Random scripts for each feature in a run of all tests, and in the gate: each takes a second.
const NR_RANDOM: [u64; 2] = [100, 1];

#[test]
fn random_scripts_are_mostly_equal() {
    let [whole, of_gate] = NR_RANDOM;
    let nr = if largefolio_testkit::is_whole() { whole } else { of_gate };
    let each = Feature::ALL
        .into_iter()
        .flat_map(|feature| (100..100 + nr).map(move |seed| (feature, seed)));
    let mut runs: Vec<ScriptRun> = each.map(|(feature, seed)| random_run(feature, seed)).collect();
    runs.sort_by_key(|run| run.plan.filesystem);
    let Some(rows) = judged(&runs) else { return };
    for feature in Feature::ALL {
        let own = rows.iter().filter(|row| row.feature == Some(feature));
        let (equal, different): (Vec<_>, Vec<_>) =
            own.partition(|row| row.outcome == RunOutcome::Equal);
        let (nr_equal, nr) = (equal.len(), equal.len() + different.len());
        assert!(
            nr_equal * 100 >= nr * NR_EQUAL_OF_100,
            "{feature}: {nr_equal} of {nr} are equal: {different:#?}"
        );
    }
}

fn random_run(feature: Feature, seed: u64) -> ScriptRun {
    let drawn = draw(feature, seed);
    let (filesystem, window_kb, disk) = (drawn.filesystem, drawn.window_kb, Disk::Best);
    ScriptRun {
        name: format!("{feature}-{seed}"),
        script: drawn.script,
        plan: RunPlan { filesystem, window_kb, disk },
        settings: drawn.settings.parse().unwrap(),
        options: PlainOptions { is_warm: drawn.is_warm, ..PlainOptions::default() },
        known: None,
        feature: Some(feature),
    }
}
