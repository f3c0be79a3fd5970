//! `folio maps` of ELF files built here with several layouts, and of files that are not ELF.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::{Place, compile, text};

/// A program with about 200 KiB of text, which prints where it and a library are loaded.
const PROGRAM: &str = r#"
#include <stdio.h>
__asm__(".text\n.skip 200000, 0x90\n");
extern int other(void) __attribute__((weak));
int main(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) fputs(line, stdout);
    return other ? other() : 0;
}
"#;
const LIBRARY: &str = r#"
#define TEXT(x) #x
#define SKIPPED(x) TEXT(x)
__asm__(".text\n.skip " SKIPPED(SKIP) ", 0x90\n");
int other(void) { return 0; }
"#;

fn with_sources() -> Place {
    let place = Place::new();
    fs::write(place.path("p.c"), PROGRAM).unwrap();
    fs::write(place.path("l.c"), LIBRARY).unwrap();
    place
}

fn json(place: &Place, args: &str) -> Value {
    serde_json::from_str(&place.done(&format!("maps --json --elf {args}"))).unwrap()
}

fn text_of(view: &Value) -> &Value {
    let segments = view["files"][0]["segments"].as_array().unwrap();
    segments.iter().find(|s| s["flags"].as_str().unwrap().ends_with('x')).unwrap()
}

/// Returns the refusals of 16K, 64K and 2M; empty without a refusal.
fn refusals(view: &Value) -> [String; 3] {
    let sizes = text_of(view)["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 3);
    [0, 1, 2].map(|nr| sizes[nr]["refusal"].as_str().unwrap_or("").to_owned())
}

#[test]
fn layouts_of_the_linker_are_judged() {
    let place = with_sources();
    let rows = [
        ("-pie -Wl,-z,separate-code", ["random_address", "random_address", "too_small"]),
        ("-pie -Wl,-z,max-page-size=65536", ["", "", "too_small"]),
        ("-no-pie -Wl,-z,separate-code", ["", "", "too_small"]),
        ("-static-pie -Wl,-z,max-page-size=16384", ["", "random_address", "too_small"]),
    ];
    for (flags, expected) in rows {
        if !compile(&place, "gcc", &format!("-O0 {flags} p.c -o p")) {
            return;
        }
        let view = json(&place, "p");
        assert_eq!(refusals(&view), expected, "{flags}");
        assert_eq!(view["summary"]["nr_exec_64k"], 1);
        let kind = if flags.starts_with("-no-pie") { "fixed" } else { "program" };
        assert_eq!(view["files"][0]["kind"], kind, "{flags}");
    }
}

#[test]
fn the_named_remedy_removes_the_refusal() {
    let place = with_sources();
    if !compile(&place, "gcc", "-O0 -pie p.c -o p") {
        return;
    }
    let view = json(&place, "p");
    let remedy = text_of(&view)["sizes"][1]["remedy"].as_str().unwrap().to_owned();
    let option = remedy.strip_prefix("re-link with ").unwrap();
    compile(&place, "gcc", &format!("-O0 -pie {option} p.c -o p"));
    assert_eq!(refusals(&json(&place, "p"))[1], "");
    // A 3 MiB library for 2 MiB folios. It requests 64K, so the kernel does not align it to 2 MiB.
    let (skip, aligned) = ("-DSKIP=3000000", "-Wl,-z,max-page-size=65536");
    compile(&place, "gcc", &format!("-shared -fPIC {skip} {aligned} l.c -o l.so"));
    let view = json(&place, "l.so");
    assert_eq!(refusals(&view), ["", "", "random_address"]);
    let remedy = text_of(&view)["sizes"][2]["remedy"].as_str().unwrap().to_owned();
    let option = remedy.strip_prefix("re-link with ").unwrap();
    compile(&place, "gcc", &format!("-shared -fPIC {skip} {option} l.c -o l.so"));
    assert_eq!(refusals(&json(&place, "l.so")), ["", "", ""]);
}

#[test]
fn the_loader_keeps_its_documented_steps() {
    let place = with_sources();
    for align in ["4096", "65536", "2097152"] {
        let aligned = format!("-Wl,-z,max-page-size={align}");
        if !compile(&place, "gcc", &format!("-shared -fPIC -DSKIP=300000 {aligned} l.c -o l.so")) {
            return;
        }
        compile(
            &place,
            "gcc",
            &format!("-pie {aligned} -Wl,--no-as-needed p.c l.so -Wl,-rpath,$ORIGIN -o p"),
        );
        for file in ["p", "l.so"] {
            let step = json(&place, file)["files"][0]["step_bytes"].as_u64().unwrap();
            assert_eq!(step.to_string(), align, "{file}");
            for _ in 0..8 {
                let start = load_address(&place, file);
                assert_eq!(start % step, 0, "{file} at {start:#x}, promised {step:#x}");
            }
        }
    }
}

fn load_address(place: &Place, file: &str) -> u64 {
    let output = Command::new(place.path("p")).output().unwrap();
    let maps = text(&output.stdout);
    let line = maps.lines().find(|line| line.ends_with(&format!("/{file}"))).unwrap();
    u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
}

#[test]
fn other_machines_and_classes_are_read() {
    let place = Place::new();
    fs::write(place.path("p.c"), "int main(void) { return 0; }").unwrap();
    if compile(&place, "aarch64-linux-gnu-gcc", "p.c -o p") {
        let view = json(&place, "p --kernel 7.2+page=64K");
        assert_eq!(
            (&view["files"][0]["machine"], &view["page_bytes"]),
            (&"arm64".into(), &65536.into())
        );
        assert_eq!(view["size_bytes"], serde_json::json!([2 << 20]));
        assert_eq!(view["files"][0]["step_bytes"], 65536);
    }
    // 32-bit, big-endian: a handmade header with one segment.
    fs::write(place.path("big"), big_endian_32()).unwrap();
    let view = json(&place, "big");
    let file = &view["files"][0];
    assert_eq!((&file["machine"], &file["bits"]), (&"powerpc".into(), &32.into()));
    assert_eq!((&file["is_little_endian"], &file["kind"]), (&false.into(), &"shared".into()));
    assert_eq!(file["segments"][0]["vaddr"], 0x1_0000);
    assert!(place.done("maps --elf big").contains("powerpc, 32-bit, big-endian, shared object"));
}

/// A PowerPC shared object with 0x54 bytes of text at 0x10000.
fn big_endian_32() -> Vec<u8> {
    let mut bytes = b"\x7fELF\x01\x02\x01".to_vec();
    bytes.resize(16, 0);
    let half = |bytes: &mut Vec<u8>, value: u16| bytes.extend(value.to_be_bytes());
    half(&mut bytes, 3);
    half(&mut bytes, 20);
    for word in [1_u32, 0, 52, 0, 0] {
        bytes.extend(word.to_be_bytes());
    }
    for value in [52, 32, 1, 0, 0, 0] {
        half(&mut bytes, value);
    }
    for word in [1_u32, 0, 0x1_0000, 0x1_0000, 84, 84, 5, 0x1_0000] {
        bytes.extend(word.to_be_bytes());
    }
    bytes
}

#[test]
fn reports_files_that_are_not_programs() {
    let place = Place::new();
    fs::write(place.path("text"), "hello").unwrap();
    fs::write(place.path("empty"), "").unwrap();
    let mut cut = big_endian_32();
    cut[16 + 2 + 2 + 20 + 12 + 19] = 200;
    fs::write(place.path("cut"), &cut).unwrap();
    fs::write(place.path("stub"), &cut[..40]).unwrap();
    let args = "maps --elf text empty cut stub nothing";
    let stderr = place.fails(args);
    assert!(stderr.contains("text is not an ELF file"), "{stderr}");
    assert!(stderr.contains("empty is not an ELF file"), "{stderr}");
    assert!(
        stderr.contains("cut is a damaged ELF file: LOAD segment 0 ends at byte 200"),
        "{stderr}"
    );
    assert!(stderr.contains("is it truncated?"), "{stderr}");
    assert!(stderr.contains("stub is a damaged ELF file"), "{stderr}");
    assert!(stderr.contains("cannot read nothing: No such file"), "{stderr}");
    let stderr = place.fails("maps");
    assert!(stderr.contains("or programs and shared objects on disk"), "{stderr}");
    assert!(place.fails("maps --elf text --kernel 4.19").contains("there is no kernel '4.19'"));
    let stderr = place.fails("maps --elf text --kernel 7.2+sizes=64K:always");
    assert!(stderr.contains("+sizes sets which folios a kernel uses"), "{stderr}");
    let stderr = place.fails("maps --elf text --top 1");
    assert!(stderr.contains("--elf") && stderr.contains("cannot be used with"), "{stderr}");
    let own = std::env::current_exe().unwrap();
    let none = place.done(&format!("maps --elf {} --kernel 5.14", own.display()));
    assert!(none.contains("large folios on no filesystem"), "{none}");
}

#[test]
fn exits_2_for_a_bad_file_but_shows_the_others() {
    let place = Place::new();
    fs::write(place.path("big"), big_endian_32()).unwrap();
    fs::write(place.path("text"), "hello").unwrap();
    let output = place.run("maps --elf big text --csv");
    assert_eq!(output.status.code(), Some(2));
    let csv = text(&output.stdout);
    assert!(csv.starts_with("path,machine,kind,step_bytes,segment,flags,"), "{csv}");
    assert_eq!(csv.lines().count(), 4, "{csv}");
    assert!(text(&output.stderr).contains("text is not an ELF file"));
    let view = json(&place, ".");
    assert_eq!(
        (&view["summary"]["nr_files"], &view["failed"]),
        (&1.into(), &serde_json::json!([]))
    );
}
