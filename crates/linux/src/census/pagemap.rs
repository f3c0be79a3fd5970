//! Finds a process's present pages and their PFNs.
//!
//! ```text
//!   VMAs      |----|  |------------------------------|      joined or cut into spans
//!   scan        ##       ####   PPPPPPPP   ##               PAGEMAP_SCAN: present, P by PMD entries
//!   read        ..       ....   .               ..          one entry for a PMD range of one folio
//!   extents     aa       bcdd   P               ee          consecutive pages with consecutive PFNs
//! ```
//!
//! Large empty ranges are not read. For PMD-mapped memory, one entry in 512 is read. Before Linux
//! 6.7 the scan does not exist: whole mappings are read, and PMD-mapped pages are not recognised.
//!
//! Invariants:
//! - P1: extents ascend by virtual page and do not overlap.
//! - P2: an extent takes at most four times the memory of the page tables it describes. For a
//!   reservation of 128 TiB, the only cost is the scan.

use std::io;
use std::ops::Range;

use super::block::BlockFacts;
use crate::proc::maps::Vma;
use crate::proc::smaps::{self, Smap};
use crate::system::entry::{EXCLUSIVE, GUARD, PFN_MASK, PRESENT, PROTECTED, SWAPPED};
use crate::system::{Entries, Present};

/// Pages in one span: 256 MiB. A larger mapping is cut into at most [`CUTS_MAX`] parts.
const SPAN_PAGES: u64 = 1 << 16;
/// Parts of one mapping: a reservation of 128 TiB must not cause half a million calls.
const CUTS_MAX: u64 = 64;
/// Entries read per call: 256 KiB, which fit in a core's own cache.
const BUFFER_ENTRIES: usize = 1 << 15;
/// A call reads across gaps up to this, because it costs as much as about 30 entries.
const GAP_PAGES: u64 = 32;
/// The most pages in small mappings read without a scan: enough for a few libraries.
const SMALL_PAGES_MAX: u64 = 4096;
/// Entries read from one mapping without a scan: 4 TiB of address space, about 30 seconds.
const UNSCANNED_PAGES_MAX: u64 = 1 << 30;
/// Pages of a mapping read without a scan and without smaps: 1 GiB.
const UNKNOWN_PAGES_MAX: u64 = 1 << 18;

/// Consecutive virtual pages with consecutive PFNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) page: u64,
    pub(super) pfn: u64,
    pub(super) nr: u32,
    pub(super) is_pmd: bool,
    /// No other mapping has these pages.
    pub(super) is_exclusive: bool,
}

impl Extent {
    const fn of(page: u64, entry: u64) -> Self {
        let is_exclusive = entry & EXCLUSIVE != 0;
        Self { page, pfn: entry & PFN_MASK, nr: 1, is_pmd: false, is_exclusive }
    }

    pub(super) const fn end(&self) -> u64 {
        self.page + self.nr as u64
    }

    /// Whether `next` has the following pages and frames, so that one folio may lie in both.
    pub(super) const fn is_continued_by(&self, next: &Self) -> bool {
        self.end() == next.page
            && self.pfn + self.nr as u64 == next.pfn
            && self.is_pmd == next.is_pmd
    }
}

/// Consecutive virtual pages with entries that contain more than a PFN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) page: u64,
    pub(super) nr: u32,
    pub(super) state: MarkState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkState {
    Swapped,
    Guard,
    /// Write-protected by userfaultfd, present or not.
    Protected,
}

impl Mark {
    fn of(page: u64, entry: u64) -> Option<Self> {
        let state = if entry & PRESENT == 0 && entry & GUARD != 0 {
            MarkState::Guard
        } else if entry & PROTECTED != 0 {
            MarkState::Protected
        } else if entry & (PRESENT | SWAPPED) == SWAPPED {
            MarkState::Swapped
        } else {
            return None;
        };
        Some(Self { page, nr: 1, state })
    }

    pub(super) fn facts(&self, nr: u32) -> BlockFacts {
        let none = BlockFacts::default();
        match self.state {
            MarkState::Swapped => BlockFacts { nr_swapped: nr, ..none },
            MarkState::Guard => BlockFacts { nr_guard: nr, ..none },
            MarkState::Protected => BlockFacts { nr_protected: nr, ..none },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) pages: Range<u64>,
    pub(super) vmas: Range<usize>,
}

/// Cuts and joins mappings into spans of [`SPAN_PAGES`]. Leaves out the kernel's vsyscall page.
pub(super) fn spans(vmas: &[Vma], page_bytes: u64, pmd_pages: u64) -> Vec<Span> {
    /// User addresses end at 2^56 with five-level page tables.
    const USER_END: u64 = 1 << 56;
    let mut spans: Vec<Span> = Vec::new();
    let mut nr_pages = 0;
    for (nr, vma) in vmas.iter().enumerate().take_while(|(_, vma)| vma.range.end <= USER_END) {
        let pages = vma.pages(page_bytes);
        let len = pages.end - pages.start;
        if let Some(last) = spans.last_mut().filter(|_| nr_pages + len <= SPAN_PAGES) {
            last.pages.end = pages.end;
            last.vmas.end = nr + 1;
            nr_pages += len;
            continue;
        }
        let step = SPAN_PAGES.max(len.div_ceil(CUTS_MAX)).next_multiple_of(pmd_pages);
        let mut start = pages.start;
        while start < pages.end {
            // Cut at multiples of the step, which keeps PMD ranges whole.
            let end = (start - start % step).saturating_add(step).min(pages.end);
            spans.push(Span { pages: start..end, vmas: nr..nr + 1 });
            nr_pages = end - start;
            start = end;
        }
    }
    spans
}

pub(super) struct Reader<'a> {
    pub(super) entries: &'a dyn Entries,
    pub(super) page_bytes: u64,
    pub(super) pmd_pages: u64,
}

#[derive(Debug, Default)]
pub(super) struct Extents {
    pub(super) list: Vec<Extent>,
    /// Present pages with a hidden PFN, which reads as 0.
    pub(super) hidden: Vec<Extent>,
    /// Ascending. Marked pages can also be present.
    pub(super) marks: Vec<Mark>,
    /// Whether PMD-mapped pages are marked.
    pub(super) knows_pmd: bool,
}

impl Reader<'_> {
    /// Reads a span. `smaps` is called only without a scan, to bound the reading.
    pub(super) fn read<'s>(
        &self,
        span: &Span,
        vmas: &[Vma],
        smaps: &dyn Fn() -> &'s [Smap],
    ) -> io::Result<Extents> {
        let mut result = Extents::default();
        let mut present = Vec::new();
        match self.present(span, vmas, &mut present) {
            Ok(()) => result.knows_pmd = true,
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                present = self.unscanned(span, vmas, smaps());
            }
            Err(error) => return Err(error),
        }
        let longest = present.iter().map(|extent| extent.pages.end - extent.pages.start).max();
        let nr = usize::try_from(longest.unwrap_or(0).saturating_add(GAP_PAGES * 8));
        let mut buffer = vec![0; nr.unwrap_or(BUFFER_ENTRIES).min(BUFFER_ENTRIES)];
        let mut at = 0;
        while at < present.len() {
            let first = &present[at];
            if first.is_pmd {
                self.read_pmds(first.pages.clone(), &mut result)?;
                at += 1;
                continue;
            }
            let joined = joined(&present[at..], buffer.len() as u64);
            let pages = first.pages.start..present[at + joined - 1].pages.end;
            self.read_pages(pages, &mut buffer, &mut result)?;
            at += joined;
        }
        Ok(result)
    }

    /// Collects the ranges that may have present pages. Mappings too small for a PMD entry are
    /// taken whole, because a scan would walk their page tables a second time.
    fn present(&self, span: &Span, vmas: &[Vma], present: &mut Vec<Present>) -> io::Result<()> {
        let pmd_bytes = self.page_bytes * self.pmd_pages;
        let is_small = |vma: &Vma| vma.nr_whole_blocks(pmd_bytes) == 0;
        let inside = &vmas[span.vmas.clone()];
        let small = inside.iter().filter(|vma| is_small(vma)).map(Vma::len_bytes);
        if small.sum::<u64>() / self.page_bytes > SMALL_PAGES_MAX {
            return self.entries.scan(span.pages.clone(), present);
        }
        for vma in inside {
            let pages = vma.pages(self.page_bytes);
            let pages = pages.start.max(span.pages.start)..pages.end.min(span.pages.end);
            if is_small(vma) {
                present.push(Present { pages, is_pmd: false });
            } else {
                self.entries.scan(pages, present)?;
            }
        }
        Ok(())
    }

    pub(super) fn read_span(&self, span: &Span) -> io::Result<Extents> {
        let mut result = Extents::new();
        let nr = usize::try_from(span.pages.end - span.pages.start).unwrap_or(BUFFER_ENTRIES);
        let mut buffer = vec![0; nr.min(BUFFER_ENTRIES)];
        self.read_pages(span.pages.clone(), &mut buffer, &mut result)?;
        Ok(result)
    }

    /// Reads one entry per PMD range and derives the rest of the range.
    fn read_pmds(&self, pages: Range<u64>, result: &mut Extents) -> io::Result<()> {
        let mut page = pages.start;
        while page < pages.end {
            let end = (page - page % self.pmd_pages).saturating_add(self.pmd_pages);
            let end = end.min(pages.end);
            let mut entry = [0];
            if self.entries.read(page, &mut entry)? == 0 {
                break;
            }
            if entry[0] & PRESENT != 0 {
                let nr = u32::try_from(end - page).unwrap_or(u32::MAX);
                result.add(Extent { nr, is_pmd: true, ..Extent::of(page, entry[0]) });
            }
            page = end;
        }
        Ok(())
    }

    fn read_pages(
        &self,
        pages: Range<u64>,
        buffer: &mut [u64],
        result: &mut Extents,
    ) -> io::Result<()> {
        let mut page = pages.start;
        while page < pages.end {
            let left = usize::try_from(pages.end - page).unwrap_or(usize::MAX);
            let wanted = left.min(buffer.len());
            let nr = self.entries.read(page, &mut buffer[..wanted])?;
            for (page, entry) in (page..).zip(&buffer[..nr]) {
                if entry & PRESENT != 0 {
                    result.add(Extent::of(page, *entry));
                }
                if let Some(mark) = Mark::of(page, *entry) {
                    result.mark(mark);
                }
            }
            if nr < wanted {
                break;
            }
            page += nr as u64;
        }
        Ok(())
    }

    /// Returns a span's mappings with resident pages in smaps; without smaps, all of them.
    fn unscanned(&self, span: &Span, vmas: &[Vma], smaps: &[Smap]) -> Vec<Present> {
        let is_read = |vma: &&Vma| match smaps::find(smaps, vma.range.start) {
            Some(smap) => smap.rss_bytes > 0,
            None => vma.len_bytes() / self.page_bytes <= UNKNOWN_PAGES_MAX,
        };
        let inside = vmas[span.vmas.clone()].iter().filter(is_read);
        let pages = inside.map(|vma| {
            let pages = vma.pages(self.page_bytes);
            let (start, end) = (pages.start.max(span.pages.start), pages.end.min(span.pages.end));
            start..end.min(start.saturating_add(UNSCANNED_PAGES_MAX / CUTS_MAX))
        });
        pages
            .filter(|pages| !pages.is_empty())
            .map(|pages| Present { pages, is_pmd: false })
            .collect()
    }
}

/// Returns how many ranges one call can read. Gaps are small, and no range is PMD-mapped.
fn joined(present: &[Present], nr_max: u64) -> usize {
    let start = present[0].pages.start;
    let pairs = present.windows(2);
    1 + pairs
        .take_while(|pair| {
            !pair[1].is_pmd
                && pair[1].pages.start.saturating_sub(pair[0].pages.end) <= GAP_PAGES
                && pair[1].pages.end.saturating_sub(start) <= nr_max
        })
        .count()
}

impl Extents {
    pub(super) fn new() -> Self {
        Self { knows_pmd: true, ..Self::default() }
    }

    pub(super) fn append(&mut self, later: &Self) {
        // A folio may be mapped across the boundary of two spans.
        if let Some((first, rest)) = later.list.split_first() {
            self.add(*first);
            self.list.extend_from_slice(rest);
        }
        self.hidden.extend_from_slice(&later.hidden);
        self.marks.extend_from_slice(&later.marks);
        self.knows_pmd &= later.knows_pmd;
    }

    fn add(&mut self, next: Extent) {
        let list = if next.pfn == 0 { &mut self.hidden } else { &mut self.list };
        if let Some(last) = list.last_mut()
            && last.page + u64::from(last.nr) == next.page
            && (next.pfn == 0 || last.pfn + u64::from(last.nr) == next.pfn)
            && (last.is_pmd, last.is_exclusive) == (next.is_pmd, next.is_exclusive)
            && let Some(nr) = last.nr.checked_add(next.nr)
        {
            last.nr = nr;
            return;
        }
        list.push(next);
    }

    fn mark(&mut self, next: Mark) {
        if let Some(last) = self.marks.last_mut()
            && last.page + u64::from(last.nr) == next.page
            && last.state == next.state
            && let Some(nr) = last.nr.checked_add(next.nr)
        {
            last.nr = nr;
            return;
        }
        self.marks.push(next);
    }
}
