//! Censuses of machines stored in directories.

mod granules;
mod random;
mod remedies;
mod starts;
mod watch;

use std::path::{Path, PathBuf};

use self::remedies::Answers;
use super::folios::{Cell, MemoryKind, Size};
use super::*;
use crate::reasons::{CensusQuestion, Finding, Refusal, findings};
use crate::system::MemSystem;

const K: u64 = 1 << 10;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/proc").join(name)
}

fn edited(name: &str, edit: impl Fn(&Path)) -> (tempfile::TempDir, MemSystem) {
    let dir = tempfile::tempdir().unwrap();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        std::fs::create_dir_all(dir.path().join(&folder)).unwrap();
        for entry in std::fs::read_dir(fixture(name).join(&folder)).unwrap().flatten() {
            let inside = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(inside);
            } else {
                std::fs::copy(entry.path(), dir.path().join(&inside)).unwrap();
            }
        }
    }
    edit(dir.path());
    let system = MemSystem::from_dir(dir.path());
    (dir, system)
}

fn replace(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from} in {}", path.display());
    std::fs::write(path, text.replace(from, to)).unwrap();
}

fn cell(tally: &Tally, kind: MemoryKind, order: u32) -> Cell {
    tally.sum(|k, size| (k, size) == (kind, Size::Order(order)))
}

#[test]
fn folios_of_a_mapping_are_aligned_unaligned_or_partial() {
    let system = MemSystem::from_dir(fixture("6.18"));
    let census = take(&system, &[100]).unwrap();
    assert_eq!(census.access, Access::Full);
    let mappings = &census.processes[0].mappings;
    let text = cell(&mappings[0].tally, MemoryKind::Text, 4);
    assert_eq!((text.aligned_bytes, text.contpte_bytes, text.pmd_bytes), (128 * K, 128 * K, 0));
    assert_eq!(cell(&mappings[0].tally, MemoryKind::Text, 0).aligned_bytes, 64 * K);
    let anon = cell(&mappings[2].tally, MemoryKind::Anon, 9);
    assert_eq!((anon.aligned_bytes, anon.pmd_bytes), (2048 * K, 2048 * K));
    let heap = cell(&mappings[3].tally, MemoryKind::Anon, 2);
    assert_eq!((heap.unaligned_bytes, heap.aligned_bytes, heap.contpte_bytes), (16 * K, 0, 0));
    assert_eq!(mappings[3].tally.of(MemoryKind::Other).mapped_bytes(), 4 * K, "the page of zeros");
    let pool = cell(&mappings[4].tally, MemoryKind::Shmem, 4);
    assert_eq!((pool.partial_bytes, pool.aligned_bytes, pool.contpte_bytes), (32 * K, 0, 0));
}

#[test]
fn a_page_of_several_processes_counts_once_in_the_totals() {
    let system = MemSystem::from_dir(fixture("6.18"));
    let census = take(&system, &[100, 200]).unwrap();
    let [server, worker] = census.processes.as_slice() else { panic!("two processes") };
    assert_eq!(cell(&server.tally, MemoryKind::Anon, 9).pmd_bytes, 2048 * K);
    assert_eq!(cell(&worker.tally, MemoryKind::Anon, 9).pmd_bytes, 2048 * K);
    assert_eq!(cell(&census.totals, MemoryKind::Anon, 9).mapped_bytes(), 2048 * K);
    assert_eq!(cell(&worker.tally, MemoryKind::Text, 4).partial_bytes, 32 * K);
    let text = cell(&census.totals, MemoryKind::Text, 4);
    assert_eq!((text.aligned_bytes, text.partial_bytes), (128 * K, 0), "whole somewhere");
}

#[test]
fn what_cannot_be_read_is_skipped_and_counted() {
    let system = MemSystem::from_dir(fixture("6.18"));
    let census = take(&system, &[1, 100, 300]).unwrap();
    assert_eq!(census.processes.len(), 1);
    assert_eq!(
        (census.skipped.gone.as_slice(), census.skipped.refused.as_slice()),
        (&[1][..], &[300][..])
    );
    assert_eq!(all(&system).unwrap(), [100, 200, 300]);
}

#[test]
fn a_process_without_mappings_is_empty() {
    let (_dir, system) = edited("6.18", |dir| std::fs::write(dir.join("200/maps"), "").unwrap());
    let census = take(&system, &[100, 200]).unwrap();
    assert_eq!((census.processes.len(), census.skipped.empty.as_slice()), (1, &[200][..]));
}

#[test]
fn without_a_scan_the_folios_are_the_same() {
    let with = take(&MemSystem::from_dir(fixture("6.18")), &[100, 200]).unwrap();
    let (_dir, system) = edited("6.18", |dir| {
        for pid in ["100", "200"] {
            replace(&dir.join(pid).join("pagemap"), "scan\n", "");
        }
    });
    let without = take(&system, &[100, 200]).unwrap();
    for (one, other) in with.processes.iter().zip(&without.processes) {
        assert_eq!(one.tally, other.tally);
    }
}

#[test]
fn without_pfns_smaps_tells_what_it_can() {
    for hide in ["kpageflags", "100/pagemap"] {
        let (_dir, system) = edited("6.18", |dir| {
            if hide == "kpageflags" {
                std::fs::remove_file(dir.join(hide)).unwrap();
            } else {
                // Present without a PFN: the kernel's answer without CAP_SYS_ADMIN.
                std::fs::write(dir.join(hide), "scan\n400 30 8000000000000000\n").unwrap();
            }
        });
        let census = take(&system, &[100]).unwrap();
        assert_eq!(census.access, Access::Smaps, "{hide}");
        assert_eq!(cell(&census.totals, MemoryKind::Anon, 9).pmd_bytes, 2048 * K);
        let unknown = census.totals.sum(|_, size| size == Size::Unknown).mapped_bytes();
        assert_eq!(unknown, (192 + 1024 + 16 + 32) * K);
    }
}

#[test]
fn hostile_processes_cost_nothing_and_break_nothing() {
    let system = MemSystem::from_dir(fixture("hostile"));
    let census = take(&system, &[1, 2, 3]).unwrap();
    let [everything, named, last] = census.processes.as_slice() else { panic!("three") };
    assert_eq!(everything.nr_bad_lines, 3);
    // One page of a file's folio, and two pages of an order-3 folio with no other page mapped.
    assert_eq!(everything.tally.sum(|_, size| size == Size::Order(3)).partial_bytes, 8 * K);
    // Reading stops at the end of a truncated pagemap: tails without a head.
    assert_eq!(named.tally.of(MemoryKind::Other).mapped_bytes(), 32 * K);
    assert_eq!(named.mappings[0].vma.path, Path::new("/tmp/a\nb"));
    assert!(census.nr_beyond > 0 && last.tally.of(MemoryKind::Other).mapped_bytes() == 4 * K);
}

fn judged(system: &MemSystem, pid: u32) -> (Census, Vec<Finding>) {
    judged_with(system, pid, &Answers::default())
}

fn judged_with(system: &MemSystem, pid: u32, verbs: &Answers) -> (Census, Vec<Finding>) {
    let census = take(system, &[pid]).unwrap();
    let limit = |name: &str| match name {
        "ext4" => Some(2048 * K),
        "squashfs" => Some(0),
        _ => None,
    };
    let findings = findings(&census, &CensusQuestion { system, limit: &limit, verbs, nr_max: 100 });
    (census, findings)
}

fn finding(judged_census: &(Census, Vec<Finding>), start: u64) -> Option<&Finding> {
    let mappings = &judged_census.0.processes[0].mappings;
    judged_census.1.iter().find(|finding| mappings[finding.mapping].vma.range.start == start)
}

fn reasons(system: &MemSystem, pid: u32, start: u64) -> Vec<(Refusal, u64)> {
    let judged_census = judged(system, pid);
    let reasons = finding(&judged_census, start).map(|finding| finding.reasons.clone());
    reasons.unwrap_or_default().iter().map(|reason| (reason.refusal, reason.bytes)).collect()
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "the fixture has text blocks of 2M")]
fn each_mapping_has_its_reasons() {
    let system = MemSystem::from_dir(fixture("6.18"));
    assert_eq!(reasons(&system, 100, 0x40_0000), [(Refusal::CachedSmall, 64 * K)]);
    assert_eq!(
        reasons(&system, 100, 0x80_0000),
        [
            (Refusal::Incongruent, 1024 * K),
            (Refusal::Filesystem, 1024 * K),
            (Refusal::NotTouched, 1024 * K),
        ]
    );
    assert_eq!(reasons(&system, 100, 0x4000_0000), [], "mapped by a PMD entry");
    assert_eq!(reasons(&system, 100, 0x5000_1000), [(Refusal::TooSmall, 20 * K)]);
}
