//! Addresses that programs compute from the result of mmap.
//!
//! An allocator reserves more than it needs and rounds the address up itself, often to 2 MiB. The
//! rounded address was computed from the recorded one, and a kernel may place the mapping
//! elsewhere:
//!
//! ```text
//!   recorded   |..x.........|      x is a multiple of 2 MiB, and the first call inside names it
//!   placed     |..x.........|      x is not: the mapping moves until it is
//! ```
//!
//! A mapping that has no pages yet can move, because only its address changes.

use largefolio_mm::units::{AddrRange, Vaddr};

use crate::replay::cell::Cell;
use crate::replay::error::CellError;
use crate::replay::program::ProcessNr;
use crate::replay::program::place::Segment;

/// What allocators round to at least: a PMD range with 4K pages.
const BLOCK_BYTES: u64 = 2 << 20;

/// V8 rounds to this, more than any other program that we know.
const ALIGN_MAX: u64 = 1 << 32;

impl Cell {
    /// Prepares for a call that names `addr`.
    pub(crate) fn realign(&mut self, process: ProcessNr, addr: u64) -> Result<(), CellError> {
        let Some(segment) = self.program.space(process).segments.find(addr).copied() else {
            return Ok(());
        };
        let Some(align) = alignment(&segment, addr) else { return Ok(()) };
        let mm = self.program.space(process).mm;
        let len = segment.end - segment.start;
        let (page, space) = (self.page(), self.memory.space(mm));
        let has_pages = !space.table.is_none(Vaddr(segment.placed).vpn(page), page.pages_in(len));
        // With pages larger than the recorded ones, no place may have the recorded offset.
        if has_pages || (segment.placed | segment.start) & self.mask() != 0 {
            return Ok(());
        }
        let room = len.saturating_add(align);
        // Without room the mapping stays, and only the alignment is lost.
        let Ok(free) = self.free_place(process, None, 0, room) else { return Ok(()) };
        let placed = free + (segment.start.wrapping_sub(free) & (align - 1));
        let range = |addr, len_bytes| AddrRange { addr: Vaddr(addr), len_bytes };
        let moved =
            self.change(|memory| memory.mremap(mm, range(segment.placed, len), range(placed, len)));
        let end = if moved.is_ok() { placed + page.pages_in(len) * page.bytes() } else { placed };
        let free_end = free + page.pages_in(room) * page.bytes();
        for (start, end) in [(free, placed), (end, free_end)] {
            if start < end {
                self.change(|memory| memory.munmap(mm, Vaddr(start), end - start))?;
            }
        }
        if moved.is_ok() {
            self.program.space_mut(process).segments.insert(Segment { placed, ..segment });
            self.change_places(process);
        }
        Ok(())
    }
}

/// Returns the alignment that the program gave to `addr`, if it is lost here.
fn alignment(segment: &Segment, addr: u64) -> Option<u64> {
    let is_aligned = |addr: u64| addr.is_multiple_of(BLOCK_BYTES);
    let is_lost = segment.file.is_none()
        && is_aligned(addr)
        && !is_aligned(segment.start)
        && !is_aligned(segment.place(addr));
    let len_log2 = (segment.end - segment.start).checked_ilog2()?;
    is_lost.then(|| (1 << addr.trailing_zeros().min(len_log2)).clamp(BLOCK_BYTES, ALIGN_MAX))
}
