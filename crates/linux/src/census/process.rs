//! One process: its mappings, and the folios behind them.
//!
//! ```text
//!   addresses   |.....AAAA|AAAA BBBB.|....        extents of pagemap, cut at mappings
//!   folios            [A  . A]  [B   . . ]        A whole in two mappings: partial in each
//! ```
//!
//! Owns the walk of extents along mappings. Invariant R1: the cells of a mapping sum to its present
//! pages.

use std::ops::Range;

use super::folios::{Cell, Counter, Kind, Size, Tally};
use super::kpageflags::{FlagBook, Page, PageKind, seen};
use super::pagemap::Extent;
use crate::geometry::Geometry;
use crate::proc::maps::Vma;
use crate::proc::smaps::{self, Smap};

/// A process as it was found.
#[derive(Clone, Debug)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Name, as `/proc/PID/comm` has it.
    pub name: String,
    /// Its mappings with something in them, ascending.
    pub mappings: Vec<Mapping>,
    /// Sum over them: shared memory counts in each process.
    pub tally: Tally,
    /// Lines of its maps that were none.
    pub nr_bad_lines: usize,
}

/// A mapping with its folios.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Addresses, file, permissions.
    pub vma: Vma,
    /// What is present of it.
    pub tally: Tally,
    /// Its whole blocks; `None` where pages are not seen one by one.
    pub touched: Option<Touched>,
}

/// What of a mapping lies in whole aligned blocks with at least one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// In blocks that a PMD entry maps.
    pub pmd: Blocks,
    /// In contpte blocks.
    pub contpte: Blocks,
}

/// Whole blocks of one size that have a page, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// All of them.
    pub bytes: u64,
    /// The pages in them that are there.
    pub present_bytes: u64,
    /// Of those the ones that others map too; without a PMD entry.
    pub shared_bytes: u64,
}

/// The walk of a process.
pub(super) struct Walk<'a> {
    pub(super) book: &'a FlagBook,
    pub(super) geometry: Geometry,
}

impl Walk<'_> {
    /// The mappings of a process with what is present of them.
    pub(super) fn mappings(&self, vmas: Vec<Vma>, extents: &[Extent]) -> Vec<Mapping> {
        let mut rest = extents;
        let (mut mappings, mut counter) = (Vec::with_capacity(vmas.len()), Counter::new());
        for vma in vmas {
            let pages = vma.range.start / self.geometry.page_bytes
                ..vma.range.end / self.geometry.page_bytes;
            let mut touched = Touching::new(&vma, self.geometry);
            while let Some(extent) = rest.first().filter(|extent| extent.page < pages.end) {
                let inside = clip(extent, &pages);
                for blocks in &mut touched {
                    blocks.add(&inside);
                }
                self.extent(&vma, inside, &mut counter);
                if extent.page + u64::from(extent.nr) > pages.end {
                    break;
                }
                rest = &rest[1..];
            }
            let tally = counter.take();
            let [pmd, contpte] = touched.map(|blocks| blocks.found(self.geometry.page_bytes));
            mappings.push(Mapping { vma, tally, touched: Some(Touched { pmd, contpte }) });
        }
        mappings
    }

    fn extent(&self, vma: &Vma, extent: Extent, counter: &mut Counter) {
        let (mut done, nr) = (0, u64::from(extent.nr));
        while done < nr {
            let pfn = extent.pfn + done;
            let (page, same) = self.book.at(pfn, nr - done);
            let kind = kind(vma, page.backing());
            let found = Found { page, kind, is_pmd: extent.is_pmd };
            let first = extent.page + done;
            let mut left = same;
            while left > 0 {
                let at = same - left;
                let piece = self.piece(page, Place { page: first + at, pfn: pfn + at }, left);
                self.count(&found, &piece, counter);
                left -= piece.nr;
            }
            done += same;
        }
    }

    /// What of `left` pages, all in folios like `page`, is counted at once: whole folios together.
    pub(super) fn piece(&self, page: Page, place: Place, left: u64) -> Piece {
        let Place { page: at, pfn } = place;
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
        Piece { pfn, nr, is_whole, is_aligned, blocks }
    }

    fn count(&self, found: &Found, piece: &Piece, counter: &mut Counter) {
        let page_bytes = self.geometry.page_bytes;
        let bytes = piece.nr * page_bytes;
        let cell = counter.cell(found.kind, found.page.order());
        let mut bits = seen::MAPPED | if found.kind == Kind::Text { seen::TEXT } else { 0 };
        match (piece.is_whole, piece.is_aligned) {
            (true, true) => {
                cell.aligned_bytes += bytes;
                bits |= seen::ALIGNED | seen::WHOLE;
            }
            (true, false) => {
                cell.unaligned_bytes += bytes;
                bits |= seen::WHOLE;
            }
            (false, _) => cell.partial_bytes += bytes,
        }
        if found.is_pmd {
            cell.pmd_bytes += bytes;
            bits |= seen::PMD;
        }
        let pages = piece.pfn..piece.pfn + piece.nr;
        let blocks = piece.blocks.clone();
        if blocks.is_empty() {
            return self.book.see(pages, bits);
        }
        cell.contpte_bytes += (blocks.end - blocks.start) * page_bytes;
        self.book.see(pages.start..blocks.start, bits);
        self.book.see(blocks.clone(), bits | seen::CONTPTE);
        self.book.see(blocks.end..pages.end, bits);
    }
}

/// Blocks of one size along ascending extents; all numbers are of pages.
struct Touching {
    order: u32,
    /// Whole blocks that are not passed yet.
    rest: Range<u64>,
    whole: Range<u64>,
    nr_blocks: u64,
    nr_present: u64,
    nr_shared: u64,
}

impl Touching {
    fn new(vma: &Vma, geometry: Geometry) -> [Self; 2] {
        [geometry.pmd_order, geometry.contpte_order].map(|order| {
            let bytes = geometry.page_bytes << order;
            let whole = vma.range.start.div_ceil(bytes)..vma.range.end / bytes;
            let rest = whole.clone();
            Self { order, rest, whole, nr_blocks: 0, nr_present: 0, nr_shared: 0 }
        })
    }

    fn add(&mut self, extent: &Extent) {
        let end = extent.page + u64::from(extent.nr);
        let inside = |bound: u64| bound.clamp(self.whole.start << self.order, self.bound());
        let nr = inside(end) - inside(extent.page);
        self.nr_present += nr;
        if !extent.is_exclusive && !extent.is_pmd {
            self.nr_shared += nr;
        }
        let blocks = (extent.page >> self.order).max(self.rest.start)
            ..(end.div_ceil(1 << self.order)).min(self.rest.end);
        if !blocks.is_empty() {
            self.nr_blocks += blocks.end - blocks.start;
            self.rest.start = blocks.end;
        }
    }

    /// The page behind the last whole block; that of the first where there is none.
    fn bound(&self) -> u64 {
        self.whole.end.max(self.whole.start) << self.order
    }

    fn found(&self, page_bytes: u64) -> Blocks {
        let bytes = (self.nr_blocks << self.order) * page_bytes;
        let of_pages = |nr| nr * page_bytes;
        Blocks {
            bytes,
            present_bytes: of_pages(self.nr_present),
            shared_bytes: of_pages(self.nr_shared),
        }
    }
}

/// What pages are.
struct Found {
    page: Page,
    kind: Kind,
    is_pmd: bool,
}

/// A virtual page and what it is mapped to.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) page: u64,
    pub(super) pfn: u64,
}

/// Consecutive pages that are counted alike.
pub(super) struct Piece {
    pfn: u64,
    pub(super) nr: u64,
    pub(super) is_whole: bool,
    pub(super) is_aligned: bool,
    /// PFNs of the contpte blocks inside.
    blocks: Range<u64>,
}

/// The part of an extent that lies in `pages`.
pub(super) fn clip(extent: &Extent, pages: &Range<u64>) -> Extent {
    let before = pages.start.saturating_sub(extent.page);
    let end = (extent.page + u64::from(extent.nr)).min(pages.end);
    let start = extent.page + before;
    let nr = u32::try_from(end.saturating_sub(start)).unwrap_or(0);
    Extent { page: start, pfn: extent.pfn + before, nr, ..*extent }
}

fn kind(vma: &Vma, backing: PageKind) -> Kind {
    match backing {
        PageKind::Anon => Kind::Anon,
        PageKind::File | PageKind::Shmem if vma.is_exec() && vma.has_file() => Kind::Text,
        PageKind::File if vma.has_file() => Kind::File,
        PageKind::Shmem => Kind::Shmem,
        PageKind::Hugetlb => Kind::Hugetlb,
        PageKind::File | PageKind::Zero | PageKind::Unknown => Kind::Other,
    }
}

/// Kind of a page in totals, over all its mappings.
pub(super) fn kind_of_seen(backing: PageKind, bits: u8) -> Kind {
    match backing {
        PageKind::File | PageKind::Shmem if bits & seen::TEXT != 0 => Kind::Text,
        PageKind::File => Kind::File,
        PageKind::Shmem => Kind::Shmem,
        PageKind::Anon => Kind::Anon,
        PageKind::Hugetlb => Kind::Hugetlb,
        PageKind::Zero | PageKind::Unknown => Kind::Other,
    }
}

/// A mapping as smaps alone shows it: PMD-mapped memory by kind, of the rest no sizes.
pub(super) fn of_smaps(vma: &Vma, smap: &Smap, geometry: Geometry) -> Tally {
    let mut tally = Tally::default();
    let file_kind = if vma.is_exec() { Kind::Text } else { Kind::File };
    let shmem_kind = if vma.is_exec() { Kind::Text } else { Kind::Shmem };
    let pmd = Size::Order(geometry.pmd_order);
    for (kind, bytes) in [
        (Kind::Anon, smap.anon_pmd_bytes),
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
    // Whether a shared mapping is of tmpfs is not said where nothing of it is huge.
    let rest =
        |all: u64, pmd: u64| Cell { aligned_bytes: all.saturating_sub(pmd), ..Cell::default() };
    tally.add(Kind::Anon, Size::Unknown, &rest(smap.anon_bytes, smap.anon_pmd_bytes));
    let shared = smap.rss_bytes.saturating_sub(smap.anon_bytes);
    let shared_pmd = smap.shmem_pmd_bytes.saturating_add(smap.file_pmd_bytes);
    let kind = if vma.has_file() { file_kind } else { Kind::Other };
    tally.add(kind, Size::Unknown, &rest(shared, shared_pmd));
    tally.add(
        Kind::Hugetlb,
        Size::Unknown,
        &Cell { aligned_bytes: smap.hugetlb_bytes, ..Cell::default() },
    );
    tally
}

/// Gives mappings the PMD-mapped bytes that smaps says, where pagemap could not tell.
pub(super) fn add_pmd_of_smaps(mappings: &mut [Mapping], smaps: &[Smap], geometry: Geometry) {
    for mapping in mappings {
        let Some(smap) = smaps::find(smaps, mapping.vma.range.start) else { continue };
        let is_exec = mapping.vma.is_exec();
        for (kind, bytes) in [
            (Kind::Anon, smap.anon_pmd_bytes),
            (if is_exec { Kind::Text } else { Kind::Shmem }, smap.shmem_pmd_bytes),
            (if is_exec { Kind::Text } else { Kind::File }, smap.file_pmd_bytes),
        ] {
            if bytes > 0 {
                let cell = mapping.tally.cell_mut(kind, Size::Order(geometry.pmd_order));
                cell.pmd_bytes = cell.mapped_bytes().min(cell.pmd_bytes.saturating_add(bytes));
            }
        }
    }
}
