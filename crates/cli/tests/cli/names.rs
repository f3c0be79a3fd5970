//! Names of files, programs and mappings that others chose never control the terminal in any verb's
//! output, and never begin a line.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command, Stdio};

use crate::support::{Place, copy_program, is_able, text};

/// Clears the screen, sets the title (with C0 and C1), reverses the text direction, forges a line.
const HOSTILE: &str = "h\x1b[2J\u{9b}31m\x1b]0;owned\x07\u{202e}\r\nforged";

fn is_harmless(text: &str) -> bool {
    let is_plain = |c: char| matches!(c, '\n' | '\t') || largefolio_trace::shown::is_printable(c);
    text.chars().all(is_plain) && !text.lines().any(|line| line.starts_with("forged"))
}

fn hostile(ending: &str) -> OsString {
    OsString::from(format!("{HOSTILE}{ending}"))
}

/// Runs `args` with the hostile name, and any text after it, in place of `NAME`.
fn output_of(place: &Place, args: &str) -> (Option<i32>, String) {
    let mut command = place.command("");
    for arg in args.split_whitespace() {
        match arg.split_once("NAME") {
            Some((before, after)) => command.arg(format!("{before}{HOSTILE}{after}")),
            None => command.arg(arg),
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
    for args in COMMANDS {
        let (code, printed) = output_of(&place, args);
        assert!(code.is_some(), "{args}: died");
        assert!(is_harmless(&printed), "{args}: {printed:?}");
        checked += usize::from(printed.contains("h?[2J"));
    }
    // The names are shown, not omitted.
    assert!(checked > 45, "only {checked} commands show the name");
}

/// A program with a hostile name that runs until it is dropped.
struct RunningProgram(Child);

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn program_names_do_not_control_the_terminal() {
    let place = Place::new();
    // The kernel's process name is the first 15 bytes of the file name.
    let name = place.path("x").with_file_name(OsStr::from_bytes(b"\x1b[2Jh\nforged\x07"));
    copy_program("/bin/sleep", &name);
    let running = RunningProgram(Command::new(&name).arg("1000").spawn().unwrap());
    let pid = running.0.id();
    for args in [
        format!("maps {pid}"),
        format!("maps {pid} --csv"),
        format!("maps {pid} --json"),
        format!("collapse {pid}"),
        format!("collapse {pid} --csv"),
    ] {
        let output = place.run(&args);
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(is_harmless(&printed), "{args}: {printed:?}");
        assert!(output.status.code().is_some_and(|code| code < 2), "{args}: {printed}");
        // The name is shown, not omitted; collapse prints the pid.
        assert!(printed.contains("[2Jh") || args.starts_with("collapse"), "{args}: {printed}");
    }
}

#[test]
fn a_recording_of_a_hostile_name_prints_one_line() {
    let place = Place::new();
    if !is_able(&place.run("record -o probe.folio -- true")) {
        return;
    }
    copy_program("/bin/true", place.path("x").with_file_name(hostile("")));
    for args in ["record -- ./NAME", "trace info NAME.folio", "trace cat NAME.folio"] {
        let (code, printed) = output_of(&place, args);
        assert_eq!(code, Some(0), "{args}: {printed:?}");
        assert!(is_harmless(&printed), "{args}: {printed:?}");
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
fn sweeps_traces_with_non_utf8_names() {
    let place = Place::with_trace();
    let names = [&b"a\xff.folio"[..], b"a\xfe.folio"].map(OsStr::from_bytes);
    for (nr, name) in names.iter().enumerate() {
        let args = format!("trace gen zipf --runs {} -o", 500 + nr);
        assert!(place.command(&args).arg(name).status().unwrap().success());
    }
    let mut command = place.command("predict --machine zen4 --kernel 6.18 --sweep set");
    let output = command.args(names).output().unwrap();
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(printed.contains("2 cells done, 0 found, 0 failed"), "{printed}");
    let manifest = fs::read_to_string(place.path("set/_manifest.json")).unwrap();
    for name in [r"a\\xff.folio", r"a\\xfe.folio"] {
        assert!(manifest.contains(name), "{manifest}");
    }
}
