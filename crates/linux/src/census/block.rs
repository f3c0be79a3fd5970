//! Decides whether a block of memory can become one folio, and at what cost.
//!
//! ```text
//!   pagemap, kpageflags   each block, pages by state    Runs, BlockFacts
//!   smaps                 the whole mapping             AreaFacts
//!   judge                 one folio? at which cost?     Result<Cost, Obstacle>
//! ```
//!
//! `folio maps`, `folio advise` and `folio collapse` all use this judgement. Nothing is read here:
//! the input is facts and the output is a judgement. Every condition was tested on Linux 6.18, and
//! the live test `blocks` tests them all again.
//!
//! Invariants:
//! - B1: runs ascend by block, do not overlap, and are not empty; no two neighbours could be
//!   joined.
//! - B2: a block's present, zero, swapped and guard pages together do not exceed its size.
//! - B3: an allowed block costs at most its size. The new, swapped and copied pages do not overlap,
//!   but a copied page is also present.

mod place;

use std::ops::Range;

pub(crate) use self::place::{BlockPlace, FileBlock};
use crate::proc::maps::Vma;
use crate::proc::smaps::{Merging, Smap};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In the running program, by `MADV_COLLAPSE`.
    Now,
    /// When the program touches it again after its next start.
    NextStart,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backing {
    #[default]
    Anon,
    /// memfd, tmpfs, shared anonymous memory.
    Shmem,
    File,
}

impl Backing {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anon => "anon",
            Self::Shmem => "shmem",
            Self::File => "file",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not exclude each other")]
pub struct AreaFacts {
    pub backing: Backing,
    pub is_disabled: bool,
    /// `MADV_NOHUGEPAGE`, or a thread's stack.
    pub is_no_huge: bool,
    pub is_hugetlb: bool,
    /// Device memory, or memory without movable pages.
    pub is_device: bool,
    /// userfaultfd handles missing pages.
    pub awaits_missing: bool,
    /// userfaultfd handles minor faults.
    pub awaits_minor: bool,
    /// userfaultfd write-protects pages.
    pub is_write_tracked: bool,
    /// Some private pages are shared with another process after a fork.
    pub is_forked: bool,
    /// KSM runs, and may merge its pages.
    pub is_merging: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockFacts {
    /// In memory, without zero pages.
    pub nr_present: u32,
    pub nr_zero: u32,
    /// Present, PTE-mapped, and also mapped elsewhere.
    pub nr_shared: u32,
    pub nr_pmd: u32,
    pub nr_merged: u32,
    /// Entries for a merged page that an earlier entry of the block maps too. The kernel cannot lock
    /// such a page twice.
    pub nr_repeated: u32,
    /// Present private copies in a file mapping.
    pub nr_copied: u32,
    pub nr_swapped: u32,
    pub nr_guard: u32,
    /// Write-protected by userfaultfd, present or not.
    pub nr_protected: u32,
    /// Pinned for `io_uring`, as far as the kernel tells which pages.
    pub nr_pinned: u32,
}

/// The cost of turning a block into one folio, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub nr_new: u64,
    pub nr_swapped: u64,
    /// Copied because other processes keep the original.
    pub nr_copied: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// It already is one folio, mapped by a PMD entry.
    Large,
    /// No page is in memory or in swap.
    Empty,
    SwappedOut,
    /// It contains a `MADV_GUARD_INSTALL` marker.
    Guard,
    Merged,
    /// userfaultfd protects a page or handles a missing one.
    Userfaultfd,
    Pinned,
    /// Some pages are private copies of file pages.
    Copied,
    Disabled,
    NoHugeAdvice,
    Hugetlb,
    Device,
    /// The address and the offset in the file or shared memory differ modulo the block size.
    Incongruent,
    /// The mapping contains no whole block.
    Short,
}

impl Obstacle {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Large => "large",
            Self::Empty => "not_touched",
            Self::SwappedOut => "swapped_out",
            Self::Guard => "guard_page",
            Self::Merged => "merged",
            Self::Userfaultfd => "userfaultfd",
            Self::Pinned => "pinned",
            Self::Copied => "private_copy",
            Self::Disabled => "disabled",
            Self::NoHugeAdvice => "no_huge_advice",
            Self::Hugetlb => "hugetlb",
            Self::Device => "device",
            Self::Incongruent => "incongruent",
            Self::Short => "too_small",
        }
    }

    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Large => "already in one folio",
            Self::Empty => "not touched yet",
            Self::SwappedOut => "swapped out",
            Self::Guard => "the block contains a guard page (MADV_GUARD_INSTALL)",
            Self::Merged => "KSM merged some of its pages",
            Self::Userfaultfd => "userfaultfd watches some of its pages",
            Self::Pinned => "pinned for io_uring or a device",
            Self::Copied => "written to: private copies of file pages",
            Self::Disabled => "THP is disabled for the process (PR_SET_THP_DISABLE)",
            Self::NoHugeAdvice => "the program forbids it: MADV_NOHUGEPAGE or a thread's stack",
            Self::Hugetlb => "hugetlb pages",
            Self::Device => "device memory",
            Self::Incongruent => "address and file offset have different alignments",
            Self::Short => "smaller than any block",
        }
    }
}

impl AreaFacts {
    #[must_use]
    pub fn of(smap: &Smap, backing: Backing) -> Self {
        Self {
            backing,
            is_disabled: smap.is_disabled,
            is_no_huge: smap.is_no_huge,
            is_hugetlb: smap.is_hugetlb,
            is_device: smap.is_device,
            awaits_missing: smap.awaits_missing,
            awaits_minor: smap.awaits_minor,
            is_write_tracked: smap.is_write_tracked,
            is_forked: false,
            is_merging: smap.merging != Merging::No,
        }
    }

    /// Clears the bans set by the program or its parent, which an option may lift.
    #[must_use]
    pub const fn lifted(self) -> Self {
        Self { is_disabled: false, is_no_huge: false, ..self }
    }

    /// Returns the obstacle that all blocks of the mapping share.
    #[must_use]
    pub const fn obstacle(&self, when: When) -> Option<Obstacle> {
        let is_armed = self.awaits_missing || self.awaits_minor || self.is_write_tracked;
        if self.is_hugetlb {
            Some(Obstacle::Hugetlb)
        } else if self.is_device {
            Some(Obstacle::Device)
        } else if self.is_disabled {
            Some(Obstacle::Disabled)
        } else if self.is_no_huge {
            Some(Obstacle::NoHugeAdvice)
        } else if match when {
            // After the restart, userfaultfd again fills missing pages one at a time.
            When::NextStart => is_armed,
            // Shared memory under write protection keeps its page tables.
            When::Now => self.is_write_tracked && !matches!(self.backing, Backing::Anon),
        } {
            Some(Obstacle::Userfaultfd)
        } else {
            None
        }
    }

    /// Judges a block of `nr_pages` and returns the cost of one folio.
    ///
    /// # Errors
    /// The obstacle.
    pub fn judge(&self, block: &BlockFacts, nr_pages: u32, when: When) -> Result<Cost, Obstacle> {
        if let Some(obstacle) = self.obstacle(when) {
            return Err(obstacle);
        }
        let nr_holes = nr_pages.saturating_sub(block.nr_present).saturating_sub(block.nr_swapped);
        if block.is_large(nr_pages) {
            return Err(Obstacle::Large);
        }
        if block.nr_guard > 0 {
            return Err(Obstacle::Guard);
        }
        // Collapse copies merged pages, unless one is there twice. KSM would split the folio again
        // while it runs, and after the next start it would merge the pages as before.
        let is_split_again = self.is_merging || when == When::NextStart;
        if block.nr_repeated > 0 || block.nr_merged > 0 && is_split_again {
            return Err(Obstacle::Merged);
        }
        if block.nr_protected > 0 {
            return Err(Obstacle::Userfaultfd);
        }
        // The restarted program pins the new folio instead, but a fork splits its PMD entry.
        if block.nr_pinned > 0 && (when == When::Now || self.is_forked) {
            return Err(Obstacle::Pinned);
        }
        if block.nr_copied > 0 {
            return Err(Obstacle::Copied);
        }
        if block.nr_present == 0 {
            let is_swapped = block.nr_swapped > 0;
            return Err(if is_swapped { Obstacle::SwappedOut } else { Obstacle::Empty });
        }
        // In shared memory, userfaultfd acts on a hole only if it handles missing pages.
        let awaits_holes = match self.backing {
            Backing::Anon => self.awaits_missing || self.awaits_minor || self.is_write_tracked,
            Backing::Shmem | Backing::File => self.awaits_missing,
        };
        if nr_holes > 0 && awaits_holes {
            return Err(Obstacle::Userfaultfd);
        }
        let is_anon = self.backing == Backing::Anon;
        let is_now = when == When::Now;
        Ok(Cost {
            nr_new: nr_holes.into(),
            // The restarted program fills it anyway.
            nr_swapped: if is_now { block.nr_swapped.into() } else { 0 },
            // File and shared memory pages stay shared.
            nr_copied: if is_now && is_anon { block.nr_shared.into() } else { 0 },
        })
    }
}

impl BlockFacts {
    pub(crate) const fn is_large(&self, nr_pages: u32) -> bool {
        self.nr_pmd >= nr_pages
    }

    fn add(&mut self, other: &Self) {
        let Self {
            nr_present,
            nr_zero,
            nr_shared,
            nr_pmd,
            nr_merged,
            nr_repeated,
            nr_copied,
            nr_swapped,
            nr_guard,
            nr_protected,
            nr_pinned,
        } = other;
        self.nr_present += nr_present;
        self.nr_zero += nr_zero;
        self.nr_shared += nr_shared;
        self.nr_pmd += nr_pmd;
        self.nr_merged += nr_merged;
        self.nr_repeated += nr_repeated;
        self.nr_copied += nr_copied;
        self.nr_swapped += nr_swapped;
        self.nr_guard += nr_guard;
        self.nr_protected += nr_protected;
        self.nr_pinned += nr_pinned;
    }
}

/// Returns the obstacle for every block of `block_bytes` in a mapping, whatever its pages are.
#[must_use]
pub fn refusal(smap: &Smap, backing: Backing, block_bytes: u64) -> Option<Obstacle> {
    if smap.vma.nr_whole_blocks(block_bytes) == 0 {
        return Some(Obstacle::Short);
    }
    let is_fit = backing == Backing::Anon || smap.vma.is_congruent(block_bytes);
    let obstacle = AreaFacts::of(smap, backing).obstacle(When::Now);
    obstacle.or((!is_fit).then_some(Obstacle::Incongruent))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The first block, counted in blocks from the mapping's first ([`Vma::first_block`]).
    pub first: u64,
    pub nr: u64,
    pub facts: BlockFacts,
}

impl BlockRun {
    const fn end(&self) -> u64 {
        self.first + self.nr
    }
}

/// The whole blocks of a mapping that have something in the page table (B1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// A block has `2^order` pages.
    pub order: u32,
    list: Vec<BlockRun>,
}

impl Runs {
    #[must_use]
    pub const fn new(order: u32) -> Self {
        Self { order, list: Vec::new() }
    }

    #[cfg(test)]
    pub(crate) fn of(order: u32, runs: impl Iterator<Item = BlockRun>) -> Self {
        let mut all = Self::new(order);
        runs.for_each(|run| all.push(run));
        all
    }

    pub fn iter(&self) -> impl Iterator<Item = &BlockRun> {
        self.list.iter()
    }

    #[must_use]
    pub const fn nr_pages(&self) -> u32 {
        1 << self.order
    }

    /// Returns the blocks of private memory that are completely inside any of the ascending address
    /// ranges.
    pub(crate) fn inside(&self, ranges: impl Iterator<Item = Range<u64>>, page_bytes: u64) -> Self {
        let mut inside = Self::new(self.order);
        let block_bytes = page_bytes << self.order;
        let mut rest = &self.list[..];
        for range in ranges {
            let blocks = range.start.div_ceil(block_bytes)..range.end / block_bytes;
            rest = &rest[rest.partition_point(|run| run.end() <= blocks.start)..];
            for run in rest.iter().take_while(|run| run.first < blocks.end) {
                let first = run.first.max(blocks.start);
                let nr = run.end().min(blocks.end).saturating_sub(first);
                inside.push(BlockRun { first, nr, facts: run.facts });
            }
        }
        inside
    }

    fn push(&mut self, run: BlockRun) {
        match self.list.last_mut() {
            Some(last) if last.end() == run.first && last.facts == run.facts => last.nr += run.nr,
            _ if run.nr > 0 => self.list.push(run),
            _ => {}
        }
    }

    fn joined(&self, other: &Self) -> Self {
        let mut joined = Self::new(self.order);
        let (mut ours, mut theirs) = (self.list.iter().copied(), other.list.iter().copied());
        let (mut one, mut two) = (ours.next(), theirs.next());
        while let (Some(a), Some(b)) = (one, two) {
            let start = a.first.min(b.first);
            let (in_a, in_b) = (a.first == start, b.first == start);
            let bound = |run: &BlockRun, is_in: bool| if is_in { run.end() } else { run.first };
            let end = bound(&a, in_a).min(bound(&b, in_b));
            let mut facts = BlockFacts::default();
            let mut rest =
                |run: BlockRun, is_in: bool, next: &mut dyn Iterator<Item = BlockRun>| {
                    if !is_in {
                        return Some(run);
                    }
                    facts.add(&run.facts);
                    let rest = BlockRun { first: end, nr: run.end() - end, ..run };
                    if rest.nr > 0 { Some(rest) } else { next.next() }
                };
            one = rest(a, in_a, &mut ours);
            two = rest(b, in_b, &mut theirs);
            joined.push(BlockRun { first: start, nr: end - start, facts });
        }
        one.into_iter().chain(ours).chain(two).chain(theirs).for_each(|run| joined.push(run));
        joined
    }
}

pub(super) struct Gathering {
    whole: Range<u64>,
    runs: Runs,
    open: Option<(u64, BlockFacts)>,
    nr_before: u64,
}

impl Gathering {
    pub(super) fn new(vma: &Vma, page_bytes: u64, order: u32) -> Self {
        let first = vma.first_block(page_bytes << order);
        let page = |address: u64| address.saturating_sub(first) / page_bytes;
        let whole = page(vma.range.start).div_ceil(1 << order)..page(vma.range.end) >> order;
        Self { whole, runs: Runs::new(order), open: None, nr_before: first / page_bytes }
    }

    pub(super) fn add(&mut self, pages: Range<u64>, facts: impl Fn(u32) -> BlockFacts) {
        let order = self.runs.order;
        let bounds = self.whole.start << order..self.whole.end.max(self.whole.start) << order;
        let mut page = pages.start.saturating_sub(self.nr_before).max(bounds.start);
        let end = pages.end.saturating_sub(self.nr_before).min(bounds.end);
        while page < end {
            let block = page >> order;
            if self.open.is_none_or(|(open, _)| open != block) {
                self.close();
                let nr = (end - page) >> order;
                if nr > 0 && page == block << order {
                    self.runs.push(BlockRun { first: block, nr, facts: facts(1 << order) });
                    page += nr << order;
                    continue;
                }
            }
            let nr = end.min((block + 1) << order) - page;
            let (_, open) = self.open.get_or_insert((block, BlockFacts::default()));
            open.add(&facts(u32::try_from(nr).unwrap_or(u32::MAX)));
            page += nr;
        }
    }

    fn close(&mut self) {
        if let Some((first, facts)) = self.open.take() {
            self.runs.push(BlockRun { first, nr: 1, facts });
        }
    }

    fn finish(mut self) -> Runs {
        self.close();
        self.runs
    }
}

pub(super) fn together(all: [Gathering; 4]) -> Runs {
    let [first, rest @ ..] = all.map(Gathering::finish);
    rest.iter().filter(|more| !more.list.is_empty()).fold(first, |runs, more| runs.joined(more))
}

#[cfg(test)]
mod tests;
