//! A write call's copy out of a process's memory (docs/behaviour A.7.5).
//!
//! Corresponds to: `copy_folio_from_iter_atomic`, `fault_in_iov_iter_readable`.
//!
//! ```text
//!   piece: at most `chunk` bytes --> folio --> copy up to the first absent source page
//!     all of it, or part of an up-to-date folio ------> next piece
//!     part of a new folio --> chunk / 2, the same part again, alone
//!     nothing --------------> chunk / 2, fault in the piece's source, again
//! ```
//!
//! A call whose source is absent therefore ends with base pages.

use std::ops::Range;

use crate::fault::{Access, FaultCause};
use crate::folio::FolioId;
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::rules::readahead::WriteSource;
use crate::units::{ByteRange, MappingId, MmId, Vaddr, Vpn};

/// Where a write call's data is.
#[derive(Clone, Copy, Debug)]
pub struct WriteData {
    /// The process.
    pub mm: MmId,
    /// Address of the first byte.
    pub addr: Vaddr,
}

pub(super) struct Copy {
    /// The source, if its absent pages end a copy early.
    source: Option<WriteData>,
    /// File position of the source's first byte.
    pos: u64,
    page_bytes: u64,
    chunk: u64,
    /// Bytes to copy alone, after a copy that ended early.
    again: Option<u64>,
    /// The piece at this position has faulted in its source.
    faulted_at: Option<u64>,
    /// Whether the piece's folio was not cached before.
    pub(super) is_new: bool,
    /// The last folio that this call created: not up to date until it is written whole.
    created: Option<FolioId>,
    /// Its pages that were read, because a piece covers only a part of them.
    read: Vec<u64>,
}

impl Copy {
    /// Returns the end of the piece that begins at `at`.
    pub(super) fn end(&self, at: u64, part_end: u64) -> u64 {
        if self.source.is_none() {
            return part_end;
        }
        let of_chunk = self.chunk - at % self.chunk;
        let nr_bytes = self.again.map_or(of_chunk, |again| again.min(of_chunk));
        part_end.min(at + nr_bytes)
    }

    fn halve(&mut self) {
        if self.chunk > self.page_bytes {
            self.chunk /= 2;
        }
    }
}

impl Memory {
    pub(super) fn begin_copy(
        &mut self,
        file: MappingId,
        range: ByteRange,
        source: Option<WriteData>,
    ) -> Copy {
        let mapping = self.core.mapping(file);
        let is_short = self.rules.readahead.write_source == WriteSource::Short;
        let chunk = self.rules.page.bytes() << mapping.orders.max.get();
        let short = source.filter(|_| is_short && mapping.disk.copies_short);
        if let (Some(source), None) = (source, short) {
            self.fault_in(source, 0, range.len_bytes);
        }
        Copy {
            source: short,
            pos: range.pos,
            page_bytes: self.rules.page.bytes(),
            chunk,
            again: None,
            faulted_at: None,
            is_new: false,
            created: None,
            read: Vec::new(),
        }
    }

    /// Reads a piece's last page in a new folio, if the piece covers only a part of it and it was
    /// not read before. The first piece's pages were read when the folio was made.
    pub(super) fn read_edges(
        &mut self,
        copy: &mut Copy,
        (file, entry): (MappingId, Entry),
        piece: Range<u64>,
    ) {
        if copy.is_new {
            copy.read = self.edges(file, piece).into_iter().flatten().collect();
        } else if copy.created == Some(entry.folio) {
            let [_, last] = self.edges(file, piece);
            if let Some(page) = last.filter(|page| !copy.read.contains(page)) {
                copy.read.push(page);
                self.core.counters.nr_read += 1;
            }
        }
    }

    /// Copies a piece; returns the end of the copied bytes, or `None` if the piece is tried again.
    pub(super) fn copied(
        &mut self,
        copy: &mut Copy,
        entry: Entry,
        piece: Range<u64>,
    ) -> Option<u64> {
        let Some(source) = copy.source else { return Some(piece.end) };
        if copy.is_new {
            copy.created = Some(entry.folio);
        }
        copy.again = None;
        let nr_present = self.nr_present(source, piece.start - copy.pos..piece.end - copy.pos);
        // A source that cannot be faulted in would fail the call.
        let is_complete =
            piece.start + nr_present == piece.end || copy.faulted_at == Some(piece.start);
        if is_complete {
            return Some(piece.end);
        }
        let is_uptodate = copy.created != Some(entry.folio);
        if nr_present > 0 && is_uptodate {
            return Some(piece.start + nr_present);
        }
        copy.halve();
        if nr_present > 0 {
            copy.again = Some(nr_present);
        } else {
            copy.faulted_at = Some(piece.start);
            self.fault_in(source, piece.start - copy.pos, piece.end - piece.start);
        }
        None
    }

    /// Returns the bytes from the start of `bytes` whose source pages are present.
    fn nr_present(&self, source: WriteData, bytes: Range<u64>) -> u64 {
        let page = self.rules.page;
        let table = &self.space(source.mm).table;
        let at = |byte| source.addr.0.saturating_add(byte);
        let (first, end) = (at(bytes.start), at(bytes.end));
        let pages = first >> page.shift()..=(end - 1) >> page.shift();
        let absent = pages.into_iter().find(|&vpn| table.leaf(Vpn(vpn)).is_none());
        absent.map_or(end, |vpn| (vpn << page.shift()).max(first)) - first
    }

    fn fault_in(&mut self, WriteData { mm, addr }: WriteData, from: u64, nr_bytes: u64) {
        let page = self.rules.page;
        if nr_bytes == 0 {
            return;
        }
        let first = addr.0.saturating_add(from);
        let last = first.saturating_add(nr_bytes - 1);
        for vpn in first >> page.shift()..=last >> page.shift() {
            if self.core.work.is_spent() {
                return;
            }
            let at = Vpn(vpn).vaddr(page);
            if self.touch_for(mm, at, Access::Read, FaultCause::Access).is_err() {
                return;
            }
        }
    }
}
