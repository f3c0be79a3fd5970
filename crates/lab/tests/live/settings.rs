//! A setting that changes while a program runs, in the model and on this kernel. Needs root; prints
//! a message if it skips.

#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use largefolio_linux::setting::{Setting, thp};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, replay};
use largefolio_testkit::skipped;
use largefolio_trace::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, FileInfo, LayoutEntry, LayoutKind, Meta, Op, Writer};

use crate::support::{compile_in, has};
use crate::turn;

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const PMD: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled";
const ADDR: u64 = 0x7000_0000_0000;
const NR_BYTES: u64 = 16 << 20;
const PAGE: u64 = 4096;
const NR_PARTS: usize = 8;

/// Stores to each page of 16 MiB: an eighth after each line that it reads.
const PROGRAM: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
    size_t all = 16 << 20, huge = 2 << 20;
    int rights = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS;
    uintptr_t at = (uintptr_t)mmap(0, all + huge, rights, private, -1, 0);
    volatile char *start = (char *)((at + huge - 1) & ~(huge - 1));
    for (size_t byte = 0; byte <= all; byte += 4096) {
        if (byte % (all / 8) == 0) {
            puts("ready");
            fflush(stdout);
            if (getchar() == EOF) return 1;
        }
        if (byte < all) start[byte] = 1;
    }
}
"#;

struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut running = Self { child, input, output: BufReader::new(output) };
        running.wait();
        running
    }

    fn wait(&mut self) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }

    /// Lets it store to the next eighth.
    fn go_on(&mut self) {
        self.input.write_all(b"\n").unwrap();
        self.wait();
    }

    fn huge_bytes(&self) -> u64 {
        let smaps = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id())).unwrap();
        let line = smaps.lines().find(|line| line.starts_with("AnonHugePages:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It waits for its next line.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes the program as a trace: one mapping, then a row per page.
fn trace(folder: &Path) -> PathBuf {
    let path = folder.join("parts.folio");
    let file = FileInfo { path: "/bin/p".into(), size_bytes: PAGE, ..FileInfo::default() };
    let (addr, kind) = (0x40_0000, LayoutKind::Program);
    let text = LayoutEntry { addr, len: PAGE, prot: 5, file: Some(0), pos: 0, kind };
    let meta = Meta { files: vec![file], layout: vec![text], ..Meta::default() };
    let mut writer = Writer::create(&path, meta).unwrap();
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    let map = Event { addr: ADDR, len: NR_BYTES, flags, ..Event::new(0, Op::Mmap) };
    let store = |page| Event::references(0, Op::Write, ADDR + page * PAGE, 1);
    let rows: Vec<Event> = [map].into_iter().chain((0..NR_BYTES / PAGE).map(store)).collect();
    writer.push_rows(&rows).unwrap();
    writer.finish().unwrap();
    path
}

fn predicted(trace: &Path, first: &str, changes: &[(usize, &str)]) -> u64 {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let kernel = Kernel::of_release(release.trim(), PAGE).unwrap().unwrap();
    let kernel = kernel.edited(&format!("thp={first}+anon-2M=inherit")).unwrap();
    let at = |&(part, value): &(usize, &str)| {
        format!("{}.{}%:thp={value}", part * 1000 / NR_PARTS / 10, part * 1000 / NR_PARTS % 10)
            .parse()
            .unwrap()
    };
    let spec = CellSpec {
        changes: changes.iter().map(at).collect(),
        ns_per_reference: 0,
        ..CellSpec::new(kernel, Machine::named("zen4").unwrap())
    };
    replay(trace, &[spec], &mut |_| {}).unwrap().1.remove(0).folios.anon.pmd_bytes
}

fn measured(program: &Path, enabled: &mut Setting, first: &str, changes: &[(usize, &str)]) -> u64 {
    enabled.set(first).unwrap();
    let mut running = Running::start(program);
    for part in 0..NR_PARTS {
        if let Some((_, value)) = changes.iter().find(|(at, _)| *at == part) {
            enabled.set(value).unwrap();
            // A khugepaged that this starts first scans its list.
            thread::sleep(Duration::from_millis(200));
        }
        running.go_on();
    }
    running.huge_bytes()
}

/// The first value of the setting, its changes before an eighth, and the huge folios.
type Case = (&'static str, &'static [(usize, &'static str)], u64);

#[test]
fn memory_touched_after_a_change_of_thp_is_as_predicted() {
    let _turn = turn::alone();
    if !has("gcc", "gcc") {
        return;
    }
    let changed = || -> Result<_, largefolio_linux::setting::SettingError> {
        let asleep = thp::send_khugepaged_to_sleep()?;
        let inherits = Setting::change(Path::new(PMD), "inherit")?;
        Ok((asleep, inherits, Setting::hold(Path::new(ENABLED))?))
    };
    let (_asleep, _inherits, mut enabled) = match changed() {
        Ok(changed) => changed,
        Err(refusal) => return skipped!("{refusal}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let (program, trace) = (compile_in(folder.path(), PROGRAM, &[]), trace(folder.path()));
    let cases: [Case; 5] = [
        ("never", &[], 0),
        ("never", &[(4, "always")], 4),
        ("always", &[(2, "never")], 2),
        ("never", &[(2, "always"), (5, "never")], 3),
        ("always", &[(3, "madvise")], 3),
    ];
    // With a process on its list, a khugepaged that starts does not wait for the next one.
    enabled.set("always").unwrap();
    let mut listed = Running::start(&program);
    listed.go_on();
    for (first, changes, nr_huge) in cases {
        let predicted = predicted(&trace, first, changes);
        let measured = measured(&program, &mut enabled, first, changes);
        assert_eq!(
            [predicted, measured].map(|bytes| bytes >> 21),
            [nr_huge; 2],
            "{first} {changes:?}"
        );
    }
}
