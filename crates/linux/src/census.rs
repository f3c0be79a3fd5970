//! The folio sizes of processes, files and the page cache on the running system.
//!
//! ```text
//!   selection     choose the processes           selection.rs, cgroup.rs
//!   maps     list the mappings              proc/maps.rs       every process, one thread each
//!   pagemap  find present pages and PFNs    pagemap.rs         spans of 256 MiB, all threads
//!   flags    find the folio at each PFN     kpageflags.rs      each wanted page once, all threads
//!   walk     folios along the mappings      process.rs         aligned, unaligned, partial, contpte
//!   totals   each page once                 folios.rs
//!   layout   folio positions for pictures   layout.rs          a second pass
//!   waste    pages of zeroes                 waste.rs           a second pass, on request
//!   hot      memory in use                   hot.rs             accessed bits, on request
//!   watch    skip unchanged processes       watch.rs           if a census is repeated
//! ```
//!
//! Owns reading and counting. [`crate::reasons`] judges why folios are not larger.
//!
//! A census is not a snapshot, because processes keep running while they are read. Memory that
//! changed between two steps counts as [`folios::MemoryKind::Other`]; a process that exited is
//! skipped and counted.
//!
//! Invariants:
//! - C1: a census does not change the system. Only [`hot`] clears accessed bits, and only
//!   [`file::cached`] maps files into this process; it holds a read lease on each file for a few
//!   microseconds while the file is judged.
//! - C2: memory is bounded by the page tables that are read and by the machine's memory (P2, K1).

pub mod block;
pub mod cgroup;
pub mod file;
pub mod folios;
pub mod hot;
mod kpageflags;
pub mod layout;
mod pagemap;
pub mod process;
pub mod selection;
pub mod settings;
pub mod waste;
mod watch;

pub use self::watch::Watch;
pub use crate::proc::{Held, maps, pinned, smaps};

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::OnceLock;

use rayon::iter::{
    IndexedParallelIterator as _, IntoParallelIterator as _, IntoParallelRefIterator as _,
    ParallelIterator as _,
};
use serde::{Deserialize, Serialize};

use self::folios::Tally;
use self::kpageflags::FlagBook;
use self::pagemap::{Extents, Reader, Span};
use self::process::{Mapping, Process, SeenRun, Walk};
use self::watch::Kept;
use crate::geometry::Geometry;
use crate::proc::maps::{Maps, Vma};
use crate::proc::smaps::Smap;
use crate::proc::stat::MemoryState;
use crate::proc::{self, Task};
use crate::system::{Entries, System};

#[derive(Debug, thiserror::Error)]
pub enum CensusError {
    #[error("cannot list the processes in /proc: {0}")]
    Processes(io::Error),
    #[error("cannot read /proc/kpageflags: {0}")]
    Flags(io::Error),
}

/// How much the kernel shows to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// PFNs and flags: all folio sizes.
    Full,
    /// No PFNs: smaps shows only which memory is PMD-mapped.
    Smaps,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// They exited or never existed.
    pub gone: Vec<u32>,
    /// The kernel does not show them to this user.
    pub refused: Vec<u32>,
    /// Kernel threads and zombies, which have no memory of their own.
    pub empty: Vec<u32>,
}

#[derive(Clone, Debug)]
pub struct Census {
    pub geometry: Geometry,
    pub access: Access,
    /// All memory of the processes, each page counted once; a plain sum for [`Access::Smaps`].
    pub totals: Tally,
    pub processes: Vec<Process>,
    pub skipped: Skipped,
    /// Pages with a PFN past the end of kpageflags. They are not counted by size.
    pub nr_beyond: u64,
}

/// Takes a census of the given processes.
///
/// # Errors
/// If the process list or the page flags cannot be read. A process that cannot be read is in
/// [`Census::skipped`].
pub fn take(system: &dyn System, pids: &[u32]) -> Result<Census, CensusError> {
    take_with(system, pids, None)
}

fn take_with(
    system: &dyn System,
    pids: &[u32],
    watch: Option<&mut Watch>,
) -> Result<Census, CensusError> {
    let geometry = Geometry::of(system.page_bytes());
    let flags = match proc::kpageflags(system) {
        Ok(flags) => Some(flags),
        Err(error) if is_refusal(&error) => None,
        Err(error) => return Err(CensusError::Flags(error)),
    };
    let Some(flags) = flags else {
        let (subjects, skipped) = open(system, pids, &|_| None);
        let taking = Taking { system, geometry, subjects, skipped };
        let (read, _) = taking.pagemaps();
        return Ok(taking.of_smaps(&read));
    };
    let Some(watch) = watch else {
        let (subjects, skipped) = open(system, pids, &|_| None);
        let taking = Taking { system, geometry, subjects, skipped };
        return Ok(taking.full(&*flags, Vec::new())?.0);
    };
    let unchanged = watch.unchanged(system, pids);
    let known: BTreeSet<u32> = unchanged.iter().map(|(process, _)| process.pid).collect();
    let changed: Vec<u32> = pids.iter().copied().filter(|pid| !known.contains(pid)).collect();
    let (subjects, skipped) = open(system, &changed, &|pid| Task::of(system, pid).memory_state());
    let taking = Taking { system, geometry, subjects, skipped };
    let (census, kept) = taking.full(&*flags, unchanged)?;
    watch.keep(kept);
    Ok(census)
}

/// Lists all processes on the system.
///
/// # Errors
/// If `/proc` cannot be listed.
pub fn all(system: &dyn System) -> Result<Vec<u32>, CensusError> {
    proc::pids(system).map_err(CensusError::Processes)
}

/// Returns the id of the current boot: pids mean nothing in another one.
#[must_use]
pub fn boot_id(system: &dyn System) -> Option<String> {
    proc::host::boot_id(system)
}

struct Subject {
    pid: u32,
    /// Before its mappings were read; `None` unless the census is repeated.
    state: Option<MemoryState>,
    name: String,
    vmas: Vec<Vma>,
    nr_bad_lines: usize,
    held: Held,
    smaps: OnceLock<Vec<Smap>>,
}

impl Subject {
    fn smaps(&self, system: &dyn System) -> &[Smap] {
        self.smaps.get_or_init(|| smaps_of(system, self.pid))
    }

    fn process(&self, mappings: Vec<Mapping>) -> Process {
        let mut tally = Tally::default();
        for mapping in &mappings {
            tally.add_all(&mapping.tally);
        }
        let (pid, name, nr_bad_lines) = (self.pid, self.name.clone(), self.nr_bad_lines);
        Process { pid, name, mappings, tally, held: self.held.clone(), nr_bad_lines }
    }
}

fn smaps_of(system: &dyn System, pid: u32) -> Vec<Smap> {
    Task::of(system, pid).smaps().unwrap_or_default()
}

fn open(
    system: &dyn System,
    pids: &[u32],
    state: &(dyn Fn(u32) -> Option<MemoryState> + Sync),
) -> (Vec<Subject>, Skipped) {
    let opened: Vec<_> =
        pids.par_iter().map(|&pid| (pid, subject(system, pid, state(pid)))).collect();
    let (mut subjects, mut skipped) = (Vec::new(), Skipped::default());
    for (pid, subject) in opened {
        match subject {
            Ok(subject) if subject.vmas.is_empty() => skipped.empty.push(pid),
            Ok(subject) => subjects.push(subject),
            Err(error) => skipped.add(pid, &error),
        }
    }
    (subjects, skipped)
}

fn subject(system: &dyn System, pid: u32, state: Option<MemoryState>) -> io::Result<Subject> {
    let task = Task::of(system, pid);
    let Maps { vmas, nr_bad_lines } = task.maps()?;
    let (name, held) = (task.comm(), task.held());
    Ok(Subject { pid, state, name, vmas, nr_bad_lines, held, smaps: OnceLock::new() })
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

impl Skipped {
    fn add(&mut self, pid: u32, error: &io::Error) {
        if is_refusal(error) {
            self.refused.push(pid);
        } else {
            self.gone.push(pid);
        }
    }
}

struct Taking<'a> {
    system: &'a dyn System,
    geometry: Geometry,
    subjects: Vec<Subject>,
    skipped: Skipped,
}

impl Taking<'_> {
    /// Reads the processes; adds those that are `unchanged`. Also returns what to keep of each.
    fn full(
        mut self,
        flags: &dyn Entries,
        unchanged: Vec<(Process, Kept)>,
    ) -> Result<(Census, BTreeMap<u32, Kept>), CensusError> {
        let (read, skipped) = self.pagemaps();
        let is_hidden = |all: &Extents| !all.hidden.is_empty() && all.list.is_empty();
        // If PFNs were visible before, they still are.
        if unchanged.is_empty() && read.iter().flatten().any(is_hidden) {
            return Ok((self.of_smaps(&read), BTreeMap::new()));
        }
        let mut book =
            FlagBook::new(flags, 1 << self.geometry.pmd_order).map_err(CensusError::Flags)?;
        let extents = read.iter().flatten().flat_map(|all| &all.list);
        extents.for_each(|extent| book.want(extent));
        book.read(flags).map_err(CensusError::Flags)?;
        let runs = unchanged.iter().flat_map(|(_, kept)| &kept.seen.runs);
        runs.for_each(|run| book.put(run.pages.clone(), run.page));
        let walk = Walk { book: &book, geometry: self.geometry };
        let pairs: Vec<_> = std::mem::take(&mut self.subjects).into_iter().zip(&read).collect();
        let processes = pairs.into_par_iter().filter_map(|(mut subject, read)| {
            let read = read.as_ref()?;
            let (mut mappings, seen) =
                walk.mappings(std::mem::take(&mut subject.vmas), read, &subject.held.pinned);
            if !read.knows_pmd {
                let smaps = subject.smaps(self.system);
                process::add_pmd_of_smaps(&mut mappings, smaps, self.geometry);
            }
            let kept = subject.state.take().map(|state| Kept { state, seen });
            Some((subject.process(mappings), kept))
        });
        let read: Vec<(Process, Option<Kept>)> = processes.collect();
        let mut totals = Tally::default();
        for (_, kept) in &unchanged {
            totals.add_all(&kept.seen.own);
            kept.seen.runs.iter().for_each(|run| book.see(run.pages.clone(), run.bits));
        }
        add_seen(&book, self.geometry, &mut totals);
        let unchanged = unchanged.into_iter().map(|(process, kept)| (process, Some(kept)));
        let (mut processes, mut all_kept) = (Vec::new(), BTreeMap::new());
        for (process, kept) in read.into_iter().chain(unchanged) {
            all_kept.extend(kept.map(|kept| (process.pid, kept)));
            processes.push(process);
        }
        processes.sort_by_key(|process| process.pid);
        let (geometry, nr_beyond) = (self.geometry, book.nr_beyond);
        let access = Access::Full;
        let census = Census { geometry, access, totals, processes, skipped, nr_beyond };
        Ok((census, all_kept))
    }

    /// Reads each process's present pages; returns the skipped processes too.
    fn pagemaps(&self) -> (Vec<Option<Extents>>, Skipped) {
        let pmd_pages = 1 << self.geometry.pmd_order;
        let page_bytes = self.geometry.page_bytes;
        let mut opened = Vec::new();
        let mut works: Vec<(usize, Span)> = Vec::new();
        for (nr, subject) in self.subjects.iter().enumerate() {
            let entries = Task::of(self.system, subject.pid).pagemap();
            if entries.is_ok() {
                let spans = pagemap::spans(&subject.vmas, page_bytes, pmd_pages);
                works.extend(spans.into_iter().map(|span| (nr, span)));
            }
            opened.push(entries);
        }
        let read = works.par_iter().map(|(nr, span)| {
            let subject = &self.subjects[*nr];
            let entries: &dyn Entries = &**opened[*nr].as_ref().ok()?;
            let smaps = || subject.smaps(self.system);
            let reader = Reader { entries, page_bytes, pmd_pages };
            reader.read(span, &subject.vmas, &smaps).ok()
        });
        let read: Vec<Option<Extents>> = read.collect();
        let mut all: Vec<Option<Extents>> =
            opened.iter().map(|entries| entries.as_ref().ok().map(|_| Extents::new())).collect();
        for ((nr, _), part) in works.iter().zip(read) {
            match part {
                Some(part) => all[*nr].iter_mut().for_each(|all| all.append(&part)),
                None => all[*nr] = None,
            }
        }
        let mut skipped = self.skipped.clone();
        for ((subject, entries), all) in self.subjects.iter().zip(&opened).zip(&all) {
            match (entries, all) {
                (Err(error), _) => skipped.add(subject.pid, error),
                (Ok(_), None) => skipped.gone.push(subject.pid),
                (Ok(_), Some(_)) => {}
            }
        }
        (all, skipped)
    }

    /// Builds the census from smaps. The pages only say how much is present.
    fn of_smaps(mut self, pages: &[Option<Extents>]) -> Census {
        let read = self.subjects.par_iter().zip(pages.par_iter()).map(|(subject, pages)| {
            let smaps = subject.smaps(self.system);
            let mappings = subject.vmas.iter().filter_map(|vma| {
                let smap = smaps::find(smaps, vma.range.start)?;
                let tally = process::of_smaps(vma, smap, self.geometry);
                let touched = pages.as_ref().filter(|pages| pages.knows_pmd);
                let touched = touched.map(|all| {
                    process::touched_unseen(vma, all, &subject.held.pinned, self.geometry)
                });
                Some(Mapping { vma: vma.clone(), tally, touched })
            });
            let mappings: Vec<_> = mappings.collect();
            if mappings.is_empty() { None } else { Some(subject.process(mappings)) }
        });
        let read: Vec<Option<Process>> = read.collect();
        let missing = self.subjects.iter().zip(&read).filter(|(_, process)| process.is_none());
        self.skipped.refused.extend(missing.map(|(subject, _)| subject.pid));
        let processes: Vec<Process> = read.into_iter().flatten().collect();
        let mut totals = Tally::default();
        for process in &processes {
            totals.add_all(&process.tally);
        }
        let (geometry, skipped) = (self.geometry, self.skipped);
        Census { geometry, access: Access::Smaps, totals, processes, skipped, nr_beyond: 0 }
    }
}

fn add_seen(book: &FlagBook, geometry: Geometry, totals: &mut Tally) {
    book.each_seen(&mut |page, bits, nr| {
        SeenRun { pages: 0..nr, page, bits }.add_to(totals, geometry);
    });
}

#[cfg(test)]
mod tests;
