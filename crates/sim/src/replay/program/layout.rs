//! Maps segments that have been placed: a program's initial layout, and single mappings.

use largefolio_mm::map::{Madvice, Map, MapError};
use largefolio_mm::placement::{MMAP_BASE, spans_pmd};
use largefolio_mm::units::{AddrRange, ByteRange, MmId, Vaddr};
use largefolio_mm::vma::{Backing, OpenId, Prot, Purpose, Sharing};
use largefolio_trace::event::abi::{PROT_EXEC, PROT_READ, PROT_WRITE};
use largefolio_trace::{FileId, LayoutEntry, LayoutKind};

use crate::replay::cell::Cell;
use crate::replay::error::CellError;
use crate::replay::program::place::{LEN_MAX, RECORDED_MASK, Segment};
use crate::replay::program::space::Heap;
use crate::replay::program::{NO_DESCRIPTOR, Opened, ProcessNr, place};

/// Where the kernel loads a position-independent program, without the random offset.
pub(crate) const PIE_BASE: u64 = 0x5555_5555_0000;
/// Emulators load position-independent programs above this recorded address, fixed ones below.
pub(crate) const FIXED_BELOW: u64 = 1 << 32;
/// Address after the stack, without the random offset: the end of x86-64's user addresses.
const STACK_END: u64 = 0x7fff_ffff_f000;
/// execve extends the stack by this much below the page of the program's strings (D.2.10).
const STACK_BYTES: u64 = 128 << 10;

/// How a segment is mapped.
#[derive(Clone, Copy)]
pub(crate) struct Mapped {
    /// `PROT_*`.
    pub(crate) prot: u32,
    pub(crate) sharing: Sharing,
    pub(crate) purpose: Purpose,
}

impl Mapped {
    pub(crate) const fn private(prot: u32) -> Self {
        Self { prot, sharing: Sharing::Private, purpose: Purpose::Memory }
    }
}

impl Cell {
    pub(crate) fn load(
        &mut self,
        process: ProcessNr,
        layout: &[LayoutEntry],
        brk: u64,
    ) -> Result<(), CellError> {
        let is_program = |entry: &&LayoutEntry| entry.kind == LayoutKind::Program;
        if let Some(file) = layout.iter().filter(is_program).find_map(|entry| entry.file) {
            self.run(process, file);
        }
        self.read_headers(process, layout)?;
        let stacks = layout.iter().filter(|entry| entry.kind == LayoutKind::Stack);
        self.program.space_mut(process).stacks =
            stacks.map(|entry| entry.addr..entry.addr.saturating_add(entry.len)).collect();
        let mut images: [Option<Segment>; 2] = [None, None];
        for entry in layout {
            let image = match entry.kind {
                LayoutKind::Program => Some(0),
                LayoutKind::Interpreter => Some(1),
                LayoutKind::Stack | LayoutKind::Heap | LayoutKind::Other => None,
            };
            let before = image.and_then(|image| images[image]);
            let segment = match self.linked_entry(process, entry) {
                Some(segment) => Some(segment),
                None => self.place_entry(process, Part { layout, entry, before })?,
            };
            let Some(segment) = segment else { continue };
            let purpose = match entry.kind {
                LayoutKind::Stack => Purpose::Growing { bytes_max: entry.len.min(LEN_MAX) },
                _ => Purpose::Memory,
            };
            self.map_segment(process, segment, Mapped { purpose, ..Mapped::private(entry.prot) })?;
            if let Some(image) = image {
                images[image] = Some(segment);
            }
        }
        if let [Some(program), _] = images {
            self.place_heap(process, brk, program);
        }
        self.change_places(process);
        Ok(())
    }

    fn place_entry(
        &mut self,
        process: ProcessNr,
        Part { layout, entry, before }: Part<'_>,
    ) -> Result<Option<Segment>, CellError> {
        let (start, len) = (entry.addr, entry.len.min(LEN_MAX));
        let file = entry.file.map(|file| (file, entry.pos));
        let placed = match (before, entry.kind) {
            (Some(before), _) => {
                let pos = file.map(|(_, pos)| pos);
                let Some(placed) = place::after(&before, start, pos, self.program.link) else {
                    return Ok(None);
                };
                placed
            }
            (None, LayoutKind::Program) if start >= FIXED_BELOW => {
                PIE_BASE + (entry.pos & (self.program.link.bytes() - 1))
            }
            (None, LayoutKind::Program) => start,
            (None, LayoutKind::Stack) => (STACK_END - len) & !self.mask(),
            (None, LayoutKind::Interpreter) => {
                self.free_image(process, entry.file, entry.pos, image_len(layout, entry))?
            }
            (None, LayoutKind::Heap | LayoutKind::Other) => {
                self.free_place(process, None, 0, len)?
            }
        };
        Ok(Some(Segment { start, end: start.saturating_add(len), placed, file }))
    }

    /// Places the heap after the program. Its recorded start is `brk`, or the program's end.
    fn place_heap(&mut self, process: ProcessNr, brk: u64, last: Segment) {
        let Some(placed) = last.placed_end(self.mask()) else { return };
        let start = if brk == 0 { last.end } else { brk & !RECORDED_MASK };
        self.program.space_mut(process).heap = Heap { start, placed, end: 0 };
    }

    /// Maps a placed segment and remembers it; ignores one that does not fit the address space.
    pub(crate) fn map_segment(
        &mut self,
        process: ProcessNr,
        segment: Segment,
        Mapped { prot, sharing, purpose }: Mapped,
    ) -> Result<(), CellError> {
        let mask = self.mask();
        let first = segment.placed & !mask;
        self.program.is_replaced |= self.program.moves();
        let Some(end) = segment.placed_end(mask) else { return Ok(()) };
        // Anonymous memory can start inside a mapped page (bss, a growing heap), which is already
        // mapped.
        let mm = self.program.space(process).mm;
        let is_shared_page = segment.file.is_none()
            && first < segment.placed
            && self.memory.space(mm).vmas.find(Vaddr(first).vpn(self.page())).is_some();
        let first = if is_shared_page { first + mask + 1 } else { first };
        let first = match purpose {
            Purpose::Growing { .. } => first.max(end - (end - first).min(STACK_BYTES + mask + 1)),
            _ => first,
        };
        if first < end {
            let backing = match segment.file {
                Some((file, pos)) => {
                    let pgoff = (pos & !mask) >> self.page().shift();
                    Backing::File { open: self.open_for_map(process, file), pgoff }
                }
                None => Backing::Anon,
            };
            let (addr, len_bytes) = (Some(Vaddr(first)), end - first);
            let preferred =
                segment.file.and_then(|(file, _)| self.program.files[file].preferred_bytes);
            let prot = prot_bits(prot);
            let map = Map { addr, len_bytes, prot, sharing, backing, preferred, purpose };
            match self.change(|memory| memory.mmap(mm, map)) {
                Ok(_) => {}
                Err(MapError::BadRange { .. } | MapError::TextBusy(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if let Some(bytes) = segment
                .file
                .filter(|_| prot.can_exec)
                .and_then(|(file, _)| self.program.files[file].collapse_bytes)
            {
                self.collapse_mapped(mm, AddrRange { addr: Vaddr(first), len_bytes }, bytes)?;
            }
        }
        if let Some((file, _)) = segment.file {
            self.counted.met.mapped(file);
        }
        self.program.space_mut(process).segments.insert(segment);
        Ok(())
    }

    /// Faults in and collapses a new mapping. The loader continues even if this fails.
    fn collapse_mapped(
        &mut self,
        mm: MmId,
        AddrRange { addr, len_bytes }: AddrRange,
        bytes: u64,
    ) -> Result<(), CellError> {
        match self.change(|memory| memory.madvise(mm, addr, len_bytes, Madvice::PopulateRead)) {
            // A segment can reach past the end of its file.
            Ok(()) | Err(MapError::NotMapped(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let order = self.page().order_of_bytes(bytes);
        let _ = self.change(|memory| memory.madvise_collapse_to(mm, addr, len_bytes, order));
        Ok(())
    }

    pub(crate) fn open_for_map(&mut self, process: ProcessNr, file: FileId) -> OpenId {
        if let Some(open) = self.program.processes[process].open_of(file, None) {
            return open;
        }
        let mapping = self.program.files[file].mapping;
        let open = self.change(|memory| memory.open(mapping));
        let opened = Opened { file, open, closes_on_exec: true };
        self.note_open(process, NO_DESCRIPTOR, opened);
        open
    }

    /// Returns a free range for `len` bytes: page aligned, and congruent if the kernel aligns it.
    pub(crate) fn free_place(
        &mut self,
        process: ProcessNr,
        file: Option<FileId>,
        pos: u64,
        len: u64,
    ) -> Result<u64, CellError> {
        self.free_place_for(process, file, ByteRange { pos, len_bytes: len }, Sharing::Private)
    }

    pub(crate) fn free_place_for(
        &mut self,
        process: ProcessNr,
        file: Option<FileId>,
        ByteRange { pos, len_bytes: len }: ByteRange,
        sharing: Sharing,
    ) -> Result<u64, CellError> {
        let backing = match file {
            Some(file) => {
                let pgoff = pos >> self.page().shift();
                Backing::File { open: self.open_for_map(process, file), pgoff }
            }
            None => Backing::Anon,
        };
        // Maps a reservation to find the kernel's choice; the mapping then replaces it.
        let len_bytes = len.saturating_add(pos & self.mask()).max(1);
        let map = Map {
            addr: None,
            len_bytes,
            prot: Prot::default(),
            sharing,
            backing,
            preferred: None,
            purpose: Purpose::Memory,
        };
        let mm = self.program.space(process).mm;
        let addr = Some(self.memory.address_for(mm, &map)?);
        let reservation = Map { addr, sharing: Sharing::Private, ..map };
        let addr = self.change(|memory| memory.mmap(mm, reservation))?;
        debug_assert!(addr.0 < MMAP_BASE, "placed below the mmap base");
        Ok(addr.0)
    }

    /// Returns the address of an image's first segment, which maps `pos` of the file. The free
    /// range covers `len` recorded bytes plus room for the segments to move apart. The loader
    /// aligns an image to the page size that it is linked for.
    pub(crate) fn free_image(
        &mut self,
        process: ProcessNr,
        file: Option<FileId>,
        pos: u64,
        len: u64,
    ) -> Result<u64, CellError> {
        let mask = self.program.link.bytes() - 1;
        let span = if self.program.moves() { place::reserve(len, self.program.link) } else { len };
        let free = self.free_room(process, file, Room { pos, len, span })?;
        Ok(((free + mask) & !mask) + (pos & mask))
    }

    /// Returns a free range for a loader's reservation, which the loader then aligns itself. The
    /// address has the same distance from a multiple of the alignment as the recorded `addr`.
    pub(crate) fn free_reservation(
        &mut self,
        process: ProcessNr,
        addr: u64,
        len: u64,
    ) -> Result<u64, CellError> {
        let mask = self.program.recorded.bytes() - 1;
        let room = if mask > RECORDED_MASK { mask + 1 } else { 0 };
        let free = self.free_place(process, None, 0, len.saturating_add(room))?;
        Ok(free + (addr.wrapping_sub(free) & mask & !RECORDED_MASK))
    }

    pub(crate) fn free_room(
        &mut self,
        process: ProcessNr,
        file: Option<FileId>,
        room: Room,
    ) -> Result<u64, CellError> {
        let Room { pos, len, span } = room;
        // The extra room must not make a small image look as if it contained a whole PMD range.
        let page = self.page();
        let pmd = page.pmd_order();
        let spans = spans_pmd(pos >> page.shift(), page.pages_in(len), pmd);
        let is_pmd_long = pmd.is_aligned(page.pages_in(span));
        let span = if !spans && is_pmd_long { span + page.bytes() } else { span };
        self.free_place(process, file.filter(|_| spans), pos, span)
    }
}

#[derive(Clone, Copy)]
struct Part<'a> {
    layout: &'a [LayoutEntry],
    entry: &'a LayoutEntry,
    before: Option<Segment>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) pos: u64,
    pub(crate) len: u64,
    pub(crate) span: u64,
}

fn image_len(layout: &[LayoutEntry], entry: &LayoutEntry) -> u64 {
    let last = layout.iter().rev().find(|e| e.kind == entry.kind);
    last.map_or(entry.len, |last| last.addr.saturating_add(last.len).saturating_sub(entry.addr))
}

pub(crate) fn prot_bits(prot: u32) -> Prot {
    Prot {
        // On the modelled machines, writable and executable pages are also readable.
        can_read: prot & (PROT_READ | PROT_WRITE | PROT_EXEC) != 0,
        can_write: prot & PROT_WRITE != 0,
        can_exec: prot & PROT_EXEC != 0,
    }
}
