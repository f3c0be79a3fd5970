//! `folio run --regions`: which mappings of real programs have advice.

use std::fs;
use std::process::{Command, Output};

use crate::support::{self, Place, text};

/// For each mapping with advice, prints the advice, its KiB and its name.
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
    assert!((65_536..65_600).contains(&large.kib), "{}", large.kib);
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

/// Prints the KiB of each mapping with advice, as [`ADVISED`] does, and takes no memory for it.
const PRINT_ADVISED: &str = r#"
#include <stdio.h>
#include <string.h>
static void print_advised(void) {
    char line[4096], name[4096] = "";
    unsigned long start = 0, end = 0, from, to;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
            int at = 0;
            sscanf(line, "%*s %*s %*s %*s %*s %n", &at);
            start = from, end = to;
            strcpy(name, line + at);
        } else if (!strncmp(line, "VmFlags:", 8)) {
            for (int nr = 0; nr < 2; nr++)
                if (strstr(line, nr ? " nh" : " hg"))
                    printf("%s %lu%s%s\n", nr ? "nh" : "hg", (end - start) >> 10, *name ? " " : "", name);
        }
    }
    fflush(stdout);
}
"#;

fn c_program(place: &Place, options: &str, body: &str) -> bool {
    fs::write(place.path("p.c"), format!("{PRINT_ADVISED}{body}")).unwrap();
    has_library() && support::compile(place, "gcc", &format!("{options} p.c -o p"))
}

/// After a free of 24 MiB, glibc puts smaller allocations in the heap.
const IN_THE_HEAP: &str = r"
#include <stdlib.h>
int main(void) {
    char *volatile kept[64];
    free(malloc(24 << 20));
    for (int nr = 0; nr < 64; nr++) kept[nr] = memset(malloc(2 << 20), 1, 2 << 20);
    char *volatile own = malloc(40 << 20);
    print_advised();
    return !own || !kept[0];
}
";

#[test]
fn allocations_in_the_heap_have_the_advice_of_the_heap() {
    let place = Place::new();
    if !c_program(&place, "-O1", IN_THE_HEAP) {
        return;
    }
    for (rules, heap) in
        [("memory>=1M huge\nheap nohuge\n", Some(false)), ("memory>=1M huge\n", None)]
    {
        fs::write(place.path("rules"), rules).unwrap();
        let output = place.run("run --text off --regions rules -- ./p");
        let found = advised(&output);
        let shown = text(&output.stdout);
        let in_heap = found.iter().filter(|one| one.name == "[heap]").collect::<Vec<_>>();
        assert!(in_heap.iter().all(|one| Some(one.is_huge) == heap), "{shown}");
        let heap_kib: u64 = in_heap.iter().map(|one| one.kib).sum();
        assert_eq!(heap_kib > 100 << 10, heap.is_some(), "{shown}");
        let own = found.iter().filter(|one| one.name.is_empty()).collect::<Vec<_>>();
        assert!(matches!(own[..], [one] if one.is_huge && one.kib == (40 << 10) + 4), "{shown}");
    }
}

/// Prints what malloc keeps of 100 MiB that the program freed.
const FREED: &str = r#"
#include <stdlib.h>
#include <unistd.h>
int main(void) {
    static char *kept[1600];
    char *before = sbrk(0);
    for (int nr = 0; nr < 1600; nr++) kept[nr] = malloc(64 << 10);
    for (int nr = 0; nr < 1600; nr++) free(kept[nr]);
    printf("%ld\n", ((char *)sbrk(0) - before) >> 10);
    return 0;
}
"#;

#[test]
fn malloc_keeps_its_options_if_the_heap_gets_no_folios_or_the_user_set_them() {
    let place = Place::new();
    if !c_program(&place, "-O1", FREED) {
        return;
    }
    let kept_kib = |rules: &str, options: &[(&str, &str)]| {
        fs::write(place.path("rules"), rules).unwrap();
        let mut command = place.command("run --text off --regions rules -- ./p");
        let output = command.envs(options.iter().copied()).output().unwrap();
        text(&output.stdout).trim().parse::<i64>().unwrap()
    };
    assert!(kept_kib("heap huge", &[]) > 30 << 10);
    assert!(kept_kib("heap nohuge", &[]) < 1 << 10);
    for (name, value) in [
        ("MALLOC_TOP_PAD_", "4096"),
        ("GLIBC_TUNABLES", "a.b.c=1:glibc.malloc.trim_threshold=65536"),
    ] {
        assert!(kept_kib("heap huge", &[(name, value)]) < 1 << 10, "{name}");
    }
}

/// Makes the heap grow in 35,000 steps, one for two allocations, and prints its number of mappings.
const MANY_STEPS: &str = r#"
#include <stdlib.h>
int main(void) {
    for (int nr = 0; nr < 70000; nr++) if (!malloc(125 << 10)) return 0;
    char line[4096];
    int nr_heap = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, file)) nr_heap += strstr(line, "[heap]") != 0;
    printf("%d\n", nr_heap);
    return 0;
}
"#;

#[test]
fn advice_for_the_heap_leaves_half_of_the_possible_mappings() {
    let place = Place::new();
    if !c_program(&place, "-O0", MANY_STEPS) {
        return;
    }
    fs::write(place.path("rules"), "heap nohuge\n").unwrap();
    let output = place.run("run --text off --regions rules -- ./p");
    let Ok(nr) = text(&output.stdout).trim().parse::<u32>() else {
        return largefolio_testkit::skipped!("malloc had no 9 GB of address space");
    };
    assert!((30_000..32_780).contains(&nr), "{nr}");
    let stderr = text(&output.stderr);
    assert!(stderr.contains("the kernel refused 1: Cannot allocate memory"), "{stderr}");
}

#[test]
fn a_child_with_a_sanitizer_keeps_its_own_advice() {
    let place = Place::new();
    let body = "int main(void) { print_advised(); return 0; }";
    if !c_program(&place, "-fsanitize=address", body) {
        return;
    }
    fs::write(place.path("rules"), "memory collapse\nheap huge\nstack huge\n").unwrap();
    let output = place.run("run --text off --regions rules -- sh -c ./p");
    assert_eq!(text(&output.stderr).matches("Sanitizer").count(), 0, "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(!shown.contains("hg ") && shown.contains("nh "), "{shown}");
}

#[test]
fn a_file_shorter_than_a_page_has_the_advice() {
    let place = Place::new();
    let program = "\
import mmap
file = open('data', 'w+b')
file.write(b'x' * 3000)
file.flush()
data = mmap.mmap(file.fileno(), 3000)";
    if !has_library() {
        return;
    }
    let output = python(&place, "file:data nohuge\n", program);
    let [file] = &advised(&output)[..] else { panic!("{}", text(&output.stdout)) };
    assert!(!file.is_huge && file.name.ends_with("/data"));
}

#[test]
fn without_a_summary_no_path_names_a_descriptor_of_the_program() {
    let place = Place::new();
    if !has_library() {
        return;
    }
    fs::write(place.path("rules"), "heap huge\n").unwrap();
    let output = place.run("run --quiet --text off --regions rules -- env");
    let shown = text(&output.stdout);
    assert!(shown.contains("LARGEFOLIO_REGIONS=heap huge"), "{shown}");
    assert!(!shown.contains("LARGEFOLIO_REGIONS_REPORT"), "{shown}");
    // A file of another name is not written to, even with the right contents.
    let mut report = vec![0; 4096];
    // As the launcher's.
    report[..8].copy_from_slice(&0x6f69_6c6f_f672_6c31_u64.to_ne_bytes());
    fs::write(place.path("report"), &report).unwrap();
    let mut command = Command::new("true");
    let folio = assert_cmd::cargo::cargo_bin!("folio");
    command.env("LD_PRELOAD", folio.with_file_name("liblargefolio_regions.so"));
    command.env("LARGEFOLIO_REGIONS", "stack nohuge");
    command.env("LARGEFOLIO_REGIONS_REPORT", place.path("report"));
    assert!(command.status().unwrap().success());
    assert_eq!(fs::read(place.path("report")).unwrap(), report);
}

/// Threads and a child allocate in every way and check each byte and errno.
const ALLOCATIONS: &str = r"
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static void *work(void *seed) {
    unsigned state = (unsigned)(uintptr_t)seed;
    char *kept[16] = {0};
    size_t lens[16] = {0};
    for (int nr = 0; nr < 4000; nr++) {
        state = state * 1103515245 + 12345;
        int at = state >> 8 & 15;
        size_t len = 1 + (state >> 4) % (nr % 50 ? 5000 : 3 << 20);
        for (size_t byte = 0; byte < lens[at]; byte += 997)
            if (kept[at][byte] != (char)(at + 1)) abort();
        void *new = 0;
        errno = 77;
        switch (state >> 16 & 7) {
        case 0: free(kept[at]); new = calloc(1, len); for (size_t i = 0; i < len; i += 997) if (((char *)new)[i]) abort(); break;
        case 1: free(kept[at]); new = memalign(64, len); break;
        case 2: free(kept[at]); new = aligned_alloc(4096, len + 4095 & ~(size_t)4095); if ((uintptr_t)new % 4096) abort(); break;
        case 3: free(kept[at]); if (posix_memalign(&new, 256, len) || (uintptr_t)new % 256) abort(); break;
        case 4: new = realloc(kept[at], len); if (lens[at] && ((char *)new)[0] != at + 1) abort(); break;
        case 5: { void *map = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                  memset(map, 9, len); munmap(map, len); } /* and */ __attribute__((fallthrough));
        default: free(kept[at]); new = malloc(len); break;
        }
        if (!new || errno != 77) abort();
        memset(new, at + 1, len);
        kept[at] = new;
        lens[at] = len;
    }
    for (int at = 0; at < 16; at++) free(kept[at]);
    return 0;
}
int main(void) {
    pthread_t threads[4];
    void *volatile none = malloc(SIZE_MAX / 2);
    if (none || errno != ENOMEM) return 1;
    if (posix_memalign((void **)&none, 3, 8) != EINVAL) return 2;
    errno = 0;
    if (mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED || errno != EINVAL) return 3;
    for (uintptr_t nr = 0; nr < 4; nr++) pthread_create(&threads[nr], 0, work, (void *)(nr + 1));
    int status, child = fork();
    if (!child) { work((void *)9); _exit(5); }
    for (int nr = 0; nr < 4; nr++) pthread_join(threads[nr], 0);
    waitpid(child, &status, 0);
    return WEXITSTATUS(status) == 5 ? 4 : 6;
}
";

#[test]
fn programs_with_threads_and_children_allocate_as_before() {
    let place = Place::new();
    fs::write(place.path("p.c"), ALLOCATIONS).unwrap();
    if !has_library() || !support::compile(&place, "gcc", "-O1 p.c -o p -pthread") {
        return;
    }
    for rules in ["heap huge\nmemory huge\n", "memory>=1M collapse\nheap nohuge\nfile:p huge\n"] {
        fs::write(place.path("rules"), rules).unwrap();
        let output = place.run("run --text off --regions rules -- ./p");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{stderr}");
        // The child's advice is counted, too.
        assert!(!stderr.contains("memory huge: 0 regions"), "{stderr}");
    }
}
