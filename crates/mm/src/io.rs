//! System calls on files: read, write, fadvise, dropped caches. Truncation and hole punch stand in
//! [`crate::split`].

use std::ops::Range;

use crate::folio::MappingId;
use crate::mapping::Disk;
use crate::mapping::reserve::{BLOCK_BYTES, Write};
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::observed::{EntryKind, Observed};
use crate::page_cache::InsertRefusal;
use crate::ram::Ram;
use crate::readahead::issue::{self, Target};
use crate::readahead::marker::{self, Hit};
use crate::readahead::sync::{self, Request, prev_index};
use crate::rules::WriteFolios;
use crate::units::{Order, PageIndex, Pfn};
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
    /// `POSIX_FADV_DONTNEED`: clean unmapped folios wholly inside the range are dropped.
    Dontneed,
}

/// Most a read or write call moves (`MAX_RW_COUNT`: 2 GiB less a page).
const CALL_BYTES_MAX: u64 = 0x7fff_f000;

/// Pages the kernel's own pipe of a `sendfile` holds (`PIPE_DEF_BUFFERS`).
const PIPE_SLOTS: u64 = 16;

/// No page is free for a read or write call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory at byte {pos} of a file: give the model more memory")]
pub struct OutOfMemory {
    /// Byte position in the file.
    pub pos: u64,
}

impl<R: Ram> Memory<R> {
    /// Reads `len_bytes` at `pos` through the page cache (docs/behaviour A.3.1); the bytes read.
    ///
    /// # Errors
    /// When no page is free.
    pub fn pread(&mut self, open: OpenId, pos: u64, len_bytes: u64) -> Result<u64, OutOfMemory> {
        self.read_with(open, (pos, len_bytes), |_, _, _| {})
    }

    /// Reads, and shows each piece of the file, with the frame it begins in, while it is cached:
    /// memory that runs out may take it back before the call ends.
    pub(crate) fn read_with(
        &mut self,
        open: OpenId,
        (pos, len_bytes): (u64, u64),
        mut show: impl FnMut(&R, Pfn, Range<u64>),
    ) -> Result<u64, OutOfMemory> {
        let file = self.open_file(open).mapping;
        let size = self.cache.mapping(file).size_bytes;
        // The request is what the call asks for, also past the end of the file.
        let asked = pos.saturating_add(len_bytes.min(CALL_BYTES_MAX));
        let end = asked.min(size);
        let shift = self.rules.page.shift();
        let last = self.cache.mapping(file).orders.min.round_up(self.rules.page.pages_in(asked));
        let mut at = pos;
        while at < end {
            let index = at >> shift;
            self.cache.work.add(1);
            let entry = self.find_for_read(open, (index, last)).ok_or(OutOfMemory { pos: at })?;
            let pfn = self.cache.folios.get(entry.folio).pfn_at(PageIndex(index));
            show(&self.cache.ram, pfn, at..self.end_of(entry, end));
            let is_new = self.open_file(open).state.prev_pos.is_none_or(|pos| {
                pos == 0 || !(entry.index.0..entry.end()).contains(&((pos - 1) >> shift))
            });
            if at > pos || is_new {
                self.mark_accessed(entry.folio);
            }
            if self.cache.folios.get(entry.folio).is_marked {
                self.marker_hit(open, entry, last - entry.index.0);
            }
            at = self.end_of(entry, end);
        }
        if end > pos {
            self.open_file_mut(open).state.prev_pos = Some(end);
        }
        Ok(end.saturating_sub(pos))
    }

    /// `sendfile` to a file or device: reads through a pipe of the kernel's own, a pipe at a time
    /// (docs/differences.md, "sendfile").
    ///
    /// # Errors
    /// When no page is free.
    pub fn sendfile(&mut self, open: OpenId, pos: u64, len_bytes: u64) -> Result<(), OutOfMemory> {
        let size = self.cache.mapping(self.open_file(open).mapping).size_bytes;
        let end = pos.saturating_add(len_bytes.min(CALL_BYTES_MAX));
        let mut at = pos;
        while at < end.min(size) {
            let asked = (PIPE_SLOTS * self.rules.page.bytes()).min(end - at);
            at = self.fill_pipe(open, at, asked)?;
        }
        Ok(())
    }

    /// Asks for `asked` bytes and takes what the pipe has room for; the position after that. What
    /// was asked for is looked up also where it is not taken.
    fn fill_pipe(&mut self, open: OpenId, pos: u64, asked: u64) -> Result<u64, OutOfMemory> {
        let page = self.rules.page;
        let file = self.open_file(open).mapping;
        let (size, orders) = (self.cache.mapping(file).size_bytes, self.cache.mapping(file).orders);
        let last = orders.min.round_up(page.pages_in(pos + asked));
        let end = (pos + asked).min(size);
        // A part of a page takes a slot as a whole page does.
        let slots_end = ((pos >> page.shift()) + PIPE_SLOTS).saturating_mul(page.bytes());
        let taken = slots_end.min(end);
        let (mut at, mut is_batch_new) = (pos, true);
        while at < end && !(is_batch_new && at >= taken) {
            let index = at >> page.shift();
            if self.cache.find(file, PageIndex(index)).is_none() {
                if at >= taken {
                    break;
                }
                self.consumed(open, (pos, at));
            }
            let entry = self.find_for_read(open, (index, last)).ok_or(OutOfMemory { pos: at })?;
            is_batch_new = self.cache.folios.get(entry.folio).is_marked;
            if is_batch_new {
                self.marker_hit(open, entry, last - entry.index.0);
            }
            at = self.end_of(entry, end);
            if is_batch_new {
                self.consumed(open, (pos, at.min(taken)));
            }
        }
        self.consumed(open, (pos, taken));
        Ok(taken)
    }

    /// Notes how far a read has come that began at `pos`.
    fn consumed(&mut self, open: OpenId, (pos, at): (u64, u64)) {
        if at > pos {
            self.open_file_mut(open).state.prev_pos = Some(at);
        }
    }

    /// The folio at `index`, read ahead or alone where it is absent.
    fn find_for_read(&mut self, open: OpenId, (index, last): (u64, u64)) -> Option<Entry> {
        let file = self.open_file(open).mapping;
        let index = PageIndex(index);
        if let Some(entry) = self.cache.find(file, index) {
            self.cache.folios.get_mut(entry.folio).is_uptodate = true;
            return Some(entry);
        }
        self.keep_balance();
        self.read_absent(open, (index.0, last - index.0));
        if let Some(entry) = self.cache.find(file, index) {
            return Some(entry);
        }
        let order = self.cache.mapping(file).orders.min;
        let first = PageIndex(order.round_down(index.0));
        self.cache.insert(file, first, order, false).ok()?;
        self.cache.find(file, index)
    }

    /// The sync entry for a read call (A.3.2).
    pub(crate) fn read_absent(&mut self, open: OpenId, (index, nr_pages): (u64, u64)) {
        let file = self.open_file(open).mapping;
        let mut state = self.open_file(open).state;
        let io_pages = self.rules.io_pages();
        let kind = EntryKind::Sync;
        self.cache.observe(Observed::Entry { kind, mapping: file, index, nr_pages, state });
        if self.open_file(open).is_random || state.ra_pages == 0 {
            let nr = if state.ra_pages == 0 { 1 } else { nr_pages };
            let nr = nr.min(io_pages.max(state.ra_pages));
            issue::forced(&mut self.cache, &self.rules, file, (index, nr));
            return;
        }
        let prev_index = prev_index(&state, self.rules.page.shift());
        let request = Request { index, nr_pages, prev_index, io_pages };
        let tree = &self.cache.mapping(file).tree;
        let issue = sync::choose(&mut state, tree, request, &self.rules.readahead);
        self.read(self.target(file), &mut state, issue);
        self.open_file_mut(open).state = state;
    }

    /// What a call reads into.
    fn target(&self, file: MappingId) -> Target {
        Target { file, allowed: self.cache.mapping(file).control.always }
    }

    /// The async entry for a read call: the marked folio's head is the index (A.4.6).
    fn marker_hit(&mut self, open: OpenId, entry: Entry, nr_pages: u64) {
        let file = self.open_file(open).mapping;
        let mut state = self.open_file(open).state;
        if state.ra_pages == 0 {
            return;
        }
        self.cache.folios.get_mut(entry.folio).is_marked = false;
        self.cache.counters.nr_async += 1;
        let hit = Hit {
            index: entry.index.0,
            order: entry.order,
            nr_pages,
            io_pages: self.rules.io_pages(),
        };
        let index = hit.index;
        let kind = EntryKind::Async;
        self.cache.observe(Observed::Entry { kind, mapping: file, index, nr_pages, state });
        let tree = &self.cache.mapping(file).tree;
        if let Some(issue) = marker::choose(&mut state, tree, hit, &self.rules.readahead) {
            self.read(self.target(file), &mut state, issue);
        }
        self.open_file_mut(open).state = state;
    }

    /// Writes `len_bytes` at `pos` through the page cache, growing the file; new folios take their
    /// order from the length of the write (A.7.1) or of the part of it that space is reserved for.
    ///
    /// # Errors
    /// When no page is free.
    pub fn pwrite(&mut self, open: OpenId, pos: u64, len_bytes: u64) -> Result<(), OutOfMemory> {
        self.write_with(open, (pos, len_bytes), |_, _, _| {})
    }

    /// Writes, and lets `put` store the bytes of each piece of the file into the frames from the
    /// given one on, while they are cached.
    pub(crate) fn write_with(
        &mut self,
        open: OpenId,
        (pos, len_bytes): (u64, u64),
        mut put: impl FnMut(&mut R, Pfn, Range<u64>),
    ) -> Result<(), OutOfMemory> {
        let file = self.open_file(open).mapping;
        let end = pos.saturating_add(len_bytes.min(CALL_BYTES_MAX));
        let (mut at, mut part_end) = (pos, pos);
        let mapping = self.cache.mapping(file);
        // Where a file ended that this write jumps over; ext4 comes to it after the first folio.
        let mut old_end = Some(mapping.size_bytes).filter(|&size| size < pos && pos < end);
        if mapping.disk != Disk::Ext4
            && let Some(old_end) = old_end.take()
        {
            self.zero_behind(file, old_end);
            if let Some(reserved) = self.cache.mapping_mut(file).reservations.as_mut() {
                reserved.jump(old_end);
            }
        }
        while at < end {
            if at == part_end {
                part_end = self.part_of_write(file, at, end);
            }
            self.cache.work.add(1);
            let entry = self.find_for_write(file, at, part_end - at);
            let entry = entry.ok_or(OutOfMemory { pos: at })?;
            let next = self.end_of(entry, part_end);
            let shift = self.rules.page.shift();
            let is_whole = at == entry.index.0 << shift && next >> shift == entry.end();
            let is_unmarked = self.cache.mapping(file).disk == Disk::Btrfs;
            let folio = self.cache.folios.get_mut(entry.folio);
            let nr_before = (at >> shift) - entry.index.0;
            folio.nr_clean = if folio.is_dirty { folio.nr_clean.min(nr_before) } else { nr_before };
            (folio.is_dirty, folio.is_uptodate) = (true, true);
            folio.is_written_whole &= is_whole;
            folio.is_marked &= !is_unmarked;
            let pfn = folio.pfn_at(PageIndex(at >> shift));
            put(&mut self.cache.ram, pfn, at..next);
            at = next;
            let mapping = self.cache.mapping_mut(file);
            mapping.size_bytes = mapping.size_bytes.max(at);
            if let Some(old_end) = old_end.take() {
                self.zero_behind(file, old_end);
            }
        }
        Ok(())
    }

    /// Reads the page that holds byte `pos`, at which the file ends or ended inside a block, so that
    /// what lies behind can be zeroed ([`Disk`]). Without memory the filesystem would fail the
    /// call; the model goes on.
    pub(crate) fn zero_behind(&mut self, file: MappingId, pos: u64) {
        let mapping = self.cache.mapping(file);
        let has_data = mapping.reservations.as_ref().is_none_or(|space| space.has_data(pos));
        let at = PageIndex(pos >> self.rules.page.shift());
        let cached = self.cache.find(file, at).map(|entry| self.cache.folios.get(entry.folio));
        let is_needed =
            mapping.disk != Disk::Other && (has_data || cached.is_some_and(|folio| folio.is_dirty));
        if !is_needed || pos.is_multiple_of(BLOCK_BYTES) {
            return;
        }
        let order = mapping.orders.min;
        let index = PageIndex(order.round_down(pos >> self.rules.page.shift()));
        let is_ext4 = mapping.disk == Disk::Ext4;
        if self.cache.find(file, index).is_none() {
            self.keep_balance();
            if let Ok(id) = self.cache.insert(file, index, order, false) {
                // ext4 reads the block it zeroes in, and leaves it at that.
                self.cache.folios.get_mut(id).is_uptodate = !is_ext4;
            }
        }
        if let Some(entry) = self.cache.find(file, index) {
            let folio = self.cache.folios.get_mut(entry.folio);
            (folio.is_dirty, folio.nr_clean, folio.is_written_whole) = (true, 0, false);
        }
    }

    /// Byte after a folio, at most `end`; a folio at the end of the offset range ends there.
    fn end_of(&self, entry: Entry, end: u64) -> u64 {
        entry.end().checked_mul(self.rules.page.bytes()).map_or(end, |next| next.min(end))
    }

    /// Byte at which the part of a write that begins at `pos` ends: `end`, or where the space that
    /// the filesystem has reserved ends (docs/differences.md, "writes on XFS").
    fn part_of_write(&mut self, file: MappingId, pos: u64, end: u64) -> u64 {
        let page = self.rules.page;
        let mapping = self.cache.mapping_mut(file);
        let write = Write { pos, end, file_bytes: mapping.size_bytes };
        let Some(reserved) = &mut mapping.reservations else { return end };
        let part_end = reserved.part_end(write, page);
        let nr_moved = reserved.nr_extents() as u64 / 64;
        self.cache.work.add_cheap(nr_moved);
        part_end
    }

    fn find_for_write(&mut self, file: MappingId, pos: u64, len_bytes: u64) -> Option<Entry> {
        let index = PageIndex(pos >> self.rules.page.shift());
        if let Some(entry) = self.cache.find(file, index) {
            return Some(entry);
        }
        self.keep_balance();
        let (orders, allowed) = (self.cache.mapping(file).orders, self.target(file).allowed);
        let wanted = match self.rules.readahead.writes {
            WriteFolios::Smallest => orders.min,
            WriteFolios::Large => {
                // The largest folio of the file is also the most that is copied at a time.
                let piece = self.rules.page.bytes() << orders.max.get();
                let len_bytes = len_bytes.min(piece - pos % piece);
                self.rules.page.order_of_bytes(len_bytes).min(orders.max)
            }
        };
        let order = wanted.min(Order::alignment_of(index.0));
        let mut order = allowed.up_to(order).max(orders.min);
        loop {
            let first = PageIndex(order.round_down(index.0));
            match self.cache.insert(file, first, order, false) {
                Ok(_) => {
                    let entry = self.cache.find(file, index)?;
                    self.cache.folios.get_mut(entry.folio).is_written_whole = true;
                    return Some(entry);
                }
                Err(InsertRefusal::NoMemory | InsertRefusal::Occupied) => {
                    let lower = allowed.up_to(order.lower()?);
                    order = Some(lower.max(orders.min)).filter(|&lower| lower < order)?;
                }
            }
        }
    }

    /// Gives advice on a file (A.1.4).
    pub fn fadvise(&mut self, open: OpenId, (pos, len_bytes): (u64, u64), advice: Fadvice) {
        let page = self.rules.page;
        let ra_pages = self.rules.ra_pages();
        let opened = self.open_file_mut(open);
        let file = opened.mapping;
        match advice {
            Fadvice::Normal => (opened.is_random, opened.state.ra_pages) = (false, ra_pages),
            Fadvice::Random => opened.is_random = true,
            Fadvice::Sequential => {
                (opened.is_random, opened.state.ra_pages) = (false, ra_pages * 2);
            }
            Fadvice::Willneed => {
                let size = self.cache.mapping(file).size_bytes;
                let end = if len_bytes == 0 { size } else { pos.saturating_add(len_bytes) };
                let first = pos >> page.shift();
                let nr = page.pages_in(end.min(size)).saturating_sub(first);
                let window = self.open_file(open).state.ra_pages;
                let nr = nr.min(self.rules.io_pages().max(window));
                issue::forced(&mut self.cache, &self.rules, file, (first, nr));
            }
            Fadvice::Dontneed => {
                let pages = self.dropped_pages(file, (pos, len_bytes));
                self.drop_range(file, pages.start, pages.end);
            }
        }
    }

    /// Pages that `POSIX_FADV_DONTNEED` drops: those wholly inside, and the one the file ends in
    /// where the range ends with the file (docs/differences.md, "the last page").
    #[must_use]
    pub fn dropped_pages(&self, file: MappingId, (pos, len_bytes): (u64, u64)) -> Range<u64> {
        let page = self.rules.page;
        let end = if len_bytes == 0 { u64::MAX } else { pos.saturating_add(len_bytes) };
        let is_whole = end == self.cache.mapping(file).size_bytes;
        let end = if is_whole { page.pages_in(end) } else { end >> page.shift() };
        page.pages_in(pos)..end
    }

    /// Drops the clean unmapped folios of one file.
    pub fn drop_cache(&mut self, file: MappingId) {
        self.drop_range(file, 0, u64::MAX);
    }

    /// Drops clean unmapped folios wholly inside pages `[first, end)`.
    fn drop_range(&mut self, file: MappingId, first: u64, end: u64) {
        let inside = |entry: &Entry| entry.index.0 >= first && entry.end() <= end;
        let from_first = self.cache.mapping(file).tree.iter_from(first);
        let before_end = from_first.take_while(|entry| entry.index.0 < end);
        let entries: Vec<_> = before_end.filter(inside).collect();
        self.cache.work.add(entries.len() as u64);
        for entry in entries {
            if !self.cache.folios.get(entry.folio).is_dirty {
                self.cache.remove_unmapped(file, entry.index);
            }
        }
    }
}
