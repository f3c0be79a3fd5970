//! PTE mappings of each page of a large folio (F.1 `_mapcount`, but without the minus one).
//!
//! As long as every operation covers the whole folio, all pages have the same count and one number
//! holds it. fork and munmap of a whole folio then cost the same for every folio size.

use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PageCounts {
    Uniform(u32),
    Each(Box<[u32]>),
}

impl PageCounts {
    pub(super) const ZERO: Self = Self::Uniform(0);

    pub(super) fn get(&self, page: u32) -> u32 {
        match self {
            Self::Uniform(count) => *count,
            Self::Each(counts) => counts[page as usize],
        }
    }

    /// Adds a mapping to each of `pages`. Returns how many had none before.
    pub(super) fn add(&mut self, pages: Range<u32>, nr_pages: u32) -> u32 {
        if let Self::Uniform(count) = self
            && pages.len() == nr_pages as usize
        {
            *count += 1;
            return if *count == 1 { nr_pages } else { 0 };
        }
        let mut nr_first = 0;
        for count in self.each(pages, nr_pages) {
            nr_first += u32::from(*count == 0);
            *count += 1;
        }
        nr_first
    }

    /// Removes a mapping from each of `pages`. Returns how many now have none.
    pub(super) fn remove(&mut self, pages: Range<u32>, nr_pages: u32) -> u32 {
        if let Self::Uniform(count) = self
            && pages.len() == nr_pages as usize
        {
            *count -= 1;
            return if *count == 0 { nr_pages } else { 0 };
        }
        let mut nr_last = 0;
        for count in self.each(pages, nr_pages) {
            *count -= 1;
            nr_last += u32::from(*count == 0);
        }
        nr_last
    }

    pub(super) fn are_mapped(&self, pages: Range<u32>) -> bool {
        match self {
            Self::Uniform(count) => *count > 0,
            Self::Each(counts) => {
                counts[pages.start as usize..pages.end as usize].iter().all(|&count| count > 0)
            }
        }
    }

    fn each(&mut self, pages: Range<u32>, nr_pages: u32) -> &mut [u32] {
        if let Self::Uniform(count) = self {
            *self = Self::Each(vec![*count; nr_pages as usize].into_boxed_slice());
        }
        let Self::Each(counts) = self else { unreachable!("made so above") };
        &mut counts[pages.start as usize..pages.end as usize]
    }
}
