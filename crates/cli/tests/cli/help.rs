//! `--help` of every verb, `--list` and `--version`.

use crate::support::Place;

pub(crate) const VERBS: &[&str] = &[
    "",
    "record",
    "predict",
    "trace",
    "trace info",
    "trace cat",
    "trace gen",
    "trace gen ret-stubs",
    "trace gen sequential",
    "trace gen random",
    "trace gen zipf",
    "trace gen library",
    "maps",
    "advise",
    "tune",
    "verify",
    "run",
    "warm",
    "align",
    "collapse",
    "calibrate",
    "schema",
    "completions",
    "man",
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
fn no_verb_is_an_error_with_help_on_stderr() {
    let stderr = Place::new().fails("");
    assert!(stderr.contains("Usage: folio"), "{stderr}");
}

#[test]
fn the_version_has_what_a_bug_report_needs() {
    let place = Place::new();
    let stdout = place.done("--version --verbose");
    assert!(
        stdout.starts_with(concat!("folio ", env!("CARGO_PKG_VERSION"), "\ntarget ")),
        "{stdout}"
    );
    for fact in [
        "commit ",
        "built by rustc ",
        "kernels 5.14 to 7.3",
        "recorder plugin /",
        "schemas advise 1, ",
    ] {
        assert!(stdout.contains(&format!("\n{fact}")), "{fact} is missing in\n{stdout}");
    }
    assert_eq!(stdout, place.done("--verbose --version"), "no time in it");
    for args in ["-V", "--version"] {
        assert_eq!(place.done(args), concat!("folio ", env!("CARGO_PKG_VERSION"), "\n"));
    }
    let alone = place.fails("--verbose predict --list");
    assert!(alone.contains("add --version"), "{alone}");
    let lost = place
        .command("--version --verbose")
        .env("LARGEFOLIO_PRELOAD", "/none.so")
        .output()
        .unwrap();
    let lost = String::from_utf8(lost.stdout).unwrap();
    assert!(lost.contains("\npreload library none: LARGEFOLIO_PRELOAD=/none.so"), "{lost}");
}

#[test]
fn the_list_has_kernels_edits_machines_and_filesystems() {
    let list = Place::new().done("predict --list");
    for expected in ["  7.2 ", "  +page=..", "  altra ", "ext4"] {
        assert!(list.contains(expected), "{expected} is missing in\n{list}");
    }
}
