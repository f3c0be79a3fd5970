//! Replays mremap as a kernel runs it.
//!
//! QEMU moves every area that may move. A kernel keeps the address if the area becomes shorter, and
//! also if it becomes longer and the space after it is free. The recorded addresses then change,
//! but the places in the modelled kernel do not:
//!
//! ```text
//!   recorded   | old .....|              | new ........|
//!   placed     | old .....|  ->          | old .....|..|     same place
//! ```
//!
//! Owns this decision (`vma_expandable`), and the calls that move: with `MREMAP_FIXED`, with
//! `MREMAP_DONTUNMAP`, and with an old size of 0.

use std::ops::Range;

use largefolio_mm::map::MapError;
use largefolio_mm::placement::MMAP_BASE;
use largefolio_mm::units::{AddrRange, Vaddr};
use largefolio_mm::vma::Prot;
use largefolio_trace::Event;
use largefolio_trace::event::abi::{MREMAP_DONTUNMAP, MREMAP_FIXED};

use crate::replay::cell::Cell;
use crate::replay::error::CellError;
use crate::replay::program::ProcessNr;
use crate::replay::program::place::{LEN_MAX, Segment, page_end};

/// A call in recorded addresses.
#[derive(Clone, Copy)]
struct Remap {
    old: u64,
    old_len: u64,
    new: u64,
    new_len: u64,
    is_fixed: bool,
    keeps_old: bool,
}

impl Remap {
    fn of(event: &Event) -> Self {
        Self {
            old: event.addr,
            old_len: event.len,
            new: event.pos,
            new_len: event.aux.min(LEN_MAX),
            is_fixed: event.flags & MREMAP_FIXED != 0,
            keeps_old: event.flags & MREMAP_DONTUNMAP != 0,
        }
    }

    fn old(&self) -> Range<u64> {
        self.old..self.old.saturating_add(self.old_len)
    }
}

impl Cell {
    pub(crate) fn mremap(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let call = Remap::of(event);
        if call.old_len == 0 {
            return self.map_again(process, call);
        }
        if !call.is_fixed && !call.keeps_old {
            if call.new_len <= call.old_len {
                return self.shrink(process, call);
            }
            if self.grow(process, call)? {
                return Ok(());
            }
        }
        self.move_range(process, call)
    }

    fn shrink(&mut self, process: ProcessNr, call: Remap) -> Result<(), CellError> {
        if call.new_len < call.old_len {
            self.munmap(process, call.old + call.new_len, call.old_len - call.new_len)?;
        }
        self.rename(process, call.old..call.old.saturating_add(call.new_len), call.new)
    }

    /// Changes the recorded addresses of a range, which stays at its place.
    fn rename(&mut self, process: ProcessNr, range: Range<u64>, new: u64) -> Result<(), CellError> {
        let Range { start, end } = range;
        if start == new {
            return Ok(());
        }
        let parts = self.parts(process, start, end);
        self.program.space_mut(process).segments.remove(start, end);
        self.munmap(process, new, end - start)?;
        let segments = &mut self.program.space_mut(process).segments;
        for part in parts {
            let moved = |addr: u64| new.saturating_add(addr - start);
            segments.insert(Segment { start: moved(part.start), end: moved(part.end), ..part });
        }
        self.change_places(process);
        Ok(())
    }

    /// Makes an area longer at its place. Returns `false` if the kernel would move it.
    fn grow(&mut self, process: ProcessNr, call: Remap) -> Result<bool, CellError> {
        let Some(last) = self.last_of_run(process, call.old()) else { return Ok(false) };
        let mask = self.mask();
        let placed = last.placed_at_start;
        let whole = |len: u64| (len + mask) & !mask;
        let (old_len, new_len) = (whole(call.old_len), whole(call.new_len));
        if placed & mask != 0 || !self.is_free_after(process, placed, old_len, new_len) {
            return Ok(false);
        }
        let mm = self.program.space(process).mm;
        let range = |len_bytes| AddrRange { addr: Vaddr(placed), len_bytes };
        let grown = self.change(|memory| memory.mremap(mm, range(old_len), range(new_len)));
        if grown.is_err() {
            return Ok(false);
        }
        self.rename(process, call.old(), call.new)?;
        let (start, end) = (call.new + call.old_len, call.new.saturating_add(call.new_len));
        if call.new != call.old {
            self.munmap(process, start, end - start)?;
        }
        let file = last.file.map(|(file, pos)| (file, pos + (last.end - last.start)));
        let added = Segment { start, end, placed: placed + call.old_len, file };
        self.program.space_mut(process).segments.insert(added);
        self.populate_locked(process, &added);
        self.change_places(process);
        Ok(true)
    }

    /// Returns the last segment of a range, if its segments are neighbours here as recorded.
    fn last_of_run(&self, process: ProcessNr, range: Range<u64>) -> Option<LastOfRun> {
        let parts = self.parts(process, range.start, range.end);
        let (first, last) = (parts.first().copied()?, parts.last().copied()?);
        let is_run = parts.windows(2).all(|pair| {
            pair[0].end == pair[1].start && pair[0].place(pair[0].end) == pair[1].placed
        });
        (is_run && first.start == range.start && page_end(last.end) == range.end).then_some(
            LastOfRun {
                placed_at_start: first.placed,
                start: last.start,
                end: last.end,
                file: last.file,
            },
        )
    }

    /// Whether `old_len` bytes at `placed` end their area, and nothing is mapped in the bytes after
    /// it up to `new_len`. The vdso occupies the addresses above the mmap base.
    fn is_free_after(&self, process: ProcessNr, placed: u64, old_len: u64, new_len: u64) -> bool {
        let page = self.page();
        let vmas = &self.memory.space(self.program.space(process).mm).vmas;
        let (old_end, Some(new_end)) = (placed + old_len, placed.checked_add(new_len)) else {
            return false;
        };
        let ends_area = vmas
            .find(Vaddr(placed).vpn(page))
            .is_some_and(|vma| vma.end == Vaddr(old_end).vpn(page));
        let is_free =
            vmas.overlapping(Vaddr(old_end).vpn(page), Vaddr(new_end).vpn(page)).is_empty();
        ends_area && is_free && new_end <= MMAP_BASE
    }

    /// Moves a range to another place, which the program or the kernel chooses.
    fn move_range(&mut self, process: ProcessNr, call: Remap) -> Result<(), CellError> {
        let Remap { old, new, new_len, .. } = call;
        let new_end = new.saturating_add(new_len);
        if call.is_fixed {
            self.clear_beyond(process, new..new_end)?;
        } else if old != new {
            self.munmap(process, new, new_len)?;
        }
        let parts = self.parts(process, old, call.old().end);
        let Some(first) = parts.first().copied() else { return Ok(()) };
        let to = self.place_of_move(process, &first, call)?;
        let mut moved = Vec::new();
        for (nr, part) in parts.iter().enumerate() {
            let is_last = nr + 1 == parts.len();
            let (at, end) = (part.start - old, if is_last { new_len } else { part.end - old });
            let end = end.min(new_len);
            if at < end {
                self.move_part(process, part, Moved { to: to + at, len: end - at, call })?;
                let (start, end) = (new + at, new.saturating_add(end));
                moved.push(Segment { start, end, placed: to + at, file: part.file });
            }
        }
        if !call.keeps_old {
            self.munmap(process, old, call.old_len)?;
        }
        for segment in moved {
            self.populate_locked(process, &segment);
            self.program.space_mut(process).segments.insert(segment);
        }
        self.change_places(process);
        Ok(())
    }

    fn place_of_move(
        &mut self,
        process: ProcessNr,
        first: &Segment,
        call: Remap,
    ) -> Result<u64, CellError> {
        let (file, pos) = first.file.map_or((None, 0), |(file, pos)| (Some(file), pos));
        let range = call.new..call.new.saturating_add(call.new_len);
        let fixed = call.is_fixed.then(|| self.place_fixed(process, range, file.map(|_| pos)));
        match fixed.flatten() {
            Some(place) => Ok(place),
            None => self.free_place(process, file, pos, call.new_len),
        }
    }

    /// Moves a part's pages. If larger base pages prevent the move, the new range starts empty and
    /// the program touches its pages again.
    fn move_part(
        &mut self,
        process: ProcessNr,
        part: &Segment,
        Moved { to, len, call }: Moved,
    ) -> Result<(), CellError> {
        let mm = self.program.space(process).mm;
        let old_len = (part.end - part.start).min(len);
        let from = AddrRange { addr: Vaddr(part.placed), len_bytes: old_len };
        let range = AddrRange { addr: Vaddr(to), len_bytes: len };
        let moved = self.change(|memory| {
            if call.keeps_old {
                memory.mremap_dontunmap(mm, from, range.addr)
            } else {
                memory.mremap(mm, from, range)
            }
        });
        if moved.is_err() && !call.is_fixed {
            let start = to & !self.mask();
            self.change(|memory| {
                memory.mprotect(mm, Vaddr(start), len + (to - start), Prot::READ_WRITE)
            })?;
        }
        Ok(())
    }

    /// Handles an old size of 0: maps shared memory a second time.
    fn map_again(&mut self, process: ProcessNr, call: Remap) -> Result<(), CellError> {
        let first = self.program.space(process).segments.find(call.old).copied();
        let Some(first) = first.map(|segment| segment.part(call.old, segment.end)) else {
            return Ok(());
        };
        if call.is_fixed {
            self.clear_beyond(process, call.new..call.new.saturating_add(call.new_len))?;
        }
        let placed = self.place_of_move(process, &first, call)?;
        let mm = self.program.space(process).mm;
        let range = AddrRange { addr: Vaddr(placed), len_bytes: call.new_len };
        match self.change(|memory| memory.mremap_again(mm, Vaddr(first.placed), range)) {
            Ok(()) | Err(MapError::NotMapped(_) | MapError::NotShared(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let end = call.new.saturating_add(call.new_len);
        let segment = Segment { start: call.new, end, placed, file: first.file };
        self.program.space_mut(process).segments.insert(segment);
        self.change_places(process);
        Ok(())
    }
}

struct LastOfRun {
    placed_at_start: u64,
    start: u64,
    end: u64,
    file: Option<(largefolio_trace::FileId, u64)>,
}

#[derive(Clone, Copy)]
struct Moved {
    to: u64,
    len: u64,
    call: Remap,
}
