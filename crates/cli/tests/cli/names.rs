//! Names of files, programs and mappings that others chose never control the terminal in any verb's
//! output, and never begin a line.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command, Stdio};

use crate::support::{Place, is_able, text};

/// Clears the screen, sets the title (with C0 and C1), reverses the text direction, forges a line.
const HOSTILE: &str = "h\x1b[2J\u{9b}31m\x1b]0;owned\x07\u{202e}\r\nforged";

fn is_harmless(said: &str) -> bool {
    let is_plain = |c: char| matches!(c, '\n' | '\t') || largefolio_trace::shown::is_printable(c);
    said.chars().all(is_plain) && !said.lines().any(|line| line.starts_with("forged"))
}

fn hostile(ending: &str) -> OsString {
    OsString::from(format!("{HOSTILE}{ending}"))
}

/// Runs `words` with the hostile name, and any text after it, in place of `NAME`.
fn said(place: &Place, words: &str) -> (Option<i32>, String) {
    let mut command = place.command("");
    for word in words.split_whitespace() {
        match word.split_once("NAME") {
            Some((before, after)) => command.arg(format!("{before}{HOSTILE}{after}")),
            None => command.arg(word),
        };
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), out + &err)
}

/// Every place on the command line that takes a name from outside.
const COMMANDS: &[&str] = &[
    "align NAME -o copy",
    "align NAMEgone -o copy",
    "align NAME -o NAMEcopy",
    "trace info NAMEgone.folio",
    "trace info NAME",
    "trace info NAME.folio",
    "trace info NAME.folio --json",
    "trace cat NAMEgone.folio",
    "trace cat NAME",
    "trace gen zipf --runs 9 -o NAMEgone/out",
    "trace gen zipf --runs 9 -o NAMEnew.folio",
    "predict NAMEgone.folio",
    "predict NAME",
    "predict NAME.folio --machine zen4 --kernel 6.18",
    "predict NAME.folio --machine zen4 --kernel 6.18 --csv",
    "predict NAME.folio --machine zen4 --kernel 6.18 --json",
    "predict NAME.folio -o NAME.folio",
    "predict mix.folio --machine NAME",
    "predict mix.folio --machine ./NAME.toml",
    "predict mix.folio --machine ./NAMEgone.toml",
    "predict mix.folio --kernel NAME",
    "predict mix.folio --kernel ./NAME.toml",
    "predict mix.folio --kernel ./NAMEgone.toml",
    "predict mix.folio --kernel 6.18+NAME",
    "predict mix.folio --fs NAME",
    "predict mix.folio --annotate NAME=2M",
    "predict mix.folio --linked NAME=2M",
    "predict mix.folio --machine zen4 --kernel 6.18 -o NAMEgone/out",
    "predict mix.folio --machine zen4 --kernel 6.18 --report NAMEgone/out",
    "predict --machine zen4 --kernel 6.18 --sweep NAMEset NAME.folio NAMEgone.folio NAME",
    "predict --machine zen4 --kernel 6.18 --sweep NAMEset2 NAME.folio --json",
    "tune --profile NAMEgone.toml",
    "tune --profile NAME.toml",
    "tune --profile NAME",
    "tune --set NAME=1",
    "tune --set thp.enabled=NAME",
    "tune --root NAMEgone",
    "record -o NAMEgone/out -- true",
    "record -- NAME",
    "record -- ./NAME",
    "record -- ./NAMEgone",
    "run -- NAME",
    "run -- ./NAME",
    "verify --tune NAME=1 -- true",
    "verify --text large -- ./NAME",
    "verify --tune thp.32K=never --trace NAME -- true",
    "calibrate -o NAMEgone/this.toml",
    "calibrate --check --machine NAME",
    "maps --elf NAME",
    "maps --elf NAMEgone --csv",
    "maps --file NAME",
    "maps --file NAMEgone",
    "maps --page-cache NAMEgone",
    "maps --cgroup NAMEgone",
    "warm NAME",
    "warm NAMEgone --csv",
    "man NAME/dir",
    "NAME",
    "predict --NAME",
];

#[test]
fn no_verb_passes_a_hostile_name_on() {
    let place = Place::with_trace();
    fs::copy(place.path("mix.folio"), place.path("x").with_file_name(hostile(".folio"))).unwrap();
    let write = |ending: &str, text: &str| {
        fs::write(place.path("x").with_file_name(hostile(ending)), text).unwrap();
    };
    write(".toml", "name = 1");
    write(".txt", "no recording");
    write("", "no program");
    let mut checked = 0;
    for words in COMMANDS {
        let (code, said) = said(&place, words);
        assert!(code.is_some(), "{words}: died");
        assert!(is_harmless(&said), "{words}: {said:?}");
        checked += usize::from(said.contains("h?[2J"));
    }
    // The names are shown, not omitted.
    assert!(checked > 45, "only {checked} commands show the name");
}

/// A program with a hostile name that runs until it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_running_program_cannot_choose_what_a_terminal_does() {
    let place = Place::new();
    // The kernel's process name is the first 15 bytes of the file name.
    let name = place.path("x").with_file_name(OsStr::from_bytes(b"\x1b[2Jh\nforged\x07"));
    fs::copy("/bin/sleep", &name).unwrap();
    let running = Running(Command::new(&name).arg("1000").spawn().unwrap());
    let pid = running.0.id();
    for words in [
        format!("maps {pid}"),
        format!("maps {pid} --csv"),
        format!("maps {pid} --json"),
        format!("collapse {pid}"),
        format!("collapse {pid} --csv"),
    ] {
        let output = place.run(&words);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(is_harmless(&said), "{words}: {said:?}");
        assert!(output.status.code().is_some_and(|code| code < 2), "{words}: {said}");
        // The name is shown, not omitted; collapse prints the pid.
        assert!(said.contains("[2Jh") || words.starts_with("collapse"), "{words}: {said}");
    }
}

#[test]
fn a_recording_of_a_hostile_program_is_told_on_one_line() {
    let place = Place::new();
    if !is_able(&place.run("record -o probe.folio -- true")) {
        return;
    }
    fs::copy("/bin/true", place.path("x").with_file_name(hostile(""))).unwrap();
    for words in ["record -- ./NAME", "trace info NAME.folio", "trace cat NAME.folio"] {
        let (code, said) = said(&place, words);
        assert_eq!(code, Some(0), "{words}: {said:?}");
        assert!(is_harmless(&said), "{words}: {said:?}");
    }
}

/// A spreadsheet would evaluate formulas.
#[test]
fn no_cell_is_a_formula() {
    let place = Place::new();
    fs::write(place.path("=1+1"), vec![1; 8192]).unwrap();
    let output = place.run("warm =1+1 --csv");
    let table = text(&output.stdout);
    assert!(table.contains("\n'=1+1,"), "{table}");
    let json = text(&place.run("warm =1+1 --json").stdout);
    assert!(json.contains("\"=1+1\""), "{json}");
}

#[test]
fn a_trace_whose_name_is_no_text_is_swept_and_told_from_others() {
    let place = Place::with_trace();
    let names = [&b"a\xff.folio"[..], b"a\xfe.folio"].map(OsStr::from_bytes);
    for (nr, name) in names.iter().enumerate() {
        let words = format!("trace gen zipf --runs {} -o", 500 + nr);
        assert!(place.command(&words).arg(name).status().unwrap().success());
    }
    let mut command = place.command("predict --machine zen4 --kernel 6.18 --sweep set");
    let output = command.args(names).output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("2 cells done, 0 found, 0 failed"), "{said}");
    let manifest = fs::read_to_string(place.path("set/_manifest.json")).unwrap();
    for name in [r"a\\xff.folio", r"a\\xfe.folio"] {
        assert!(manifest.contains(name), "{manifest}");
    }
}
