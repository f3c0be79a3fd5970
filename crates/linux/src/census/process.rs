//! One process: its mappings and their folios.
//!
//! ```text
//!   addresses   |.....AAAA|AAAA BBBB.|....        extents of pagemap, cut at mappings
//!   folios            [A  . A]  [B   . . ]        A is whole but in two mappings: partial in each
//! ```
//!
//! Owns the walk of extents along mappings. Invariant R1: a mapping's cells sum to its present
//! pages.

use std::collections::HashSet;
use std::ops::Range;

use super::block::{self, BlockFacts, Gathering, Runs};
use super::folios::{Cell, Counter, MemoryKind, Size, Tally};
use super::kpageflags::{FlagBook, Page, PageKind, usage};
use super::pagemap::{Extent, Extents, Mark};
use crate::geometry::Geometry;
use crate::proc::Held;
use crate::proc::maps::Vma;
use crate::proc::pinned::Pinned;
use crate::proc::smaps::{self, Smap};

#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    pub name: String,
    pub mappings: Vec<Mapping>,
    /// The sum over the mappings. Shared memory counts in each process.
    pub tally: Tally,
    pub held: Held,
    pub nr_bad_lines: usize,
}

impl Process {
    #[must_use]
    pub fn touched(&self, range: &Range<u64>) -> Option<&Touched> {
        let starts = |mapping: &Mapping| mapping.vma.range.start;
        let at = self.mappings.binary_search_by_key(&range.start, starts).ok()?;
        let mapping = &self.mappings[at];
        mapping.touched.as_ref().filter(|_| mapping.vma.range == *range)
    }
}

#[derive(Clone, Debug)]
pub struct Mapping {
    pub vma: Vma,
    pub tally: Tally,
    /// Its whole blocks; `None` if single pages are not visible.
    pub touched: Option<Touched>,
}

impl Mapping {
    /// Bytes of its whole blocks in swap. Page tables show swap only for private memory.
    #[must_use]
    pub fn swapped_bytes(&self, geometry: Geometry) -> u64 {
        let runs = self.touched.iter().flat_map(|touched| touched.contpte.iter());
        let nr: u64 = runs.map(|run| u64::from(run.facts.nr_swapped) * run.nr).sum();
        nr * geometry.page_bytes
    }
}

/// A mapping's whole aligned blocks that have something in the page table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pub pmd: Runs,
    pub contpte: Runs,
}

pub(super) struct Walk<'a> {
    pub(super) book: &'a FlagBook,
    pub(super) geometry: Geometry,
}

impl Walk<'_> {
    /// Returns the mappings, and the pages that were seen in them.
    pub(super) fn mappings(
        &self,
        vmas: Vec<Vma>,
        read: &Extents,
        pinned: &Pinned,
    ) -> (Vec<Mapping>, Seen) {
        let mut rest = &read.list[..];
        let mut mappings = Vec::with_capacity(vmas.len());
        let mut counts = Counts { counter: Counter::new(), seen: Seen::default() };
        for vma in vmas {
            let pages = vma.pages(self.geometry.page_bytes);
            let mut touched = Touching::new(&vma, self.geometry);
            while rest.first().is_some_and(|extent| extent.page < pages.end) {
                let parts = &rest[..nr_continuing(rest, &pages)];
                self.extent(&vma, parts, &mut counts, &mut touched);
                let ends_later = parts.last().is_some_and(|part| part.end() > pages.end);
                rest = &rest[parts.len() - usize::from(ends_later)..];
                if ends_later {
                    break;
                }
            }
            let tally = counts.counter.take();
            let touched = Some(touched.finish(&read.marks, pinned));
            mappings.push(Mapping { vma, tally, touched });
        }
        (mappings, counts.seen)
    }

    /// Counts extents that continue each other: a folio may lie in several.
    fn extent(&self, vma: &Vma, parts: &[Extent], counts: &mut Counts, touched: &mut Touching) {
        let pages = vma.pages(self.geometry.page_bytes);
        let (Some(extent), Some(last)) = (parts.first(), parts.last()) else { return };
        let extent = clip(extent, &pages);
        let (mut done, nr) = (0, last.end().min(pages.end).saturating_sub(extent.page));
        while done < nr {
            let pfn = extent.pfn + done;
            let (page, same) = self.book.at(pfn, nr - done);
            let kind = kind(vma, page.backing());
            let first = extent.page + done;
            let seen = first..first + same;
            let mut is_own = page.backing() == PageKind::Anon;
            for part in overlapping(parts, |part| part.page..part.end(), &seen) {
                is_own &= part.is_exclusive;
                let inside = clip(part, &seen);
                let range = inside.page..inside.end();
                touched.present(&range, &inside, (page.backing(), vma.has_file()));
            }
            let folio_run = FolioRun { page, kind, is_pmd: extent.is_pmd, is_own };
            let mut left = same;
            while left > 0 {
                let at = same - left;
                let piece = self.piece(page, PagePlace { page: first + at, pfn: pfn + at }, left);
                self.count(&folio_run, &piece, counts);
                left -= piece.nr;
            }
            done += same;
        }
    }

    /// Counts as many of the `left` pages as possible in one piece: whole folios together.
    pub(super) fn piece(&self, page: Page, place: PagePlace, left: u64) -> FolioPiece {
        let PagePlace { page: at, pfn } = place;
        let size = 1_u64 << page.order();
        let inside = pfn & (size - 1);
        let is_whole = inside == 0 && left >= size;
        let nr = if is_whole { left & !(size - 1) } else { left.min(size - inside) };
        let is_aligned = (at ^ pfn) & (size - 1) == 0;
        let block = 1_u64 << self.geometry.contpte_order;
        let blocks = if size >= block && (at ^ pfn) & (block - 1) == 0 {
            pfn.next_multiple_of(block)..(pfn + nr) & !(block - 1)
        } else {
            0..0
        };
        FolioPiece { pfn, nr, is_whole, is_aligned, blocks }
    }

    fn count(&self, folio_run: &FolioRun, piece: &FolioPiece, counts: &mut Counts) {
        let page_bytes = self.geometry.page_bytes;
        let bytes = piece.nr * page_bytes;
        let cell = counts.counter.cell(folio_run.kind, folio_run.page.order());
        let mut bits =
            usage::MAPPED | if folio_run.kind == MemoryKind::Text { usage::TEXT } else { 0 };
        match (piece.is_whole, piece.is_aligned) {
            (true, true) => {
                cell.aligned_bytes += bytes;
                bits |= usage::ALIGNED | usage::WHOLE;
            }
            (true, false) => {
                cell.unaligned_bytes += bytes;
                bits |= usage::WHOLE;
            }
            (false, _) => cell.partial_bytes += bytes,
        }
        if folio_run.is_pmd {
            cell.pmd_bytes += bytes;
            bits |= usage::PMD;
        }
        let pages = piece.pfn..piece.pfn + piece.nr;
        let blocks = piece.blocks.clone();
        if blocks.is_empty() {
            return self.see(folio_run, pages, bits, &mut counts.seen);
        }
        cell.contpte_bytes += (blocks.end - blocks.start) * page_bytes;
        let seen = &mut counts.seen;
        self.see(folio_run, pages.start..blocks.start, bits, seen);
        self.see(folio_run, blocks.clone(), bits | usage::CONTPTE, seen);
        self.see(folio_run, blocks.end..pages.end, bits, seen);
    }

    fn see(&self, folio_run: &FolioRun, pages: Range<u64>, bits: u8, seen: &mut Seen) {
        let run = SeenRun { pages: pages.clone(), page: folio_run.page, bits };
        self.book.see(pages, bits);
        if folio_run.is_own {
            run.add_to(&mut seen.own, self.geometry);
        } else {
            seen.add(run);
        }
    }
}

struct Counts {
    counter: Counter,
    seen: Seen,
}

/// A process's pages, for totals that count each page once.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Private pages that no other process has.
    pub(super) own: Tally,
    /// All others.
    pub(super) runs: Vec<SeenRun>,
}

/// Consecutive frames with the same answer and the same usage.
#[derive(Debug)]
pub(super) struct SeenRun {
    pub(super) pages: Range<u64>,
    pub(super) page: Page,
    pub(super) bits: u8,
}

impl Seen {
    fn add(&mut self, run: SeenRun) {
        match self.runs.last_mut() {
            Some(last)
                if last.pages.end == run.pages.start
                    && (last.page, last.bits) == (run.page, run.bits) =>
            {
                last.pages.end = run.pages.end;
            }
            _ if run.pages.is_empty() => {}
            _ => self.runs.push(run),
        }
    }
}

impl SeenRun {
    pub(super) fn add_to(&self, totals: &mut Tally, geometry: Geometry) {
        let bytes = (self.pages.end - self.pages.start) * geometry.page_bytes;
        let where_seen = |bit: u8| if self.bits & bit == 0 { 0 } else { bytes };
        let is_whole = self.bits & usage::WHOLE != 0;
        let aligned_bytes = where_seen(usage::ALIGNED);
        let cell = Cell {
            aligned_bytes,
            unaligned_bytes: where_seen(usage::WHOLE) - aligned_bytes,
            partial_bytes: if is_whole { 0 } else { bytes },
            contpte_bytes: where_seen(usage::CONTPTE),
            pmd_bytes: where_seen(usage::PMD),
        };
        let kind = kind_of_seen(self.page.backing(), self.bits);
        totals.add(kind, Size::Order(self.page.order()), &cell);
    }
}

/// A page that KSM merged, with its frame.
#[derive(Clone, Copy, Debug)]
struct MergedPage {
    page: u64,
    pfn: u64,
}

struct Touching {
    /// From present pages, marks and pinned ranges.
    pages: [Gathering; 2],
    marks: [Gathering; 2],
    pins: [Gathering; 2],
    repeats: [Gathering; 2],
    /// The frames of pages that KSM merged, ascending by page.
    merged: Vec<MergedPage>,
    geometry: Geometry,
    whole: Range<u64>,
}

impl Touching {
    fn new(vma: &Vma, geometry: Geometry) -> Self {
        let pages = vma.pages(geometry.page_bytes);
        let sizes = [geometry.pmd_order, geometry.contpte_order];
        let new = || sizes.map(|order| Gathering::new(vma, geometry.page_bytes, order));
        let (marks, pins, repeats) = (new(), new(), new());
        Self { pages: new(), marks, pins, repeats, merged: Vec::new(), geometry, whole: pages }
    }

    fn present(&mut self, pages: &Range<u64>, extent: &Extent, is: (PageKind, bool)) {
        let (kind, has_file) = is;
        let if_so = |is: bool, nr: u32| if is { nr } else { 0 };
        let is_zero = kind == PageKind::Zero;
        let is_anon = matches!(kind, PageKind::Anon | PageKind::Merged);
        if kind == PageKind::Merged {
            let frames = extent.pfn..;
            self.merged
                .extend(pages.clone().zip(frames).map(|(page, pfn)| MergedPage { page, pfn }));
        }
        for sizes in &mut self.pages {
            sizes.add(pages.clone(), |nr| BlockFacts {
                nr_present: if_so(!is_zero, nr),
                nr_zero: if_so(is_zero, nr),
                nr_shared: if_so(!is_zero && !extent.is_exclusive && !extent.is_pmd, nr),
                nr_pmd: if_so(!is_zero && extent.is_pmd, nr),
                nr_merged: if_so(kind == PageKind::Merged, nr),
                nr_copied: if_so(is_anon && has_file, nr),
                ..BlockFacts::default()
            });
        }
    }

    fn finish(mut self, marks: &[Mark], pinned: &Pinned) -> Touched {
        let pages = self.whole.clone();
        for mark in overlapping(marks, |one| one.page..one.page + u64::from(one.nr), &pages) {
            for sizes in &mut self.marks {
                sizes.add(mark.page..mark.page + u64::from(mark.nr), |nr| mark.facts(nr));
            }
        }
        let page_bytes = self.geometry.page_bytes;
        let of_range =
            |range: &Range<u64>| range.start / page_bytes..range.end.div_ceil(page_bytes);
        for range in overlapping(&pinned.known, of_range, &pages) {
            for sizes in &mut self.pins {
                sizes.add(of_range(range), |nr| BlockFacts {
                    nr_pinned: nr,
                    ..BlockFacts::default()
                });
            }
        }
        for (sizes, order) in
            self.repeats.iter_mut().zip([self.geometry.pmd_order, self.geometry.contpte_order])
        {
            for page in repeated(&self.merged, order) {
                sizes.add(page..page + 1, |nr| BlockFacts {
                    nr_repeated: nr,
                    ..BlockFacts::default()
                });
            }
        }
        let [pmd, contpte] = self.pages;
        let [pmd_marks, contpte_marks] = self.marks;
        let [pmd_pins, contpte_pins] = self.pins;
        let [pmd_repeats, contpte_repeats] = self.repeats;
        Touched {
            pmd: block::together([pmd, pmd_marks, pmd_pins, pmd_repeats]),
            contpte: block::together([contpte, contpte_marks, contpte_pins, contpte_repeats]),
        }
    }
}

/// Returns each page whose frame an earlier page in its block has too. A block has `2^order` pages.
fn repeated(merged: &[MergedPage], order: u32) -> Vec<u64> {
    let mut frames = HashSet::new();
    let of_block = merged.chunk_by(|one, next| one.page >> order == next.page >> order);
    let mut repeated = Vec::new();
    for block in of_block {
        frames.clear();
        repeated.extend(block.iter().filter(|one| !frames.insert(one.pfn)).map(|one| one.page));
    }
    repeated
}

/// Collects the blocks of a mapping with hidden PFNs: each page's kind is unknown.
pub(super) fn touched_unseen(
    vma: &Vma,
    extents: &Extents,
    pinned: &Pinned,
    geometry: Geometry,
) -> Touched {
    let mut touching = Touching::new(vma, geometry);
    let pages = vma.pages(geometry.page_bytes);
    let of_extent = |one: &Extent| one.page..one.end();
    for extent in overlapping(&extents.hidden, of_extent, &pages) {
        let inside = clip(extent, &pages);
        let range = inside.page..inside.end();
        touching.present(&range, &inside, (PageKind::Unknown, vma.has_file()));
    }
    touching.finish(&extents.marks, pinned)
}

/// Returns how many extents at the start of `list` continue each other before the end of `pages`. At
/// least 1.
fn nr_continuing(list: &[Extent], pages: &Range<u64>) -> usize {
    let goes_on = |pair: &&[Extent]| pair[0].is_continued_by(&pair[1]) && pair[1].page < pages.end;
    1 + list.windows(2).take_while(goes_on).count()
}

fn overlapping<'a, T>(
    list: &'a [T],
    of: impl Fn(&T) -> Range<u64>,
    pages: &Range<u64>,
) -> impl Iterator<Item = &'a T> {
    let first = list.partition_point(|one| of(one).end <= pages.start);
    let end = pages.end;
    list[first..].iter().take_while(move |one| of(one).start < end)
}

struct FolioRun {
    page: Page,
    kind: MemoryKind,
    is_pmd: bool,
    /// Private, and no other process has these pages.
    is_own: bool,
}

#[derive(Clone, Copy)]
pub(super) struct PagePlace {
    pub(super) page: u64,
    pub(super) pfn: u64,
}

pub(super) struct FolioPiece {
    pfn: u64,
    pub(super) nr: u64,
    pub(super) is_whole: bool,
    pub(super) is_aligned: bool,
    /// PFNs of the contpte blocks inside.
    blocks: Range<u64>,
}

pub(super) fn clip(extent: &Extent, pages: &Range<u64>) -> Extent {
    let before = pages.start.saturating_sub(extent.page);
    let end = extent.end().min(pages.end);
    let start = extent.page + before;
    let nr = u32::try_from(end.saturating_sub(start)).unwrap_or(0);
    Extent { page: start, pfn: extent.pfn + before, nr, ..*extent }
}

fn kind(vma: &Vma, backing: PageKind) -> MemoryKind {
    match backing {
        // Code of a just-in-time compiler.
        PageKind::Anon | PageKind::Merged if vma.is_exec() && !vma.has_file() => MemoryKind::Text,
        PageKind::Anon | PageKind::Merged => MemoryKind::Anon,
        PageKind::File | PageKind::Shmem if vma.is_exec() && vma.has_file() => MemoryKind::Text,
        PageKind::File if vma.has_file() => MemoryKind::File,
        PageKind::Shmem => MemoryKind::Shmem,
        PageKind::Hugetlb => MemoryKind::Hugetlb,
        PageKind::File | PageKind::Zero | PageKind::Unknown => MemoryKind::Other,
    }
}

fn kind_of_seen(backing: PageKind, bits: u8) -> MemoryKind {
    match backing {
        PageKind::File | PageKind::Shmem | PageKind::Anon | PageKind::Merged
            if bits & usage::TEXT != 0 =>
        {
            MemoryKind::Text
        }
        PageKind::File => MemoryKind::File,
        PageKind::Shmem => MemoryKind::Shmem,
        PageKind::Anon | PageKind::Merged => MemoryKind::Anon,
        PageKind::Hugetlb => MemoryKind::Hugetlb,
        PageKind::Zero | PageKind::Unknown => MemoryKind::Other,
    }
}

/// Counts a mapping from smaps alone: PMD-mapped memory by kind, the rest without a size.
pub(super) fn of_smaps(vma: &Vma, smap: &Smap, geometry: Geometry) -> Tally {
    let mut tally = Tally::default();
    let file_kind = if vma.is_exec() { MemoryKind::Text } else { MemoryKind::File };
    let shmem_kind = if vma.is_exec() { MemoryKind::Text } else { MemoryKind::Shmem };
    let anon_kind =
        if vma.is_exec() && !vma.has_file() { MemoryKind::Text } else { MemoryKind::Anon };
    let pmd = Size::Order(geometry.pmd_order);
    for (kind, bytes) in [
        (anon_kind, smap.anon_pmd_bytes),
        (shmem_kind, smap.shmem_pmd_bytes),
        (file_kind, smap.file_pmd_bytes),
    ] {
        let cell = Cell {
            aligned_bytes: bytes,
            pmd_bytes: bytes,
            contpte_bytes: bytes,
            ..Cell::default()
        };
        tally.add(kind, pmd, &cell);
    }
    // smaps does not say whether a shared mapping is tmpfs unless some of it is PMD-mapped.
    let rest =
        |all: u64, pmd: u64| Cell { aligned_bytes: all.saturating_sub(pmd), ..Cell::default() };
    tally.add(anon_kind, Size::Unknown, &rest(smap.anon_bytes, smap.anon_pmd_bytes));
    let shared = smap.rss_bytes.saturating_sub(smap.anon_bytes);
    let shared_pmd = smap.shmem_pmd_bytes.saturating_add(smap.file_pmd_bytes);
    let kind = if vma.has_file() { file_kind } else { MemoryKind::Other };
    tally.add(kind, Size::Unknown, &rest(shared, shared_pmd));
    hugetlb_of_smaps(&mut tally, smap, geometry);
    tally
}

/// hugetlb has separate lines in smaps, with its page size.
fn hugetlb_of_smaps(tally: &mut Tally, smap: &Smap, geometry: Geometry) {
    let bytes = smap.hugetlb_bytes;
    let order = (smap.page_bytes / geometry.page_bytes).checked_ilog2();
    let by_blocks = |order: Option<u32>, least| if order >= Some(least) { bytes } else { 0 };
    let cell = Cell {
        aligned_bytes: bytes,
        contpte_bytes: by_blocks(order, geometry.contpte_order),
        pmd_bytes: by_blocks(order, geometry.pmd_order),
        ..Cell::default()
    };
    tally.add(MemoryKind::Hugetlb, order.map_or(Size::Unknown, Size::Order), &cell);
}

/// Adds the PMD-mapped bytes from smaps if pagemap could not tell.
pub(super) fn add_pmd_of_smaps(mappings: &mut [Mapping], smaps: &[Smap], geometry: Geometry) {
    for mapping in mappings {
        let Some(smap) = smaps::find(smaps, mapping.vma.range.start) else { continue };
        let is_exec = mapping.vma.is_exec();
        let is_jit = is_exec && !mapping.vma.has_file();
        for (kind, bytes) in [
            (if is_jit { MemoryKind::Text } else { MemoryKind::Anon }, smap.anon_pmd_bytes),
            (if is_exec { MemoryKind::Text } else { MemoryKind::Shmem }, smap.shmem_pmd_bytes),
            (if is_exec { MemoryKind::Text } else { MemoryKind::File }, smap.file_pmd_bytes),
        ] {
            if bytes > 0 {
                let cell = mapping.tally.cell_mut(kind, Size::Order(geometry.pmd_order));
                cell.pmd_bytes = cell.mapped_bytes().min(cell.pmd_bytes.saturating_add(bytes));
            }
        }
    }
}
