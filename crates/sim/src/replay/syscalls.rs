//! Events that change memory: the recorded system calls.

use largefolio_mm::io::Fadvice;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::placement::MMAP_BASE;
use largefolio_mm::units::{PageSize, Vaddr};
use largefolio_mm::vma::{Prot, Sharing};
use largefolio_trace::event::{SHARES_MEMORY, map_of, prot_of};
use largefolio_trace::{Event, ExitKind, Op};

use super::cell::{Cell, CellError, NR_PROCESSES_MAX};
use super::place::{self, Segment};
use super::program::ProcessNr;

const PROT_READ: u32 = 1;
const PROT_WRITE: u32 = 2;
const PROT_EXEC: u32 = 4;
const MAP_SHARED: u32 = 1;
const MAP_FIXED: u32 = 0x10;
const MAP_FIXED_NOREPLACE: u32 = 0x10_0000;

/// More than this many pieces of a heap or file mapping at once is not a program.
pub(super) const LEN_MAX: u64 = 1 << 46;

impl Cell {
    /// Follows one event that is not a reference.
    pub(super) fn event(&mut self, event: &Event) -> Result<(), CellError> {
        let process = self.threads.process_of(event.thread);
        let mm = self.processes[process].mm;
        if self.memory.space(mm).is_dead {
            return Ok(());
        }
        match event.op {
            Op::Mmap => self.mmap(process, event)?,
            Op::Munmap => self.munmap(process, event.addr, event.len)?,
            Op::Mprotect => self.mprotect(process, event)?,
            Op::Mremap => self.mremap(process, event)?,
            Op::Madvise => self.madvise(process, event)?,
            Op::Brk => self.brk(process, event)?,
            Op::Fork => self.fork(process, event)?,
            Op::Exit if event.flags == ExitKind::Thread as u32 => self.end_thread(event.thread),
            Op::Exit => self.end_process(process),
            Op::Open => {
                if let Some(file) = event.file {
                    let open = self.memory.open(self.files[file as usize]);
                    self.processes[process].opened(event.pos, file, open);
                }
            }
            Op::Pread | Op::Pwrite | Op::Truncate | Op::Fadvise | Op::DropCaches => {
                self.file_event(process, event)?;
            }
            // Collapse comes with khugepaged; a trace that has it is replayed without it.
            Op::Collapse | Op::Exec | Op::Read | Op::Write => {}
        }
        Ok(())
    }

    fn mmap(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let (prot, flags) = (prot_of(event.flags), map_of(event.flags));
        let len = event.len.min(LEN_MAX);
        let file = event.file.filter(|&f| !self.is_device[f as usize]).map(|f| (f, event.pos));
        let is_fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        let sharing = if flags & MAP_SHARED != 0 { Sharing::Shared } else { Sharing::Private };
        let pos = file.map(|(_, pos)| pos);
        let end = event.addr.saturating_add(len);
        let fixed = is_fixed.then(|| self.place_fixed(process, event, pos)).flatten();
        let placed = match (fixed, file) {
            (Some(placed), _) => placed,
            (None, Some((id, pos))) if self.is_elf[id as usize] => {
                self.free_image(process, (Some(id), pos), len)?
            }
            (None, _) => {
                let (id, pos) = (file.map(|(id, _)| id), pos.unwrap_or(0));
                self.free_place(process, id, pos, len)? + (pos & self.mask())
            }
        };
        if fixed.is_some() {
            self.move_rest(process, (event.addr, end), placed)?;
        }
        let segment = Segment { start: event.addr, end, placed, file };
        self.map_segment(process, segment, prot, sharing)?;
        self.forget_places();
        Ok(())
    }

    /// Place of a fixed mapping: over an existing one where its address lies, moved up inside an
    /// image as its segments move apart; elsewhere its own address, if that is free here.
    fn place_fixed(&self, process: ProcessNr, event: &Event, pos: Option<u64>) -> Option<u64> {
        let (addr, segments) = (event.addr, &self.processes[process].segments);
        let Some(over) = segments.find(addr) else {
            let end = addr.checked_add(event.len)?;
            let vmas = &self.memory.space(self.processes[process].mm).vmas;
            let (first, last) = (Vaddr(addr).vpn(self.page()), Vaddr(end).vpn(self.page()));
            let is_free = addr & self.mask() == 0
                && end < MMAP_BASE
                && vmas.overlapping(first, last.plus(1)).is_empty();
            return is_free.then_some(addr);
        };
        let is_image = over.file.is_some_and(|(file, _)| self.is_elf[file as usize]);
        let link = if is_image { self.link } else { self.page() };
        let keeps_shape = link == PageSize::K4 || (over.file.is_none() && pos.is_none());
        match segments.before(addr) {
            Some(before) if !keeps_shape && before.end >= addr => {
                Some(place::after(&before.part(before.start, addr), addr, pos, link))
            }
            _ => Some(over.place(addr)),
        }
    }

    /// A segment of an image moved up from where the range it is part of was mapped: what is left
    /// of the range moves with it, and the gap below belongs to nobody, as after the loader has
    /// taken it away.
    fn move_rest(
        &mut self,
        process: ProcessNr,
        (start, end): (u64, u64),
        placed: u64,
    ) -> Result<(), CellError> {
        let Some(over) = self.processes[process].segments.find(start).copied() else {
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
            self.memory.mmap(self.processes[process].mm, none)?;
        }
        if end < over.end {
            let mut rest = over.part(end, over.end);
            rest.placed += moved_by;
            self.processes[process].segments.insert(rest);
        }
        Ok(())
    }

    fn munmap(&mut self, process: ProcessNr, addr: u64, len: u64) -> Result<(), CellError> {
        let end = addr.saturating_add(len);
        for part in self.processes[process].segments.overlapping(addr, end) {
            let mm = self.processes[process].mm;
            if let Some((start, len_bytes)) = self.inner(&part) {
                self.memory.munmap(mm, start, len_bytes)?;
            }
        }
        self.processes[process].segments.remove(addr, end);
        self.forget_places();
        Ok(())
    }

    /// The whole pages of a placed part: with larger base pages a call on part of a page does
    /// nothing to it. With 4 KiB pages that is the part itself.
    fn inner(&self, part: &Segment) -> Option<(Vaddr, u64)> {
        let mask = self.mask();
        let first = (part.placed + mask) & !mask;
        let end = (part.placed + (part.end - part.start)) & !mask;
        (first < end).then(|| (Vaddr(first), end - first))
    }

    fn mprotect(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let mm = self.processes[process].mm;
        let prot = prot_bits(event.flags);
        let end = event.addr.saturating_add(event.len);
        for part in self.processes[process].segments.overlapping(event.addr, end) {
            // Giving access reaches every page the range touches, taking it only whole pages.
            let range = if prot.can_write { Some(self.outer(&part)) } else { self.inner(&part) };
            if let Some((start, len_bytes)) = range {
                self.memory.mprotect(mm, start, len_bytes, prot)?;
            }
        }
        Ok(())
    }

    /// Every page of a placed part.
    fn outer(&self, part: &Segment) -> (Vaddr, u64) {
        let mask = self.mask();
        let first = part.placed & !mask;
        let end = (part.placed + (part.end - part.start) + mask) & !mask;
        (Vaddr(first), end - first)
    }

    fn mremap(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let (new_addr, new_len) = (event.pos, event.aux.min(LEN_MAX));
        let old_end = event.addr.saturating_add(event.len);
        let Some(old) = self.processes[process].segments.find(event.addr).copied() else {
            return Ok(());
        };
        let mm = self.processes[process].mm;
        let parts = self.processes[process].segments.overlapping(event.addr, old_end);
        let from = old.place(event.addr) & !self.mask();
        let old_len = parts.iter().map(|part| part.end - part.start).sum::<u64>().max(1);
        let in_place = new_addr == event.addr && new_len <= event.len;
        let (page_file, pos) = match old.file {
            Some((file, pos)) => (Some(file), pos + (event.addr - old.start)),
            None => (None, 0),
        };
        let to = if in_place { from } else { self.free_place(process, page_file, pos, new_len)? };
        self.memory.mremap(mm, (Vaddr(from), old_len), (Vaddr(to), new_len.max(1)))?;
        let file = page_file.map(|file| (file, pos));
        let segments = &mut self.processes[process].segments;
        segments.remove(event.addr, old_end);
        let end = new_addr.saturating_add(new_len);
        segments.insert(Segment { start: new_addr, end, placed: to, file });
        self.forget_places();
        Ok(())
    }

    fn madvise(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let advice = match event.aux {
            0 => Madvice::Normal,
            1 => Madvice::Random,
            2 => Madvice::Sequential,
            4 => Madvice::Dontneed,
            14 => Madvice::Hugepage,
            15 => Madvice::Nohugepage,
            22 => Madvice::PopulateRead,
            _ => return Ok(()),
        };
        let mm = self.processes[process].mm;
        let end = event.addr.saturating_add(event.len);
        for part in self.processes[process].segments.overlapping(event.addr, end) {
            if let Some((start, len_bytes)) = self.inner(&part) {
                self.memory.madvise(mm, start, len_bytes, advice)?;
            }
        }
        Ok(())
    }

    /// Grows or shrinks the heap.
    fn brk(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let (old, new) = (event.addr, event.pos);
        if new < old {
            return self.munmap(process, new, old - new);
        }
        let heap = self.processes[process].heap;
        if heap.placed == 0 || old < heap.start || new - old > LEN_MAX {
            return Ok(());
        }
        let placed = heap.placed + (old - heap.start);
        let segment = Segment { start: old, end: new, placed, file: None };
        if new > old {
            self.map_segment(process, segment, PROT_READ | PROT_WRITE, Sharing::Private)?;
        }
        self.forget_places();
        Ok(())
    }

    fn fork(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let Ok(child) = u32::try_from(event.aux) else { return Ok(()) };
        let mut of_child = process;
        if event.flags & SHARES_MEMORY == 0 {
            if self.processes.len() >= NR_PROCESSES_MAX {
                return Err(CellError::TooManyProcesses);
            }
            let mm = self.memory.fork(self.processes[process].mm);
            let forked = self.processes[process].forked(mm);
            self.processes.push(forked);
            of_child = self.processes.len() - 1;
        }
        self.threads.started(child, of_child);
        Ok(())
    }

    /// Calls on files.
    fn file_event(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let Some(file) = event.file else {
            for file in self.files.clone() {
                self.memory.drop_cache(file);
            }
            return Ok(());
        };
        let mapping = self.files[file as usize];
        let descriptor = matches!(event.op, Op::Pread | Op::Pwrite).then_some(event.aux);
        let open = match self.processes[process].open_of(file, descriptor) {
            Some(open) => open,
            None => self.open_for_map(process, file),
        };
        match event.op {
            Op::Pread => {
                self.memory.pread(open, event.pos, event.len)?;
                self.touched.mark(file, (event.pos, event.len), self.sizes[file as usize]);
            }
            Op::Pwrite => {
                self.memory.pwrite(open, event.pos, event.len)?;
                let end = event.pos.saturating_add(event.len);
                let size = &mut self.sizes[file as usize];
                *size = (*size).max(end);
            }
            Op::Truncate => {
                self.memory.truncate(mapping, event.len);
                self.sizes[file as usize] = event.len;
            }
            Op::Fadvise => {
                if let Some(advice) = fadvice(event.aux) {
                    self.memory.fadvise(open, (event.pos, event.len), advice);
                }
            }
            _ => self.memory.drop_cache(mapping),
        }
        Ok(())
    }
}

pub(super) fn prot_bits(prot: u32) -> Prot {
    Prot {
        // On the modelled machines a page that may be written or run may be read.
        can_read: prot & (PROT_READ | PROT_WRITE | PROT_EXEC) != 0,
        can_write: prot & PROT_WRITE != 0,
        can_exec: prot & PROT_EXEC != 0,
    }
}

fn fadvice(number: u64) -> Option<Fadvice> {
    Some(match number {
        0 => Fadvice::Normal,
        1 => Fadvice::Random,
        2 => Fadvice::Sequential,
        3 => Fadvice::Willneed,
        4 => Fadvice::Dontneed,
        _ => return None,
    })
}
