//! Memory statistics from `/proc` after a step: `smaps` and `numa_maps` per area, and `meminfo` if
//! nothing else ran. The mapcounts of single pages are in [`super::world::World`].

use std::fmt;

use largefolio_mm::counters::mapped::MappedCounters;
use largefolio_mm::view::statistics::Smaps;

use super::range::{NR_SLOTS, PageRange};
use crate::crosscheck::text::{Parsed, number_to};

const NR_VALUES: usize = 12;
/// Names of an area's numbers, in the recording's order.
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
/// Indices into [`NAMES`]; dirty numbers follow clean ones.
const PSS_DIRTY: usize = 2;
const SHARED_CLEAN: usize = 3;
const PRIVATE_CLEAN: usize = 5;
const NR_COUNTS: usize = 5;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    /// `smaps` and mapcounts.
    pub(super) has_processes: bool,
    /// `meminfo`; nothing else ran.
    pub(super) has_machine: bool,
}

impl Recorded {
    /// Reads a header's `statistics=` word.
    pub(super) fn of(word: Option<&str>) -> Parsed<Self> {
        match word {
            None => Ok(Self::default()),
            Some("processes") => Ok(Self { has_processes: true, has_machine: false }),
            Some("machine") => Ok(Self { has_processes: true, has_machine: true }),
            Some(other) => Err(format!("statistics={other:?} is neither processes nor machine")),
        }
    }
}

/// An area's numbers in `smaps`, in kB, and its `mapmax`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AreaNumbers([Option<u64>; NR_VALUES]);

#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) pages: PageRange,
    pub(super) numbers: AreaNumbers,
}

#[derive(Clone, Debug)]
pub(super) struct SlotAreas {
    pub(super) slot: usize,
    pub(super) areas: Vec<Area>,
}

pub(super) type AllAreas = [Vec<Area>; NR_SLOTS];

impl Area {
    /// Reads `FIRST NR NUMBERS..`; `-` means that the kernel does not report the number.
    pub(super) fn of(first: &str, nr: &str, fields: &[&str]) -> Parsed<Self> {
        if fields.len() != NR_VALUES {
            return Err(format!("an area has {NR_VALUES} numbers, not {}", fields.len()));
        }
        let mut numbers = AreaNumbers::default();
        for (value, word) in numbers.0.iter_mut().zip(fields) {
            *value = if *word == "-" { None } else { Some(number_to(u64::MAX, word)?) };
        }
        Ok(Self { pages: PageRange::of(first, nr)?, numbers })
    }
}

impl AreaNumbers {
    pub(super) fn of_model(smaps: &Smaps, kernel: &Self) -> Self {
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
            // The kernel prints the largest mapcount only above 1.
            u64::from(smaps.mapmax.max(1)),
        ];
        let mut numbers = Self::default();
        for (at, value) in all.into_iter().enumerate() {
            numbers.0[at] = kernel.0[at].map(|_| value);
        }
        numbers
    }
}

impl AreaNumbers {
    /// Merges dirty pages into clean ones, because the model differs from the kernel: dirty bits that
    /// `MADV_FREE` cleared spread at the next mprotect (6.17, docs/behaviour F.5.9).
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

/// The machine's mapped pages in kB: `AnonPages`, `Mapped`, `AnonHugePages`, `ShmemPmdMapped`,
/// `FilePmdMapped`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MachineKib([i64; NR_COUNTS]);

impl MachineKib {
    pub(super) fn of(fields: &[&str]) -> Parsed<Self> {
        if fields.len() != NR_COUNTS {
            return Err(format!("the machine has {NR_COUNTS} counts, not {}", fields.len()));
        }
        let mut counts = Self::default();
        for (count, word) in counts.0.iter_mut().zip(fields) {
            *count = number_to(i64::MAX.cast_unsigned(), word)?.cast_signed();
        }
        Ok(counts)
    }

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
