//! Finds the folio that contains each requested page, in `/proc/kpageflags`.
//!
//! ```text
//!   PFNs       ....wwww..w....wwwwwwww....        w: wanted, one bit per page, by chunks of 128 MiB
//!   read       ....[---------][--------]          runs in order of PFN, across small gaps
//!   folio              H T T|T T T T T            a run that ends inside a folio grows to its ends
//!   book       order and kind of every page in a byte or two: order = head + following tails
//! ```
//!
//! Owns the [`FlagBook`]: an array indexed by PFN, allocated by chunk. Nothing is sorted or
//! searched, whatever order a process's pages have. It also records how each page is mapped, so
//! totals count a shared page once.
//!
//! Invariants:
//! - K1: the book uses four bytes per page in chunks with wanted pages. These chunks are below the
//!   end of kpageflags, so the machine's memory bounds the book, whatever pagemap claims.
//! - K2: an order is below [`NR_ORDERS`].

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use rayon::iter::{
    IndexedParallelIterator as _, IntoParallelRefMutIterator as _, ParallelIterator as _,
};

use super::pagemap::Extent;
use crate::system::Entries;

/// Possible folio orders: with base pages of 4 KiB up to 128 MiB, with 64 KiB up to 2 GiB.
pub(super) const NR_ORDERS: usize = 16;
const ORDER_MAX: u32 = 15;
const _: () = assert!(NR_ORDERS == ORDER_MAX as usize + 1);
/// Pages per chunk: the largest folio fits in one.
const CHUNK_LEN: usize = 1 << 15;
const CHUNK_PAGES: u64 = CHUNK_LEN as u64;
/// At most this many chunks: 256 TiB of memory in base pages of 4 KiB.
const CHUNKS_MAX: u64 = 1 << 21;
/// Runs with smaller gaps are read together: a call costs as much as about ten entries.
const GAP_PAGES: usize = 12;

/// Bits of an entry (include/uapi/linux/kernel-page-flags.h).
mod flag {
    pub(super) const BUDDY: u64 = 1 << 10;
    pub(super) const ANON: u64 = 1 << 12;
    pub(super) const SWAPBACKED: u64 = 1 << 14;
    pub(super) const HEAD: u64 = 1 << 15;
    pub(super) const TAIL: u64 = 1 << 16;
    pub(super) const HUGETLB: u64 = 1 << 17;
    pub(super) const KSM: u64 = 1 << 21;
    pub(super) const NOPAGE: u64 = 1 << 20;
    pub(super) const ZERO_PAGE: u64 = 1 << 24;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    /// Not known, or freed since pagemap was read.
    Unknown,
    File,
    Shmem,
    Anon,
    Merged,
    Hugetlb,
    /// The zero page, small or huge; not a folio of any process.
    Zero,
}

/// A page's folio: order in the low bits, backing above. Zero is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Page(u8);

impl Page {
    const fn new(order: u32, backing: PageKind) -> Self {
        // Four bits; a longer run of tails is not a folio (K2).
        Self((order.to_le_bytes()[0] & 15) | (backing as u8) << 4)
    }

    pub(super) const fn order(self) -> u32 {
        (self.0 & 15) as u32
    }

    pub(super) const fn backing(self) -> PageKind {
        match self.0 >> 4 {
            1 => PageKind::File,
            2 => PageKind::Shmem,
            3 => PageKind::Anon,
            4 => PageKind::Merged,
            5 => PageKind::Hugetlb,
            6 => PageKind::Zero,
            _ => PageKind::Unknown,
        }
    }
}

pub(super) mod usage {
    pub(in super::super) const MAPPED: u8 = 1;
    pub(in super::super) const TEXT: u8 = 2;
    /// In a folio mapped whole and naturally aligned.
    pub(in super::super) const ALIGNED: u8 = 4;
    pub(in super::super) const WHOLE: u8 = 8;
    pub(in super::super) const CONTPTE: u8 = 16;
    pub(in super::super) const PMD: u8 = 32;
}

struct Chunk {
    wanted: Box<[u64; CHUNK_LEN / 64]>,
    heads: Vec<usize>,
    pages: Box<[Page]>,
    usage: Box<[AtomicU8]>,
}

impl Chunk {
    fn new() -> Self {
        Self {
            wanted: Box::new([0; CHUNK_LEN / 64]),
            heads: Vec::new(),
            pages: vec![Page::default(); CHUNK_LEN].into(),
            usage: std::iter::repeat_with(AtomicU8::default).take(CHUNK_LEN).collect(),
        }
    }
}

pub(super) struct FlagBook {
    chunks: Vec<Option<Box<Chunk>>>,
    pmd_pages: usize,
    pub(super) nr_beyond: u64,
}

impl FlagBook {
    pub(super) fn new(flags: &dyn Entries, pmd_pages: u64) -> io::Result<Self> {
        let nr = nr_pages(flags)?.div_ceil(CHUNK_PAGES).min(CHUNKS_MAX);
        let chunks = std::iter::repeat_with(|| None).take(usize::try_from(nr).unwrap_or(0));
        let pmd_pages = usize::try_from(pmd_pages).unwrap_or(CHUNK_LEN).clamp(1, CHUNK_LEN);
        Ok(Self { chunks: chunks.collect(), pmd_pages, nr_beyond: 0 })
    }

    pub(super) fn want(&mut self, extent: &Extent) {
        let (mut pfn, end) = (extent.pfn, extent.pfn + u64::from(extent.nr));
        while pfn < end {
            let (at, inside) = split(pfn);
            let Some(chunk) = self.chunks.get_mut(at) else {
                self.nr_beyond += end - pfn;
                return;
            };
            let chunk = chunk.get_or_insert_with(|| Box::new(Chunk::new()));
            let left = usize::try_from(end - pfn).unwrap_or(usize::MAX).min(CHUNK_LEN - inside);
            if extent.is_pmd {
                chunk.heads.extend((inside..inside + left).step_by(self.pmd_pages));
            } else {
                want(&mut chunk.wanted[..], inside..inside + left);
            }
            pfn += left as u64;
        }
    }

    pub(super) fn read(&mut self, flags: &dyn Entries) -> io::Result<()> {
        let pmd_pages = self.pmd_pages;
        let chunks = self.chunks.par_iter_mut().enumerate();
        chunks.try_for_each(|(at, chunk)| match chunk {
            Some(chunk) => chunk.read(at as u64 * CHUNK_PAGES, pmd_pages, flags),
            None => Ok(()),
        })
    }

    /// Enters pages read earlier, unless they were read again.
    pub(super) fn put(&mut self, pages: Range<u64>, page: Page) {
        let mut pfn = pages.start;
        while pfn < pages.end {
            let (at, inside) = split(pfn);
            let Some(chunk) = self.chunks.get_mut(at) else { return };
            let chunk = chunk.get_or_insert_with(|| Box::new(Chunk::new()));
            let left = usize::try_from(pages.end - pfn).unwrap_or(usize::MAX);
            let left = left.min(CHUNK_LEN - inside);
            let unread = chunk.pages[inside..inside + left].iter_mut();
            unread.filter(|one| **one == Page::default()).for_each(|one| *one = page);
            pfn += left as u64;
        }
    }

    /// Returns a page's folio, and how many of the next `nr` pages have the same answer.
    pub(super) fn at(&self, pfn: u64, nr: u64) -> (Page, u64) {
        let (at, inside) = split(pfn);
        let Some(Some(chunk)) = self.chunks.get(at) else { return (Page::default(), nr) };
        let page = chunk.pages[inside];
        let left = usize::try_from(nr).unwrap_or(usize::MAX).min(CHUNK_LEN - inside);
        let same = chunk.pages[inside..inside + left].iter().take_while(|other| **other == page);
        (page, same.count() as u64)
    }

    pub(super) fn see(&self, pages: Range<u64>, bits: u8) {
        let mut pfn = pages.start;
        while pfn < pages.end {
            let (at, inside) = split(pfn);
            let Some(Some(chunk)) = self.chunks.get(at) else { return };
            let left = usize::try_from(pages.end - pfn).unwrap_or(usize::MAX);
            let left = left.min(CHUNK_LEN - inside);
            for byte in &chunk.usage[inside..inside + left] {
                // The bits of a shared page are usually set already, and a load is much cheaper.
                if byte.load(Relaxed) & bits != bits {
                    byte.fetch_or(bits, Relaxed);
                }
            }
            pfn += left as u64;
        }
    }

    /// Calls `each` for every mapped page, in runs with the same answer.
    pub(super) fn each_seen(&self, each: &mut dyn FnMut(Page, u8, u64)) {
        for chunk in self.chunks.iter().flatten() {
            let mut run = (Page::default(), 0, 0);
            for (page, usage) in chunk.pages.iter().zip(&chunk.usage) {
                let usage = usage.load(Relaxed);
                if (*page, usage) == (run.0, run.1) {
                    run.2 += 1;
                    continue;
                }
                if run.1 != 0 {
                    each(run.0, run.1, run.2);
                }
                run = (*page, usage, 1);
            }
            if run.1 != 0 {
                each(run.0, run.1, run.2);
            }
        }
    }
}

fn split(pfn: u64) -> (usize, usize) {
    let at = usize::try_from(pfn / CHUNK_PAGES).unwrap_or(usize::MAX);
    (at, usize::try_from(pfn % CHUNK_PAGES).unwrap_or(0))
}

fn want(wanted: &mut [u64], bits: Range<usize>) {
    let mut bit = bits.start;
    while bit < bits.end {
        let nr = (64 - bit % 64).min(bits.end - bit);
        wanted[bit / 64] |= (u64::MAX >> (64 - nr)) << (bit % 64);
        bit += nr;
    }
}

/// Finds the number of entries by binary search.
fn nr_pages(flags: &dyn Entries) -> io::Result<u64> {
    let (mut below, mut end) = (0, CHUNKS_MAX * CHUNK_PAGES);
    while below < end {
        let middle = below.midpoint(end);
        if flags.read(middle, &mut [0])? == 0 {
            end = middle;
        } else {
            below = middle + 1;
        }
    }
    Ok(below)
}

impl Chunk {
    fn read(&mut self, first_pfn: u64, pmd_pages: usize, flags: &dyn Entries) -> io::Result<()> {
        self.heads.sort_unstable();
        self.heads.dedup();
        for &head in &self.heads {
            // A PMD-mapped range is one folio of at least its size: one entry describes all of it.
            let mut entry = [0];
            if flags.read(first_pfn + head as u64, &mut entry)? == 1 {
                let page = Page::new(pmd_pages.ilog2().min(ORDER_MAX), backing(entry[0]));
                self.pages[head..(head + pmd_pages).min(CHUNK_LEN)].fill(page);
            }
        }
        let mut window = Window { flags, first_pfn, entries: Vec::new() };
        let mut from = 0;
        while let Some(run) = next_run(&self.wanted[..], from) {
            from = run.end;
            if run.clone().any(|at| self.pages[at] == Page::default()) {
                let read = window.read(run)?;
                decode(&window.entries, &mut self.pages[read]);
            }
        }
        Ok(())
    }
}

/// Returns the next run of wanted pages from `from`, across gaps of [`GAP_PAGES`].
fn next_run(wanted: &[u64], from: usize) -> Option<Range<usize>> {
    let next_set = |from: usize| {
        let mut at = from / 64;
        let mut word = wanted.get(at)? & (u64::MAX << (from % 64));
        while word == 0 {
            at += 1;
            word = *wanted.get(at)?;
        }
        Some(at * 64 + word.trailing_zeros() as usize)
    };
    let next_clear = |from: usize| {
        let mut at = from;
        while at < CHUNK_LEN {
            let ones = (wanted[at / 64] >> (at % 64)).trailing_ones() as usize;
            at += ones;
            if ones == 0 || !at.is_multiple_of(64) {
                break;
            }
        }
        at
    };
    let start = next_set(from)?;
    let mut end = next_clear(start);
    while end < CHUNK_LEN
        && let Some(next) = next_set(end).filter(|next| next - end <= GAP_PAGES)
    {
        end = next_clear(next);
    }
    Some(start..end)
}

struct Window<'a> {
    flags: &'a dyn Entries,
    first_pfn: u64,
    entries: Vec<u64>,
}

impl Window<'_> {
    /// Reads a run and the rest of the folios at its ends; returns the range it read.
    fn read(&mut self, run: Range<usize>) -> io::Result<Range<usize>> {
        self.entries.clear();
        self.append(run.clone())?;
        let mut start = run.start;
        let mut reach = 64;
        while start > 0 && self.entries.first().is_some_and(|entry| entry & flag::TAIL != 0) {
            // Heads are naturally aligned: try the next larger boundary.
            let back = (start - 1) & !(reach - 1);
            let tail = std::mem::take(&mut self.entries);
            self.append(back..start)?;
            self.entries.extend(tail);
            (start, reach) = (back, reach * 4);
        }
        let mut end = start + self.entries.len();
        reach = 64;
        while end >= run.end && end < CHUNK_LEN && self.ends_in_folio() {
            let next = ((end + reach) & !(reach - 1)).min(CHUNK_LEN);
            self.append(end..next)?;
            if start + self.entries.len() < next {
                break;
            }
            (end, reach) = (next, reach * 4);
        }
        Ok(start..start + self.entries.len())
    }

    fn ends_in_folio(&self) -> bool {
        self.entries.last().is_some_and(|entry| {
            entry & (flag::HEAD | flag::TAIL) != 0 && entry & flag::HUGETLB == 0
        })
    }

    fn append(&mut self, run: Range<usize>) -> io::Result<()> {
        let old = self.entries.len();
        self.entries.resize(old + run.len(), 0);
        let nr = self.flags.read(self.first_pfn + run.start as u64, &mut self.entries[old..])?;
        self.entries.truncate(old + nr);
        Ok(())
    }
}

/// Decodes orders and backing. A tail without a head is unknown: its folio changed meanwhile.
fn decode(entries: &[u64], pages: &mut [Page]) {
    let mut at = 0;
    while at < entries.len() {
        let entry = entries[at];
        let nr = if entry & flag::HEAD == 0 {
            1
        } else {
            let tails = entries[at + 1..].iter().take_while(|next| is_tail(**next));
            1 + tails.count()
        };
        let is_headless = is_tail(entry) && entry & flag::HUGETLB == 0;
        let backing = if is_headless { PageKind::Unknown } else { backing(entry) };
        pages[at..at + nr].fill(Page::new(nr.ilog2().min(ORDER_MAX), backing));
        at += nr;
    }
}

const fn is_tail(entry: u64) -> bool {
    entry & (flag::TAIL | flag::HEAD) == flag::TAIL
}

const fn backing(entry: u64) -> PageKind {
    if entry & (flag::BUDDY | flag::NOPAGE) != 0 {
        PageKind::Unknown
    } else if entry & flag::ZERO_PAGE != 0 {
        PageKind::Zero
    } else if entry & flag::HUGETLB != 0 {
        PageKind::Hugetlb
    } else if entry & flag::KSM != 0 {
        PageKind::Merged
    } else if entry & flag::ANON != 0 {
        PageKind::Anon
    } else if entry & flag::SWAPBACKED != 0 {
        PageKind::Shmem
    } else {
        PageKind::File
    }
}
