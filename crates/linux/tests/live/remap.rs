//! Moves text onto shared large folios in real processes.

#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use largefolio_linux::elf::ElfFile;
use largefolio_linux::remap::{How, Refusal};

use crate::stubs::{ALIGNED, Stage, StubReport, parse_report, preload, program, tmpfs};
use crate::support::has;

#[test]
fn text_is_mapped_large_wherever_it_is_loaded_and_the_program_runs_as_before() {
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 64, ALIGNED);
    let plain = parse_report(&Command::new(&stubs).arg("run").output().unwrap());
    assert_eq!((plain.calls, plain.large_kib), (16384, 0));
    for _ in 0..20 {
        let moved = parse_report(&stage.command(&stubs, "run").output().unwrap());
        assert!(moved.large_kib >= 62 << 10, "{moved:?}");
        assert_eq!((moved.calls, moved.next_fd), (plain.calls, plain.next_fd));
    }
    let summary = stage.remap.summary().unwrap();
    let text = &summary.texts["stubs"];
    assert_eq!((summary.nr_texts(How::Made), summary.nr_texts(How::Shared)), (1, 19));
    assert!(text.large_bytes >= 62 << 20 && text.refused.is_empty(), "{text:?}");
    assert_eq!(summary.nr_damaged, 0);
}

/// Starts a program that waits, and returns its first output.
fn start(stage: &Stage, path: &Path) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = stage.command(path, "wait");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    read_report(&mut output);
    (child, output)
}

fn read_report(output: &mut impl BufRead) -> StubReport {
    let lines: Vec<String> = output.lines().take(4).map(Result::unwrap).collect();
    StubReport::read(&lines.join("\n"))
}

#[test]
fn processes_of_one_file_share_one_copy() {
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 16, ALIGNED);
    let (mut one, mut output) = start(&stage, &stubs);
    let (mut two, _waiting) = start(&stage, &stubs);
    one.stdin.take().unwrap().write_all(b"\n").unwrap();
    // The other process still waits: each has half.
    let report = read_report(&mut output);
    assert!(report.large_kib >= 14 << 10 && report.pss_kib <= 10 << 10, "{report:?}");
    one.wait().unwrap();
    two.stdin.take().unwrap().write_all(b"\n").unwrap();
    two.wait().unwrap();
    assert_eq!(stage.copies().len(), 1, "{:?}", stage.copies());
}

#[test]
fn a_crowd_that_starts_at_once_makes_one_copy() {
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 8, ALIGNED);
    let start = |_| stage.command(&stubs, "run").stdout(Stdio::piped()).spawn().unwrap();
    let crowd: Vec<Child> = (0..12).map(start).collect();
    for child in crowd {
        assert_eq!(parse_report(&child.wait_with_output().unwrap()).calls, 2048);
    }
    let summary = stage.remap.summary().unwrap();
    assert_eq!((summary.nr_texts(How::Made), stage.copies().len()), (1, 1), "{summary}");
    // A process that waited too long for the maker ran unchanged.
    let refused = &summary.texts["stubs"].refused;
    assert!(refused.keys().all(|refusal| *refusal == Refusal::Busy), "{summary}");
    assert_eq!(summary.nr_processes, 12);
}

#[test]
fn children_by_fork_and_by_execve_have_large_text() {
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 8, ALIGNED);
    for how in ["fork", "exec"] {
        let report = parse_report(&stage.command(&stubs, how).output().unwrap());
        assert!(report.large_kib >= 6 << 10, "{how}: {report:?}");
    }
}

#[test]
fn a_program_at_random_addresses_gets_a_copy_that_goes_with_it() {
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 8, &["-Wl,-z,max-page-size=4096"]);
    let mut nr_private = 0;
    for _ in 0..3 {
        let report = parse_report(&stage.command(&stubs, "run").output().unwrap());
        assert!(report.large_kib >= 6 << 10, "{report:?}");
        nr_private = stage.remap.summary().unwrap().nr_texts(How::Private);
    }
    // One address in 512 is a multiple of 2 MiB.
    assert!(nr_private >= 1, "no address was off its alignment");
    let text = stage.remap.summary().unwrap().to_string();
    assert!(text.contains("folio align"), "{text}");
}

#[test]
fn a_program_off_its_alignment_at_a_fixed_address_shares_a_shifted_elf_file() {
    let stage = Stage::new();
    let flags = ["-no-pie", "-Wl,-z,max-page-size=4096", "-Wl,-Ttext-segment=0x403000"];
    let stubs = program(stage.folder.path(), 8, &flags);
    for _ in 0..2 {
        let report = parse_report(&stage.command(&stubs, "run").output().unwrap());
        assert!(report.large_kib >= 6 << 10, "{report:?}");
    }
    let summary = stage.remap.summary().unwrap();
    assert_eq!((summary.nr_texts(How::Made), summary.nr_texts(How::Shared)), (1, 1));
    let [copy] = &stage.copies()[..] else { panic!("{:?}", stage.copies()) };
    let copy = stage.remap.store().join(copy);
    let (own, of_copy) = (ElfFile::read(&stubs).unwrap(), ElfFile::read(&copy).unwrap());
    of_copy.check(&copy).unwrap();
    assert_eq!(of_copy.build_id, own.build_id);
    for (own, copied) in own.loads.iter().zip(&of_copy.loads) {
        assert_eq!((copied.vaddr, copied.offset), (own.vaddr, own.offset + 0x3000));
        let is_text = copied.prot & 4 != 0 && copied.file_bytes > 1 << 20;
        assert!(!is_text || copied.vaddr % (2 << 20) == copied.offset % (2 << 20));
    }
    assert_eq!(symbols(&copy), symbols(&stubs));
}

fn symbols(path: &Path) -> String {
    let output = Command::new("nm").arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn real_programs_say_what_they_said_before() {
    let stage = Stage::new();
    let source = stage.folder.path().join("hello.c");
    fs::write(&source, "int main(void) { return 42; }\n").unwrap();
    let cc1 = Command::new("gcc").arg("-print-prog-name=cc1").output().unwrap();
    let cc1 = String::from_utf8(cc1.stdout).unwrap().trim().to_owned();
    let source = source.to_str().unwrap();
    let commands: [&[&str]; 5] = [
        &["ls", "/usr"],
        &["sh", "-c", "echo $((6 * 7)); ls / | sort | tail -1"],
        &["python3", "-c", "import json, sys; print(json.dumps(list(range(5))))"],
        &["node", "-e", "console.log([1, 2, 3].map(x => x * x).join())"],
        &[&cc1, "-quiet", "-O2", source, "-o", "-"],
    ];
    for command in commands {
        let (name, arguments) = command.split_first().unwrap();
        if !has(name, name) {
            continue;
        }
        let plain = Command::new(name).args(arguments).output().unwrap();
        for _ in 0..2 {
            let mut moved = Command::new(name);
            stage.remap.apply(moved.args(arguments));
            assert_eq!(moved.output().unwrap(), plain, "{command:?}");
        }
    }
    assert_eq!(stage.remap.summary().unwrap().nr_damaged, 0);
}

#[test]
fn a_library_has_its_text_moved_like_a_program() {
    let stage = Stage::new();
    let folder = stage.folder.path();
    let text = folder.join("library.c");
    fs::write(&text, "__asm__(\".text\\n.globl far\\nfar:\\n.fill 8388608,1,0xc3\\n\");\n")
        .unwrap();
    let library = folder.join("libstubs_far.so");
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&text).args(ALIGNED);
    assert!(gcc.status().unwrap().success());
    let path = library.to_str().unwrap();
    let rpath = format!("-Wl,--no-as-needed,-rpath,{}", folder.display());
    let stubs = program(folder, 1, &[&rpath, path]);
    parse_report(&stage.command(&stubs, "run").output().unwrap());
    let summary = stage.remap.summary().unwrap();
    let text = &summary.texts["libstubs_far.so"];
    assert!(text.large_bytes >= 6 << 20, "{text:?}");
}

#[test]
fn the_library_needs_libc_alone_and_exports_nothing() {
    let library = preload();
    let read = |tool: &str, flag: &str| {
        let output = Command::new(tool).args([flag]).arg(&library).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let dynamic = read("readelf", "-dW");
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    for line in needed {
        assert!(line.contains("[libc.so.6]") || line.contains("[ld-linux-"), "{line}");
    }
    let exported = read("nm", "-D");
    let exported: Vec<&str> =
        exported.lines().filter(|line| !matches!(line.trim().as_bytes()[0], b'U' | b'w')).collect();
    assert_eq!(exported, [""; 0]);
}

#[test]
fn a_debugger_sees_symbols_and_sets_breakpoints_in_moved_text() {
    if !has("gdb", "gdb") {
        return;
    }
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 8, ALIGNED);
    let (mut child, mut output) = start(&stage, &stubs);
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-batch", "-nx", "-p", &child.id().to_string()]).stdout(Stdio::piped());
    for step in ["bt", "break walk", "continue", "bt", "delete", "detach"] {
        gdb.args(["-ex", step]);
    }
    let mut gdb = gdb.spawn().unwrap();
    let mut lines = BufReader::new(gdb.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut text = String::new();
    for line in lines.by_ref() {
        text.extend([line.as_str(), "\n"]);
        if line.starts_with("Breakpoint 1 at") {
            break;
        }
    }
    // Set before the program reaches it.
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    text.extend(lines.map(|line| line + "\n"));
    gdb.wait().unwrap();
    let (before, after) = text.split_once("Breakpoint 1, ").unwrap_or_else(|| panic!("{text}"));
    assert!(before.contains("main (argc="), "{text}");
    assert!(after.contains("walk (step=") && after.contains("main (argc="), "{text}");
    // The breakpoint's page became private to the process; the other blocks stay.
    assert!(child.wait().unwrap().success());
    let report = read_report(&mut output);
    assert!((4 << 10..8 << 10).contains(&report.large_kib), "{report:?}");
}

/// gdb sets a breakpoint at the entry of the program it starts, so the text differs from the file.
#[test]
fn a_program_started_by_a_debugger_is_left_alone() {
    if !has("gdb", "gdb") {
        return;
    }
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 4, ALIGNED);
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-batch", "-nx", "-iex", "set startup-with-shell off"]);
    for (name, value) in stage.remap.environment() {
        let set = format!("set environment {}={}", name.display(), value.display());
        gdb.args(["-iex", &set]);
    }
    let output = gdb.args(["-ex", "run"]).arg(&stubs).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("0 KiB large") && text.contains("exited normally"), "{text}");
    let summary = stage.remap.summary().unwrap();
    assert_eq!(summary.texts["stubs"].refused[&Refusal::Modified], 1);
}

#[test]
fn perf_finds_symbols_while_the_program_runs_and_after_the_store_was_cleaned() {
    if !has("perf", "linux-perf") {
        return;
    }
    let stage = Stage::new();
    let stubs = program(stage.folder.path(), 8, ALIGNED);
    let data = stage.folder.path().join("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-N", "-B", "-e", "cpu-clock", "-o"]).arg(&data);
    perf.arg(&stubs).arg("spin").stdout(Stdio::null());
    stage.remap.apply(&mut perf);
    assert!(perf.status().unwrap().success());
    let report = || {
        let mut report = Command::new("perf");
        report.args(["report", "--stdio", "-q", "-s", "sym", "-i"]).arg(&data);
        String::from_utf8(report.output().unwrap().stdout).unwrap()
    };
    let named = |text: &str| text.contains("stubs") || text.contains("walk");
    let during = report();
    assert!(named(&during), "{during}");
    let Stage { folder: _folder, remap } = stage;
    drop(remap);
    let after = report();
    assert!(named(&after), "{after}");
}

#[test]
fn text_that_was_modified_is_left_alone() {
    let stage = Stage::new();
    let folder = tmpfs();
    let before = "__asm__(\".text\\n.quad stdout\\n.fill 2097152,1,0x90\\n\");";
    let source = folder.path().join("early.c");
    let text = format!("extern void *stdout;\n{before}\nint main(void) {{ return 0; }}\n");
    fs::write(&source, text).unwrap();
    let early = folder.path().join("early");
    let mut gcc = Command::new("gcc");
    gcc.args(["-w", "-o"]).arg(&early).arg(&source).args([ALIGNED[0], "-Wl,-z,notext"]);
    assert!(gcc.status().unwrap().success());
    let output = stage.command(&early, "").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let summary = stage.remap.summary().unwrap();
    let refused = &summary.texts["early"].refused;
    assert!(refused.contains_key(&Refusal::Modified), "{summary:?}");
}
