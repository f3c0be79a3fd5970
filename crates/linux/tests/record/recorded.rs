//! Records programs and reads the traces back.
#![expect(unreachable_pub, reason = "the tests of recordings use it")]
#![expect(clippy::expect_used, reason = "a test helper fails")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use largefolio_linux::environment::{Environment, Host, Node};
use largefolio_linux::record::{RecordOutcome, RecordRequest, Recording};
use largefolio_trace::{Batch, Event, Meta, Op, Reader};

use tempfile::TempDir;

use crate::support::{build_library, compile_in, compile_with, has};

pub struct TestHost;

impl Environment for TestHost {
    fn variable(&self, name: &str) -> Option<OsString> {
        if name == "LARGEFOLIO_RECORDER" {
            return Some(plugin().into());
        }
        Host.variable(name)
    }

    fn node(&self, path: &Path) -> Node {
        Host.node(path)
    }

    fn gives_rights(&self, path: &Path) -> bool {
        Host.gives_rights(path)
    }

    fn head(&self, path: &Path) -> io::Result<Vec<u8>> {
        Host.head(path)
    }

    fn own_executable(&self) -> Option<PathBuf> {
        Host.own_executable()
    }

    fn distrust(&self, path: &Path) -> Option<String> {
        Host.distrust(path)
    }

    fn complaint(&self, tool: &Path, arguments: &[&OsStr]) -> String {
        Host.complaint(tool, arguments)
    }
}

/// Builds the plugin once and returns its path.
pub fn plugin() -> PathBuf {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN
        .get_or_init(|| build_library(&["--release", "-p", "largefolio-recorder"]))
        .join("release/liblargefolio_recorder.so")
}

pub struct Made {
    pub dir: TempDir,
    pub path: PathBuf,
}

/// Compiles `source` into its own directory; `flags` as for gcc.
pub fn compile(source: &str, flags: &[&str]) -> Made {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = compile_in(dir.path(), source, flags);
    Made { dir, path }
}

pub const GCC_OF_ARM64: &str = "aarch64-linux-gnu-gcc";

/// Whether arm64 programs can be compiled and recorded; prints a message if not.
pub fn has_arm64() -> bool {
    has("qemu-aarch64", "qemu-user") && has(GCC_OF_ARM64, "gcc-aarch64-linux-gnu")
}

pub fn compile_for_arm64(source: &str, flags: &[&str]) -> Made {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = compile_with(GCC_OF_ARM64, dir.path(), source, flags);
    Made { dir, path }
}

pub struct Recorded {
    pub outcome: RecordOutcome,
    pub meta: Meta,
    pub events: Vec<Event>,
}

pub fn record(path: &Path, arguments: &[&str]) -> Recorded {
    record_pausing(path, arguments, Duration::ZERO)
}

/// Does the same with a `folio` that sleeps for `pause` in each progress call.
pub fn record_pausing(path: &Path, arguments: &[&str], pause: Duration) -> Recorded {
    let output = path.with_extension("folio");
    let mut command = vec![path.as_os_str().to_owned()];
    command.extend(arguments.iter().map(OsString::from));
    let request = RecordRequest { command: &command, output: Some(&output), root: None };
    let plan = Recording::in_environment(&TestHost, &request).expect("a plan");
    let outcome = plan.run(&mut |_| std::thread::sleep(pause)).expect("a recording");
    let (meta, events) = read(&output);
    assert_eq!(meta.nr_references, outcome.nr_references);
    assert_eq!(events.len() as u64, outcome.nr_rows);
    Recorded { outcome, meta, events }
}

pub fn read(path: &Path) -> (Meta, Vec<Event>) {
    let mut reader = Reader::open(path).expect("a valid trace");
    let (mut batch, mut events) = (Batch::default(), Vec::new());
    while reader.next_batch(&mut batch).expect("a valid batch") {
        events.extend(batch.events());
    }
    (reader.meta().clone(), events)
}

impl Recorded {
    pub fn of(&self, op: Op) -> Vec<Event> {
        self.events.iter().copied().filter(|event| event.op == op).collect()
    }

    /// Counts references of `op` by `thread` (any if `None`) to `start..end`.
    pub fn count(&self, op: Op, thread: Option<u32>, start: u64, end: u64) -> u64 {
        self.events
            .iter()
            .filter(|event| event.op == op && (start..end).contains(&event.addr))
            .filter(|event| thread.is_none_or(|thread| event.thread == thread))
            .map(|event| event.len)
            .sum()
    }

    /// Returns the anonymous mapping of `nr_pages` pages that the test's program made.
    pub fn mapping(&self, nr_pages: u64) -> Event {
        let line = self
            .of(Op::Mmap)
            .into_iter()
            .find(|event| event.len == nr_pages * 4096 && event.file.is_none());
        line.unwrap_or_else(|| panic!("no mmap of {nr_pages} pages"))
    }

    pub fn file(&self, suffix: &str) -> u32 {
        let position = self.meta.files.iter().position(|file| file.path.ends_with(suffix));
        let id = position.unwrap_or_else(|| panic!("no file {suffix} in {:?}", self.meta.files));
        u32::try_from(id).expect("few files")
    }

    pub fn by_thread(&self) -> BTreeMap<u32, Vec<Event>> {
        let mut threads: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
        for event in &self.events {
            threads.entry(event.thread).or_default().push(*event);
        }
        threads
    }
}

/// Start of the programs of [`program`].
const SHARED: &str = r"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile char *p;
static void pages(int pages) {
    p = mmap(0, pages * 4096L, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}
static void fill(long first, long nr, int times) {
    for (long page = first; page < first + nr; page++)
        for (int i = 0; i < times; i++) p[page * 4096 + i] = 1;
}
";

/// Compiles `main` after [`SHARED`]: `pages` maps pages, `fill` writes each page repeatedly.
pub fn program(main: &str, flags: &[&str]) -> Made {
    compile(&format!("{SHARED}{main}"), flags)
}
