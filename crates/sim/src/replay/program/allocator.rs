//! Replays a program as if its allocator asked for huge pages.
//!
//! ```text
//!   malloc     brk in steps of 2M; the first 2M, 4M, .. of each arena; large chunks     advised
//!   mappings   every private mapping of 2M or more                                      advised
//! ```
//!
//! A trace has an allocator's calls, not its decisions: which memory it would reuse, keep or return
//! with huge pages is not known, and a mapping of the program itself looks like an allocator's.
//! Owns the calls that differ.

use largefolio_trace::event::abi::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_SHARED, MAP_STACK, PROT_WRITE,
};
use largefolio_trace::event::{huge_page_bytes, map_of, prot_of};
use largefolio_trace::{Event, Op};

use crate::replay::cell::Cell;
use crate::replay::error::CellError;
use crate::replay::program::ProcessNr;
use crate::replay::request::allocator::Allocator;

const MADV_HUGEPAGE: u64 = 14;
/// The size that allocators ask for.
const HUGE_BYTES: u64 = 2 << 20;
/// Size and alignment of an arena of glibc's malloc.
const ARENA_BYTES: u64 = 64 << 20;

const fn up(bytes: u64) -> u64 {
    bytes.saturating_add(HUGE_BYTES - 1) & !(HUGE_BYTES - 1)
}

impl Cell {
    /// Returns the call as the allocator would make it, and the range that it then advises.
    pub(crate) fn as_allocated(
        &mut self,
        process: ProcessNr,
        event: &Event,
    ) -> (Event, Option<(u64, u64)>) {
        match (self.spec.allocator, event.op) {
            (Some(Allocator::Malloc), Op::Brk) => self.brk_allocated(process, event),
            (Some(Allocator::Malloc), Op::Mprotect) => self.arena_allocated(process, event),
            (Some(_), Op::Mmap) if is_allocation(event) => (*event, Some((event.addr, event.len))),
            _ => (*event, None),
        }
    }

    pub(crate) fn advise_allocated(
        &mut self,
        process: ProcessNr,
        (addr, len): (u64, u64),
        thread: u32,
    ) -> Result<(), CellError> {
        let advice = Event::new(thread, Op::Madvise);
        self.madvise(process, &Event { addr, len, aux: MADV_HUGEPAGE, ..advice })
    }

    /// Rounds the heap up to whole huge pages from its start, unless something else is there.
    fn brk_allocated(&mut self, process: ProcessNr, event: &Event) -> (Event, Option<(u64, u64)>) {
        let space = self.program.space_mut(process);
        let heap = &mut space.heap;
        if heap.placed == 0 || event.addr < heap.start || event.pos < heap.start {
            return (*event, None);
        }
        let old = heap.end.max(event.addr);
        let mut new = heap.start.saturating_add(up(event.pos - heap.start)).max(event.pos);
        if new > old && !space.segments.overlapping(old, new).is_empty() {
            new = event.pos.max(old);
        }
        space.heap.end = new;
        let advised = (new > old && new - old >= HUGE_BYTES).then(|| (old, new - old));
        (Event { addr: old, pos: new, ..*event }, advised)
    }

    /// Rounds the used part of an arena up to whole huge pages.
    fn arena_allocated(&self, process: ProcessNr, event: &Event) -> (Event, Option<(u64, u64)>) {
        let start = event.addr & !(ARENA_BYTES - 1);
        let segments = &self.program.space(process).segments;
        let is_arena = segments
            .find(start)
            .is_some_and(|segment| segment.start == start && segment.file.is_none());
        let end = event.addr.saturating_add(event.len);
        if !is_arena || event.flags & PROT_WRITE == 0 || end > start + ARENA_BYTES {
            return (*event, None);
        }
        let end = start + up(end - start);
        (Event { len: end - event.addr, ..*event }, Some((start, end - start)))
    }
}

fn is_allocation(event: &Event) -> bool {
    let flags = map_of(event.flags);
    flags & MAP_ANONYMOUS != 0
        && flags & (MAP_SHARED | MAP_STACK | MAP_FIXED | MAP_FIXED_NOREPLACE) == 0
        && prot_of(event.flags) & PROT_WRITE != 0
        && huge_page_bytes(event).is_none()
        && event.len >= HUGE_BYTES
}
