//! The generator's view of a process: which pages are mapped, and which of them are alike.
//!
//! It is precise enough for operations that mostly succeed. The kernel may merge or split areas
//! that the generator treats as one kind of page.

use largefolio_mm::map::Madvice;
use largefolio_mm::vma::{Prot, Sharing};

use super::super::program::{AreaSource, ProcessOp};
use super::super::range::{NR_SLOTS, PageRange};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageBacking {
    Source(AreaSource),
    Own(Sharing),
}

/// The attributes of one page; equal neighbours are one area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageKind {
    origin: u32,
    backing: PageBacking,
    advice: Option<Madvice>,
    prot: Prot,
}

#[derive(Clone, Debug)]
pub(super) struct Areas {
    pages: Vec<Option<PageKind>>,
    nr_origins: u32,
}

impl Areas {
    pub(super) fn new(nr_pages: u64) -> Self {
        Self { pages: vec![None; nr_pages as usize], nr_origins: 0 }
    }

    pub(super) fn after(
        mut living: [Option<Self>; NR_SLOTS],
        slot: usize,
        op: ProcessOp,
    ) -> [Option<Self>; NR_SLOTS] {
        match op {
            ProcessOp::Exit => living[slot] = None,
            ProcessOp::Fork(child) => {
                let parent = living[slot].clone();
                living[child] = parent;
            }
            _ => {
                if let Some(areas) = &mut living[slot] {
                    areas.apply(op);
                }
            }
        }
        living
    }

    fn apply(&mut self, op: ProcessOp) {
        match op {
            ProcessOp::Map(range, source, advice) => {
                self.map(range, PageBacking::Source(source), advice);
            }
            ProcessOp::MapHuge(range, how) => {
                self.map(range, PageBacking::Own(how.sharing), None);
            }
            ProcessOp::Share(range, _, how) => {
                self.map(range, PageBacking::Own(how.sharing), None);
            }
            ProcessOp::Unmap(range) => self.part(range).fill(None),
            ProcessOp::Protect(range, prot) => {
                self.part(range).iter_mut().flatten().for_each(|kind| kind.prot = prot);
            }
            ProcessOp::Advise(range, advice) => {
                self.part(range).iter_mut().flatten().for_each(|kind| kind.advice = Some(advice));
            }
            ProcessOp::Remap(range, to) => {
                let origin = self.next_origin();
                let moved: Vec<_> = self.part(range).to_vec();
                self.part(range).fill(None);
                let target = self.part(PageRange { first: to, nr: range.nr });
                target.copy_from_slice(&moved);
                target.iter_mut().flatten().for_each(|kind| kind.origin = origin);
            }
            _ => {}
        }
    }

    fn map(&mut self, range: PageRange, backing: PageBacking, advice: Option<Madvice>) {
        let origin = self.next_origin();
        let kind = PageKind { origin, backing, advice, prot: Prot::READ_WRITE };
        self.part(range).fill(Some(kind));
    }

    fn next_origin(&mut self) -> u32 {
        self.nr_origins += 1;
        self.nr_origins
    }

    fn part(&mut self, range: PageRange) -> &mut [Option<PageKind>] {
        &mut self.pages[range.first as usize..range.end() as usize]
    }

    pub(super) fn runs(&self) -> Vec<PageRange> {
        self.chunks().filter(|(_, kind)| kind.is_some()).map(|(range, _)| range).collect()
    }

    pub(super) fn free_runs(&self) -> Vec<PageRange> {
        self.chunks().filter(|(_, kind)| kind.is_none()).map(|(range, _)| range).collect()
    }

    fn chunks(&self) -> impl Iterator<Item = (PageRange, Option<PageKind>)> {
        let mut first = 0;
        self.pages.chunk_by(|a, b| a == b).map(move |chunk| {
            let range = PageRange { first, nr: chunk.len() as u64 };
            first = range.end();
            (range, chunk[0])
        })
    }
}
