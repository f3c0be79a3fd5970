//! Large folios of private memory, and how much of them holds only zeroes.
//!
//! ```text
//!   2M folio     |x0000x00|0000000|xxxxxxxx|      x: a page with data, 0: only zeroes
//!   pieces       [kept    ][wasted][kept   ]      what smaller folios would have kept
//! ```
//!
//! A page of zeroes was probably never written to, but a program can also have stored zeroes. With
//! base pages of more than 4 KiB, they count as large too: parts of 4 KiB are checked everywhere.
//! Owns a second reading after a census. It reads only pages that are present just before, so it
//! brings none in. It stops at a number of bytes; of more memory, it reads every n-th folio.
//!
//! Not read: shared memory, hugetlb, device memory, and memory that userfaultfd watches.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::Census;
use super::folios::{MemoryKind, Size};
use super::layout::{self, Layout, LayoutRun, RunMapping};
use super::process::Process;
use crate::geometry::Geometry;
use crate::proc::Task;
use crate::proc::maps::Vma;
use crate::proc::smaps::{self, Smap};
use crate::system::{Entries, System, entry};

/// More runs of folios of one mapping are not told apart, and such a mapping is not read.
const NR_RUNS_MAX: usize = 1 << 18;
const WORD_BYTES: u64 = 8;
/// Memory is checked in parts of this size: the smallest base page.
const PART_BYTES: u64 = 4 << 10;
const PART_WORDS: usize = (PART_BYTES / WORD_BYTES) as usize;

/// Folios of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeWaste {
    pub bytes: u64,
    pub read_bytes: u64,
    /// Of the bytes read, those in pages of zeroes.
    pub zero_bytes: u64,
}

/// A mapping's large folios.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappingWaste {
    pub start: u64,
    pub name: PathBuf,
    /// By folio size in bytes.
    pub sizes: BTreeMap<u64, SizeWaste>,
    /// By folio size: the bytes that such folios would have kept, of the bytes read.
    pub kept_bytes: BTreeMap<u64, u64>,
}

/// A process's large folios.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessWaste {
    pub pid: u32,
    pub name: String,
    /// Those with large folios of private memory.
    pub mappings: Vec<MappingWaste>,
    /// Why mappings were left out, by mapping.
    pub left_out: Vec<(u64, &'static str)>,
    /// The process ended, or the kernel does not show its memory.
    pub refused: bool,
}

/// Adjacent whole folios of a mapping, in base pages.
#[derive(Clone, Copy)]
struct Folios {
    mapping: usize,
    first: u64,
    nr_pages: u64,
    order: u32,
}

/// Reads the large folios of all processes in a census, about `bytes_max` bytes at most.
///
/// # Errors
/// If page flags cannot be read. A process that cannot be read has a result that says so.
pub fn of(system: &dyn System, census: &Census, bytes_max: u64) -> io::Result<Vec<ProcessWaste>> {
    let geometry = census.geometry;
    let mut all = Vec::new();
    for process in &census.processes {
        all.push(folios_of(system, process, geometry)?);
    }
    let large_bytes: u64 = all
        .iter()
        .flat_map(|(_, folios)| folios)
        .map(|folios| folios.nr_pages * geometry.page_bytes)
        .sum();
    let step = large_bytes.div_ceil(bytes_max.max(1)).max(1);
    let mut nr_seen = 0;
    let mut read = |(mut waste, folios): (ProcessWaste, Vec<Folios>)| {
        if waste.read(system, geometry, &folios, (step, &mut nr_seen)).is_err() {
            waste.refused = true;
        }
        waste
    };
    Ok(all.into_iter().map(&mut read).collect())
}

fn folios_of(
    system: &dyn System,
    process: &Process,
    geometry: Geometry,
) -> io::Result<(ProcessWaste, Vec<Folios>)> {
    let smaps = Task::of(system, process.pid).smaps();
    let mut waste = ProcessWaste {
        pid: process.pid,
        name: process.name.clone(),
        mappings: Vec::new(),
        left_out: Vec::new(),
        refused: smaps.is_err(),
    };
    let smaps = smaps.unwrap_or_default();
    let mut wanted: Vec<(u32, &Vma)> = Vec::new();
    for mapping in &process.mappings {
        let vma = &mapping.vma;
        let is_large = |kind, size| {
            let is_large = |order| has_parts(order, geometry);
            kind == MemoryKind::Anon && matches!(size, Size::Order(order) if is_large(order))
        };
        if vma.is_shared() || mapping.tally.sum(is_large).mapped_bytes() == 0 {
            continue;
        }
        match smaps::find(&smaps, vma.range.start).map(obstacle) {
            Some(None) => wanted.push((process.pid, vma)),
            Some(Some(why)) => waste.left_out.push((vma.range.start, why)),
            // It is gone.
            None => {}
        }
    }
    let layouts = layout::of_mappings(system, &wanted, NR_RUNS_MAX)?;
    let mut folios = Vec::new();
    for ((_, vma), layout) in wanted.into_iter().zip(layouts) {
        let Some(Layout { cell_pages: 1, runs, .. }) = layout else {
            waste.left_out.push((vma.range.start, "too many folios"));
            continue;
        };
        let (mapping, first) = (waste.mappings.len(), vma.pages(geometry.page_bytes).start);
        let large = runs.into_iter().filter(|run| is_read(run, geometry)).map(|run| Folios {
            mapping,
            first: first + run.page,
            nr_pages: run.nr_pages,
            order: run.order,
        });
        folios.extend(large);
        let (start, name) = (vma.range.start, vma.name().into_owned());
        waste.mappings.push(MappingWaste { start, name, ..MappingWaste::default() });
    }
    Ok((waste, folios))
}

/// Returns whether part of a folio can hold zeroes and the rest data.
const fn has_parts(order: u32, geometry: Geometry) -> bool {
    geometry.page_bytes << order > PART_BYTES
}

const fn is_read(run: &LayoutRun, geometry: Geometry) -> bool {
    let is_whole = matches!(run.how, RunMapping::Pmd | RunMapping::Aligned | RunMapping::Unaligned);
    is_whole && has_parts(run.order, geometry)
}

const fn obstacle(smap: &Smap) -> Option<&'static str> {
    if smap.is_hugetlb {
        Some("hugetlb")
    } else if smap.is_device {
        Some("device memory")
    } else if smap.awaits_missing || smap.awaits_minor || smap.is_write_tracked {
        Some("watched by userfaultfd")
    } else {
        None
    }
}

impl ProcessWaste {
    fn read(
        &mut self,
        system: &dyn System,
        geometry: Geometry,
        all: &[Folios],
        (step, nr_seen): (u64, &mut u64),
    ) -> io::Result<()> {
        if all.is_empty() {
            return Ok(());
        }
        let task = Task::of(system, self.pid);
        let (pagemap, memory) = (task.pagemap()?, task.memory()?);
        let page_words = geometry.page_bytes / WORD_BYTES;
        let (mut states, mut words) = (Vec::new(), Vec::new());
        for folios in all {
            let pages = 1 << folios.order;
            let bytes = pages * geometry.page_bytes;
            for first in (folios.first..folios.first + folios.nr_pages).step_by(1 << folios.order) {
                let mapping = &mut self.mappings[folios.mapping];
                let size = mapping.sizes.entry(bytes).or_default();
                size.bytes += bytes;
                *nr_seen += 1;
                // The folio may have been freed or swapped out meanwhile.
                if !nr_seen.is_multiple_of(step)
                    || !is_present(&*pagemap, first, resized(&mut states, pages))
                {
                    continue;
                }
                let words = resized(&mut words, pages * page_words);
                let nr = memory.read(first * page_words, words).unwrap_or(0);
                if nr < words.len() {
                    continue;
                }
                let is_zero: Vec<bool> = words
                    .chunks(PART_WORDS)
                    .map(|part| part.iter().all(|word| *word == 0))
                    .collect();
                let nr_zero = is_zero.iter().filter(|is_zero| **is_zero).count() as u64;
                size.read_bytes += bytes;
                size.zero_bytes += nr_zero * PART_BYTES;
                mapping.keep(&is_zero, geometry);
            }
        }
        self.mappings.retain(|mapping| !mapping.sizes.is_empty());
        Ok(())
    }
}

fn resized(words: &mut Vec<u64>, len: u64) -> &mut [u64] {
    words.clear();
    words.resize(usize::try_from(len).unwrap_or(0), 0);
    words
}

/// Returns whether all pages from `first` are in memory. `states` has room for one word per page.
fn is_present(pagemap: &dyn Entries, first: u64, states: &mut [u64]) -> bool {
    let nr = pagemap.read(first, states).unwrap_or(0);
    nr == states.len() && states.iter().all(|state| state & entry::PRESENT != 0)
}

impl MappingWaste {
    /// Adds a folio to `kept_bytes`. `is_zero` has its parts.
    fn keep(&mut self, is_zero: &[bool], geometry: Geometry) {
        let largest = geometry.page_bytes << geometry.pmd_order;
        let sizes = (0_u32..).map(|by| PART_BYTES << by).take_while(|size| *size <= largest);
        for size in sizes {
            let nr_parts = usize::try_from(size / PART_BYTES).unwrap_or(usize::MAX);
            let kept = if nr_parts >= is_zero.len() {
                is_zero.len()
            } else {
                let pieces = is_zero.chunks(nr_parts);
                pieces.filter(|piece| piece.contains(&false)).count() * nr_parts
            };
            *self.kept_bytes.entry(size).or_default() += kept as u64 * PART_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_folios_keep_the_pieces_with_data() {
        let geometry = Geometry::of(4096);
        let mut mapping = MappingWaste::default();
        // A folio of 64K with data in its first and its last page, and one without any.
        let mut pages = [true; 16];
        (pages[0], pages[15]) = (false, false);
        mapping.keep(&pages, geometry);
        mapping.keep(&[true; 16], geometry);
        let kib = |size: u64| mapping.kept_bytes[&(size << 10)] >> 10;
        // Folios that are already as small stay whole.
        assert_eq!([4, 8, 32, 64, 2048].map(kib), [8, 16, 64, 128, 128]);
    }

    #[test]
    fn base_pages_of_64k_have_parts_too() {
        let geometry = Geometry::of(65536);
        assert!(has_parts(0, geometry) && !has_parts(0, Geometry::of(4096)));
        let mut mapping = MappingWaste::default();
        let mut page = [true; 16];
        page[3] = false;
        mapping.keep(&page, geometry);
        let kib = |size: u64| mapping.kept_bytes[&(size << 10)] >> 10;
        assert_eq!([4, 16, 64, 2048].map(kib), [4, 16, 64, 64], "a base page of 4K keeps 4K");
    }
}
