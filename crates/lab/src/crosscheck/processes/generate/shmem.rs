//! Programs about shared memory in large folios.
//!
//! Each program has its own settings: `shmem_enabled`, `huge=`, and up to three sizes. Its processes
//! map a memfd or a file on a tmpfs, shared anonymous memory and System V segments, in aligned and
//! unaligned areas. They store, write, allocate, punch holes, and change the file's size.

use std::collections::BTreeMap;

use largefolio_mm::map::Madvice;
use largefolio_mm::rules::shmem::{ShmemEnabled, ShmemSizeMode};
use largefolio_mm::units::{Order, PageSize};
use largefolio_mm::vma::{Prot, Sharing};
use largefolio_trace::generate::Rng;

use super::super::program::{AreaSource, FillStart, OwnMapping, ProcessOp};
use super::super::range::PageRange;
use super::super::shmem::{ENABLED, HUGE, MODES, ShmemSettings};
use super::Generator;

fn pick<T: Copy>(rng: &mut Rng, all: &[(&str, T)]) -> T {
    all[rng.below(all.len() as u64) as usize].1
}

pub(super) fn settings(rng: &mut Rng, page: PageSize) -> ShmemSettings {
    let (enabled, tmpfs) = (pick(rng, &ENABLED), pick(rng, &HUGE));
    let mut size_kib = BTreeMap::new();
    let pmd_kib = (page.bytes() << page.pmd_order().get()) >> 10;
    if rng.below(100) < 60 {
        for _ in 0..=rng.below(3) {
            let order = Order::new(1 + rng.below(u64::from(page.pmd_order().get())) as u8);
            let kib = (page.bytes() << order.get()) >> 10;
            size_kib.insert(kib, pick(rng, &MODES));
        }
    }
    // The kernel accepts `force` only while exactly the PMD size inherits.
    if enabled == ShmemEnabled::Force {
        size_kib.retain(|kib, mode| *mode != ShmemSizeMode::Inherit && *kib != pmd_kib);
    }
    ShmemSettings { enabled, tmpfs, size_kib }
}

impl Generator {
    pub(super) fn map_first_of_shmem(&mut self) {
        for _ in 0..=self.rng.below(3) {
            self.map_shmem(0);
        }
    }

    pub(super) fn shmem_step(&mut self) {
        let (slot, nr_alive) = self.some_process();
        match self.rng.below(100) {
            0..32 => self.touch_run(slot),
            32..46 => self.fill(slot),
            46..53 => self.punch(slot),
            53..60 => self.resize(slot),
            60..65 if self.reserves() => self.reserve(slot),
            65..72 => self.on_range(slot, |rng, range| {
                let advice = [Madvice::Hugepage, Madvice::Hugepage, Madvice::Nohugepage];
                ProcessOp::Advise(range, advice[rng.below(3) as usize])
            }),
            72..75 => self.on_range(slot, |_, range| ProcessOp::Drop(range)),
            75..77 => self.on_range(slot, |rng, range| {
                let prots = [Prot::READ, Prot::READ_WRITE];
                ProcessOp::Protect(range, prots[rng.below(2) as usize])
            }),
            77..80 if !self.reserves() => self.collapse(slot),
            80..84 => self.fork(slot, nr_alive),
            84..86 if nr_alive > 1 => self.emit(slot, ProcessOp::Exit),
            86..90 => self.on_range(slot, |_, range| ProcessOp::Unmap(range)),
            90..92 => self.remap(slot),
            _ => self.map_shmem(slot),
        }
    }

    /// Whether the program calls fallocate rather than `MADV_COLLAPSE`: a collapse that finds an
    /// allocated but unwritten PMD folio maps it as it is, with whatever the memory held before.
    fn reserves(&self) -> bool {
        self.program.seed.is_multiple_of(2)
    }

    fn map_shmem(&mut self, slot: usize) {
        let Some(file) = self.program.own_file else { return };
        let Some(range) = self.some_free_range(slot, 60) else { return };
        let source = match self.rng.below(100) {
            0..20 => AreaSource::Shared,
            20..35 => AreaSource::Segment,
            _ => {
                let pmd = self.pmd.nr_pages();
                let nr_blocks = (file.nr_pages / pmd).max(1);
                let from = if self.chance(70) {
                    self.rng.below(nr_blocks) * pmd + range.first % pmd
                } else {
                    self.rng.below(file.nr_pages)
                };
                let sharing = if self.chance(85) { Sharing::Shared } else { Sharing::Private };
                let how = OwnMapping { sharing, prot: Prot::READ_WRITE };
                return self.emit(slot, ProcessOp::Share(range, from, how));
            }
        };
        let advice = [None, None, Some(Madvice::Hugepage), Some(Madvice::Nohugepage)];
        let advice = advice[self.rng.below(4) as usize];
        self.emit(slot, ProcessOp::Map(range, source, advice));
    }

    /// Returns a range of the file, or one that passes its end.
    fn part_of_file(&mut self) -> Option<PageRange> {
        let file = self.program.own_file?;
        let beyond = if self.chance(20) { self.rng.below(self.pmd.nr_pages()) } else { 0 };
        Some(self.part_of(PageRange { first: 0, nr: file.nr_pages + beyond }))
    }

    fn fill(&mut self, slot: usize) {
        let Some(range) = self.part_of_file() else { return };
        let start = if self.chance(25) { FillStart::Middle } else { FillStart::Page };
        self.emit(slot, ProcessOp::Fill(range, start));
    }

    fn reserve(&mut self, slot: usize) {
        let Some(range) = self.part_of_file() else { return };
        self.emit(slot, ProcessOp::Reserve(range));
    }

    fn resize(&mut self, slot: usize) {
        let Some(range) = self.part_of_file() else { return };
        let nr_pages = if self.chance(50) { range.end() } else { range.first };
        self.emit(slot, ProcessOp::Size(nr_pages));
    }
}
