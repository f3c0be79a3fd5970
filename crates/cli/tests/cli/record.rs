//! `folio record`: the verb; the recorder has tests of its own.

use std::fs;

use crate::support::{Place, text};

/// Whether anything can be recorded here; says loudly when not.
fn can_record(place: &Place, test: &str) -> bool {
    let output = place.run("record -o probe.folio -- true");
    let is_able = output.status.code() == Some(0);
    if !is_able {
        eprintln!("SKIPPED {test}: {}", text(&output.stderr));
    }
    is_able
}

#[test]
fn what_cannot_be_recorded_is_an_error() {
    let place = Place::new();
    fs::write(place.path("notes"), "just text\n").unwrap();
    for (words, expected) in [
        ("record", "<CMD>"),
        ("record -- no-such-program", "not found in PATH"),
        ("record -- ./missing", "no such file"),
        ("record -- /tmp", "is a directory"),
        ("record -- ./notes", "not executable"),
        ("record --with perf -- true", "qemu"),
    ] {
        let said = place.fails(words);
        assert!(said.contains(expected), "{words}: {said}");
    }
}

#[test]
fn the_program_keeps_its_output_and_its_exit_code() {
    let place = Place::new();
    if !can_record(&place, "the_program_keeps_its_output_and_its_exit_code") {
        return;
    }
    let mut command = place.command("record -o t.folio -- sh -c");
    let output = command.arg("echo hello; exit 7").output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout), "hello\n");
    let said = text(&output.stderr);
    assert!(said.contains("recorded t.folio") && said.contains("exit 7"), "{said}");
    assert!(place.done("trace info t.folio").contains("exit 7"));
}

#[test]
fn a_recorded_program_can_be_predicted() {
    let place = Place::new();
    if !can_record(&place, "a_recorded_program_can_be_predicted") {
        return;
    }
    let table = place.done("predict probe.folio --kernel 6.12,7.2+page=64K");
    assert!(table.contains("Mapped text by folio size"), "{table}");
    assert!(table.contains("segments were re-placed"), "{table}");
}

#[test]
fn a_quiet_recording_says_nothing() {
    let place = Place::new();
    if !can_record(&place, "a_quiet_recording_says_nothing") {
        return;
    }
    // A program that needs no option of its own to be told from ours.
    let output = place.run("record -q -o q.folio true --help-is-not-ours");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("recorded"), "{}", text(&output.stderr));
}
