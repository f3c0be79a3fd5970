//! The segments of a recorded program as whole pages.
//!
//! Owns the rounding. A file that is no little-endian 64-bit ELF file, or a damaged one, gives
//! nothing: this is description, not a gate.

use std::path::{Path, PathBuf};

use crate::elf::{Class, ElfFile, Load};

const PAGE_BYTES: u64 = 4096;

/// A `PT_LOAD` segment, widened to pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// First page's address before the load bias.
    pub(crate) start: u64,
    /// End of the pages the file backs.
    pub(crate) file_end: u64,
    /// End of the segment's pages; above `file_end` memory is anonymous.
    pub(crate) end: u64,
    /// End of the segment in bytes.
    pub(crate) byte_end: u64,
    /// Position in the file of `start`.
    pub(crate) pos: u64,
    /// `PROT_*` bits.
    pub(crate) prot: u32,
}

/// The parts of an ELF file a recording needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elf {
    /// In the file's order, which is that of addresses.
    pub(crate) segments: Vec<Segment>,
    /// The dynamic loader, `None` for a static program.
    pub(crate) interpreter: Option<PathBuf>,
    /// In hexadecimal, empty when there is none.
    pub(crate) build_id: String,
}

impl Elf {
    /// Reads `path`; `None` when it is no little-endian 64-bit ELF file.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let file = ElfFile::read(path).ok()?;
        let is_known = file.class == Class::Bits64 && file.is_little_endian;
        is_known.then(|| Self {
            segments: file.loads.iter().filter_map(segment).collect(),
            interpreter: file.interpreter,
            build_id: file.build_id,
        })
    }

    /// First address after the program's memory, before the load bias: where the heap starts.
    pub(crate) fn end(&self) -> u64 {
        self.segments.iter().map(|segment| segment.byte_end).max().unwrap_or(0)
    }
}

fn segment(load: &Load) -> Option<Segment> {
    let into_page = load.vaddr % PAGE_BYTES;
    let start = load.vaddr - into_page;
    let byte_end = load.vaddr.checked_add(load.mem_bytes)?;
    let file_byte_end = load.vaddr.checked_add(load.file_bytes)?;
    let file_end = if load.file_bytes == 0 {
        start
    } else {
        file_byte_end.checked_next_multiple_of(PAGE_BYTES)?
    };
    let end = byte_end.checked_next_multiple_of(PAGE_BYTES)?.max(file_end);
    let pos = load.offset.checked_sub(into_page)?;
    let prot = load.prot;
    (end > start).then_some(Segment { start, file_end, end, byte_end, pos, prot })
}
