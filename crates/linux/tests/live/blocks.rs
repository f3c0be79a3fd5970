//! Blocks in every state that the kernel treats differently: predicted, collapsed, compared.
//!
//! A program makes the blocks, and the kernel's `MADV_COLLAPSE` decides about allowed and refused
//! ones.
#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use largefolio_linux::census::block::{self, AreaFacts, Backing, When};
use largefolio_linux::census::{self, smaps};
use largefolio_linux::collapse::{self, CollapseError, CollapseKind, CollapseRequest};
use largefolio_linux::reasons::{CensusQuestion, findings};
use largefolio_linux::remedies::Action;
use largefolio_linux::remedies::verbs::LiveVerbs;
use largefolio_linux::setting::{Setting, SettingError};
use largefolio_linux::system::Live;

use crate::held::Held;
use crate::turn;

const M2: u64 = 2 << 20;

/// Prints each block's name, backing and address; leaves out blocks that the kernel cannot make.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
enum { M2 = 2 << 20, PAGE = 4096, GUARD = 102, PAGEOUT = 21 };
static char *room(int flags, int fd) {
    /* Blocks apart from each other, so that no two mappings become one. */
    char *at = mmap(0, 3 * M2, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at = (char *)(((long)at + M2 - 1) & ~(M2 - 1L));
    return mmap(at, M2, 3, flags | MAP_FIXED, fd, 0);
}
static void fill(char *at, long len) { for (long i = 0; i < len; i++) at[i] = (i * 2654435761u >> 13) | 1; }
static char *anon(void) { char *at = room(MAP_PRIVATE | MAP_ANONYMOUS, -1); fill(at, M2); return at; }
static int memory(void) { int fd = memfd_create("blocks", 0); ftruncate(fd, M2); return fd; }
static char *shmem(long len) { char *at = room(MAP_SHARED, memory()); fill(at, len); return at; }
static void say(const char *name, const char *backing, char *at) { printf("%s %s %lx\n", name, backing, (long)at); }
static int pin(char *at) {
    struct io_uring_params setup;
    memset(&setup, 0, sizeof setup);
    int ring = syscall(SYS_io_uring_setup, 4, &setup);
    struct iovec one = { at, PAGE };
    return ring < 0 || syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &one, 1);
}
static int fault_fd = -1;
static int watch(char *at, int mode) {
    struct uffdio_register all = { .range = { (long)at, M2 }, .mode = mode };
    return fault_fd < 0 || ioctl(fault_fd, UFFDIO_REGISTER, &all);
}
int main(void) {
    char *at = anon();
    say("plain", "anon", at);
    at = room(MAP_PRIVATE | MAP_ANONYMOUS, -1); at[0] = 1;
    say("one_page", "anon", at);
    at = room(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    for (long i = 0; i < M2; i += PAGE) ((volatile char *)at)[i];
    say("zeros", "anon", at);
    at = anon();
    if (!madvise(at + 2 * PAGE, PAGE, GUARD)) say("guard", "anon", at);
    at = anon();
    if (!mlock(at, M2)) say("locked", "anon", at);
    at = anon();
    if (!mprotect(at, M2, PROT_NONE)) say("no_rights", "anon", at);
    at = anon();
    if (!madvise(at, M2, MADV_NOHUGEPAGE)) say("forbidden", "anon", at);
    at = anon();
    if (!madvise(at, M2 / 2, PAGEOUT)) say("half_out", "anon", at);
    at = anon();
    if (!pin(at + PAGE)) say("pinned", "anon", at);
    fault_fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);
    struct uffdio_api api = { .api = UFFD_API };
    if (fault_fd >= 0) ioctl(fault_fd, UFFDIO_API, &api);
    at = anon();
    if (!watch(at, UFFDIO_REGISTER_MODE_MISSING)) say("watched", "anon", at);
    at = anon(); madvise(at, PAGE, MADV_DONTNEED);
    if (!watch(at, UFFDIO_REGISTER_MODE_MISSING)) say("watched_hole", "anon", at);
    at = anon();
    struct uffdio_writeprotect one = { .range = { (long)at, PAGE }, .mode = UFFDIO_WRITEPROTECT_MODE_WP };
    if (!watch(at, UFFDIO_REGISTER_MODE_WP) && !ioctl(fault_fd, UFFDIO_WRITEPROTECT, &one))
        say("protected", "anon", at);
    at = shmem(M2);
    say("shared", "shmem", at);
    at = shmem(M2 / 2);
    say("shared_half", "shmem", at);
    at = shmem(M2);
    if (!madvise(at, PAGE, GUARD)) say("shared_guard", "shmem", at);
    at = shmem(M2);
    if (!pin(at)) say("shared_pinned", "shmem", at);
    at = shmem(M2);
    if (!watch(at, UFFDIO_REGISTER_MODE_MISSING)) say("shared_watched", "shmem", at);
    at = shmem(M2 - PAGE);
    if (!watch(at, UFFDIO_REGISTER_MODE_MISSING)) say("shared_watched_hole", "shmem", at);
    at = shmem(M2);
    if (!watch(at, UFFDIO_REGISTER_MODE_WP)) say("shared_protected", "shmem", at);
    int fd = memory();
    at = room(MAP_SHARED, fd); fill(at, M2);
    say("view", "shmem", at);
    at = room(MAP_SHARED, fd); fill(at, M2);
    say("view_again", "shmem", at);
    at = room(MAP_PRIVATE, memory()); fill(at, M2);
    say("copied", "shmem", at);
    puts("ready now 0");
    fflush(stdout);
    getchar();
    return 0;
}
"#;

/// Two copies of a page or a block, which KSM merges.
const MERGED: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
enum { M2 = 2 << 20, PAGE = 4096 };
static char *block(long seed) {
    char *at = mmap(0, 3 * M2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at = (char *)(((long)at + M2 - 1) & ~(M2 - 1L));
    mprotect(at, M2, PROT_READ | PROT_WRITE);
    if (madvise(at, M2, MADV_MERGEABLE)) return 0;
    for (long i = 0; i < M2 / (long)sizeof(long); i++) ((long *)at)[i] = (i + seed) * 2654435761L;
    return at;
}
static void say(const char *name, char *at) { if (at) printf("%s anon %lx\n", name, (long)at); }
int main(void) {
    say("each_once", block(1L << 32));
    say("each_once_too", block(1L << 32));
    char *one = block(2L << 32), *other = block(3L << 32);
    if (one && other) memcpy(one + PAGE, other, PAGE);
    say("one_page", one);
    say("one_page_too", other);
    char *twice = block(4L << 32);
    if (twice) memcpy(twice + 9 * PAGE, twice, PAGE);
    say("twice", twice);
    say("none", block(5L << 32));
    puts("ready now 0");
    fflush(stdout);
    getchar();
    return 0;
}
"#;
const KSM: &str = "/sys/kernel/mm/ksm";

struct Region {
    name: String,
    backing: Backing,
    at: u64,
}

struct Program {
    held: Held,
    blocks: Vec<Region>,
}

impl Program {
    fn start(source: &str) -> Option<Self> {
        let mut held = Held::compiled(source)?;
        let lines = BufReader::new(held.child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let made = |line: String| {
            let fields: Vec<&str> = line.split(' ').collect();
            let backing = if fields[1] == "anon" { Backing::Anon } else { Backing::Shmem };
            let at = u64::from_str_radix(fields[2], 16).unwrap();
            Region { name: fields[0].to_owned(), backing, at }
        };
        let blocks = lines.take_while(|line| line != "ready now 0").map(made).collect();
        Some(Self { held, blocks })
    }

    fn smaps(&self) -> Vec<smaps::Smap> {
        smaps::parse(&std::fs::read(format!("/proc/{}/smaps", self.held.pid())).unwrap())
    }

    fn large(&self) -> BTreeMap<&str, bool> {
        let smaps = self.smaps();
        let is_large = |made: &Region| smaps::find(&smaps, made.at).unwrap().pmd_bytes() == M2;
        self.blocks.iter().map(|made| (made.name.as_str(), is_large(made))).collect()
    }

    fn judged(&self) -> BTreeMap<&str, Result<(), block::Obstacle>> {
        let census = census::take(&Live, &[self.held.pid()]).unwrap();
        let smaps = self.smaps();
        let judged = self.blocks.iter().map(|made| {
            let smap = smaps::find(&smaps, made.at).unwrap();
            let area = AreaFacts::of(smap, made.backing);
            let touched = census.processes[0].touched(&(made.at..made.at + M2)).unwrap();
            let facts = touched.pmd.iter().next().map(|run| run.facts).unwrap_or_default();
            let judged = area.judge(&facts, touched.pmd.nr_pages(), When::Now);
            (made.name.as_str(), judged.map(|_| ()))
        });
        judged.collect()
    }

    /// Collapses the blocks, and says where the kernel decides otherwise. Judge all before: the first
    /// collapse removes the page tables of a second view.
    fn collapsed(&self, judged: &BTreeMap<&str, Result<(), block::Obstacle>>) -> Vec<String> {
        let mut differ = Vec::new();
        for made in &self.blocks {
            let (name, judged) = (made.name.as_str(), judged[made.name.as_str()]);
            if judged == Err(block::Obstacle::Large) {
                continue;
            }
            let is_collapsed = self.is_collapsed(made.at);
            if is_collapsed != judged.is_ok() {
                differ.push(format!("{name}: {judged:?}, and the kernel: {is_collapsed}"));
            }
        }
        differ
    }

    fn is_collapsed(&self, at: u64) -> bool {
        let pid = rustix::process::Pid::from_child(&self.held.child);
        let process =
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        collapse_one(&process, at..at + M2)
    }
}

fn collapse_one(process: &std::os::fd::OwnedFd, range: Range<u64>) -> bool {
    use std::os::fd::AsRawFd as _;
    let number = |value: u64| usize::try_from(value).unwrap();
    let range = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(number(range.start)),
        iov_len: number(range.end - range.start),
    };
    // SAFETY: the vector is complete; its addresses belong to the other process, and this advice
    // does not change that memory's content.
    let result = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            &raw const range,
            1_usize,
            libc::MADV_COLLAPSE,
            0_u32,
        )
    };
    result >= 0
}

/// Needs root and a kernel that collapses other processes' memory.
fn can_ask() -> bool {
    let can = rustix::process::geteuid().is_root()
        && std::fs::File::open("/proc/kpageflags").is_ok()
        && std::fs::read("/sys/kernel/mm/transparent_hugepage/enabled")
            .is_ok_and(|text| !text.windows(8).any(|word| word == b"[always]"));
    if !can {
        largefolio_testkit::skipped!("needs root, PFNs, and thp.enabled other than always");
    }
    can
}

#[test]
fn the_kernel_does_with_each_block_what_is_said_before() {
    if !can_ask() {
        return;
    }
    let _turn = turn::steady();
    let Some(program) = Program::start(PROGRAM) else { return };
    let judged = program.judged();
    assert_eq!(program.collapsed(&judged), Vec::<String>::new());
    assert!(program.blocks.len() >= 12, "the kernel has most of them");
}

/// Lets KSM scan all memory that programs offered, from one end to the other and again.
fn merge() -> Result<(), SettingError> {
    let file = |name: &str| Path::new(KSM).join(name);
    let _scan = [("pages_to_scan", "20000"), ("sleep_millisecs", "1"), ("smart_scan", "0")]
        .into_iter()
        .map(|(name, value)| Setting::change(&file(name), value))
        .collect::<Result<Vec<_>, _>>()?;
    let nr_scans = || Setting::read(&file("full_scans")).unwrap().parse::<u64>().unwrap();
    let before = nr_scans();
    let _run = Setting::change(&file("run"), "1")?;
    let start = Instant::now();
    while nr_scans() < before + 3 && start.elapsed() < Duration::from_mins(1) {
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn a_merged_block_is_collapsed_unless_it_has_a_page_twice() {
    if !can_ask() {
        return;
    }
    if !Path::new(KSM).join("smart_scan").exists() {
        return largefolio_testkit::skipped!("this kernel has no KSM, or one older than 6.7");
    }
    let _turn = turn::alone();
    let Some(program) = Program::start(MERGED) else { return };
    if let Err(refusal) = merge() {
        return largefolio_testkit::skipped!("{refusal}");
    }
    let judged = program.judged();
    let merged = |name| judged.get(name).copied();
    assert_eq!(merged("each_once"), Some(Ok(())), "{judged:?}");
    assert_eq!(merged("twice"), Some(Err(block::Obstacle::Merged)), "{judged:?}");
    assert_eq!(program.collapsed(&judged), Vec::<String>::new());
}

#[test]
fn collapse_gains_what_is_promised_block_for_block() {
    if !can_ask() {
        return;
    }
    let _turn = turn::steady();
    let Some(program) = Program::start(PROGRAM) else { return };
    let pid = program.held.pid();
    let census = census::take(&Live, &[pid]).unwrap();
    let question = CensusQuestion {
        system: &Live,
        limit: &|_| None,
        verbs: &LiveVerbs::default(),
        nr_max: usize::MAX,
    };
    let all_findings = findings(&census, &question);
    let mut promised: BTreeMap<&str, u64> = BTreeMap::new();
    let mut sum = 0;
    for finding in &all_findings {
        let at = census.processes[0].mappings[finding.mapping].vma.range.start;
        let Some(made) = program.blocks.iter().find(|made| made.at == at) else { continue };
        let remedies = finding.remedies.iter().filter(|one| one.action == Action::Collapse);
        let gain: u64 = remedies.map(|remedy| remedy.gain_bytes).sum();
        promised.insert(&made.name, gain);
        sum += gain;
    }
    let kinds = vec![CollapseKind::Anon, CollapseKind::Shmem];
    let request = CollapseRequest { pid, kinds, is_named: true, min_bytes: M2 };
    let outcome = match collapse::run(&request, "folio collapse", &mut |_| {}) {
        Ok(outcome) => outcome,
        Err(CollapseError::NotAllowed { .. } | CollapseError::OldKernel) => {
            largefolio_testkit::skipped!("collapse of another process needs root and Linux 6.1");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    for (name, is_large) in program.large() {
        let gain = promised.get(name).copied().unwrap_or(0);
        // A block with two views is promised in only one of them.
        let expected = gain == M2 || name.starts_with("view");
        assert_eq!(is_large, expected, "{name}: {gain} promised; {outcome:?}");
    }
    assert_eq!(promised["view"] + promised["view_again"], M2);
    assert_eq!(outcome.once_bytes.1 - outcome.once_bytes.0, sum, "{outcome:?}");
    assert!(outcome.kinds.values().all(|kind| kind.refused.is_empty()), "{outcome:?}");
}
