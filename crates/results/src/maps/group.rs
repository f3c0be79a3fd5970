//! Mappings and reasons grouped by file, since fifty processes can map one library.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use largefolio_linux::census::Census;
use largefolio_linux::census::folios::{MemoryKind, Size, Tally};
use largefolio_linux::census::process::{Mapping, Process};
use largefolio_linux::reasons::{Finding, Refusal};
use largefolio_linux::remedies::Remedy;

use super::plain::{what, what_in};

/// Maximum number of remedies in a row: each of fifty processes of a file may have its own.
pub(super) const REMEDIES_MAX: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Size,
    Small,
    Text,
    File,
    Anon,
    Shmem,
    Pmd,
}

impl Sort {
    /// In cycling order.
    const ALL: [Self; 7] =
        [Self::Size, Self::Small, Self::Text, Self::File, Self::Anon, Self::Shmem, Self::Pmd];

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Size => "mapped bytes",
            Self::Small => "bytes in base pages",
            Self::Text => "text",
            Self::File => "other file pages",
            Self::Anon => "private memory",
            Self::Shmem => "shared memory",
            Self::Pmd => "bytes mapped by PMD entries",
        }
    }

    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|one| *one == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) what: String,
    pub(super) permissions: String,
    pub(super) nr_processes: usize,
    pub(super) tally: Tally,
}

pub(super) fn mappings(census: &Census, sort: Sort) -> Vec<Group> {
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    for process in &census.processes {
        let mut keys = BTreeSet::new();
        for mapping in &process.mappings {
            let key = key(mapping, census.processes.len());
            let group = groups.entry(key.clone()).or_default();
            group.tally.add_all(&mapping.tally);
            keys.insert(key);
        }
        for key in keys {
            if let Some(group) = groups.get_mut(&key) {
                group.nr_processes += 1;
            }
        }
    }
    let mut groups: Vec<Group> = groups
        .into_iter()
        .map(|((what, permissions), group)| Group { what, permissions, ..group })
        .filter(|group| rank(&group.tally, sort) > 0)
        .collect();
    groups.sort_by_key(|group| Reverse(rank(&group.tally, sort)));
    groups
}

pub(super) fn key(mapping: &Mapping, nr_processes: usize) -> (String, String) {
    let vma = &mapping.vma;
    let what = what(vma);
    let what = if nr_processes == 1 { format!("{:x} {what}", vma.range.start) } else { what };
    (what, vma.permission_text())
}

pub(super) fn processes(census: &Census, sort: Sort) -> Vec<&Process> {
    let mut processes: Vec<&Process> =
        census.processes.iter().filter(|process| rank(&process.tally, sort) > 0).collect();
    processes.sort_by_key(|process| Reverse(rank(&process.tally, sort)));
    processes
}

pub(super) fn rank(tally: &Tally, sort: Sort) -> u64 {
    let of = |kind| tally.of(kind).mapped_bytes();
    match sort {
        Sort::Size => tally.all().mapped_bytes(),
        Sort::Small => tally.sum(|_, size| size == Size::Order(0)).mapped_bytes(),
        Sort::Text => of(MemoryKind::Text),
        Sort::File => of(MemoryKind::File),
        Sort::Anon => of(MemoryKind::Anon),
        Sort::Shmem => of(MemoryKind::Shmem),
        Sort::Pmd => tally.all().pmd_bytes,
    }
}

/// Memory that could be in larger folios, with all reasons why it is not.
#[derive(Clone, Debug, Default)]
pub(super) struct Subject {
    pub(super) what: String,
    pub(super) target_bytes: u64,
    /// Mapped bytes that are not in large folios.
    pub(super) bytes: u64,
    pub(super) nr_processes: usize,
    pub(super) reasons: BTreeMap<Refusal, u64>,
    /// Equal remedies are merged with their gains; those without a restart come first.
    pub(super) remedies: Vec<Remedy>,
}

impl Subject {
    fn add(&mut self, remedy: &Remedy) {
        match self.remedies.iter_mut().find(|one| one.is_like(remedy)) {
            Some(one) => one.add(remedy),
            None => self.remedies.push(remedy.clone()),
        }
    }
}

pub(super) fn subjects(census: &Census, findings: &[Finding]) -> Vec<Subject> {
    let mut subjects: BTreeMap<(String, u64), (Subject, BTreeSet<usize>)> = BTreeMap::new();
    for finding in findings {
        let mapping = &census.processes[finding.process].mappings[finding.mapping];
        let name = what_in(&census.processes[finding.process].name, &mapping.vma);
        let key = (name, finding.target_bytes);
        let (subject, processes) = subjects.entry(key).or_default();
        let small = mapping.tally.all().mapped_bytes().saturating_sub(finding.large_bytes);
        subject.bytes += small.min(finding.missing_bytes);
        for reason in &finding.reasons {
            let sum = subject.reasons.entry(reason.refusal).or_default();
            *sum = sum.saturating_add(reason.bytes);
        }
        finding.remedies.iter().for_each(|remedy| subject.add(remedy));
        processes.insert(finding.process);
    }
    let mut subjects: Vec<Subject> = subjects
        .into_iter()
        .map(|((what, target_bytes), (mut subject, processes))| {
            subject
                .remedies
                .sort_by_key(|remedy| (remedy.restart, Reverse(remedy.present_bytes())));
            if subject.remedies.iter().any(Remedy::is_some) {
                subject.remedies.retain(Remedy::is_some);
            }
            Subject { what, target_bytes, nr_processes: processes.len(), ..subject }
        })
        .collect();
    subjects.sort_by_key(|subject| Reverse(subject.bytes));
    subjects
}
