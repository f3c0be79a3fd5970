//! Truncation and hole punch (docs/behaviour G.3).
//!
//! Corresponds to: `truncate_inode_pages_range`, `truncate_inode_partial_folio`,
//! `truncate_pagecache`.
//!
//! Covered pages leave the cache. In a partly covered folio, the covered bytes are zeroed and the
//! folio is split, so its covered pages can be freed.

use super::Cut;
use crate::mapping::disk::{KeepsWhole, NewEnd};
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::rules::anon::{TruncateSplit, Unsplittable};
use crate::units::{ByteRange, MappingId, PageIndex, PageRange};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Partial {
    Split,
    Kept,
}

#[derive(Clone, Copy, Debug)]
struct Gone {
    file: MappingId,
    from: u64,
    to: u64,
}

impl Memory {
    /// Sets a file's size. Pages beyond it are unmapped, including private copies, and dropped.
    pub fn truncate(&mut self, file: MappingId, size_bytes: u64) {
        let mapping = self.core.mapping_mut(file);
        let old_bytes = std::mem::replace(&mut mapping.size_bytes, size_bytes);
        let (disk, is_zero_filled) = (mapping.disk, mapping.is_zero_filled);
        let mut has_zeroed = false;
        if size_bytes > old_bytes {
            self.add_hole(file, ByteRange { pos: old_bytes, len_bytes: size_bytes - old_bytes });
            // Folios of shared memory past the old end are part of the file now (Q.4.3).
            if is_zero_filled {
                return;
            }
            has_zeroed = self.zero_tail(file, old_bytes);
            self.write_beyond(file, old_bytes, size_bytes);
        } else if disk.new_end == NewEnd::ZeroedFirst {
            has_zeroed = self.zero_tail(file, size_bytes);
        }
        if let Some(space) = self.core.mapping_mut(file).reservations.as_mut() {
            if size_bytes > old_bytes {
                space.jump(old_bytes);
            }
            space.set_length(size_bytes);
        }
        let first = self.rules.page.pages_in(size_bytes);
        for (mm, start, end) in self.mapped_ranges(file, PageRange { first, end: u64::MAX }) {
            self.zap(mm, start, end);
        }
        if size_bytes < old_bytes {
            self.core.ram.punch(file, size_bytes, u64::MAX);
        }
        self.drop_bytes(Gone { file, from: size_bytes, to: u64::MAX });
        if size_bytes <= old_bytes && disk.new_end == NewEnd::ZeroedLast {
            self.zero_tail(file, size_bytes);
        }
        self.write_new_length(file, old_bytes, has_zeroed);
    }

    /// Writes back dirty folios that extend into the bytes from the old end of a file to `to`, on a
    /// filesystem that skips zeroing there only if the cache is clean.
    pub(crate) fn write_beyond(&mut self, file: MappingId, old_bytes: u64, to: u64) {
        let (mapping, page) = (self.core.mapping(file), self.rules.page);
        if mapping.disk.writes_new_length {
            let (first, end) = (page.pages_in(old_bytes), page.pages_in(to));
            self.write_back(file, PageRange { first, end });
        }
    }

    /// Writes back data beyond the length in storage before a new length is stored, so that no
    /// block there is read before it was written.
    fn write_new_length(&mut self, file: MappingId, old_bytes: u64, has_zeroed: bool) {
        let mapping = self.core.mapping(file);
        let (new, stored) = (mapping.size_bytes, mapping.stored_bytes);
        let is_written = stored < new && (has_zeroed || old_bytes != stored);
        if mapping.disk.writes_new_length && is_written {
            let page = self.rules.page;
            let (first, end) = (stored >> page.shift(), page.pages_in(new));
            self.write_back(file, PageRange { first, end });
        }
        self.core.mapping_mut(file).stored_bytes = new;
    }

    /// Writes back, unmaps and drops everything from `pos` on. The size stays.
    pub(crate) fn drop_from(&mut self, file: MappingId, pos: u64) {
        let page = self.rules.page;
        self.write_back(file, PageRange { first: pos >> page.shift(), end: u64::MAX });
        let first = page.pages_in(pos);
        for (mm, start, end) in self.mapped_ranges(file, PageRange { first, end: u64::MAX }) {
            self.zap(mm, start, end);
        }
        self.drop_bytes(Gone { file, from: pos, to: u64::MAX });
    }

    /// Punches a hole into a file (`FALLOC_FL_PUNCH_HOLE`). Private copies of its pages stay.
    pub fn punch_hole(&mut self, file: MappingId, pos: u64, len_bytes: u64) {
        let page = self.rules.page;
        let mapping = self.core.mapping(file);
        let size_bytes = mapping.size_bytes;
        let end = pos.saturating_add(len_bytes);
        // Folios of shared memory can extend past the end of the file (Q.4.2).
        let end =
            if mapping.is_shmem { end } else { end.min(page.pages_in(size_bytes) << page.shift()) };
        if pos >= end {
            return;
        }
        self.unmap_shared(file, PageRange { first: page.pages_in(pos), end: end >> page.shift() });
        self.core.ram.punch(file, pos, end.min(size_bytes));
        self.add_hole(file, ByteRange { pos, len_bytes: end - pos });
        self.drop_bytes(Gone { file, from: pos, to: end });
    }

    /// Unmaps and drops cached pages. Their data stays in storage.
    pub(crate) fn drop_cached(&mut self, file: MappingId, pages: PageRange) {
        let page_bytes = self.rules.page.bytes();
        let pos = |page: u64| page.saturating_mul(page_bytes);
        self.unmap_shared(file, pages);
        self.drop_bytes(Gone { file, from: pos(pages.first), to: pos(pages.end) });
    }

    fn unmap_shared(&mut self, file: MappingId, pages: PageRange) {
        if pages.first < pages.end {
            for entry in self.entries_in(file, pages) {
                self.unmap_pages_of(entry, pages);
            }
        }
    }

    pub(crate) fn entries_in(
        &self,
        file: MappingId,
        PageRange { first, end }: PageRange,
    ) -> Vec<Entry> {
        let tree = &self.core.mapping(file).tree;
        let (mut entries, mut at) = (Vec::new(), first);
        while at < end
            && let Some(entry) = tree.first_in(PageIndex(at), PageIndex(end - 1))
        {
            at = entry.end();
            entries.push(entry);
        }
        entries
    }

    fn unmap_pages_of(&mut self, entry: Entry, PageRange { first, end }: PageRange) {
        let pfn = self.core.folios.get(entry.folio).pfn;
        for site in self.sites_of(entry.folio) {
            let index = entry.index.0 + (site.pfn.0 - pfn.0);
            let (from, to) = (index.max(first), (index + site.nr).min(end));
            if from < to {
                let vpn = site.vpn.plus(from - index);
                self.zap(site.mm, vpn, vpn.plus(to - from));
            }
        }
    }

    fn drop_bytes(&mut self, gone: Gone) {
        let shift = self.rules.page.shift();
        let mut kept = Vec::new();
        let edges = [gone.from, gone.to.saturating_sub(1)];
        for edge in edges {
            let Some(entry) = self.core.find(gone.file, PageIndex(edge >> shift)) else {
                continue;
            };
            if !kept.contains(&entry) && self.drop_partial(gone, entry, edge) == Partial::Kept {
                kept.push(entry);
            }
        }
        let (first, end) = (gone.from.div_ceil(1 << shift), gone.to >> shift);
        self.core.forget_evicted(gone.file, PageRange { first, end });
        for entry in self.entries_in(gone.file, PageRange { first, end }) {
            let is_covered = entry.index.0 >= first && entry.end() <= end;
            if is_covered && !kept.contains(&entry) {
                self.unmap_file_pages(entry);
                self.core.remove(gone.file, entry);
            }
        }
    }

    fn drop_partial(&mut self, gone: Gone, entry: Entry, edge: u64) -> Partial {
        let shift = self.rules.page.shift();
        let start = entry.index.0 << shift;
        let end = entry.end().saturating_mul(1 << shift);
        let (from, to) = (gone.from.max(start), gone.to.min(end));
        if (from, to) == (start, end) {
            return Partial::Split;
        }
        if self.core.mapping(gone.file).is_zero_filled {
            // Zeroes are stored to it (Q.4.1).
            self.core.set_dirty(entry.folio);
        }
        let folio = self.core.folios.get(entry.folio).clone();
        self.core.ram.zero_bytes(folio.pfn, from - start, to - start);
        let mapping = self.core.mapping(gone.file);
        let (min, knows_sizes) =
            (mapping.orders.min, mapping.orders.is_large() || mapping.is_shmem);
        if folio.order <= min {
            return Partial::Split;
        }
        let PageRange { first, end: last } = folio.dirty_pages;
        let is_cleaned = from <= first << shift && last << shift <= to;
        if mapping.disk.keeps_whole == KeepsWhole::Dirty && is_cleaned {
            self.core.set_clean(entry.folio);
        }
        let cut = match self.rules.anon.truncate_split {
            // Its filesystem supports no parts of other orders.
            TruncateSplit::NonUniform if !knows_sizes => Cut::Uniform(min),
            TruncateSplit::Uniform => Cut::Uniform(min),
            TruncateSplit::NonUniform => {
                // The first edge is cut at its first covered page, the second after the last.
                let at = if edge == gone.from { from } else { to };
                let at = (at >> shift).min(entry.end() - 1) - entry.index.0;
                Cut::Around { at, to: min }
            }
        };
        if self.split_as(entry.folio, cut).is_ok() {
            if matches!(cut, Cut::Around { .. }) && edge == gone.from && to < end {
                self.split_after_hole(gone.file, PageIndex(to >> shift));
            }
            return Partial::Split;
        }
        if !folio.is_dirty {
            self.unmap_file_pages(entry);
            self.core.remove(gone.file, entry);
            return Partial::Split;
        }
        let is_shmem = self.core.mapping(gone.file).is_shmem;
        if self.rules.anon.unsplittable == Unsplittable::KeptUnmapped && !is_shmem {
            self.unmap_file_pages(entry);
        }
        Partial::Kept
    }

    /// Splits around the page after a hole (G.3.3).
    fn split_after_hole(&mut self, file: MappingId, index: PageIndex) {
        let Some(entry) = self.core.find(file, index) else { return };
        let to = self.core.mapping(file).orders.min;
        let cut = Cut::Around { at: index.0 - entry.index.0, to };
        let _ = self.split_as(entry.folio, cut);
    }
}
