//! What `/proc` said of mapped memory after a step: `smaps` and `numa_maps` of each area, and
//! `meminfo` where nothing else ran. Map counts of single pages are part of the
//! [`super::world::World`].

use std::fmt;

use largefolio_mm::counters::mapped::MappedCounters;
use largefolio_mm::view::statistics::Smaps;

use super::range::{NR_SLOTS, PageRange};
use crate::crosscheck::text::{Parsed, number_to};

/// Numbers of an area: [`NAMES`].
const NR_VALUES: usize = 12;
/// Names of the numbers of an area, in the order of the recording.
const NAMES: [&str; NR_VALUES] = [
    "Rss",
    "Pss",
    "Pss_Dirty",
    "Shared_Clean",
    "Shared_Dirty",
    "Private_Clean",
    "Private_Dirty",
    "Anonymous",
    "AnonHugePages",
    "ShmemPmdMapped",
    "FilePmdMapped",
    "mapmax",
];
/// Places of numbers in [`NAMES`]; dirty ones follow clean ones.
const PSS_DIRTY: usize = 2;
const SHARED_CLEAN: usize = 3;
const PRIVATE_CLEAN: usize = 5;
/// Numbers of the machine.
const NR_COUNTS: usize = 5;

/// What is known of a program's memory beside its pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    /// `smaps` and map counts.
    pub(super) has_processes: bool,
    /// `meminfo`: nothing else ran.
    pub(super) has_machine: bool,
}

impl Recorded {
    /// The `statistics=` of a header.
    pub(super) fn of(word: Option<&str>) -> Parsed<Self> {
        match word {
            None => Ok(Self::default()),
            Some("processes") => Ok(Self { has_processes: true, has_machine: false }),
            Some("machine") => Ok(Self { has_processes: true, has_machine: true }),
            Some(other) => Err(format!("statistics={other:?} is neither processes nor machine")),
        }
    }
}

/// What `smaps` says of one area, in kB, and `mapmax`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AreaNumbers([Option<u64>; NR_VALUES]);

/// One area of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) pages: PageRange,
    pub(super) numbers: AreaNumbers,
}

/// The areas of a process, after a step that changed what is said of them.
#[derive(Clone, Debug)]
pub(super) struct SlotAreas {
    pub(super) slot: usize,
    pub(super) areas: Vec<Area>,
}

/// The areas of all processes.
pub(super) type AllAreas = [Vec<Area>; NR_SLOTS];

impl Area {
    /// Reads `FIRST NR NUMBERS..`; `-` is a number that the kernel does not tell.
    pub(super) fn of(first: &str, nr: &str, words: &[&str]) -> Parsed<Self> {
        if words.len() != NR_VALUES {
            return Err(format!("an area has {NR_VALUES} numbers, not {}", words.len()));
        }
        let mut numbers = AreaNumbers::default();
        for (value, word) in numbers.0.iter_mut().zip(words) {
            *value = if *word == "-" { None } else { Some(number_to(u64::MAX, word)?) };
        }
        Ok(Self { pages: PageRange::of(first, nr)?, numbers })
    }
}

impl AreaNumbers {
    /// What the model says, as far as the kernel told it.
    pub(super) fn of_model(smaps: &Smaps, told: &Self) -> Self {
        let kib = |bytes: u64| bytes >> 10;
        let all = [
            kib(smaps.rss_bytes),
            kib(smaps.pss.bytes()),
            kib(smaps.pss_dirty.bytes()),
            kib(smaps.shared_clean_bytes),
            kib(smaps.shared_dirty_bytes),
            kib(smaps.private_clean_bytes),
            kib(smaps.private_dirty_bytes),
            kib(smaps.anonymous_bytes),
            kib(smaps.anon_by_pmd_bytes),
            kib(smaps.shmem_by_pmd_bytes),
            kib(smaps.file_by_pmd_bytes),
            // The kernel tells a largest count above 1 only.
            u64::from(smaps.mapmax.max(1)),
        ];
        let mut numbers = Self::default();
        for (at, value) in all.into_iter().enumerate() {
            numbers.0[at] = told.0[at].map(|_| value);
        }
        numbers
    }
}

impl AreaNumbers {
    /// The same without telling clean pages from dirty ones: dirty bits that `MADV_FREE` cleared
    /// spread at the next mprotect (6.17), and a store to shared memory that a load had mapped
    /// leaves its folio clean. The model does neither (docs/behaviour F.5.9).
    pub(super) fn without_dirty(mut self) -> Self {
        for (clean, dirty) in [(SHARED_CLEAN, SHARED_CLEAN + 1), (PRIVATE_CLEAN, PRIVATE_CLEAN + 1)]
        {
            let dirty = self.0[dirty].take();
            self.0[clean] = self.0[clean].zip(dirty).map(|(clean, dirty)| clean + dirty);
        }
        self.0[PSS_DIRTY] = None;
        self
    }
}

impl fmt::Display for AreaNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, value) in NAMES.iter().zip(self.0) {
            let Some(value) = value else { continue };
            write!(f, "{separator}{name} {value}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// Mapped pages of the machine in kB: `AnonPages`, `Mapped`, `AnonHugePages`, `ShmemPmdMapped`,
/// `FilePmdMapped`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MachineKib([i64; NR_COUNTS]);

impl MachineKib {
    pub(super) fn of(words: &[&str]) -> Parsed<Self> {
        if words.len() != NR_COUNTS {
            return Err(format!("the machine has {NR_COUNTS} counts, not {}", words.len()));
        }
        let mut counts = Self::default();
        for (count, word) in counts.0.iter_mut().zip(words) {
            *count = number_to(i64::MAX.cast_unsigned(), word)?.cast_signed();
        }
        Ok(counts)
    }

    /// Since the program began.
    pub(super) fn since(self, before: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] - before.0[at]))
    }

    pub(super) fn of_model(mapped: &MappedCounters, page_bytes: u64) -> Self {
        let MappedCounters { nr_anon, nr_file, nr_anon_by_pmd, nr_shmem_by_pmd, nr_file_by_pmd } =
            *mapped;
        let all = [nr_anon, nr_file, nr_anon_by_pmd, nr_shmem_by_pmd, nr_file_by_pmd];
        Self(all.map(|nr| (nr * (page_bytes >> 10)).cast_signed()))
    }
}

impl fmt::Display for MachineKib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [anon, file, anon_by_pmd, shmem_by_pmd, file_by_pmd] = self.0;
        write!(f, "AnonPages {anon}, Mapped {file}, AnonHugePages {anon_by_pmd}, ")?;
        write!(f, "ShmemPmdMapped {shmem_by_pmd}, FilePmdMapped {file_by_pmd}")
    }
}
