//! Reads through the page cache, and the two points at which they enter readahead (docs/behaviour
//! A.3, A.4).
//!
//! Corresponds to: `filemap_read`, `filemap_get_pages`, `filemap_splice_read`.

use std::ops::Range;

use super::{CALL_BYTES_MAX, OutOfMemory};
use crate::core::NewFolio;
use crate::core::groups::ChargeEffort;
use crate::core::observed::{EntryKind, Observed};
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::policy::{Answer, Context, Point, admit};
use crate::ram::Ram;
use crate::readahead::Plan;
use crate::readahead::marker::{self, MarkerHit};
use crate::readahead::sync::{self, ReadRequest, prev_index};
use crate::rules::readahead::ReadPosition;
use crate::units::{ByteRange, MappingId, Order, PageIndex, PageRange, Pfn};
use crate::vma::OpenId;

/// Pages in the kernel's internal pipe of a `sendfile` (`PIPE_DEF_BUFFERS`).
const PIPE_SLOTS: u64 = 16;

impl Memory {
    /// Reads `len_bytes` at `pos` through the page cache (A.3.1). Returns the bytes read.
    ///
    /// # Errors
    /// Fails if no page is free.
    pub fn pread(&mut self, open: OpenId, pos: u64, len_bytes: u64) -> Result<u64, OutOfMemory> {
        if self.policy_handles(Point::Admit)
            && let Some(nr_bytes) = self.read_unadmitted(open, ByteRange { pos, len_bytes })
        {
            return Ok(nr_bytes);
        }
        self.read_with(open, ByteRange { pos, len_bytes }, |_, _, _| {})
    }

    pub(crate) fn read_with(
        &mut self,
        open: OpenId,
        ByteRange { pos, len_bytes }: ByteRange,
        mut show: impl FnMut(&Ram, Pfn, Range<u64>),
    ) -> Result<u64, OutOfMemory> {
        self.begin_call();
        let file = self.open_file(open).mapping;
        let size = self.core.mapping(file).size_bytes;
        // The request keeps its length, even past the end of the file.
        let requested = pos.saturating_add(len_bytes.min(CALL_BYTES_MAX));
        let end = requested.min(size);
        let shift = self.rules.page.shift();
        let last = self.core.mapping(file).orders.min.round_up(self.rules.page.pages_in(requested));
        if self.core.mapping(file).is_zero_filled {
            return self.read_memory(file, pos..end.max(pos), show);
        }
        let mut at = pos;
        while at < end && !self.core.work.is_spent() {
            if !self.fill_batch(open, at >> shift, last) {
                return Err(self.out_of_memory(at));
            }
            let batch = std::mem::take(&mut self.batch);
            for &entry in batch.iter().take_while(|entry| entry.index.0 << shift < end) {
                let pfn = self.core.folios.get(entry.folio).pfn_at(PageIndex(at >> shift));
                show(&self.core.ram, pfn, at..self.end_of(entry, end));
                let is_new = self.open_file(open).state.prev_pos.is_none_or(|pos| {
                    pos == 0 || !(entry.index.0..entry.end()).contains(&((pos - 1) >> shift))
                });
                if at > pos || is_new {
                    self.core.mark_accessed(entry.folio);
                }
                at = self.end_of(entry, end);
            }
            if self.rules.readahead.position == ReadPosition::ByFolio {
                self.consumed(open, pos, at);
            }
            self.batch = batch;
        }
        self.consumed(open, pos, end);
        Ok(end.saturating_sub(pos))
    }

    /// Reads past the page cache, if the first page is absent and the policy wants that. Returns the
    /// bytes read.
    ///
    /// Differs: no kernel has this ([`crate::policy`]).
    fn read_unadmitted(&mut self, open: OpenId, range: ByteRange) -> Option<u64> {
        let file = self.open_file(open).mapping;
        let (page, mapping) = (self.rules.page, self.core.mapping(file));
        let end = range.pos.saturating_add(range.len_bytes.min(CALL_BYTES_MAX));
        let end = end.min(mapping.size_bytes);
        let index = range.pos >> page.shift();
        let is_cached = mapping.tree.get(PageIndex(index)).is_some();
        if mapping.is_zero_filled || range.pos >= end || is_cached {
            return None;
        }
        self.begin_call();
        if !self.is_unadmitted(open, range.pos..end) {
            return None;
        }
        let len_bytes = end - range.pos;
        self.read_direct(open, ByteRange { pos: range.pos, len_bytes });
        Some(len_bytes)
    }

    fn is_unadmitted(&mut self, open: OpenId, Range { start, end }: Range<u64>) -> bool {
        let file = self.open_file(open).mapping;
        let page = self.rules.page;
        let index = start >> page.shift();
        let state = self.open_file(open).state;
        let context = Context {
            file: u64::from(file.0) + 1,
            index,
            wanted: page.pages_in(end) - index,
            file_pages: self.core.mapping(file).nr_file_pages(page),
            ra_pages: state.ra_pages,
            misses: state.mmap_miss().into(),
            ..self.context(self.core.groups.current())
        };
        match self.ask(Point::Admit, &context) {
            Answer::Own => false,
            Answer::Value(value @ (admit::CACHE | admit::BYPASS)) => {
                self.honoured(Point::Admit);
                value == admit::BYPASS
            }
            Answer::Value(_) | Answer::Window(_) => {
                self.refused(Point::Admit);
                false
            }
        }
    }

    /// Reads memory without storage. An absent page reads as zeroes and stays absent.
    fn read_memory(
        &mut self,
        file: MappingId,
        Range { start, end }: Range<u64>,
        mut show: impl FnMut(&Ram, Pfn, Range<u64>),
    ) -> Result<u64, OutOfMemory> {
        let page = self.rules.page;
        let mut at = start;
        while at < end && !self.core.work.is_spent() {
            self.core.work.add(1);
            let index = PageIndex(at >> page.shift());
            if self.core.mapping(file).swapped.contains_key(&index) {
                let new = NewFolio::new(file, index, Order::ZERO);
                self.insert(new, ChargeEffort::Full).map_err(|_| self.out_of_memory(at))?;
            }
            let Some(entry) = self.core.find(file, index) else {
                at = ((index.0 + 1).saturating_mul(page.bytes())).min(end);
                continue;
            };
            let pfn = self.core.folios.get(entry.folio).pfn_at(index);
            let next = self.end_of(entry, end);
            show(&self.core.ram, pfn, at..next);
            self.core.folios.get_mut(entry.folio).is_uptodate = true;
            self.core.mark_accessed(entry.folio);
            at = next;
        }
        Ok(end - start)
    }

    /// Looks up one batch of cached folios from `index` on. The batch ends at a folio with the
    /// marker, which starts the next window while the call holds the whole batch
    /// (`filemap_get_pages`). Returns `false` if no page can be allocated.
    fn fill_batch(&mut self, open: OpenId, index: u64, last: u64) -> bool {
        let Some(entry) = self.find_for_read(open, index, last) else { return false };
        self.core.work.add(1);
        let file = self.open_file(open).mapping;
        let nr_max = self.rules.reclaim.folio_batch as usize;
        self.batch.clear();
        self.batch.push(entry);
        let mut tail = entry;
        while !self.core.folios.get(tail.folio).is_marked
            && self.batch.len() < nr_max
            && tail.end() < last
            && let Some(next) = self.core.find(file, PageIndex(tail.end()))
        {
            self.core.work.add(1);
            self.core.folios.get_mut(next.folio).is_uptodate = true;
            self.batch.push(next);
            tail = next;
        }
        if self.core.folios.get(tail.folio).is_marked {
            self.hold_batch(1);
            self.marker_hit(open, tail, last.saturating_sub(tail.index.0));
            self.hold_batch(-1);
        }
        true
    }

    fn hold_batch(&mut self, by: i64) {
        for entry in &self.batch {
            let refs = &mut self.core.folios.get_mut(entry.folio).refs;
            *refs = refs.saturating_add_signed(by);
        }
    }

    /// Reads through an internal pipe, one pipe load at a time (docs/differences.md, "sendfile").
    ///
    /// # Errors
    /// Fails if no page is free.
    pub fn sendfile(&mut self, open: OpenId, pos: u64, len_bytes: u64) -> Result<(), OutOfMemory> {
        self.begin_call();
        let mapping = self.core.mapping(self.open_file(open).mapping);
        if mapping.is_zero_filled {
            return self.pread(open, pos, len_bytes).map(|_| ());
        }
        let size = mapping.size_bytes;
        let end = pos.saturating_add(len_bytes.min(CALL_BYTES_MAX));
        let mut at = pos;
        while at < end.min(size) && !self.core.work.is_spent() {
            let requested = (PIPE_SLOTS * self.rules.page.bytes()).min(end - at);
            at = self.fill_pipe(open, at, requested)?;
        }
        Ok(())
    }

    /// Writes bytes that a pipe brings from position `source` of another file, one pipe load at a
    /// time (`iter_file_splice_write`).
    ///
    /// # Errors
    /// Fails if no page is free.
    pub fn write_from_pipe(
        &mut self,
        open: OpenId,
        range: ByteRange,
        source: u64,
    ) -> Result<(), OutOfMemory> {
        let page = self.rules.page;
        let len_bytes = range.len_bytes.min(CALL_BYTES_MAX);
        let mut done = 0;
        while done < len_bytes && !self.core.work.is_spent() {
            let from = source.wrapping_add(done);
            // Part of a page takes a whole slot.
            let load = PIPE_SLOTS * page.bytes() - from % page.bytes();
            let nr = load.min(len_bytes - done);
            self.pwrite(open, range.pos.saturating_add(done), nr)?;
            done += nr;
        }
        Ok(())
    }

    /// Requests `asked` bytes and takes as much as the pipe has room for. Returns the position
    /// after that. The lookup covers the whole request.
    fn fill_pipe(&mut self, open: OpenId, pos: u64, requested: u64) -> Result<u64, OutOfMemory> {
        let page = self.rules.page;
        let file = self.open_file(open).mapping;
        let (size, orders) = (self.core.mapping(file).size_bytes, self.core.mapping(file).orders);
        let last = orders.min.round_up(page.pages_in(pos + requested));
        let end = (pos + requested).min(size);
        // Part of a page takes a whole slot.
        let slots_end = ((pos >> page.shift()) + PIPE_SLOTS).saturating_mul(page.bytes());
        let taken = slots_end.min(end);
        let (mut at, mut is_batch_new) = (pos, true);
        while at < end && !(is_batch_new && at >= taken) {
            let index = at >> page.shift();
            if self.core.find(file, PageIndex(index)).is_none() {
                if at >= taken {
                    break;
                }
                self.consumed(open, pos, at);
            }
            let Some(entry) = self.find_for_read(open, index, last) else {
                return Err(self.out_of_memory(at));
            };
            is_batch_new = self.core.folios.get(entry.folio).is_marked;
            if is_batch_new {
                self.marker_hit(open, entry, last - entry.index.0);
            }
            at = self.end_of(entry, end);
            if is_batch_new {
                self.consumed(open, pos, at.min(taken));
            }
        }
        self.consumed(open, pos, taken);
        Ok(taken)
    }

    fn consumed(&mut self, open: OpenId, pos: u64, at: u64) {
        if at > pos {
            self.open_file_mut(open).state.prev_pos = Some(at);
        }
    }

    fn find_for_read(&mut self, open: OpenId, index: u64, last: u64) -> Option<Entry> {
        let file = self.open_file(open).mapping;
        let index = PageIndex(index);
        if let Some(entry) = self.core.find(file, index) {
            self.core.folios.get_mut(entry.folio).is_uptodate = true;
            return Some(entry);
        }
        self.keep_balance();
        self.read_absent(open, PageRange { first: index.0, end: last });
        if let Some(entry) = self.core.find(file, index) {
            return Some(entry);
        }
        let order = self.core.mapping(file).orders.min;
        let first = PageIndex(order.round_down(index.0));
        self.prepare_smallest(file);
        self.insert(NewFolio::new(file, first, order), ChargeEffort::Full).ok()?;
        self.core.find(file, index)
    }

    pub(crate) fn read_absent(&mut self, open: OpenId, range: PageRange) {
        let (index, nr_pages) = (range.first, range.end - range.first);
        let file = self.open_file(open).mapping;
        let state = self.open_file(open).state;
        let io_pages = self.device(file).io_pages;
        let kind = EntryKind::Sync;
        self.core.observe(Observed::Entry { kind, mapping: file, index, nr_pages, state });
        if self.open_file(open).is_random || state.ra_pages == 0 {
            let nr = if state.ra_pages == 0 { 1 } else { nr_pages };
            let nr = nr.min(io_pages.max(state.ra_pages));
            self.read_chunks(file, Plan::chunks(index, nr));
            return;
        }
        let prev_index = prev_index(&state, self.rules.page.shift());
        let request = ReadRequest { index, nr_pages, prev_index, io_pages };
        let ra = self.readahead(open);
        let plan = sync::choose(ra.state, ra.tree, request, ra.rules);
        self.read(open, self.target(file), plan);
    }

    fn marker_hit(&mut self, open: OpenId, entry: Entry, nr_pages: u64) {
        let file = self.open_file(open).mapping;
        let state = self.open_file(open).state;
        if state.ra_pages == 0 {
            return;
        }
        self.core.folios.get_mut(entry.folio).is_marked = false;
        self.core.counters.nr_async += 1;
        let hit = MarkerHit {
            index: entry.index.0,
            order: entry.order,
            nr_pages,
            io_pages: self.device(file).io_pages,
        };
        let index = hit.index;
        let kind = EntryKind::Async;
        self.core.observe(Observed::Entry { kind, mapping: file, index, nr_pages, state });
        let ra = self.readahead(open);
        if let Some(plan) = marker::choose(ra.state, ra.tree, hit, ra.rules) {
            self.read(open, self.target(file), plan);
        }
    }
}
