//! What an ELF file says about its mappings.
//!
//! Owns reading of segments, interpreter and build id. A file that is no ELF, or a damaged one,
//! gives nothing: this is description, not a gate.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID, PF_R, PF_W, PF_X};
use object::elf::{PT_INTERP, PT_LOAD, PT_NOTE, ProgramFlags};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, ReadCache};

/// Longest build id taken, in bytes; SHA-256 has 32.
const BUILD_ID_BYTES_MAX: usize = 64;

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

/// The parts of an ELF file this crate needs.
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
        let cache = ReadCache::new(File::open(path).ok()?);
        let data = &cache;
        let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let mut elf = Self::default();
        for segment in header.program_headers(endian, data).ok()? {
            match segment.p_type(endian) {
                PT_LOAD => elf.segments.extend(load_segment(segment, endian)),
                PT_INTERP => {
                    elf.interpreter = segment.interpreter(endian, data).ok().flatten().map(path_of);
                }
                PT_NOTE if elf.build_id.is_empty() => {
                    elf.build_id = build_id(segment, endian, data).unwrap_or_default();
                }
                _ => {}
            }
        }
        Some(elf)
    }

    /// First address after the program's memory, before the load bias: where the heap starts.
    pub(crate) fn end(&self) -> u64 {
        self.segments.iter().map(|segment| segment.byte_end).max().unwrap_or(0)
    }
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn load_segment(
    segment: &object::elf::ProgramHeader64<LittleEndian>,
    endian: LittleEndian,
) -> Option<Segment> {
    let address = segment.p_vaddr(endian);
    let start = address - address % PAGE_BYTES;
    let file_bytes = segment.p_filesz(endian);
    let byte_end = address.checked_add(segment.p_memsz(endian))?;
    let file_byte_end = address.checked_add(file_bytes)?;
    let file_end =
        if file_bytes == 0 { start } else { file_byte_end.checked_next_multiple_of(PAGE_BYTES)? };
    let end = byte_end.checked_next_multiple_of(PAGE_BYTES)?.max(file_end);
    let pos = segment.p_offset(endian).checked_sub(address % PAGE_BYTES)?;
    let flags = segment.p_flags(endian);
    let bit = |flag: ProgramFlags, prot: u32| if flags.0 & flag.0 == 0 { 0 } else { prot };
    let prot = bit(PF_R, 1) | bit(PF_W, 2) | bit(PF_X, 4);
    (end > start).then_some(Segment { start, file_end, end, byte_end, pos, prot })
}

fn build_id(
    segment: &object::elf::ProgramHeader64<LittleEndian>,
    endian: LittleEndian,
    data: &ReadCache<File>,
) -> Option<String> {
    let mut notes = segment.notes(endian, data).ok()??;
    while let Some(note) = notes.next().ok()? {
        if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
            let bytes = note.desc().get(..note.desc().len().min(BUILD_ID_BYTES_MAX))?;
            return Some(bytes.iter().fold(String::new(), |mut text, byte| {
                // Writing to a string cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            }));
        }
    }
    None
}
