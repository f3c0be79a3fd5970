//! Checks promises for the next start: starts real programs in odd ways, judges them, restarts them
//! as the remedy says, and expects the promised memory in PMD folios.
#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use largefolio_linux::census;
use largefolio_linux::geometry::Geometry;
use largefolio_linux::reasons::{CensusQuestion, findings};
use largefolio_linux::remedies::verbs::LiveVerbs;
use largefolio_linux::remedies::{Action, Remedy};
use largefolio_linux::setting::Setting;
use largefolio_linux::shell::quoted;
use largefolio_linux::system::Live;

use crate::held::Held;
use crate::support::{compile_in, has};
use crate::turn;

const MIB: u64 = 48;
/// Allocates 1000 bytes as often as the first argument says, from glibc's malloc or its own.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#ifdef OWN
static char *cur, *end;
void *malloc(size_t n) {
  n = (n + 15) & ~15ul;
  if (!cur || cur + n > end) {
    size_t size = (8u << 20) + (64u << 10);
    cur = mmap(0, size, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    end = cur + size;
  }
  char *p = cur;
  cur += n;
  return p;
}
void free(void *p) {}
void *calloc(size_t a, size_t b) { return malloc(a * b); }
void *realloc(void *p, size_t n) { void *q = malloc(n); if (p) memcpy(q, p, n); return q; }
#endif

int main(int c, char **v) {
  if (c > 2) { prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); if (fork()) { pause(); } execl(v[0], v[0], v[1], NULL); }
  long mib = atol(v[1]);
  for (long i = 0; i < mib * 1024; i++) { char *p = malloc(1000); memset(p, 1, 1000); }
  write(1, "!", 1);
  char byte;
  read(0, &byte, 1);
  return 0;
}
"#;

struct Started(Held);

impl Started {
    fn of(command: &mut Command) -> Self {
        let mut held = Held::of(command);
        held.child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self(held)
    }

    /// Runs `line` in a shell as typed, with `arguments` in place of the dots.
    fn typed(line: &str, arguments: &str) -> Self {
        let line = line.replace(" ..", &format!(" {arguments}"));
        Self::of(Command::new("sh").args(["-c", &format!("exec env {line}")]))
    }

    fn huge_bytes(&self) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.0.pid());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    fn remedies(&self) -> Vec<Remedy> {
        let census = census::take(&Live, &[self.0.pid()]).unwrap();
        let verbs = LiveVerbs::default();
        let limit = |_: &str| None;
        let question = CensusQuestion { system: &Live, limit: &limit, verbs: &verbs, nr_max: 100 };
        let mappings = &census.processes[0].mappings;
        let private = findings(&census, &question);
        let mut private = private.into_iter().filter(|one| !mappings[one.mapping].vma.has_file());
        private.next().map(|one| one.remedies).unwrap_or_default()
    }

    fn option(&self) -> Option<Remedy> {
        self.remedies().into_iter().find(|remedy| remedy.action == Action::Option)
    }
}

/// Sets `thp.enabled` to `madvise`; `None` if this machine does not allow it.
fn under_madvise() -> Option<(turn::Turn, Setting)> {
    if !rustix::process::geteuid().is_root() {
        largefolio_testkit::skipped!("settings and PFNs need root");
        return None;
    }
    if !has("gcc", "gcc") {
        return None;
    }
    let turn = turn::alone();
    let path = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    match Setting::change(path, "madvise") {
        Ok(setting) => Some((turn, setting)),
        Err(error) => {
            largefolio_testkit::skipped!("{error}");
            None
        }
    }
}

#[test]
fn a_start_as_printed_gains_what_was_promised() {
    let Some(_held) = under_madvise() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = compile_in(folder.path(), SOURCE, &[]);
    let blank = folder.path().join("a b (deleted)");
    std::fs::copy(&program, &blank).unwrap();
    let [program, blank] = [&program, &blank].map(quoted);
    let size = MIB.to_string();
    let loader = "/lib64/ld-linux-x86-64.so.2";
    let mut lines = vec![
        format!("{program} .."),
        format!("GLIBC_TUNABLES=glibc.malloc.trim_threshold=131072 {program} .."),
        format!("GLIBC_TUNABLES=glibc.malloc.hugetlb=0 A='x y' {program} .."),
        format!("bash -c 'ulimit -s unlimited; exec \"$@\"' bash {program} .."),
        format!("{blank} .."),
    ];
    if Path::new(loader).exists() {
        lines.push(format!("{loader} --argv0 odd {program} .."));
    }
    for line in lines {
        let before = Started::typed(&line, &size);
        let remedy = before.option().unwrap_or_else(|| panic!("{line}: {:?}", before.remedies()));
        assert!(remedy.gain_bytes > (MIB - 8) << 20, "{line}: {remedy:?}");
        assert!(
            !line.contains("trim") || remedy.start.contains("trim_threshold=131072:"),
            "{remedy:?}"
        );
        let after = Started::typed(&remedy.start, &size);
        let gained = after.huge_bytes() - before.huge_bytes();
        let bound = (remedy.gain_bytes / 10).max(2 * Geometry::running().pmd_bytes());
        assert!(gained.abs_diff(remedy.gain_bytes) <= bound, "{line}: {remedy:?} gained {gained}");
        // The second judgement does not recommend it again.
        assert_eq!(after.option(), None, "{}", remedy.start);
    }
}

#[test]
fn no_start_is_promised_that_would_do_nothing() {
    let Some(_held) = under_madvise() else { return };
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let own = compile_in(folders[0].path(), SOURCE, &["-DOWN", "-fno-builtin"]);
    let plain = compile_in(folders[1].path(), SOURCE, &[]);
    let own = Started::of(Command::new(own).arg(MIB.to_string()));
    let remedies = own.remedies();
    assert!(remedies.iter().all(|remedy| remedy.action != Action::Option), "{remedies:?}");
    assert!(remedies.iter().any(|remedy| remedy.cost.contains("malloc is not glibc's")));
    // The parent has THP disabled and started the program.
    let size = MIB.to_string();
    let parent = Started::of(Command::new(plain).args([size.as_str(), "disabled"]));
    let children = format!("/proc/{0}/task/{0}/children", parent.0.pid());
    let child: u32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    let census = census::take(&Live, &[child]).unwrap();
    let (verbs, limit) = (LiveVerbs::default(), |_: &str| None);
    let question = CensusQuestion { system: &Live, limit: &limit, verbs: &verbs, nr_max: 1 };
    let all_findings = findings(&census, &question);
    let remedies = &all_findings[0].remedies;
    assert!(remedies.iter().all(|remedy| !remedy.is_some()), "{remedies:?}");
    assert!(remedies[0].cost.contains(&format!("process {} ", parent.0.pid())), "{remedies:?}");
}
