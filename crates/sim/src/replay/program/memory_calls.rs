//! Replays system calls that change memory. Calls on files are in `file_calls`.

use std::ops::Range;

use largefolio_mm::hugetlb::{HugeMap, HugeMapError};
use largefolio_mm::map::{Madvice, Map, MapError};
use largefolio_mm::placement::MMAP_BASE;
use largefolio_mm::units::{ByteRange, PageSize, Vaddr};
use largefolio_mm::vma::{Prot, Purpose, Sharing};
use largefolio_trace::event::abi::{
    MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_POPULATE, MAP_SEGMENT, MAP_SHARED,
    MAP_STACK, MREMAP_FIXED, PROT_READ, PROT_WRITE,
};
use largefolio_trace::event::{huge_page_bytes, map_of, prot_of};
use largefolio_trace::{Event, ExitKind, Op};

use crate::replay::cell::Cell;
use crate::replay::error::CellError;
use crate::replay::outcome::Hugetlb;
use crate::replay::program::layout::{Mapped, prot_bits};
use crate::replay::program::place::{LEN_MAX, RECORDED_MASK, Segment, page_end};
use crate::replay::program::{ProcessNr, place};

const MADV_REMOVE: u64 = 9;
const MADV_COLLAPSE: u64 = 25;

const fn purpose_of(flags: u32) -> Purpose {
    match flags {
        _ if flags & MAP_SEGMENT != 0 => Purpose::Segment,
        _ if flags & MAP_STACK != 0 => Purpose::Stack,
        _ => Purpose::Memory,
    }
}

/// Rounds the length of a range up to pages, as the kernel does.
fn in_pages(event: &Event) -> Event {
    match event.op {
        Op::Munmap | Op::Mprotect | Op::Madvise | Op::Mempolicy => {
            Event { len: page_end(event.len), ..*event }
        }
        Op::Mlock if event.len > 0 => {
            let addr = event.addr & !RECORDED_MASK;
            let end = page_end(event.addr.saturating_add(event.len));
            Event { addr, len: end.saturating_sub(addr), ..*event }
        }
        Op::Mremap => Event { len: page_end(event.len), aux: page_end(event.aux), ..*event },
        _ => *event,
    }
}

impl Cell {
    pub(crate) fn event(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let (event, advised) = self.as_allocated(process, &in_pages(event));
        self.replay_call(process, &event)?;
        match advised {
            Some(range) => self.advise_allocated(process, range, event.thread),
            None => Ok(()),
        }
    }

    fn replay_call(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        self.realign_for(process, event)?;
        match event.op {
            Op::Mmap => {
                self.mmap(process, event)?;
                self.lock_mapping(process, event)?;
                self.populate(process, event)?;
            }
            Op::Munmap => self.munmap(process, event.addr, event.len)?,
            Op::Mprotect => self.mprotect(process, event)?,
            Op::Mremap => self.mremap(process, event)?,
            Op::Madvise => self.madvise(process, event)?,
            Op::Brk => self.brk(process, event)?,
            Op::Fork => self.fork(process, event)?,
            Op::Exit if event.flags == ExitKind::Thread as u32 => self.hardware.end(event.thread),
            Op::Exit => self.end_process(process),
            Op::Open => self.open(process, event),
            Op::Close => self.close(process, event.pos),
            Op::Pread
            | Op::Pwrite
            | Op::Truncate
            | Op::Fadvise
            | Op::DropCaches
            | Op::Fallocate
            | Op::Unlink => {
                self.file_event(process, event)?;
            }
            Op::Sync => self.sync(process, event)?,
            Op::Mlock => self.mlock(process, event)?,
            Op::ThpDisable => self.disable_thp(process, event.aux),
            Op::Mempolicy => self.set_policy(process, event),
            Op::Collapse => self.collapse(process, event),
            Op::Execve => self.execve(process, event)?,
            Op::Exec | Op::Read | Op::Write => {}
        }
        Ok(())
    }

    /// Realigns the mapping that a call changes in part.
    fn realign_for(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let is_fixed = |flag| event.flags & flag != 0;
        let addr = match event.op {
            Op::Mprotect | Op::Madvise | Op::Mlock | Op::Mempolicy => event.addr,
            Op::Mmap if is_fixed(MAP_FIXED) => event.addr,
            Op::Mremap if is_fixed(MREMAP_FIXED) => event.pos,
            Op::Munmap => {
                // One end of the mapping goes; the program rounded the other end of the range.
                let segments = &self.program.space(process).segments;
                let is_head = segments.find(event.addr).is_some_and(|s| s.start == event.addr);
                if is_head { event.addr.saturating_add(event.len) } else { event.addr }
            }
            _ => return Ok(()),
        };
        self.realign(process, addr)
    }

    fn mmap(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        if self.mmap_huge(process, event)? {
            return Ok(());
        }
        let (prot, flags) = (prot_of(event.flags), map_of(event.flags));
        let len = event.len.min(LEN_MAX);
        let file = event.file.filter(|&f| !self.program.files[f].is_device).map(|f| (f, event.pos));
        let is_fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        let sharing = if flags & MAP_SHARED != 0 { Sharing::Shared } else { Sharing::Private };
        let mapped = Mapped { prot, sharing, purpose: purpose_of(flags) };
        let pos = file.map(|(_, pos)| pos);
        let end = page_end(event.addr.saturating_add(len)).max(event.addr);
        if is_fixed {
            self.clear_beyond(process, event.addr..end)?;
        }
        if let Some(segment) = self.linked_mapping(process, event)? {
            self.map_segment(process, segment, mapped)?;
            self.change_places(process);
            return Ok(());
        }
        let file = file.map(|(file, pos)| (file, self.linked_pos(file, pos)));
        let fixed = is_fixed.then(|| self.place_fixed(process, event.addr..end, pos)).flatten();
        let placed = match (fixed, file) {
            (Some(placed), _) => placed,
            (None, Some((id, pos))) if self.program.files[id].is_elf => {
                self.free_image(process, Some(id), pos, len)?
            }
            (None, None) if prot == 0 => self.free_reservation(process, event.addr, len)?,
            (None, _) => {
                let (id, pos) = (file.map(|(id, _)| id), pos.unwrap_or(0));
                let range = ByteRange { pos, len_bytes: len };
                // A shared mapping of a file is a writer, which must not begin before its place.
                let sharing = if id.is_some() { Sharing::Private } else { sharing };
                self.free_place_for(process, id, range, sharing)? + (pos & self.mask())
            }
        };
        if fixed.is_some() {
            self.move_rest(process, event.addr..end, placed)?;
        }
        let segment = Segment { start: event.addr, end, placed, file };
        self.map_segment(process, segment, mapped)?;
        self.change_places(process);
        Ok(())
    }

    /// Populates a mapping. Pages that cannot be populated stay absent, without an error.
    fn populate(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let (prot, flags) = (prot_of(event.flags), map_of(event.flags));
        if flags & MAP_POPULATE == 0 || prot == 0 {
            return Ok(());
        }
        let mm = self.program.space(process).mm;
        let end = event.addr.saturating_add(event.len);
        for part in self.parts(process, event.addr, end) {
            let Some((start, len_bytes)) = self.inner(&part) else { continue };
            match self.change(|memory| memory.populate(mm, start, len_bytes)) {
                Ok(()) | Err(MapError::NotMapped(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns the place of a fixed mapping. Over an existing mapping, it is that mapping's place,
    /// moved up inside an image as the image's segments move apart. Otherwise it is the recorded
    /// address, if that is free here.
    pub(crate) fn place_fixed(
        &self,
        process: ProcessNr,
        Range { start: addr, end }: Range<u64>,
        pos: Option<u64>,
    ) -> Option<u64> {
        let segments = &self.program.space(process).segments;
        let Some(over) = segments.find(addr) else {
            let vmas = &self.memory.space(self.program.space(process).mm).vmas;
            let (first, last) = (Vaddr(addr).vpn(self.page()), Vaddr(end).vpn(self.page()));
            let is_free = addr & self.mask() == 0
                && end < MMAP_BASE
                && vmas.overlapping(first, last.plus(1)).is_empty();
            return is_free.then_some(addr);
        };
        let is_image = over.file.is_some_and(|(file, _)| self.program.files[file].is_elf);
        let link = if is_image { self.program.link } else { self.page() };
        let is_image_kept = is_image && !self.program.moves();
        // A mapping that ends where a reservation begins does not belong to it.
        let is_anon_kept = over.file.is_none() && (pos.is_none() || over.start == addr);
        let keeps_shape = link == PageSize::K4 || is_image_kept || is_anon_kept;
        match segments.before(addr) {
            Some(before) if !keeps_shape && before.end >= addr => {
                place::after(&before.part(before.start, addr), addr, pos, link)
            }
            _ => Some(over.place(addr)),
        }
    }

    /// Unmaps the range of a fixed mapping, unless the segment it starts in contains it.
    pub(crate) fn clear_beyond(
        &mut self,
        process: ProcessNr,
        range: Range<u64>,
    ) -> Result<(), CellError> {
        let Range { start, end } = range;
        let over = self.program.space(process).segments.find(start).copied();
        match over {
            Some(over) if page_end(end) <= page_end(over.end) => Ok(()),
            _ => self.munmap(process, start, end - start),
        }
    }

    /// Moves the rest of a range up after a segment that moved. Makes the gap below inaccessible.
    fn move_rest(
        &mut self,
        process: ProcessNr,
        range: Range<u64>,
        placed: u64,
    ) -> Result<(), CellError> {
        let Range { start, end } = range;
        let Some(over) = self.program.space(process).segments.find(start).copied() else {
            return Ok(());
        };
        let moved_by = placed - over.place(start).min(placed);
        if moved_by == 0 {
            return Ok(());
        }
        let mask = self.mask();
        let (gap, gap_end) = ((over.place(start) + mask) & !mask, placed & !mask);
        if gap < gap_end {
            let none = Map::anon(gap_end - gap, Prot::default()).at(Vaddr(gap));
            let mm = self.program.space(process).mm;
            self.change(|memory| memory.mmap(mm, none))?;
        }
        if end < over.end {
            let mut rest = over.part(end, over.end);
            rest.placed += moved_by;
            self.program.space_mut(process).segments.insert(rest);
        }
        Ok(())
    }

    pub(crate) fn parts(&self, process: ProcessNr, start: u64, end: u64) -> Vec<Segment> {
        let parts = self.program.space(process).segments.overlapping(start, end);
        self.count_steps(parts.len());
        parts
    }

    pub(crate) fn munmap(
        &mut self,
        process: ProcessNr,
        addr: u64,
        len: u64,
    ) -> Result<(), CellError> {
        let end = addr.saturating_add(len);
        for part in self.parts(process, addr, end) {
            let mm = self.program.space(process).mm;
            if let Some((start, len_bytes)) = self.inner(&part) {
                if part.file.is_none() {
                    self.observe_shared(process, start, len_bytes);
                }
                self.change(|memory| memory.munmap(mm, start, len_bytes))?;
            }
        }
        self.program.space_mut(process).segments.remove(addr, end);
        self.change_places(process);
        Ok(())
    }

    /// Returns the whole pages of a part. A call has no effect on its partial pages.
    pub(crate) fn inner(&self, part: &Segment) -> Option<(Vaddr, u64)> {
        let mask = self.mask();
        let first = (part.placed + mask) & !mask;
        let end = (part.placed + (page_end(part.end) - part.start)) & !mask;
        (first < end).then(|| (Vaddr(first), end - first))
    }

    fn mprotect(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let prot = prot_bits(event.flags);
        let end = event.addr.saturating_add(event.len);
        for part in self.parts(process, event.addr, end) {
            self.protect_part(process, &part, prot)?;
        }
        Ok(())
    }

    /// Sets the protection of a part. A page that the call covers only in part keeps its old
    /// protection too.
    fn protect_part(
        &mut self,
        process: ProcessNr,
        part: &Segment,
        prot: Prot,
    ) -> Result<(), CellError> {
        let mm = self.program.space(process).mm;
        let page_bytes = self.page().bytes();
        let first = part.placed & !self.mask();
        let last = (part.placed + (part.end - part.start) - 1) & !self.mask();
        let inner = self.inner(part);
        if let Some((start, len_bytes)) = inner {
            self.change(|memory| memory.mprotect(mm, start, len_bytes, prot))?;
        }
        let is_inner =
            |addr: u64| inner.is_some_and(|(start, len)| addr >= start.0 && addr < start.0 + len);
        let edges = [first, last].into_iter().filter(|&addr| !is_inner(addr));
        for addr in edges {
            let old = self.memory.space(mm).vmas.find(Vaddr(addr).vpn(self.page()));
            let Some(old) = old.map(|vma| vma.prot) else { continue };
            let both = Prot {
                can_read: old.can_read || prot.can_read,
                can_write: old.can_write || prot.can_write,
                can_exec: old.can_exec || prot.can_exec,
            };
            self.change(|memory| memory.mprotect(mm, Vaddr(addr), page_bytes, both))?;
        }
        Ok(())
    }

    /// Handles `MADV_COLLAPSE`. The event's position is the folio size in bytes; 0 = the PMD size.
    /// The program continues even if this fails; refusals are counted.
    fn collapse(&mut self, process: ProcessNr, event: &Event) {
        let mm = self.program.space(process).mm;
        let end = event.addr.saturating_add(event.len);
        for part in self.parts(process, event.addr, end) {
            if let Some((start, len_bytes)) = self.inner(&part) {
                let _ = match event.pos {
                    0 => self.change(|memory| memory.madvise_collapse(mm, start, len_bytes)),
                    bytes => {
                        let order = self.page().order_of_bytes(bytes.min(LEN_MAX));
                        self.change(|memory| {
                            memory.madvise_collapse_to(mm, start, len_bytes, order)
                        })
                    }
                };
            }
        }
    }

    pub(crate) fn madvise(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let advice = match event.aux {
            MADV_REMOVE => {
                self.remove(process, event);
                return Ok(());
            }
            0 => Madvice::Normal,
            1 => Madvice::Random,
            2 => Madvice::Sequential,
            3 => Madvice::Willneed,
            4 => Madvice::Dontneed,
            8 => Madvice::Free,
            10 => Madvice::Dontfork(true),
            11 => Madvice::Dontfork(false),
            14 => Madvice::Hugepage,
            15 => Madvice::Nohugepage,
            18 => Madvice::WipeOnFork(true),
            19 => Madvice::WipeOnFork(false),
            20 => Madvice::Cold,
            21 => Madvice::Pageout,
            22 => Madvice::PopulateRead,
            23 => Madvice::PopulateWrite,
            24 => Madvice::DontneedLocked,
            102 => Madvice::GuardInstall,
            MADV_COLLAPSE => {
                self.collapse(process, event);
                return Ok(());
            }
            advice => {
                self.counted.met.advice(advice);
                return Ok(());
            }
        };
        self.advise(process, event, advice)
    }

    fn advise(
        &mut self,
        process: ProcessNr,
        event: &Event,
        advice: Madvice,
    ) -> Result<(), CellError> {
        let mm = self.program.space(process).mm;
        let end = event.addr.saturating_add(event.len);
        for part in self.parts(process, event.addr, end) {
            let Some((start, len_bytes)) = self.inner(&part) else { continue };
            match self.change(|memory| memory.madvise(mm, start, len_bytes, advice)) {
                // As in the kernel: a populate stops at a hole or a guard page.
                Ok(())
                | Err(MapError::NotMapped(_) | MapError::NotAnonymous(_) | MapError::Locked(_)) => {
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn brk(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let (old, new) = (event.addr, event.pos);
        if new < old {
            return self.munmap(process, new, old - new);
        }
        let heap = self.program.space(process).heap;
        if heap.placed == 0 || old < heap.start || new - heap.start > LEN_MAX {
            return Ok(());
        }
        let Some(placed) = heap.placed.checked_add(old - heap.start) else { return Ok(()) };
        let segment = Segment { start: old, end: new, placed, file: None };
        if new > old {
            self.map_segment(process, segment, Mapped::private(PROT_READ | PROT_WRITE))?;
            self.populate_locked(process, &segment);
        }
        self.change_places(process);
        Ok(())
    }
}

impl Cell {
    /// Maps huge pages. Returns `false` if none are requested or no pool can supply them.
    pub(crate) fn mmap_huge(
        &mut self,
        process: ProcessNr,
        event: &Event,
    ) -> Result<bool, CellError> {
        let Some(bytes) = huge_page_bytes(event) else { return Ok(false) };
        let order = self.page().order_of_bytes(bytes);
        let flags = map_of(event.flags);
        let len_bytes = event.len.min(LEN_MAX);
        if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
            self.munmap(process, event.addr, len_bytes)?;
        }
        let sharing = if flags & MAP_SHARED != 0 { Sharing::Shared } else { Sharing::Private };
        let is_reserved = flags & MAP_NORESERVE == 0;
        let prot = prot_bits(prot_of(event.flags));
        let map = HugeMap { addr: None, len_bytes, order, prot, sharing, is_reserved };
        let mm = self.program.space(process).mm;
        match self.change(|memory| memory.mmap_huge(mm, map)) {
            Ok(at) => {
                let end = event.addr.saturating_add(len_bytes.next_multiple_of(bytes));
                let segment = Segment { start: event.addr, end, placed: at.0, file: None };
                self.program.space_mut(process).segments.insert(segment);
                self.change_places(process);
                Ok(true)
            }
            Err(HugeMapError::Map(error)) => Err(error.into()),
            Err(HugeMapError::NoPool(_)) => {
                self.counted.nr_maps_without_pool += 1;
                Ok(false)
            }
            Err(HugeMapError::PoolTooSmall { .. }) => Ok(false),
        }
    }

    /// Returns the counts of huge pages; `None` without a pool if the trace wants none.
    pub(crate) fn hugetlb(&self) -> Option<Hugetlb> {
        let (now, base) = (&self.counted.end.counters.hugetlb, &self.counted.base.counters.hugetlb);
        let maps_without_pool = self.counted.nr_maps_without_pool;
        if self.memory.huge_orders().next().is_none() && maps_without_pool == 0 {
            return None;
        }
        Some(Hugetlb {
            faults: now.nr_faults - base.nr_faults,
            allocated: now.nr_allocated - base.nr_allocated,
            forked: now.nr_forked - base.nr_forked,
            copied: now.nr_cow - base.nr_cow,
            reused: now.nr_reused - base.nr_reused,
            taken: now.nr_taken - base.nr_taken,
            sigbus: now.nr_sigbus - base.nr_sigbus,
            maps_refused: now.nr_maps_refused - base.nr_maps_refused,
            maps_without_pool,
        })
    }
}
