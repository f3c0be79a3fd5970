//! Compares the census of prepared processes with a count of single pages.
//!
//! Each scene runs in its own process (this program, started again). It prepares memory, prints the
//! address, waits, applies the remedy that the census recommended, and prints the address again.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends if it cannot continue, reports skips, and talks to its scene"
)]

mod old;
mod oracle;
mod scene;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use largefolio_linux::census::file::{self, Empty};
use largefolio_linux::census::folios::{MemoryKind, Size, Tally};
use largefolio_linux::census::settings::{Allows, ThpSettings};
use largefolio_linux::census::{self, Access, Census, smaps};
use largefolio_linux::reasons::{CensusQuestion, Finding, Reason, Refusal, findings};
use largefolio_linux::remedies::verbs::LiveVerbs;
use largefolio_linux::setting::Setting;
use largefolio_linux::shell::as_root;
use largefolio_linux::system::{Live, System};

use self::old::OldKernel;
use crate::support::itself;
use crate::turn::{self, Turn};

const M: u64 = 1 << 20;
const THP: &str = "/sys/kernel/mm/transparent_hugepage";

fn can_see() -> bool {
    let can = rustix::process::geteuid().is_root() && File::open("/proc/kpageflags").is_ok();
    if !can {
        largefolio_testkit::skipped!("PFNs need root and /proc/kpageflags");
    }
    can
}

/// Keeps all settings unchanged if PFNs are visible.
fn steady() -> Option<Turn> {
    can_see().then(turn::steady)
}

/// Lets only one test change settings.
fn changing() -> Option<Turn> {
    can_see().then(turn::alone)
}

struct Scene {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Scene {
    fn start(name: &str, path: &Path) -> Self {
        let mut child = itself("census::scene::play")
            .env("LARGEFOLIO_SCENE", name)
            .env("LARGEFOLIO_SCENE_FILE", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn step(&mut self) -> Range<u64> {
        let range = self.read_values("at");
        range[0]..range[1]
    }

    fn read_values(&mut self, key: &str) -> Vec<u64> {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the scene ended");
            let mut values = line.split_whitespace();
            if values.next() == Some(key) {
                return values.map(|word| word.parse().unwrap()).collect();
            }
        }
    }

    fn go_on(&mut self) {
        writeln!(self.input.as_mut().unwrap()).unwrap();
    }

    fn census(&self) -> Census {
        let census = census::take(&Live, &[self.child.id()]).unwrap();
        assert_eq!((census.access, census.processes.len()), (Access::Full, 1));
        census
    }

    /// Returns the tally of a range, compared with the count of single pages. If khugepaged
    /// collapses memory in between, the range is counted again.
    fn tally(&self, range: &Range<u64>) -> Tally {
        let snapshot = || oracle::snapshot(self.child.id(), range);
        for _ in 0..20 {
            let (before, tally, after) = (snapshot(), self.mapped(range), snapshot());
            if before == after {
                assert_eq!(oracle::by_order(&tally), before.counted, "{range:x?}");
                return tally;
            }
        }
        panic!("the folios of {range:x?} never stop changing")
    }

    fn mapped(&self, range: &Range<u64>) -> Tally {
        let mut tally = Tally::default();
        for mapping in &self.census().processes[0].mappings {
            if mapping.vma.range.start < range.end && range.start < mapping.vma.range.end {
                tally.add_all(&mapping.tally);
            }
        }
        tally
    }

    fn finding(&self, range: &Range<u64>) -> Option<Finding> {
        let census = self.census();
        let verbs = &LiveVerbs::default();
        let question =
            CensusQuestion { system: &Live, limit: &|_| None, verbs, nr_max: usize::MAX };
        let all_findings = findings(&census, &question);
        let at = |at: usize| census.processes[0].mappings[at].vma.range.contains(&range.start);
        all_findings.into_iter().find(|finding| at(finding.mapping))
    }

    fn reasons(&self, range: &Range<u64>) -> Vec<Reason> {
        self.finding(range).map(|finding| finding.reasons).unwrap_or_default()
    }

    fn remedies(&self, range: &Range<u64>) -> Vec<String> {
        let remedies = self.finding(range).map(|finding| finding.remedies).unwrap_or_default();
        remedies.iter().map(ToString::to_string).collect()
    }

    fn refusals(&self, range: &Range<u64>) -> Vec<Refusal> {
        self.reasons(range).iter().map(|reason| reason.refusal).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a file of `len` bytes page by page, so the page cache has base pages.
fn small_file(dir: &Path, len: u64) -> PathBuf {
    let path = dir.join("file");
    let mut file = File::create(&path).unwrap();
    for nr in 0..len / 4096 {
        file.write_all(&[u8::try_from(nr % 251).unwrap(); 4096]).unwrap();
    }
    file.sync_all().unwrap();
    path
}

/// Makes a directory on a disk: the temporary one may be in memory.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn in_order(tally: &Tally, order: u32) -> census::folios::Cell {
    tally.sum(|_, size| size == Size::Order(order))
}

#[test]
fn pmd_folios_agree_with_smaps() {
    let Some(_steady) = steady() else { return };
    let mut scene = Scene::start("pmd", Path::new(""));
    let range = scene.step();
    let tally = scene.tally(&range);
    let text = fs::read(format!("/proc/{}/smaps", scene.child.id())).unwrap();
    let smaps = smaps::parse(&text);
    let smap = smaps::find(&smaps, range.start).unwrap();
    assert_eq!(tally.all().pmd_bytes, smap.anon_pmd_bytes);
    assert_eq!(tally.all().mapped_bytes(), smap.rss_bytes);
    assert!(smap.anon_pmd_bytes > 0, "the kernel gave no huge page");
}

fn control(kib: u32) -> PathBuf {
    PathBuf::from(format!("{THP}/hugepages-{kib}kB/enabled"))
}

/// Enables only one folio size for advised memory, or none, until the result is dropped.
fn only(wanted_kib: Option<u32>) -> Vec<(u32, Setting)> {
    let sizes = (0..).map(|order| 4 << order).take_while(|kib| *kib <= 2048);
    sizes
        .filter(|kib| control(*kib).exists())
        .map(|kib| {
            let value = if wanted_kib == Some(kib) { "madvise" } else { "never" };
            (kib, Setting::change(&control(kib), value).unwrap())
        })
        .collect()
}

#[test]
fn every_size_of_anonymous_folios_is_counted() {
    let Some(_alone) = changing() else { return };
    for kib in [16_u32, 64, 256] {
        if !control(kib).exists() {
            largefolio_testkit::skipped!("this kernel has no anonymous folios of {kib} KiB");
            continue;
        }
        let _settings = only(Some(kib));
        let mut scene = Scene::start("advised", Path::new(""));
        let range = scene.step();
        let tally = scene.tally(&range);
        let cell = in_order(&tally, (kib / 4).ilog2());
        assert!(cell.aligned_bytes > 0, "no folio of {kib} KiB: {tally:?}");
        assert_eq!(cell.contpte_bytes, if kib < 64 { 0 } else { cell.aligned_bytes });
    }
}

#[test]
fn a_forked_process_shares_and_counts_once() {
    let Some(_steady) = steady() else { return };
    let mut scene = Scene::start("fork", Path::new(""));
    let child = u32::try_from(scene.read_values("pid")[0]).unwrap();
    scene.step();
    let parent = scene.child.id();
    let census = census::take(&Live, &[parent, child]).unwrap();
    let pmd = |tally: &Tally| tally.of(MemoryKind::Anon).pmd_bytes;
    let [one, other] = census.processes.as_slice() else { panic!("two processes") };
    assert!(pmd(&one.tally) >= 4 * M, "{:?}", one.tally);
    assert_eq!(pmd(&one.tally), pmd(&other.tally));
    assert_eq!(pmd(&census.totals), pmd(&one.tally));
}

#[test]
fn a_moved_mapping_is_unaligned() {
    let Some(_steady) = steady() else { return };
    let mut scene = Scene::start("moved", Path::new(""));
    let range = scene.step();
    let cell = in_order(&scene.tally(&range), 9);
    assert_eq!((cell.unaligned_bytes, cell.aligned_bytes, cell.pmd_bytes), (4 * M, 0, 0));
    assert!(scene.refusals(&range).contains(&Refusal::Incongruent));
}

/// Starts a scene: its first step has `refusal`; its second, after the remedy, has not.
fn remedied(name: &str, path: &Path, refusal: Refusal) -> (Reason, Tally) {
    // Khugepaged may have collapsed it already: start the scene again.
    let mut all_reasons = Vec::new();
    let staged = (0..5).find_map(|_| {
        let mut scene = Scene::start(name, path);
        let range = scene.step();
        scene.tally(&range);
        let reasons = scene.reasons(&range);
        let reason = reasons.iter().find(|reason| reason.refusal == refusal).cloned();
        all_reasons.extend(reasons);
        reason.map(|reason| (scene, reason))
    });
    let (mut scene, reason) =
        staged.unwrap_or_else(|| panic!("{name}: {refusal:?} is not among {all_reasons:?}"));
    scene.go_on();
    let range = scene.step();
    let after = scene.refusals(&range);
    assert!(!after.contains(&refusal), "{name}: the remedy left {after:?}");
    (reason, scene.tally(&range))
}

#[test]
fn remedies_of_memory_remove_their_reasons() {
    let Some(_steady) = steady() else { return };
    // MADV_COLLAPSE of shared memory ignores the setting (docs/behaviour H.1.2); the reason does
    // not.
    let shared = match ThpSettings::of(&Live).shmem(2 * M).map(|set| set.allows) {
        Some(Allows::None) => Refusal::SettingOff,
        Some(Allows::Advised) => Refusal::NotAdvised,
        _ => Refusal::FilledSmall,
    };
    let rows = [
        ("not-advised", Refusal::NotAdvised),
        ("advised-late", Refusal::FilledSmall),
        ("advised-against", Refusal::NoHugeAdvice),
        ("hole", Refusal::PartlyMapped),
        ("split", Refusal::MappedByPages),
        ("memfd", shared),
    ];
    for (name, refusal) in rows {
        let (reason, tally) = remedied(name, Path::new(""), refusal);
        assert!(reason.bytes >= M, "{name}: {reason:?}");
        assert!(tally.all().pmd_bytes >= 2 * M, "{name}: {tally:?}");
    }
}

#[test]
fn a_setting_that_is_off_is_named_and_switching_it_on_helps() {
    let Some(_alone) = changing() else { return };
    let mut settings = only(None);
    let mut scene = Scene::start("advised-small", Path::new(""));
    let range = scene.step();
    let reasons = scene.reasons(&range);
    assert_eq!(reasons[0].refusal, Refusal::SettingOff);
    let remedies = scene.remedies(&range);
    assert!(
        remedies[0].starts_with(&as_root("folio tune --set thp.64K=madvise --yes")),
        "{remedies:?}"
    );
    let setting = settings.iter_mut().find(|(kib, _)| *kib == 64);
    setting.unwrap().1.set("madvise").unwrap();
    scene.go_on();
    let range = scene.step();
    assert_eq!(scene.refusals(&range), []);
}

#[test]
fn a_file_cached_small_is_named_and_refilling_it_helps() {
    let Some(_steady) = steady() else { return };
    let dir = on_disk();
    let path = small_file(dir.path(), 4 * M);
    let mut scene = Scene::start("file", &path);
    let range = scene.step();
    let name = path.canonicalize().unwrap();
    let sentence = format!("stop the program, folio warm {}, start it again", name.display());
    assert_eq!(scene.remedies(&range), [sentence]);
    drop(scene);
    let (_, tally) = remedied("file", &path, Refusal::CachedSmall);
    assert_eq!(tally.of(MemoryKind::Text).pmd_bytes, 4 * M, "refilled: {tally:?}");
}

#[test]
fn a_file_mapped_off_its_alignment_is_named() {
    let Some(_steady) = steady() else { return };
    let dir = on_disk();
    let path = small_file(dir.path(), 4 * M);
    remedied("file-off", &path, Refusal::Incongruent);
}

#[test]
fn a_writer_is_found_and_closing_it_helps() {
    let Some(_steady) = steady() else { return };
    let dir = on_disk();
    let path = small_file(dir.path(), 4 * M);
    let mut scene = Scene::start("file", &path);
    let range = scene.step();
    assert!(!scene.refusals(&range).contains(&Refusal::OpenForWrite));
    let writer = File::options().append(true).open(&path).unwrap();
    let reasons = scene.reasons(&range);
    assert!(reasons.iter().any(|reason| reason.refusal == Refusal::OpenForWrite), "{reasons:?}");
    let (remedies, pid) = (scene.remedies(&range), std::process::id());
    assert!(remedies[0].contains(&format!("{pid} has the file open")), "{remedies:?}");
    drop(writer);
    assert!(!scene.refusals(&range).contains(&Refusal::OpenForWrite));
}

#[test]
fn pages_of_a_file_that_were_written_to_are_copies() {
    let Some(_steady) = steady() else { return };
    let dir = on_disk();
    let path = small_file(dir.path(), 4 * M);
    let mut scene = Scene::start("file-copy", &path);
    let range = scene.step();
    assert_eq!(scene.tally(&range).of(MemoryKind::Anon).mapped_bytes(), M);
    assert!(scene.refusals(&range).contains(&Refusal::PrivateCopy));
}

fn meminfo(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: u64 = line.unwrap().trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn totals_of_the_system_are_those_of_meminfo() {
    let Some(_steady) = steady() else { return };
    // Large folios of a process that is hidden even from root, such as a container's process 1.
    let hidden_before = (0..100).map(|_| nr_unseen().0[0]).find(|nr| *nr != i128::MAX);
    let hidden_before = hidden_before.unwrap();
    let mut scenes = ["pmd", "memfd"].map(|name| Scene::start(name, Path::new("")));
    for scene in &mut scenes {
        scene.step();
    }
    scenes[1].go_on();
    scenes[1].step();
    // Other processes continue: try until they all happen to be idle.
    let differences: Vec<String> = (0..100)
        .map_while(|_| {
            let (unseen, census) = nr_unseen();
            let pmd = |kind| census.totals.of(kind).pmd_bytes;
            assert!(pmd(MemoryKind::Anon) >= 4 * M && pmd(MemoryKind::Shmem) >= 4 * M);
            let hidden = if census.skipped.refused.is_empty() { 0 } else { hidden_before };
            (unseen != [hidden, 0]).then(|| format!("{unseen:?}: {:?}", census.totals))
        })
        .collect();
    assert!(differences.len() < 100, "never equal, the last: {:?}", differences.last());
}

/// Returns the PMD-mapped bytes in meminfo but not in the census, for private and other memory, and
/// the census. If memory changed meanwhile, the result is never 0.
fn nr_unseen() -> ([i128; 2], Census) {
    let figures = || ["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"].map(meminfo);
    let before = figures();
    let census = census::take(&Live, &census::all(&Live).unwrap()).unwrap();
    let pmd = |kind| i128::from(census.totals.of(kind).pmd_bytes);
    let [anon, shmem, file] = before.map(i128::from);
    let other = pmd(MemoryKind::Text) + pmd(MemoryKind::File) + pmd(MemoryKind::Shmem);
    let unseen = [anon - pmd(MemoryKind::Anon), shmem + file - other];
    (if before == figures() { unseen } else { [i128::MAX; 2] }, census)
}

#[test]
fn an_older_kernel_shows_the_same() {
    let Some(_steady) = steady() else { return };
    let mut scene = Scene::start("pmd", Path::new(""));
    let range = scene.step();
    let [new, old] = [&Live as &dyn System, &OldKernel].map(|system| {
        let census = census::take(system, &[scene.child.id()]).unwrap();
        let mut mappings = census.processes[0].mappings.iter();
        mappings.find(|mapping| mapping.vma.range.contains(&range.start)).unwrap().tally.clone()
    });
    assert!(new.of(MemoryKind::Anon).pmd_bytes >= 4 * M, "{new:?}");
    assert_eq!(new, old);
}

#[test]
fn processes_that_end_meanwhile_do_no_harm() {
    let Some(_steady) = steady() else { return };
    let mut gone = 0;
    for _ in 0..20 {
        let mut children: Vec<Child> =
            (0..8).map(|_| Command::new("/bin/true").spawn().unwrap()).collect();
        let pids: Vec<u32> = children.iter().map(Child::id).collect();
        let census = census::take(&Live, &pids).unwrap();
        let skipped = &census.skipped;
        let nr = census.processes.len() + skipped.gone.len() + skipped.empty.len();
        assert_eq!((nr, skipped.refused.len()), (8, 0));
        for child in &mut children {
            child.wait().unwrap();
        }
        gone += census::take(&Live, &pids).unwrap().skipped.gone.len();
    }
    assert_eq!(gone, 160);
}

#[test]
fn looking_at_the_page_cache_reads_nothing_in() {
    let Some(_steady) = steady() else { return };
    let dir = on_disk();
    let path = small_file(dir.path(), 4 * M);
    let snapshot = || {
        let cached = file::cached(std::slice::from_ref(&path), Empty::Keep).unwrap();
        assert!(cached.failed.is_empty(), "{:?}", cached.failed);
        cached.files[0].tally.clone()
    };
    assert_eq!(in_order(&snapshot(), 0).mapped_bytes(), 4 * M);
    let file = File::open(&path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert_eq!(snapshot().all().mapped_bytes(), 0);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    rustix::io::pread(&file, &mut [0; 100], M).unwrap();
    let once = snapshot();
    assert!((4096..M).contains(&once.all().mapped_bytes()), "{once:?}");
    assert_eq!(snapshot(), once, "a second look finds the same");
}

#[test]
fn a_file_of_terabytes_with_a_page_in_it_is_quick() {
    let Some(_steady) = steady() else { return };
    let dir = on_disk();
    let path = dir.path().join("sparse");
    let file = File::create(&path).unwrap();
    file.set_len(8 << 40).unwrap();
    rustix::io::pwrite(&file, &[1; 4096], 5 << 40).unwrap();
    let cached = file::cached(&[path, dir.path().to_owned()], Empty::Keep).unwrap();
    assert_eq!(cached.files[0].tally.all().mapped_bytes(), 4096);
    assert_eq!(cached.failed.len(), 1, "a directory is not a file");
}
