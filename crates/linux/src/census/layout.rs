//! The positions of folios in individual mappings and files, for pictures.
//!
//! ```text
//!   pages of a mapping   |....AAAA BBBBBBBB cc..dddd|
//!   runs                      [A ] [B B    ] [c [d        page, pages, order, how they are mapped
//!   coarse               |   A   |   B   |   d      |     too many runs: cells instead
//! ```
//!
//! Owns a second reading after a census, because a census keeps only sums. If the program changed
//! between the two, the runs show the second reading.
//!
//! Invariants:
//! - L1: runs ascend by page, do not overlap, and are inside the mapping or file.
//! - L2: a layout has at most as many runs as its caller wants.
//! - L3: a run of whole folios starts at a folio's first page.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use serde::Serialize;

use super::file::{ExtentReader, open_live};
use super::kpageflags::{FlagBook, PageKind};
use super::pagemap::{self, Extent, Extents, Reader};
use super::process::{FolioPiece, PagePlace, Walk, clip};
use super::smaps_of;
use crate::geometry::Geometry;
use crate::proc::maps::Vma;
use crate::proc::{self, Task};
use crate::system::{Entries, System};

/// Cells of a layout that would have too many runs.
const NR_CELLS: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunMapping {
    Pmd,
    /// Whole, at an address congruent to the file offset or PFN; for files: cached.
    Aligned,
    /// Whole, at any other address.
    Unaligned,
    Partial,
    /// Most of a cell is in folios of this size.
    Mostly,
}

impl RunMapping {
    /// All of them, in the order used in a picture's data.
    pub const ALL: [Self; 5] =
        [Self::Pmd, Self::Aligned, Self::Unaligned, Self::Partial, Self::Mostly];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutRun {
    /// The first page, from the start of the mapping or file.
    pub page: u64,
    pub nr_pages: u64,
    pub order: u32,
    pub how: RunMapping,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub nr_pages: u64,
    /// Pages per cell if there are too many runs to show each; else 1.
    pub cell_pages: u64,
    pub runs: Vec<LayoutRun>,
}

/// Reads mappings again; `None` for each one that is no longer readable.
///
/// # Errors
/// If the page flags cannot be read.
pub fn of_mappings(
    system: &dyn System,
    wanted: &[(u32, &Vma)],
    nr_runs_max: usize,
) -> io::Result<Vec<Option<Layout>>> {
    let geometry = Geometry::of(system.page_bytes());
    let all_extents = wanted.iter().map(|&(pid, vma)| {
        Some((vma.pages(geometry.page_bytes), of_mapping(system, pid, vma).ok()?))
    });
    layouts(&*proc::kpageflags(system)?, geometry, all_extents.collect(), nr_runs_max)
}

fn of_mapping(system: &dyn System, pid: u32, vma: &Vma) -> io::Result<Extents> {
    let geometry = Geometry::of(system.page_bytes());
    let entries = Task::of(system, pid).pagemap()?;
    let (page_bytes, pmd_pages) = (geometry.page_bytes, 1 << geometry.pmd_order);
    let reader = Reader { entries: &*entries, page_bytes, pmd_pages };
    let smaps = std::cell::OnceCell::new();
    let vmas = std::slice::from_ref(vma);
    let mut all = Extents::new();
    for span in pagemap::spans(vmas, page_bytes, pmd_pages) {
        let bounds = || smaps.get_or_init(|| smaps_of(system, pid)).as_slice();
        all.append(&reader.read(&span, vmas, &bounds)?);
    }
    Ok(all)
}

/// Reads the page cache of files again; `None` for each one that is no longer readable.
///
/// # Errors
/// Without the right to see PFNs.
pub fn of_files(paths: &[&Path], nr_runs_max: usize) -> io::Result<Vec<Option<Layout>>> {
    let [pagemap, flags] = open_live()?;
    let geometry = Geometry::running();
    let reader = ExtentReader { entries: &*pagemap, geometry };
    let all_extents = paths.iter().map(|path| {
        let (len_bytes, extents) = reader.read_extents(path).ok()?;
        Some((0..len_bytes.div_ceil(geometry.page_bytes), extents))
    });
    layouts(&*flags, geometry, all_extents.collect(), nr_runs_max)
}

type FileExtents = Option<(Range<u64>, Extents)>;

fn layouts(
    flags: &dyn Entries,
    geometry: Geometry,
    all_extents: Vec<FileExtents>,
    nr_runs_max: usize,
) -> io::Result<Vec<Option<Layout>>> {
    let mut book = FlagBook::new(flags, 1 << geometry.pmd_order)?;
    let extents = all_extents.iter().flatten().flat_map(|(_, extents)| &extents.list);
    extents.for_each(|extent| book.want(extent));
    book.read(flags)?;
    let walk = Walk { book: &book, geometry };
    let layout = |(pages, extents): (Range<u64>, Extents)| {
        let mut runs = Runs::new(pages.end.saturating_sub(pages.start), nr_runs_max);
        for parts in extents.list.chunk_by(Extent::is_continued_by) {
            let nr = parts.iter().map(|part| part.nr).sum();
            walk.runs(pages.start, clip(&Extent { nr, ..parts[0] }, &pages), &mut runs);
        }
        runs.layout()
    };
    Ok(all_extents.into_iter().map(|extents_of_file| extents_of_file.map(layout)).collect())
}

impl Walk<'_> {
    /// Adds the runs of an extent, relative to the page `start`.
    fn runs(&self, start: u64, extent: Extent, runs: &mut Runs) {
        let (mut done, nr) = (0, u64::from(extent.nr));
        while done < nr {
            let pfn = extent.pfn + done;
            let (page, same) = self.book.at(pfn, nr - done);
            let first = extent.page + done;
            done += same;
            if matches!(page.backing(), PageKind::Zero | PageKind::Unknown) {
                continue;
            }
            let mut left = same;
            while left > 0 {
                let at = same - left;
                let piece = self.piece(page, PagePlace { page: first + at, pfn: pfn + at }, left);
                let how = how(&piece, extent.is_pmd);
                let (page, order) = (first + at - start, page.order());
                runs.add(LayoutRun { page, nr_pages: piece.nr, order, how });
                left -= piece.nr;
            }
        }
    }
}

const fn how(piece: &FolioPiece, is_pmd: bool) -> RunMapping {
    match (piece.is_whole, piece.is_aligned) {
        (false, _) => RunMapping::Partial,
        (true, _) if is_pmd => RunMapping::Pmd,
        (true, true) => RunMapping::Aligned,
        (true, false) => RunMapping::Unaligned,
    }
}

struct Runs {
    nr_pages: u64,
    nr_max: usize,
    list: Vec<LayoutRun>,
    cell_pages: u64,
    /// Pages by cell and order.
    cells: BTreeMap<u64, BTreeMap<u32, u64>>,
}

impl Runs {
    fn new(nr_pages: u64, nr_max: usize) -> Self {
        let nr_cells = NR_CELLS.min(nr_max as u64).max(1);
        let cell_pages = nr_pages.div_ceil(nr_cells).next_power_of_two();
        Self { nr_pages, nr_max, list: Vec::new(), cell_pages, cells: BTreeMap::new() }
    }

    fn add(&mut self, next: LayoutRun) {
        self.count(next);
        if let Some(last) = self.list.last_mut()
            && last.page + last.nr_pages == next.page
            && (last.order, last.how) == (next.order, next.how)
            && next.how != RunMapping::Partial
        {
            last.nr_pages += next.nr_pages;
            return;
        }
        // One run more than wanted is enough to show that there are too many.
        if self.list.len() <= self.nr_max {
            self.list.push(next);
        }
    }

    fn count(&mut self, run: LayoutRun) {
        let (mut page, end) = (run.page, run.page + run.nr_pages);
        while page < end {
            let cell = page / self.cell_pages;
            let nr = end.min((cell + 1) * self.cell_pages) - page;
            *self.cells.entry(cell).or_default().entry(run.order).or_default() += nr;
            page += nr;
        }
    }

    fn layout(self) -> Layout {
        let nr_pages = self.nr_pages;
        if self.list.len() <= self.nr_max {
            return Layout { nr_pages, cell_pages: 1, runs: self.list };
        }
        let mut coarse = Self::new(nr_pages, self.nr_max);
        for (cell, orders) in &self.cells {
            let most = orders.iter().max_by_key(|(order, nr)| (**nr, **order));
            let page = cell * self.cell_pages;
            let len = self.cell_pages.min(nr_pages - page);
            if let Some((&order, _)) = most {
                coarse.add(LayoutRun { page, nr_pages: len, order, how: RunMapping::Mostly });
            }
        }
        Layout { nr_pages, cell_pages: self.cell_pages, runs: coarse.list }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(page: u64, nr_pages: u64, order: u32, how: RunMapping) -> LayoutRun {
        LayoutRun { page, nr_pages, order, how }
    }

    #[test]
    fn neighbours_alike_are_one_run_and_parts_are_not() {
        let mut runs = Runs::new(64, 8);
        for (page, how) in
            [(0, RunMapping::Aligned), (4, RunMapping::Aligned), (8, RunMapping::Partial)]
        {
            runs.add(run(page, 4, 2, how));
        }
        runs.add(run(12, 4, 2, RunMapping::Partial));
        let layout = runs.layout();
        assert_eq!(layout.cell_pages, 1);
        assert_eq!(layout.runs[0], run(0, 8, 2, RunMapping::Aligned));
        assert_eq!(layout.runs.len(), 3);
    }

    #[test]
    fn too_many_runs_become_cells_of_what_is_most_there() {
        let mut runs = Runs::new(1 << 20, 4);
        for at in 0..1000 {
            runs.add(run(at * 4, 1, 0, RunMapping::Aligned));
        }
        runs.add(run(1 << 19, 512, 9, RunMapping::Pmd));
        let layout = runs.layout();
        assert_eq!(layout.cell_pages, 1 << 18);
        let expected =
            [run(0, 1 << 18, 0, RunMapping::Mostly), run(1 << 19, 1 << 18, 9, RunMapping::Mostly)];
        assert_eq!(layout.runs, expected);
    }
}
