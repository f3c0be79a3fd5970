//! `folio run --regions`: which mappings of real programs have advice.

use std::fs;
use std::process::{Command, Output};

use crate::support::{self, Place, text};

/// Prints the size in KiB, the advice and the name of each mapping that has advice.
const ADVISED: &str = r"
import re
line = None
for each in open('/proc/self/smaps'):
    if re.match('[0-9a-f]+-[0-9a-f]+ ', each):
        line = each.split()
        start, end = (int(number, 16) for number in line[0].split('-'))
    flags = each.split() if each.startswith('VmFlags') else []
    for advice in {'hg', 'nh'} & set(flags):
        print(advice, (end - start) >> 10, *line[5:])
";

fn has_library() -> bool {
    let folio = assert_cmd::cargo::cargo_bin!("folio");
    let exists = folio.with_file_name("liblargefolio_regions.so").exists();
    if !exists {
        largefolio_testkit::skipped!("no library: cargo build -p largefolio-regions");
    }
    exists
}

struct Advised {
    is_huge: bool,
    kib: u64,
    name: String,
}

fn advised(output: &Output) -> Vec<Advised> {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let is_huge = words.next() == Some("hg");
        let kib = words.next().unwrap().parse().unwrap();
        Advised { is_huge, kib, name: words.collect::<Vec<_>>().join(" ") }
    };
    text(&output.stdout).lines().map(parse).collect()
}

/// Runs a Python program, and then [`ADVISED`] in it, with these rules.
fn python(place: &Place, rules: &str, program: &str) -> Output {
    fs::write(place.path("rules"), rules).unwrap();
    fs::write(place.path("p.py"), format!("{program}\n{ADVISED}")).unwrap();
    place.run("run --text off --regions rules -- python3 p.py")
}

#[test]
fn only_large_allocations_of_python_have_the_advice() {
    let place = Place::new();
    if !has_library() {
        return;
    }
    let program = "large, small = bytearray(64 << 20), bytearray(24 << 20)";
    let output = python(&place, "# by size\nmemory>=64M huge\n", program);
    let [large] = &advised(&output)[..] else { panic!("{}", text(&output.stdout)) };
    assert!(large.is_huge && large.name.is_empty());
    assert!((65_500..65_600).contains(&large.kib), "{}", large.kib);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("folio: regions: memory>=64M huge: 1 region, 64 MiB"), "{stderr}");
}

#[test]
fn the_first_rule_that_fits_decides_and_the_rest_has_no_advice() {
    let place = Place::new();
    if !has_library() {
        return;
    }
    let program = "\
import mmap
file = open('data', 'w+b')
file.truncate(4 << 20)
data = mmap.mmap(file.fileno(), 4 << 20)
private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
large, small = (mmap.mmap(-1, size << 20, flags=private) for size in (64, 32))";
    let rules = "memory>=48M huge\nanon>=30M nohuge\nstack nohuge\nfile:data huge\n";
    let output = python(&place, rules, program);
    let found = advised(&output);
    let kib = |is_huge, name: &str| {
        let of = |one: &&Advised| one.is_huge == is_huge && one.name.ends_with(name);
        found.iter().filter(of).map(|one| one.kib).collect::<Vec<_>>()
    };
    assert_eq!(kib(true, "/data"), [4096]);
    assert_eq!(kib(false, "[stack]").len(), 1);
    let private = |is_huge| {
        let of = |one: &&Advised| one.is_huge == is_huge && one.name.is_empty();
        found.iter().filter(of).map(|one| one.kib).sum::<u64>()
    };
    assert_eq!((private(true), private(false)), (64 << 10, 32 << 10));
    assert_eq!(found.len(), 4, "{}", text(&output.stdout));
}

#[test]
fn the_heap_of_sqlite_has_the_advice_as_it_grows() {
    let place = Place::new();
    if !has_library() {
        return;
    }
    if Command::new("sqlite3").arg("-version").output().is_err() {
        return largefolio_testkit::skipped!("no sqlite3: apt-get install sqlite3");
    }
    let fill = "create table t(x); with recursive c(n) as (select 1 union all select n + 1 from c \
                where n < 90000) insert into t select hex(randomblob(300)) from c;\n";
    let advised = ADVISED.replace("/proc/self/", "/proc/{parent}/");
    let advised = advised
        .replace("open('", "open(f'")
        .replace("import re", "import re, os\nparent = os.getppid()");
    // .shell starts a shell, whose parent is sqlite.
    let by_shell = advised.replace("os.getppid()", "int(os.environ['SQLITE'])");
    fs::write(place.path("p.py"), by_shell).unwrap();
    fs::write(place.path("q.sql"), format!("{fill}.shell SQLITE=$PPID python3 p.py\n")).unwrap();
    fs::write(place.path("rules"), "heap huge\n").unwrap();
    let output = place.run("run --text off --regions rules -- sqlite3 -init q.sql :memory: .quit");
    let found = self::advised(&output);
    assert!(
        found.iter().all(|one| one.is_huge && one.name == "[heap]"),
        "{}",
        text(&output.stdout)
    );
    assert!(found.iter().map(|one| one.kib).sum::<u64>() > 50 << 10, "{}", text(&output.stdout));
    // In mappings of its usual steps no large folio would fit.
    assert!(found.iter().any(|one| one.kib > 30 << 10), "{}", text(&output.stdout));
}

#[test]
fn what_cannot_be_advised_is_said_first() {
    let place = Place::new();
    if !has_library() {
        return;
    }
    fs::write(place.path("rules"), "heap huge\n").unwrap();
    fs::write(place.path("p.c"), "int main(void) { return 5; }").unwrap();
    if support::compile(&place, "gcc", "-static p.c -o fixed") {
        let output = place.run("run --text off --regions rules -- ./fixed");
        assert_eq!(output.status.code(), Some(5));
        let stderr = text(&output.stderr);
        assert!(stderr.contains("no region gets advice: "), "{stderr}");
        assert!(stderr.contains("the program is static and has no loader"), "{stderr}");
    }
    for (rules, message) in [
        ("heap huge\nheap at 0x55e0 huge", "rules, line 2: addresses differ from run to run"),
        ("heap", "rules, line 1: the line does not end with huge, nohuge or collapse"),
        ("", "rules: no rule; write one per line, such as `heap huge`"),
    ] {
        fs::write(place.path("rules"), rules).unwrap();
        let output = place.run("run --regions rules -- true");
        assert_eq!(output.status.code(), Some(2), "{rules}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
    let missing = place.run("run --regions nowhere -- true");
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("nowhere"), "{}", text(&missing.stderr));
}

#[test]
fn advice_and_moved_text_go_together() {
    let place = Place::new();
    if !has_library() || !crate::run::has_remapper() || !crate::run::compile(&place, "-no-pie") {
        return;
    }
    fs::write(place.path("rules"), "stack nohuge\n").unwrap();
    let output = place.run("run --text remap --regions rules -- ./p");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("folio: p: 6.0 of 8.0 MiB"), "{stderr}");
    assert!(stderr.contains("regions: stack nohuge: 1 region"), "{stderr}");
}
