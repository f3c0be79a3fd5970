//! Writes through the page cache (docs/behaviour A.7), and a file's last page.
//!
//! Corresponds to: `generic_perform_write`, `iomap_write_iter`, `__filemap_get_folio`,
//! `fgf_set_order`, `__iomap_write_begin`, `ext4_block_write_begin`.

use std::ops::Range;

use super::copy::WriteData;
use super::{CALL_BYTES_MAX, OutOfMemory};
use crate::core::groups::ChargeEffort;
use crate::core::{NewFolio, Source};
use crate::mapping::disk::OldEnd;
use crate::mapping::reserve::{BLOCK_BYTES, Write};
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::ram::Ram;
use crate::rules::readahead::{BeyondEnd, WriteFolios};
use crate::shmem::Need;
use crate::units::ByteRange;
use crate::units::{MappingId, Order, PageIndex, PageRange, Pfn};
use crate::vma::OpenId;

impl Memory {
    /// Writes `len_bytes` at `pos` through the page cache, growing the file. The order of a new
    /// folio comes from the write's length (A.7.1), or from the part of it that has reserved space.
    ///
    /// # Errors
    /// Fails if no page is free.
    pub fn pwrite(&mut self, open: OpenId, pos: u64, len_bytes: u64) -> Result<(), OutOfMemory> {
        self.write_with(open, ByteRange { pos, len_bytes }, None, |_, _, _| {})
    }

    /// [`Memory::pwrite`] of data in a process's memory, whose absent pages fault (A.7.5).
    ///
    /// # Errors
    /// Fails if no page is free.
    pub fn pwrite_from(
        &mut self,
        open: OpenId,
        pos: u64,
        len_bytes: u64,
        source: WriteData,
    ) -> Result<(), OutOfMemory> {
        self.write_with(open, ByteRange { pos, len_bytes }, Some(source), |_, _, _| {})
    }

    pub(crate) fn write_with(
        &mut self,
        open: OpenId,
        ByteRange { pos, len_bytes }: ByteRange,
        source: Option<WriteData>,
        mut put: impl FnMut(&mut Ram, Pfn, Range<u64>),
    ) -> Result<(), OutOfMemory> {
        self.begin_call();
        let file = self.open_file(open).mapping;
        let end = pos.saturating_add(len_bytes.min(CALL_BYTES_MAX));
        let (mut at, mut part_end) = (pos, pos);
        let mapping = self.core.mapping(file);
        // The old end of a file that this write skips past.
        let mut old_end = Some(mapping.size_bytes).filter(|&size| size < pos && pos < end);
        if let Some(old_end) = old_end {
            self.add_hole(file, ByteRange { pos: old_end, len_bytes: pos - old_end });
        }
        let mapping = self.core.mapping(file);
        let is_end_first = mapping.disk.old_end != OldEnd::ZeroedAfterFolio
            || self.rules.readahead.beyond_end == BeyondEnd::EndFirst;
        if is_end_first && let Some(old_end) = old_end.take() {
            self.zero_tail(file, old_end);
            self.write_beyond(file, old_end, pos);
            if let Some(reserved) = self.core.mapping_mut(file).reservations.as_mut() {
                reserved.jump(old_end);
            }
        }
        let mut copy = self.begin_copy(file, ByteRange { pos, len_bytes: end - pos }, source);
        while at < end && !self.core.work.is_spent() {
            if at == part_end {
                part_end = self.part_of_write(file, at, end);
            }
            self.core.work.add(1);
            let piece_end = copy.end(at, part_end);
            copy.is_new = self.core.find(file, PageIndex(at >> self.rules.page.shift())).is_none();
            let Some(entry) = self.find_for_write(file, at, piece_end - at) else {
                return Err(self.out_of_memory(at));
            };
            let next = self.end_of(entry, piece_end);
            self.read_edges(&mut copy, (file, entry), at..next);
            let Some(next) = self.copied(&mut copy, entry, at..next) else { continue };
            let shift = self.rules.page.shift();
            let is_whole = at == entry.index.0 << shift && next >> shift == entry.end();
            let is_unmarked = self.core.mapping(file).disk.write_unmarks;
            let folio = self.core.folios.get_mut(entry.folio);
            let written = PageRange { first: at >> shift, end: self.rules.page.pages_in(next) };
            folio.add_dirty_pages(written);
            folio.is_uptodate = true;
            folio.is_written_whole &= is_whole;
            folio.is_marked &= !is_unmarked;
            let pfn = folio.pfn_at(PageIndex(at >> shift));
            self.core.set_dirty(entry.folio);
            put(&mut self.core.ram, pfn, at..next);
            self.fill_holes(file, ByteRange { pos: at, len_bytes: next - at });
            at = next;
            let mapping = self.core.mapping_mut(file);
            mapping.size_bytes = mapping.size_bytes.max(at);
            if let Some(old_end) = old_end.take() {
                self.zero_tail(file, old_end);
            }
            self.balance_dirty();
        }
        Ok(())
    }

    /// Removes the data of the pages entirely inside the range. A range that reaches the end of the
    /// file includes the last page.
    pub(crate) fn add_hole(&mut self, file: MappingId, ByteRange { pos, len_bytes }: ByteRange) {
        let page = self.rules.page;
        let end = pos.saturating_add(len_bytes);
        let mapping = self.core.mapping_mut(file);
        let is_last = end >= mapping.size_bytes;
        let end = if is_last { page.pages_in(end) } else { end >> page.shift() };
        mapping.holes.insert(PageRange { first: page.pages_in(pos), end });
    }

    /// Marks every page in the range as data.
    pub(crate) fn fill_holes(&mut self, file: MappingId, ByteRange { pos, len_bytes }: ByteRange) {
        let page = self.rules.page;
        let holes = &mut self.core.mapping_mut(file).holes;
        if !holes.is_empty() {
            let end = page.pages_in(pos.saturating_add(len_bytes));
            holes.remove(PageRange { first: pos >> page.shift(), end });
        }
    }

    /// Reads the page with byte `pos`, so the bytes after the end of the file can be zeroed.
    /// Without memory the filesystem would fail the call; the model continues.
    /// Returns whether it zeroed anything.
    pub(crate) fn zero_tail(&mut self, file: MappingId, pos: u64) -> bool {
        let mapping = self.core.mapping(file);
        let at = PageIndex(pos >> self.rules.page.shift());
        let has_data = mapping.reservations.as_ref().is_none_or(|space| space.has_data(pos))
            && !mapping.holes.contains(at.0);
        let cached = self.core.find(file, at).map(|entry| self.core.folios.get(entry.folio));
        let has_block = has_data || cached.is_some_and(|folio| folio.is_dirty || folio.is_stored);
        let is_needed =
            mapping.disk.old_end != OldEnd::Untouched && (has_block || mapping.disk.zeroes_holes);
        if !is_needed || pos.is_multiple_of(BLOCK_BYTES) {
            return false;
        }
        let order = mapping.orders.min;
        let index = PageIndex(order.round_down(pos >> self.rules.page.shift()));
        let one_block = mapping.disk.zeroes_one_block;
        if self.core.find(file, index).is_none() {
            self.keep_balance();
            if let Ok(id) = self.insert(NewFolio::new(file, index, order), ChargeEffort::Full) {
                self.core.folios.get_mut(id).is_uptodate = !one_block;
            }
        }
        // A filesystem that zeroes one block leaves a hole as it is.
        if one_block && !has_block {
            return false;
        }
        if let Some(entry) = self.core.find(file, index) {
            let folio = self.core.folios.get_mut(entry.folio);
            folio.add_dirty_pages(PageRange { first: at.0, end: at.0 + 1 });
            folio.is_written_whole = false;
            self.core.set_dirty(entry.folio);
        }
        true
    }

    /// Returns the end of the write part that begins at `pos`: `end`, or the end of the
    /// filesystem's reserved space (docs/differences.md, "writes on XFS").
    fn part_of_write(&mut self, file: MappingId, pos: u64, end: u64) -> u64 {
        let page = self.rules.page;
        let mapping = self.core.mapping_mut(file);
        let write = Write { pos, end, file_bytes: mapping.size_bytes };
        let Some(reserved) = &mut mapping.reservations else { return end };
        let part_end = reserved.part_end(write, page);
        let nr_moved = reserved.nr_extents() as u64 / 64;
        self.core.work.add_cheap(nr_moved);
        part_end
    }

    /// Returns the pages that a write covers only in part and that have data: it reads them first.
    pub(super) fn edges(
        &self,
        file: MappingId,
        Range { start, end }: Range<u64>,
    ) -> [Option<u64>; 2] {
        let (page, mapping) = (self.rules.page, self.core.mapping(file));
        let has_data =
            |&first: &u64| mapping.nr_stored(PageRange { first, end: first + 1 }, page) > 0;
        let [first, last] = [start, end].map(|at| {
            let is_inside = !at.is_multiple_of(page.bytes());
            is_inside.then_some(at >> page.shift()).filter(has_data)
        });
        [first, last.filter(|_| first != last)]
    }

    /// Counts the pages that a new folio reads for the piece of a write in it.
    fn nr_read(&self, file: MappingId, piece: Range<u64>) -> u64 {
        let nr_edges = self.edges(file, piece.clone()).into_iter().flatten().count() as u64;
        let mapping = self.core.mapping(file);
        if nr_edges == 0 || !mapping.disk.reads_around {
            return nr_edges;
        }
        let page = self.rules.page;
        let covered =
            PageRange { first: piece.start >> page.shift(), end: page.pages_in(piece.end) };
        mapping.nr_stored(covered, page)
    }

    fn find_for_write(&mut self, file: MappingId, pos: u64, len_bytes: u64) -> Option<Entry> {
        let index = PageIndex(pos >> self.rules.page.shift());
        if let Some(entry) = self.core.find(file, index) {
            return Some(entry);
        }
        self.keep_balance();
        if self.core.mapping(file).is_zero_filled {
            let piece = self.rules.page.bytes() << self.rules.max_pagecache_order().get();
            let end = pos + len_bytes.min(piece - pos % piece);
            self.insert_shmem(file, index, Need::Call { end })?;
            return self.core.find(file, index);
        }
        let (orders, allowed) = (self.core.mapping(file).orders, self.target(file).allowed);
        let wanted = match self.rules.readahead.writes {
            WriteFolios::Smallest => orders.min,
            WriteFolios::Large => {
                let piece = self.rules.page.bytes() << orders.max.get();
                let len_bytes = len_bytes.min(piece - pos % piece);
                self.rules.page.order_of_bytes(len_bytes).min(orders.max)
            }
        };
        let order = wanted.min(Order::alignment_of(index.0));
        let mut order = allowed.up_to(order).max(orders.min);
        loop {
            let first = PageIndex(order.round_down(index.0));
            let is_last = order == orders.min;
            let effort = if is_last { ChargeEffort::Full } else { ChargeEffort::Once };
            let end = (first.0 + order.nr_pages()) << self.rules.page.shift();
            let nr_read = self.nr_read(file, pos..end.min(pos + len_bytes));
            let new =
                NewFolio { source: Source::Write { nr_read }, ..NewFolio::new(file, first, order) };
            if self.insert(new, effort).is_ok() {
                let entry = self.core.find(file, index)?;
                self.core.folios.get_mut(entry.folio).is_written_whole = true;
                return Some(entry);
            }
            let lower = allowed.up_to(order.lower()?);
            order = Some(lower.max(orders.min)).filter(|&lower| lower < order)?;
        }
    }
}
