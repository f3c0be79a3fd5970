//! Programs in C and C++, built with the header against the shared and the static library, and run.
#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use largefolio_ranges::Reason;
use largefolio_testkit::skipped;
use tempfile::TempDir;

const LANGUAGES: [[&str; 3]; 2] = [["gcc", "c", "-std=c11"], ["g++", "c++", "-std=c++17"]];

/// The languages with an installed compiler.
fn languages() -> impl Iterator<Item = [&'static str; 3]> {
    LANGUAGES.into_iter().filter(|[compiler, ..]| {
        let is_installed = Command::new(compiler).arg("--version").output().is_ok();
        if !is_installed {
            skipped!("{compiler} is not installed: apt-get install {compiler}");
        }
        is_installed
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linked {
    Shared,
    Static,
}

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Builds the libraries once: cargo cannot depend on a cdylib.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let own = std::env::current_exe().unwrap();
        let target = own.ancestors().nth(3).unwrap().to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "largefolio-c", "--target-dir"]).arg(&target);
        assert!(cargo.current_dir(crate_folder()).status().unwrap().success());
        target.join("debug")
    })
}

fn build(source: &Path, [compiler, language, standard]: [&str; 3], linked: Linked) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(compiler);
    command.args(["-x", language, standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"]);
    command.arg(crate_folder().join("include")).arg(source).args(["-x", "none", "-o"]);
    command.arg(folder.path().join("program"));
    match linked {
        Linked::Shared => command.arg("-L").arg(libraries()).arg("-llargefolio"),
        Linked::Static => command.arg(libraries().join("liblargefolio.a")),
    };
    let output = command.output().unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

fn run(built: &TempDir) -> String {
    let mut command = Command::new(built.path().join("program"));
    let Output { status, stdout, stderr } =
        command.env("LD_LIBRARY_PATH", libraries()).output().unwrap();
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// Runs an example in each language and linked in each way, and gives each output to `check`.
fn each_build(example: &str, check: impl Fn(&str)) {
    let source = crate_folder().join("examples").join(example);
    for language in languages() {
        for linked in [Linked::Shared, Linked::Static] {
            check(&run(&build(&source, language, linked)));
        }
    }
}

/// Returns the number before `unit` in the line that begins with `start`.
fn number(output: &str, start: &str, unit: &str) -> u64 {
    let line = output.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| {
        panic!("no line {start} in {output}");
    });
    let before = line.split_once(unit).unwrap_or_else(|| panic!("no {unit} in {line}")).0;
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_cache_gets_large_folios_and_returns_what_it_no_longer_uses() {
    each_build("cache.c", |output| {
        assert_eq!(number(output, "filled:", " KiB used"), 32 << 10);
        if output.contains("not visible") {
            return skipped!("Linux before 6.7 shows no PMD entries: {output}");
        }
        assert_eq!(number(output, "filled:", " KiB under"), 0);
        let huge = number(output, "backed:", " KiB under");
        if huge < 32 << 10 {
            return skipped!("the kernel had no free folios: {output}");
        }
        assert_eq!(number(output, "unused:", " of"), 28 << 10);
        assert_eq!(number(output, "split:", " KiB under"), 0);
        // Linux before 6.12 frees nothing.
        let freed = number(output, "freed:", " KiB");
        assert!(freed == 0 || freed == 28 << 10, "{output}");
        assert_eq!(number(output, "split:", " KiB used"), (32 << 10) - freed);
    });
}

#[test]
fn the_arena_gets_what_malloc_does_not_get_without_advice() {
    each_build("arena.c", |output| {
        let [malloc, arena] = ["malloc:", "arena:"].map(|name| number(output, name, " of "));
        assert!(malloc <= arena, "{output}");
        if number(output, "arena:", " KiB; ") == 0 {
            skipped!("the settings give advised memory no folios: {output}");
        }
        assert_eq!(number(output, "malloc:", " KiB under") >> 4, 15_996 >> 4);
    });
}

const CHECK: &str = r#"
#include <largefolio.h>
#include <errno.h>
#include <stdio.h>
#define SIZE(name) printf("%s %zu\n", #name, sizeof(struct name))
int main(void) {
    struct folio_view view;
    void *start;
    SIZE(folio_sizes); SIZE(folio_backed); SIZE(folio_view);
    SIZE(folio_waste); SIZE(folio_collapsed); SIZE(folio_split);
    for (int nr = -1; nr < 100; nr++) printf("%d: %s\n", nr, folio_reason_text(nr));
    if (folio_sizes(NULL) != -EINVAL || folio_view(&view, 1, NULL) != -EINVAL) return 1;
    if (folio_back(&view, 1, 8, NULL) != -EINVAL || folio_advise(&view, 1, 0) != -EINVAL) return 2;
    if (folio_view((char *)&view - (size_t)&view + SIZE_MAX, 9, &view) != -EOVERFLOW) return 3;
    if (folio_reserve(&start, 0, 0, NULL) != -EINVAL) return 4;
    if (folio_reserve(&start, 1, 4095, NULL) != -EINVAL) return 5;
    if (folio_reserve(&start, 1, 0, "a$b") != -EINVAL) return 6;
    if (folio_reserve(&start, 1, 1 << 21, NULL) != 0 || (size_t)start % (1 << 21)) return 7;
    if (folio_release((char *)start + 1, 1) != -EINVAL) return 8;
    if (folio_view(start, 1, &view) != 0 || view.reason != FOLIO_TOO_SHORT) return 9;
    if (folio_view(start, 4096 << 4, &view) != 0 || view.reserved[3] != 0) return 10;
    return folio_release(start, 1);
}
"#;

#[test]
fn the_header_agrees_with_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("check.c");
    fs::write(&source, CHECK).unwrap();
    for language in languages() {
        let output = run(&build(&source, language, Linked::Static));
        for (name, bytes) in [
            ("sizes", 64),
            ("backed", 88),
            ("view", 232),
            ("waste", 64),
            ("collapsed", 64),
            ("split", 56),
        ] {
            assert!(output.contains(&format!("folio_{name} {bytes}\n")), "{output}");
        }
        let text = |nr: i64| {
            let known = Reason::all().iter().find(|known| i64::from(**known as u32) == nr);
            known.map_or("unknown reason", |known| known.text())
        };
        for nr in -1..100 {
            assert!(output.contains(&format!("\n{nr}: {}\n", text(nr))), "{nr} in {output}");
        }
    }
}

/// A thread with 16 KiB of stack, and 4 KiB for the C library.
const SMALL_STACK: &str = r"
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <largefolio.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#define LEN (8u << 20)
#define STACK (20u << 10)
static void *start;
static void *look(void *none) {
    struct folio_sizes sizes;
    struct folio_backed backed;
    struct folio_view view;
    struct folio_waste waste;
    int error = folio_sizes(&sizes);
    if (!error) error = folio_back(start, LEN, 0, &backed);
    if (!error) error = folio_collapse(start, LEN, 0);
    if (!error) error = folio_view(start, LEN, &view);
    if (!error) error = folio_waste(start, LEN, &waste);
    if (!error) error = folio_split(start, LEN, 1, 0);
    return error && error != -95 ? &start : none;
}
int main(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    void *failed;
    char *stack = (char *)mmap(0, 3 * STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (folio_reserve(&start, LEN, 0, 0)) return 1;
    memset(start, 1, LEN);
    if (mprotect(stack + STACK, STACK, PROT_READ | PROT_WRITE)) return 2;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, stack + STACK, STACK)) return 3;
    if (pthread_create(&thread, &attributes, look, 0)) return 4;
    pthread_join(thread, &failed);
    return failed ? 5 : 0;
}
";

#[test]
fn a_thread_with_a_small_stack_can_call_every_function() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("small.c");
    fs::write(&source, SMALL_STACK).unwrap();
    for language in languages() {
        run(&build(&source, language, Linked::Static));
    }
}

#[test]
fn the_header_has_every_reason_under_its_number() {
    let header = fs::read_to_string(crate_folder().join("include/largefolio.h")).unwrap();
    for reason in Reason::all() {
        let name: String = format!("{reason:?}")
            .chars()
            .flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain([c]))
            .collect();
        let line = format!("    FOLIO{} = {}", name.to_uppercase(), *reason as u32);
        let is_there = header.lines().any(|each| {
            each.strip_prefix(&line).is_some_and(|rest| !rest.starts_with(char::is_numeric))
        });
        assert!(is_there, "no {line}");
    }
}

#[test]
fn the_shared_library_needs_libc_alone_and_exports_what_the_header_has() {
    let library = libraries().join("liblargefolio.so");
    let read = |tool: &str, option: &[&str]| {
        let output = Command::new(tool).args(option).arg(&library).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let needed = read("readelf", &["-d"]);
    let needed: Vec<&str> =
        needed.lines().filter_map(|line| Some(line.split_once("(NEEDED)")?.1)).collect();
    assert!(!needed.is_empty());
    assert!(needed.iter().all(|n| n.contains("libc.") || n.contains("ld-linux")), "{needed:?}");
    let exported = read("nm", &["-D", "--defined-only"]);
    let exported: Vec<&str> = exported.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    let header = fs::read_to_string(crate_folder().join("include/largefolio.h")).unwrap();
    assert!(exported.len() > 8, "{exported:?}");
    for name in exported {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
}
