//! Replays recordings of files step by step and compares (`recordings/README.md`).
//!
//! `LARGEFOLIO_RECORDINGS=DIR` replays another folder's recordings instead of the project's.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be replayed fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use largefolio_lab::crosscheck::files::FileSteps;
use largefolio_lab::crosscheck::{Aspect, Recording, Verdict, read_all};
use largefolio_testkit::{is_in_sample, is_whole};
use rayon::prelude::*;

use super::document;

/// The project has 1,583 recordings of ten self-built arm64 kernels, 2,799 of nine that `kernel/`
/// and settings make, 10,674 of 32 packaged ones, 647 of two with `NO_PAGE_MAPCOUNT`, 659 of two with
/// `READ_ONLY_THP_FOR_FS`, and 372 workloads and 18 programs of a running one. Fewer mean that the
/// test did not find the archives.
const NR_RECORDINGS_MIN: usize = 16_752;
const NR_KERNELS_MIN: usize = 49;
/// Recordings whose reads are sooner or later than the rule: 150 of 16,752, half of them on files
/// with holes, which are read within the call. Many more mean that timing hides a broken rule.
const NR_IN_FLIGHT_MAX: u64 = 166;

fn recordings(dir: &Path) -> Vec<Recording<FileSteps>> {
    let mut all = Vec::new();
    read_all(dir, &mut |recording| all.push(recording)).unwrap();
    all
}

#[test]
fn model_equals_the_recorded_kernels() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings");
    let given = std::env::var_os("LARGEFOLIO_RECORDINGS").map(PathBuf::from);
    let is_own = given.is_none();
    let mut all = recordings(&given.unwrap_or(own));
    all.retain(|one| one.lists_under_limit().is_none());
    if is_own {
        let kernels: BTreeSet<&str> = all.iter().map(|one| one.header.variant.as_str()).collect();
        assert!(all.len() >= NR_RECORDINGS_MIN, "{} recordings", all.len());
        assert!(kernels.len() >= NR_KERNELS_MIN, "{} kernels", kernels.len());
        all.retain(|one| is_in_sample(&one.name));
    }
    let check = |one: &Recording<FileSteps>| (one.header.variant.clone(), one.check(None).unwrap());
    let verdicts: Vec<_> = all.par_iter().map(check).collect();
    let mut kernels: BTreeMap<String, KernelRow> = BTreeMap::new();
    let mut different = Vec::new();
    for (kernel, verdict) in verdicts {
        if let Some(first) = verdict.differences.first() {
            different.push(format!("{}: {first}", verdict.name));
        }
        kernels.entry(kernel).or_default().add(&verdict);
    }
    let table = table(&kernels);
    println!("{table}");
    let shown = &different[..different.len().min(25)];
    assert!(different.is_empty(), "{} differ\n{}", different.len(), shown.join("\n"));
    if is_own {
        let nr_in_flight: u64 = kernels.values().map(|row| row.nr_in_flight).sum();
        assert!(nr_in_flight <= NR_IN_FLIGHT_MAX, "{nr_in_flight} with reads in flight");
        if is_whole() {
            document("files.rs", &table);
        }
    }
}

/// Random workloads on XFS: a new length writes back dirty folios, and a page in a hole waits for no
/// read (docs/differences.md, "a new length, and holes").
#[test]
fn a_new_length_and_holes_on_xfs_are_followed() {
    let all = recordings(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/xfs"));
    assert_eq!(all.len(), 3);
    for one in all {
        let verdict = one.check(None).unwrap();
        assert!(verdict.is_equal(), "{}: {:?}", one.name, verdict.differences);
        assert_eq!(verdict.nr_in_flight + verdict.nr_waits, 0, "{}", one.name);
    }
}

/// Random workloads on ext4 with 7.0 and 7.1: in which order a write beyond the end adds the page at
/// the old end (docs/behaviour A.7.7), also if that page is in a hole.
#[test]
fn writes_beyond_the_end_on_ext4_are_followed() {
    let all = recordings(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/ext4"));
    assert_eq!(all.len(), 6);
    for one in all {
        let verdict = one.check(None).unwrap();
        assert!(verdict.is_equal(), "{}: {:?}", one.name, verdict.differences);
    }
}

/// A difference that looks like an early read, at every number of reads: the comparison ends.
#[test]
fn an_unexplained_difference_ends_the_search() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/unexplained.txt");
    for one in recordings(&path) {
        one.check(None).unwrap();
    }
}

#[derive(Default)]
struct KernelRow {
    nr_equal: u64,
    nr_different: u64,
    nr_in_flight: u64,
    compared: BTreeMap<Aspect, u64>,
}

impl KernelRow {
    fn add(&mut self, verdict: &Verdict) {
        self.nr_equal += u64::from(verdict.is_equal());
        self.nr_different += u64::from(!verdict.is_equal());
        self.nr_in_flight += u64::from(verdict.nr_in_flight + verdict.nr_waits > 0);
        for (aspect, nr) in &verdict.compared {
            *self.compared.entry(*aspect).or_default() += nr;
        }
    }
}

fn table(kernels: &BTreeMap<String, KernelRow>) -> String {
    let columns = [
        ("insertions", &[Aspect::Insertions][..]),
        ("windows", &[Aspect::Windows]),
        ("entries, states", &[Aspect::Entries, Aspect::ColdStates, Aspect::HandlerHits]),
        ("handler", &[Aspect::Handler]),
        ("fault-around", &[Aspect::Around]),
        ("mapped pages", &[Aspect::Points, Aspect::Mapped]),
        ("folio runs", &[Aspect::Folios]),
        ("PMD", &[Aspect::PmdMapped]),
        ("major faults", &[Aspect::MajorFaults]),
    ];
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let mut lines = vec![
        format!("| recordings of | equal | differ | in flight | {} |", names.join(" | ")),
        format!("|---{}|", "|---".repeat(3 + columns.len())),
    ];
    for (kernel, row) in kernels {
        let count = |aspects: &[Aspect]| -> u64 {
            aspects.iter().filter_map(|aspect| row.compared.get(aspect)).sum()
        };
        let counts: Vec<String> = columns.iter().map(|(_, of)| count(of).to_string()).collect();
        let (equal, different, in_flight) = (row.nr_equal, row.nr_different, row.nr_in_flight);
        let counts = counts.join(" | ");
        lines.push(format!("| {kernel} | {equal} | {different} | {in_flight} | {counts} |"));
    }
    lines.join("\n")
}

/// Recorded on 6.18.44: the second request of a forced window is complete before the fault that
/// waited for the first one runs fault-around.
const EARLY_REQUEST: &str = "\
# kernel=6.18.44-fc-v657 arch=x86-64 variant=live_6.18_amd64 fs=ext4 read_ahead_kb=128 \
max_sectors_kb=512 fault_around_bytes=65536 prot=r map=shared advice=hugerandom \
pattern=ops page=4096 file_pages=6 file_bytes=24576 n=100 seed=0 opens=1 skew=0 \
settle=1500 resid_before=0 minflt=0 majflt=1 ra_pages=32 events=511 lost=0\n\
N 0 open=0 first=0 pages=6 prot=r map=shared advice=hugerandom addr=0x400000000000\n\
B 5 0 100 0\n\
S sync 5 1 0 0 0 32 0 -1\n\
S unbounded 5 1 0\n\
A 5 0\n\
G 5 5\n\
T 1\n\
F 1\n\
S order 0 9 512 512 32\n\
A 0 2\n\
S unbounded 4 2 512\n\
A 4 0\n\
W 0 5\n\
F 1\n\
E 0\n\
P 0..5\n\
K 0 +4 head\n\
M Rss: 24 kB\n\
M ShmemPmdMapped: 0 kB\n\
M FilePmdMapped: 0 kB\n";

#[test]
fn a_request_that_is_complete_early_explains_a_run_of_fault_around() {
    let recording = Recording::<FileSteps>::parse("here", EARLY_REQUEST).unwrap();
    let verdict = recording.check(None).unwrap();
    assert_eq!(verdict.differences, []);
    assert_eq!((verdict.nr_in_flight, verdict.nr_compared(Aspect::Around)), (1, 1));
}
