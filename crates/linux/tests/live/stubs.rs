//! Programs of RET stubs, started with their text moved.
#![expect(unreachable_pub, reason = "the tests of moved text use it")]
#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use largefolio_linux::remap::{Options, Remap};
use tempfile::TempDir;

use crate::support::build_library;

/// Linked so that addresses and file positions agree modulo 2 MiB.
pub const ALIGNED: &[&str] = &["-Wl,-z,max-page-size=0x200000"];

/// The first argument selects the action. `run` calls a stub in every page, and prints the result
/// and the amount of text mapped by PMD entries of a tmpfs. `wait` then waits for input. `fork`
/// runs in a child. `exec`, `filtered` and `plain-thp` run after an execve (under a seccomp filter,
/// without large folios). `spin` calls stubs for about a second.
const SOURCE: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
__asm__(".text\n.globl stubs\nstubs:\n.fill STUBS,1,0xc3\n");
extern char stubs[];
__attribute__((noinline, section(".text.hot.walk"))) int walk(int step) {
    int nr = 0;
    for (long at = 0; at < STUBS; at += step) { ((void (*)(void))(stubs + at))(); nr++; }
    return nr;
}
static void say(void) {
    int nr = walk(4096);
    char line[4096];
    long large = 0, pss = 0, kib;
    int is_text = 0;
    FILE *maps = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char flags[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, flags) == 3)
            is_text = flags[2] == 'x' && end > (unsigned long)stubs
                && start < (unsigned long)stubs + STUBS;
        if (is_text && sscanf(line, "ShmemPmdMapped: %ld", &kib) == 1) large += kib;
        if (is_text && sscanf(line, "Pss: %ld", &kib) == 1) pss += kib;
    }
    fclose(maps);
    printf("%d calls\n%ld KiB large\n%ld KiB pss\n%d fd\n", nr, large, pss, dup(0));
    fflush(stdout);
}
int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "run";
    if (!strcmp(what, "fork")) {
        if (fork()) { int status; wait(&status); return WEXITSTATUS(status); }
    } else if (!strcmp(what, "exec") || !strcmp(what, "filtered") || !strcmp(what, "plain-thp")) {
        if (!strcmp(what, "plain-thp")) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
        if (!strcmp(what, "filtered")) {
            struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
            struct sock_fprog program = { 1, &allow };
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 9;
        }
        execl(argv[0], argv[0], "run", (char *)0);
        return 8;
    } else if (!strcmp(what, "spin")) {
        for (int n = 0; n < 3000; n++) walk(64);
    }
    if (errno) return 7;
    say();
    if (!strcmp(what, "wait")) { getchar(); say(); }
    return 0;
}
"#;

/// Builds the preloaded library once, in the place that `Remap::prepare` searches.
pub fn preload() -> PathBuf {
    static PRELOAD: OnceLock<PathBuf> = OnceLock::new();
    PRELOAD
        .get_or_init(|| build_library(&["-p", "largefolio-preload"]))
        .join("debug/liblargefolio_preload.so")
}

/// A directory on tmpfs, where text has no large folios.
pub fn tmpfs() -> TempDir {
    tempfile::Builder::new().prefix("largefolio-test-").tempdir_in("/dev/shm").unwrap()
}

pub fn program(folder: &Path, mib: usize, flags: &[&str]) -> PathBuf {
    let (text, path) = (folder.join("stubs.c"), folder.join("stubs"));
    fs::write(&text, SOURCE.replace("STUBS", &(mib << 20).to_string())).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-g", "-D_GNU_SOURCE", "-o"]).arg(&path).arg(&text).args(flags);
    assert!(gcc.status().unwrap().success(), "gcc refused the test's program");
    path
}

pub struct Stage {
    pub folder: TempDir,
    pub remap: Remap,
}

impl Stage {
    pub fn new() -> Self {
        preload();
        let folder = tmpfs();
        let remap = Remap::prepare(&options(&folder)).unwrap();
        Self { folder, remap }
    }

    pub fn command(&self, program: &Path, argument: &str) -> Command {
        let mut command = Command::new(program);
        command.arg(argument);
        self.remap.apply(&mut command);
        command
    }

    pub fn copies(&self) -> Vec<String> {
        let store = self.remap.store();
        let is_file =
            |name: &String| store.join(name).symlink_metadata().is_ok_and(|m| m.is_file());
        names(store).into_iter().filter(is_file).collect()
    }
}

pub fn options(folder: &TempDir) -> Options {
    Options { store: Some(folder.path().join("store")), ..Options::default() }
}

/// Lists a store, without the launcher's files.
pub fn names(store: &Path) -> Vec<String> {
    let entries = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries
        .map(|name| name.into_string().unwrap())
        .filter(|name| name != "lease" && !name.starts_with("report."))
        .collect();
    names.sort();
    names
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StubReport {
    pub calls: u64,
    pub large_kib: u64,
    pub pss_kib: u64,
    pub next_fd: u64,
}

impl StubReport {
    pub fn read(text: &str) -> Self {
        let number = |what: &str| {
            let line = text.lines().rev().find_map(|line| line.strip_suffix(what));
            line.unwrap_or_else(|| panic!("no{what} in {text:?}")).parse().unwrap()
        };
        Self {
            calls: number(" calls"),
            large_kib: number(" KiB large"),
            pss_kib: number(" KiB pss"),
            next_fd: number(" fd"),
        }
    }
}

pub fn parse_report(output: &Output) -> StubReport {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?} {errors}", output.status);
    assert_eq!(errors, "", "the library speaks unasked");
    StubReport::read(&String::from_utf8_lossy(&output.stdout))
}
