//! fadvise and dropping caches: folios leave the page cache on request.
//!
//! Corresponds to: `generic_fadvise`, `mapping_try_invalidate`, `drop_pagecache_sb`.
//!
//! Only clean, unmapped folios entirely inside the range are dropped.

use std::ops::Range;

use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::readahead::Plan;
use crate::rules::Device;
use crate::units::ByteRange;
use crate::units::MappingId;
use crate::vma::OpenId;

/// `posix_fadvise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fadvice {
    /// `POSIX_FADV_NORMAL`.
    Normal,
    /// `POSIX_FADV_RANDOM`: every read is forced (A.1.4).
    Random,
    /// `POSIX_FADV_SEQUENTIAL`: twice the window.
    Sequential,
    /// `POSIX_FADV_WILLNEED`: the range is read in base pages.
    Willneed,
    /// `POSIX_FADV_DONTNEED`: writes the range back, then drops unmapped folios entirely inside it.
    Dontneed,
}

impl Memory {
    /// Applies advice to a file (A.1.4).
    pub fn fadvise(
        &mut self,
        open: OpenId,
        ByteRange { pos, len_bytes }: ByteRange,
        advice: Fadvice,
    ) {
        let page = self.rules.page;
        let file = self.open_file(open).mapping;
        if self.core.mapping(file).is_zero_filled {
            // Memory is not read from a device.
            return;
        }
        let Device { ra_pages, io_pages } = self.device(file);
        let opened = self.open_file_mut(open);
        match advice {
            Fadvice::Normal => (opened.is_random, opened.state.ra_pages) = (false, ra_pages),
            Fadvice::Random => opened.is_random = true,
            Fadvice::Sequential => {
                (opened.is_random, opened.state.ra_pages) = (false, ra_pages * 2);
            }
            Fadvice::Willneed => {
                let size = self.core.mapping(file).size_bytes;
                let end = if len_bytes == 0 { size } else { pos.saturating_add(len_bytes) };
                let first = pos >> page.shift();
                let nr = page.pages_in(end.min(size)).saturating_sub(first);
                let window = self.open_file(open).state.ra_pages;
                let nr = nr.min(io_pages.max(window));
                self.read_chunks(file, Plan::chunks(first, nr));
            }
            Fadvice::Dontneed => {
                let end = if len_bytes == 0 { u64::MAX } else { pos.saturating_add(len_bytes) };
                self.write_back(file, self.pages_of(ByteRange { pos, len_bytes: end - pos }));
                let pages = self.dropped_pages(file, ByteRange { pos, len_bytes });
                self.drop_range(file, pages.start, pages.end);
            }
        }
    }

    /// Pages that `POSIX_FADV_DONTNEED` drops: those entirely inside the range, and the last page
    /// of the file if the range ends with the file (docs/differences.md, "the last page").
    #[must_use]
    pub fn dropped_pages(
        &self,
        file: MappingId,
        ByteRange { pos, len_bytes }: ByteRange,
    ) -> Range<u64> {
        let page = self.rules.page;
        let end = if len_bytes == 0 { u64::MAX } else { pos.saturating_add(len_bytes) };
        let is_whole = end == self.core.mapping(file).size_bytes;
        let end = if is_whole { page.pages_in(end) } else { end >> page.shift() };
        page.pages_in(pos)..end
    }

    /// Drops the clean unmapped folios of one file.
    pub fn drop_cache(&mut self, file: MappingId) {
        self.drop_range(file, 0, u64::MAX);
    }

    fn drop_range(&mut self, file: MappingId, first: u64, end: u64) {
        let inside = |entry: &Entry| entry.index.0 >= first && entry.end() <= end;
        let from_first = self.core.mapping(file).tree.iter_from(first);
        let before_end = from_first.take_while(|entry| entry.index.0 < end);
        let entries: Vec<_> = before_end.filter(inside).collect();
        self.core.work.add(entries.len() as u64);
        for entry in entries {
            if !self.core.folios.get(entry.folio).is_dirty {
                self.core.remove_unmapped(file, entry.index);
            }
        }
    }
}
