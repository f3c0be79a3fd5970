//! Counts which folios back a process's memory: the rows of docs/behaviour J.1, by kind.
//!
//! A folio counts as *aligned* if a process maps all of it at a virtual address that is a multiple
//! of its size, as *unaligned* if it maps all of it elsewhere, and page by page as *partial* if it
//! maps only some pages. The bytes under contpte blocks and PMD entries are reported separately. A
//! process is counted when it ends, or at the end of the trace, and its shared memory when most of
//! it is mapped: databases unmap it before they end.

use std::collections::BTreeMap;

use largefolio_mm::folio::Owner;
use largefolio_mm::mapping::Mapping;
use largefolio_mm::memory::Memory;
use largefolio_mm::pgtable::{Leaf, LeafKind};
use largefolio_mm::units::{MmId, Order, Pfn, Vpn};
use largefolio_mm::vma::{Backing, Vma};
use largefolio_trace::FileId;
use serde::Serialize;

use crate::replay::observers::statistics::mapped_bytes;
use crate::replay::program::place::RECORDED_SHIFT;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SizeRow {
    /// Wholly mapped at a multiple of the folio's size.
    pub aligned_bytes: u64,
    pub unaligned_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SizeTable {
    /// All mapped bytes: the sum of the rows and `partial_bytes`.
    pub mapped_bytes: u64,
    pub by_size: BTreeMap<u64, SizeRow>,
    pub partial_bytes: u64,
    pub partial_by_size: BTreeMap<u64, u64>,
    pub contpte_bytes: u64,
    pub pmd_bytes: u64,
}

struct MappedRun {
    vpn: Vpn,
    pfn: Pfn,
    nr_pages: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageKind {
    Cached,
    /// Anonymous pages, including private copies of file pages, but not the zero page.
    Anon,
}

impl SizeTable {
    fn add_area(&mut self, memory: &Memory, mm: MmId, vma: &Vma, kind: PageKind) {
        let mut run: Option<MappedRun> = None;
        for leaf in memory.space(mm).table.leaves(vma.start, vma.nr_pages()) {
            let vpn = leaf.first_vpn.max(vma.start);
            let nr_pages = leaf.end_vpn().min(vma.end).0 - vpn.0;
            let pfn = leaf.pfn_of(vpn);
            let is_counted = memory.owner_of(pfn).is_some_and(|(owner, _)| match kind {
                PageKind::Cached => matches!(owner, Owner::File { .. }),
                PageKind::Anon => matches!(owner, Owner::Anon { .. }),
            });
            if !is_counted {
                continue;
            }
            self.add_leaf(memory, &leaf, nr_pages);
            match &mut run {
                Some(open) if continues(memory, open, vpn, pfn) => open.nr_pages += nr_pages,
                _ => {
                    self.close(memory, run.take());
                    run = Some(MappedRun { vpn, pfn, nr_pages });
                }
            }
        }
        self.close(memory, run);
    }

    fn add_leaf(&mut self, memory: &Memory, leaf: &Leaf, nr_pages: u64) {
        let bytes = nr_pages << memory.rules().page.shift();
        self.mapped_bytes += bytes;
        match leaf.kind {
            LeafKind::Pte => {}
            LeafKind::Contpte => self.contpte_bytes += bytes,
            LeafKind::Pmd => self.pmd_bytes += bytes,
        }
    }

    fn close(&mut self, memory: &Memory, run: Option<MappedRun>) {
        let Some(run) = run else { return };
        let shift = memory.rules().page.shift();
        let order = memory.owner_of(run.pfn).map_or(Order::ZERO, |(_, order)| order);
        let bytes = run.nr_pages << shift;
        let folio_bytes = order.nr_pages() << shift;
        if run.nr_pages < order.nr_pages() {
            self.partial_bytes += bytes;
            *self.partial_by_size.entry(folio_bytes).or_default() += bytes;
            return;
        }
        let row = self.by_size.entry(folio_bytes).or_default();
        if order.is_aligned(run.vpn.0) {
            row.aligned_bytes += bytes;
        } else {
            row.unaligned_bytes += bytes;
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.mapped_bytes += other.mapped_bytes;
        self.partial_bytes += other.partial_bytes;
        self.contpte_bytes += other.contpte_bytes;
        self.pmd_bytes += other.pmd_bytes;
        for (&size, row) in &other.by_size {
            let own = self.by_size.entry(size).or_default();
            own.aligned_bytes += row.aligned_bytes;
            own.unaligned_bytes += row.unaligned_bytes;
        }
        for (&size, &bytes) in &other.partial_by_size {
            *self.partial_by_size.entry(size).or_default() += bytes;
        }
    }

    #[must_use]
    pub fn in_folios_from(&self, folio_bytes: u64) -> u64 {
        let whole = self.by_size.range(folio_bytes..);
        let whole = whole.map(|(_, row)| row.aligned_bytes + row.unaligned_bytes).sum::<u64>();
        whole + self.partial_by_size.range(folio_bytes..).map(|(_, bytes)| bytes).sum::<u64>()
    }
}

fn continues(memory: &Memory, run: &MappedRun, vpn: Vpn, pfn: Pfn) -> bool {
    run.vpn.0 + run.nr_pages == vpn.0
        && run.pfn.0 + run.nr_pages == pfn.0
        && memory.core().folios.of_pfn(run.pfn) == memory.core().folios.of_pfn(pfn)
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FolioSizes {
    pub text: SizeTable,
    /// All other file mappings, page-cache pages only.
    pub data: SizeTable,
    /// Shared memory without a file (`MAP_SHARED | MAP_ANONYMOUS`).
    pub shmem: SizeTable,
    pub anon: SizeTable,
}

impl FolioSizes {
    pub(crate) fn add_process(&mut self, memory: &Memory, mm: MmId) {
        for vma in memory.space(mm).vmas.iter() {
            self.anon.add_area(memory, mm, vma, PageKind::Anon);
            let Some(mapping) = mapping_of(memory, vma) else { continue };
            let table = if mapping.is_anon_shared() {
                &mut self.shmem
            } else if vma.prot.can_exec {
                &mut self.text
            } else {
                &mut self.data
            };
            table.add_area(memory, mm, vma, PageKind::Cached);
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.text.add(&other.text);
        self.data.add(&other.data);
        self.shmem.add(&other.shmem);
        self.anon.add(&other.anon);
    }

    #[must_use]
    pub fn all(&self) -> SizeTable {
        let mut all = self.text.clone();
        all.add(&self.data);
        all
    }
}

fn mapping_of<'a>(memory: &'a Memory, vma: &Vma) -> Option<&'a Mapping> {
    let Backing::File { open, .. } = vma.backing else { return None };
    Some(memory.core().mapping(memory.open_file(open).mapping))
}

/// Whether an area maps shared memory without a file.
pub(crate) fn is_shared(memory: &Memory, vma: &Vma) -> bool {
    mapping_of(memory, vma).is_some_and(Mapping::is_anon_shared)
}

/// The shared memory of an address space when most of it was mapped, before it was unmapped.
#[derive(Clone, Debug, Default)]
pub(crate) struct LargestShared {
    sizes: SizeTable,
    /// What all programs mapped at the last look.
    mapped_bytes: u64,
}

impl LargestShared {
    /// Looks if more is mapped than at the last look. Returns the bytes that it looked at.
    pub(crate) fn observe(&mut self, memory: &Memory, mm: MmId) -> Option<u64> {
        let mapped_bytes = mapped_bytes(memory);
        if mapped_bytes <= self.mapped_bytes {
            return None;
        }
        self.mapped_bytes = mapped_bytes;
        let mut sizes = SizeTable::default();
        for vma in memory.space(mm).vmas.iter().filter(|vma| is_shared(memory, vma)) {
            sizes.add_area(memory, mm, vma, PageKind::Cached);
        }
        let shared_bytes = sizes.mapped_bytes;
        if shared_bytes > self.sizes.mapped_bytes {
            self.sizes = sizes;
        }
        Some(shared_bytes)
    }

    /// Replaces the table of the end, if less is mapped there.
    pub(crate) fn replace(self, at_end: &mut SizeTable) {
        if self.sizes.mapped_bytes > at_end.mapped_bytes {
            *at_end = self.sizes;
        }
    }
}

/// One bit per 4 KiB of each file. Memory grows with the pieces used, not with the files' sizes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    /// 64 pieces, by file and the first piece's number / 64.
    words: BTreeMap<(FileId, u64), u64>,
    nr_pieces: u64,
}

impl Touched {
    /// Marks the pieces of `[pos, pos + len)`, cut to `size`. Returns the words visited: the work
    /// done.
    pub(crate) fn mark(&mut self, file: FileId, pos: u64, len: u64, size: u64) -> usize {
        let end = pos.saturating_add(len).min(size);
        if pos >= end {
            return 0;
        }
        let (first, last) = (pos >> RECORDED_SHIFT, (end - 1) >> RECORDED_SHIFT);
        let mut nr_words = 0;
        for number in first / 64..=last / 64 {
            let from = first.max(number * 64) % 64;
            let to = last.min(number * 64 + 63) % 64;
            let bits = (u64::MAX >> (63 - (to - from))) << from;
            let word = self.words.entry((file, number)).or_default();
            self.nr_pieces += u64::from((bits & !*word).count_ones());
            *word |= bits;
            nr_words += 1;
        }
        nr_words
    }

    pub(crate) fn nr_words(&self) -> usize {
        self.words.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.nr_pieces << RECORDED_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD_BYTES: u64 = 64 << RECORDED_SHIFT;

    #[test]
    fn a_piece_counts_once_and_only_inside_the_file() {
        let mut touched = Touched::default();
        touched.mark(0, 4000, 200, 1 << 20);
        touched.mark(0, 0, 10, 1 << 20);
        touched.mark(1, 8192, 100_000, 10_000);
        touched.mark(1, 20_000, 1, 10_000);
        assert_eq!(touched.bytes(), 3 * 4096);
    }

    #[test]
    fn words_are_counted_each_time_they_are_visited() {
        let mut touched = Touched::default();
        assert_eq!(touched.mark(0, 4096, 4 * WORD_BYTES, 1 << 40), 5);
        assert_eq!(touched.mark(0, 4096, 4 * WORD_BYTES, 1 << 40), 5);
        assert_eq!(touched.mark(0, 8192, 0, 1 << 40), 0);
        assert_eq!(touched.nr_words(), 5);
    }
}
