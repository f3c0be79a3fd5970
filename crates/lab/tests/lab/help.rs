//! `--help` of every verb.

use crate::support::Place;

const VERBS: &[&str] = &[
    "",
    "study",
    "bench",
    "bench anon",
    "bench anon-cow",
    "bench owners",
    "bench clear",
    "bench exec",
    "bench fault",
    "crosscheck",
    "crosscheck run",
    "crosscheck program",
    "crosscheck cow",
    "crosscheck collapse",
    "crosscheck nodes",
    "crosscheck record",
    "crosscheck replay",
    "crosscheck workloads",
];

#[test]
fn help_of_every_verb() {
    let place = Place::new();
    for verb in VERBS {
        let help = place.done(&format!("{verb} --help"));
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{verb}: too wide");
        let name = format!("help {verb}").trim().replace(' ', "_");
        insta::assert_snapshot!(name, help);
    }
}

#[test]
fn an_error_names_this_program() {
    let message = Place::new().fails("study nothing");
    assert!(message.starts_with("folio-lab: error: there is no study 'nothing'"), "{message}");
}
