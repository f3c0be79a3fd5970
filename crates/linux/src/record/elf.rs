//! The segments of a recorded program, rounded to whole pages.
//!
//! A damaged file, or one that is not little-endian 64-bit ELF, has no segments: this module
//! describes files and does not check them.

use std::path::{Path, PathBuf};

use largefolio_trace::event::abi::PROT_WRITE;

use crate::elf::{Class, ElfFile, Load};

const PAGE_BYTES: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The first page's address, before the load bias.
    pub(crate) start: u64,
    /// End of the pages that the file backs.
    pub(crate) file_end: u64,
    /// End of the segment's pages. Memory above `file_end` is anonymous.
    pub(crate) end: u64,
    /// End of the segment in bytes.
    pub(crate) byte_end: u64,
    pub(crate) pos: u64,
    pub(crate) prot: u32,
    /// Page that execve stores to: it zeroes the page's part after the file's data.
    pub(crate) zeroed: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elf {
    /// In file order, which is address order.
    pub(crate) segments: Vec<Segment>,
    /// The dynamic loader; `None` for a static program.
    pub(crate) interpreter: Option<PathBuf>,
    /// In hexadecimal; empty without a build id.
    pub(crate) build_id: String,
}

impl Elf {
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let file = ElfFile::read(path).ok()?;
        let is_known = file.class == Class::Bits64 && file.is_little_endian;
        is_known.then(|| Self {
            segments: file.loads.iter().filter_map(segment).collect(),
            interpreter: file.interpreter,
            build_id: file.build_id,
        })
    }

    /// Returns the address after the program's memory, before the load bias: the heap starts there.
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
    let is_zeroed =
        load.file_bytes > 0 && load.mem_bytes > load.file_bytes && prot & PROT_WRITE != 0;
    let page = file_byte_end - file_byte_end % PAGE_BYTES;
    let zeroed = Some(page).filter(|page| is_zeroed && *page != file_byte_end);
    (end > start).then_some(Segment { start, file_end, end, byte_end, pos, prot, zeroed })
}
