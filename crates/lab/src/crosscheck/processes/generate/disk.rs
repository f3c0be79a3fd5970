//! Programs about a file on disk: `MADV_COLLAPSE`, khugepaged, and writers of the file.
//!
//! Processes read PMD ranges of the file, by system calls and through read-only mappings, and
//! collapse them. One of the processes opens the file for writing, stores to it, possibly syncs it,
//! and closes it.

use largefolio_mm::map::Madvice;
use largefolio_mm::units::Order;
use largefolio_mm::vma::{Prot, Sharing};
use largefolio_trace::generate::Rng;

use super::super::program::{AreaSource, FileKind, OwnFile, OwnMapping, ProcessOp};
use super::super::range::PageRange;
use super::{Generator, Topic};

const PUT_PAGES_MAX: u64 = 40;

/// Creates a file of two PMD ranges, or part of a third, so that some requests pass the end of the
/// file.
pub(super) fn own_file(rng: &mut Rng, pmd: Order) -> OwnFile {
    let part = [0, 0, 1, pmd.nr_pages() / 2][rng.below(4) as usize];
    OwnFile { kind: FileKind::Disk, nr_pages: 2 * pmd.nr_pages() + part }
}

impl Generator {
    pub(super) fn map_first_of_disk(&mut self, topic: Topic) {
        if self.chance(75) {
            self.load(0);
        }
        for first in [0, self.pmd.nr_pages()] {
            let range = PageRange { first, nr: self.pmd.nr_pages() };
            if self.chance(70) {
                let from = if self.chance(70) { first } else { 0 };
                let how = self.some_mapping();
                self.emit(0, ProcessOp::Share(range, from, how));
            }
        }
        if topic == Topic::DiskKhugepaged && self.chance(70) {
            let range = PageRange { first: 0, nr: self.program.nr_pages };
            self.emit(0, ProcessOp::Advise(range, Madvice::Hugepage));
        }
        if self.program.steps.is_empty() {
            self.load(0);
        }
    }

    pub(super) fn disk_step(&mut self, topic: Topic) {
        let (slot, nr_alive) = self.some_process();
        match self.rng.below(100) {
            0..16 => self.read_run(slot),
            16..24 => self.load(slot),
            24..44 if topic == Topic::Disk => self.collapse(slot),
            24..44 if topic == Topic::DiskSizes => self.collapse_to(slot),
            24..38 => self.emit(slot, ProcessOp::Scan),
            38..44 | 78..80 => self.advise_blocks(slot),
            44..56 => self.open_or_close(slot),
            56..66 if self.is_writer[slot] => self.put(slot),
            66..70 => self.emit(slot, ProcessOp::Sync),
            70..73 => self.touch_run(slot),
            73..76 => self.on_range(slot, |_, range| ProcessOp::Drop(range)),
            76..78 => self.on_range(slot, |rng, range| {
                ProcessOp::Protect(range, [Prot::READ, Prot::NONE][rng.below(2) as usize])
            }),
            80..82 => self.pin(slot),
            82..84 => self.emit(slot, ProcessOp::Unpin),
            84..87 => self.fork(slot, nr_alive),
            87..88 if nr_alive > 1 => {
                self.emit(slot, ProcessOp::Exit);
                self.is_writer[slot] = false;
            }
            88..91 => self.on_range(slot, |_, range| ProcessOp::Unmap(range)),
            91..92 => self.remap(slot),
            _ => self.map_of_disk(slot, topic),
        }
    }

    fn some_mapping(&mut self) -> OwnMapping {
        let (sharing, prot) = match self.rng.below(10) {
            0..2 => (Sharing::Shared, Prot::READ),
            2..4 => (Sharing::Private, Prot::READ),
            4..8 => (Sharing::Private, Prot::READ_EXEC),
            8 => (Sharing::Shared, Prot::READ_EXEC),
            _ => (Sharing::Private, Prot::READ_WRITE),
        };
        OwnMapping { sharing, prot }
    }

    /// Maps an area of the file in a free range, mostly at an offset that allows PMD entries.
    fn map_of_disk(&mut self, slot: usize, topic: Topic) {
        let Some(file) = self.program.own_file else { return };
        let Some(range) = self.some_free_range(slot, 70) else { return };
        if topic != Topic::DiskSizes && self.chance(10) {
            return self.emit(slot, ProcessOp::Map(range, AreaSource::Anon, None));
        }
        let block = self.rng.below(2) << self.pmd.get();
        let from = if self.chance(85) {
            block + range.first % self.pmd.nr_pages()
        } else {
            self.rng.below(file.nr_pages)
        };
        let how = self.some_mapping();
        self.emit(slot, ProcessOp::Share(range, from, how));
    }

    /// Requests a size for whole blocks, for less, or for an area; sometimes one that no file has.
    fn collapse_to(&mut self, slot: usize) {
        let Some(area) = self.some_area(slot) else { return };
        let order = Order::new(1 + self.rng.below(u64::from(self.pmd.get())) as u8);
        let first = order.round_down(self.page_of(area));
        let range = match self.rng.below(10) {
            0..4 => PageRange { first, nr: order.nr_pages() * (1 + self.rng.below(4)) },
            4..7 => area,
            7 => PageRange { first: 0, nr: self.program.nr_pages },
            _ => self.part_of(area),
        };
        let nr = range.nr.min(self.program.nr_pages - range.first);
        self.emit(slot, ProcessOp::CollapseTo(PageRange { nr, ..range }, order));
    }

    fn read_run(&mut self, slot: usize) {
        let Some(area) = self.some_area(slot) else { return };
        let first = self.page_of(area);
        let longest = (area.end() - first).min(if self.chance(15) { 600 } else { 16 });
        let nr = if self.chance(60) { 1 + self.rng.below(longest) } else { 1 };
        self.emit(slot, ProcessOp::Read(PageRange { first, nr }));
    }

    fn load(&mut self, slot: usize) {
        let Some(file) = self.program.own_file else { return };
        let whole = PageRange { first: 0, nr: file.nr_pages };
        let range = match self.rng.below(4) {
            0 => whole,
            1 => PageRange { first: self.rng.below(2) << self.pmd.get(), nr: self.pmd.nr_pages() },
            _ => self.part_of(whole),
        };
        self.emit(slot, ProcessOp::Load(range));
    }

    fn open_or_close(&mut self, slot: usize) {
        let is_writer = self.is_writer[slot];
        self.emit(slot, if is_writer { ProcessOp::Close } else { ProcessOp::Open });
        self.is_writer[slot] = !is_writer;
    }

    fn put(&mut self, slot: usize) {
        let Some(file) = self.program.own_file else { return };
        let PageRange { first, nr } = self.part_of(PageRange { first: 0, nr: file.nr_pages });
        self.emit(slot, ProcessOp::Put(PageRange { first, nr: nr.min(PUT_PAGES_MAX) }));
    }
}
