//! The ELF headers and symbols of the copy, for perf and other tools that read a mapping's file.
//!
//! perf finds a mapping's symbols only through its file. The copy therefore has the layout of the
//! original, with holes for unused parts. If the text is shifted, the headers are too:
//!
//! ```text
//!   file  | header | .. | text          | .. | .symtab | section headers |
//!   copy  | header'| shift | .. | text (on 2 MiB folios) | .. | .symtab | section headers' |
//! ```
//!
//! Invariants:
//! - F1: nothing is written into the text's blocks, regardless of the headers.
//! - F2: at most [`TABLES_BYTES_MAX`] bytes are copied, regardless of the headers.

use crate::maps::Blocks;
use crate::sys::{Area, Errno, Fd, Result};

const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SECTION_BYTES: usize = 64;
/// Maximum bytes copied in addition to the text, enough for the symbol tables of the largest
/// browsers.
const TABLES_BYTES_MAX: u64 = 64 << 20;
/// Sections without an address are copied up to this size (`.gnu_debuglink` for example).
const SMALL_BYTES: u64 = 4096;
/// Relocations are copied up to this size: the PLT's relocations name its entries.
const RELOCATIONS_BYTES_MAX: u64 = 1 << 20;
const STEP_BYTES: usize = 256 << 10;

const SHT_SYMTAB: u64 = 2;
const SHT_STRTAB: u64 = 3;
const SHT_RELA: u64 = 4;
const SHT_DYNAMIC: u64 = 6;
const SHT_NOTE: u64 = 7;
const SHT_NOBITS: u64 = 8;
const SHT_DYNSYM: u64 = 11;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;

/// Returns whether the program loads at the same address in every process (`ET_EXEC`).
pub(crate) fn is_fixed(source: &Fd) -> bool {
    const ET_EXEC: u64 = 2;
    let mut header = [0; HEADER_BYTES];
    let is_read = source.read_at(&mut header, 0) == Ok(HEADER_BYTES);
    is_read && header.starts_with(b"\x7fELF\x02\x01") && word::<2>(&header, 16) == ET_EXEC
}

pub(crate) fn describe(source: &Fd, copy: &Fd, file_bytes: u64, blocks: &Blocks) -> Result<()> {
    let mut header = [0; HEADER_BYTES];
    source.read_at(&mut header, 0)?;
    let is_known = header.starts_with(b"\x7fELF\x02\x01")
        && word::<2>(&header, 54) == SEGMENT_BYTES as u64
        && matches!(word::<2>(&header, 58), 0 | 64);
    if !is_known {
        return Err(Errno(libc::ENOEXEC));
    }
    let mut buffer = Area::memory(STEP_BYTES)?;
    let buffer = buffer.bytes_mut();
    let shift = blocks.shift();
    let mut copier = Copier { source, copy, blocks, file_bytes, buffer, nr_left: TABLES_BYTES_MAX };
    copier.segments(&header)?;
    let sections = word::<8>(&header, 40);
    if sections != 0 {
        copier.sections(&header)?;
        put(&mut header, 40, sections.wrapping_add(shift));
    }
    if shift != 0 {
        put(&mut header, 32, HEADER_BYTES as u64);
    }
    copier.write(&header, 0)
}

struct Copier<'a> {
    source: &'a Fd,
    copy: &'a Fd,
    blocks: &'a Blocks,
    file_bytes: u64,
    buffer: &'a mut [u8],
    nr_left: u64,
}

impl Copier<'_> {
    /// Writes the program headers: at their old place, or after the header if the copy is shifted.
    fn segments(&mut self, header: &[u8]) -> Result<()> {
        let shift = self.blocks.shift();
        let (table, nr) = (word::<8>(header, 32), word::<2>(header, 56));
        let target = if shift == 0 { table } else { HEADER_BYTES as u64 };
        let room = if shift == 0 { u64::MAX } else { shift };
        for index in 0..nr {
            let mut segment = [0; SEGMENT_BYTES];
            let into = index * SEGMENT_BYTES as u64;
            self.read(&mut segment, table.wrapping_add(into))?;
            let offset = word::<8>(&segment, 8);
            put(&mut segment, 8, offset.wrapping_add(shift));
            let at = target.wrapping_add(into);
            if at.saturating_add(SEGMENT_BYTES as u64) > room {
                return Err(Errno(libc::ENOEXEC));
            }
            self.write(&segment, at)?;
        }
        Ok(())
    }

    /// Writes the section headers and the sections that tools read.
    fn sections(&mut self, header: &[u8]) -> Result<()> {
        let shift = self.blocks.shift();
        let (table, nr) = (word::<8>(header, 40), word::<2>(header, 60));
        let names = self.section_offset(table, word::<2>(header, 62))?;
        for index in 0..nr {
            let at = table.wrapping_add(index * SECTION_BYTES as u64);
            let mut section = [0; SECTION_BYTES];
            self.read(&mut section, at)?;
            let (offset, bytes) = (word::<8>(&section, 24), word::<8>(&section, 32));
            if self.is_wanted(&section, names) {
                self.copy_outside(offset, bytes)?;
            }
            put(&mut section, 24, offset.wrapping_add(shift));
            self.write(&section, at.wrapping_add(shift))?;
        }
        Ok(())
    }

    fn section_offset(&self, table: u64, index: u64) -> Result<u64> {
        let mut section = [0; SECTION_BYTES];
        self.read(&mut section, table.wrapping_add(index * SECTION_BYTES as u64))?;
        Ok(word::<8>(&section, 24))
    }

    fn is_wanted(&self, section: &[u8], names: u64) -> bool {
        let (kind, flags, bytes) =
            (word::<4>(section, 4), word::<8>(section, 8), word::<8>(section, 32));
        match kind {
            SHT_SYMTAB | SHT_STRTAB | SHT_DYNAMIC | SHT_NOTE | SHT_DYNSYM => true,
            SHT_RELA => bytes <= RELOCATIONS_BYTES_MAX,
            SHT_NOBITS => false,
            _ if flags & SHF_EXECINSTR != 0 => true,
            _ if flags & SHF_ALLOC == 0 => bytes <= SMALL_BYTES,
            _ => {
                // Unwind tables.
                let mut name = [0; 9];
                let at = names.wrapping_add(word::<4>(section, 0));
                self.read(&mut name, at).is_ok() && &name == b".eh_frame"
            }
        }
    }

    fn copy_outside(&mut self, offset: u64, bytes: u64) -> Result<()> {
        let end = offset.saturating_add(bytes).min(self.file_bytes);
        let blocks_end = self.blocks.offset.saturating_add(self.blocks.len as u64);
        self.copy_range(offset, end.min(self.blocks.offset))?;
        self.copy_range(offset.max(blocks_end), end)
    }

    fn copy_range(&mut self, start: u64, end: u64) -> Result<()> {
        let mut at = start;
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(STEP_BYTES).min(STEP_BYTES);
            self.nr_left = self.nr_left.checked_sub(len as u64).ok_or(Errno(libc::EFBIG))?;
            let Some(buffer) = self.buffer.get_mut(..len) else { return Ok(()) };
            let nr = self.source.read_at(buffer, at)?;
            let Some(read) = buffer.get(..nr).filter(|read| !read.is_empty()) else {
                return Ok(());
            };
            self.copy.write_at(read, at.wrapping_add(self.blocks.shift()))?;
            at += nr as u64;
        }
        Ok(())
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        // A negative offset returns an error.
        let nr = self.source.read_at(bytes, offset)?;
        if nr == bytes.len() { Ok(()) } else { Err(Errno(libc::ENOEXEC)) }
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let start = self.blocks.offset.saturating_add(self.blocks.shift());
        let end = start.saturating_add(self.blocks.len as u64);
        let last = offset.checked_add(bytes.len() as u64).ok_or(Errno(libc::ENOEXEC))?;
        if last > start && offset < end {
            // Unshifted headers inside the blocks are already there, with the same bytes.
            return if self.blocks.shift() == 0 { Ok(()) } else { Err(Errno(libc::ENOEXEC)) };
        }
        if last > self.file_bytes.saturating_add(self.blocks.shift()) {
            return Err(Errno(libc::ENOEXEC));
        }
        self.copy.write_at(bytes, offset)
    }
}

/// Reads the little-endian number of `N` bytes at `offset`, 0 past the end.
fn word<const N: usize>(bytes: &[u8], offset: usize) -> u64 {
    let taken = bytes.iter().skip(offset).take(N).rev();
    taken.fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn put(bytes: &mut [u8], offset: usize, value: u64) {
    for (slot, byte) in bytes.iter_mut().skip(offset).zip(value.to_le_bytes()) {
        *slot = byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_little_endian() {
        let mut bytes = [0; 12];
        put(&mut bytes, 2, 0x0102_0304_0506_0708);
        assert_eq!(word::<8>(&bytes, 2), 0x0102_0304_0506_0708);
        assert_eq!(word::<2>(&bytes, 2), 0x0708);
        assert_eq!(word::<4>(&bytes, 40), 0);
    }
}
