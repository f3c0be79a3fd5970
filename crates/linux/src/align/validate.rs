//! Reads the copy back and compares it with the original.
//!
//! Every LOAD segment and every section must have the same bytes, address and flags, and segments
//! must agree with the alignment.

use std::fs::File;
use std::path::Path;

use object::elf::{FileHeader64, PT_LOAD, SHT_NOBITS, SHT_NULL};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, ReadCache, ReadRef};

use super::error::AlignError;

const CHUNK_BYTES: u64 = 1 << 20;

type Header = FileHeader64<Endianness>;

pub(super) fn compare(
    path: &Path,
    original: &File,
    copy: &File,
    align: u64,
) -> Result<usize, AlignError> {
    let differs = |what: String| AlignError::Differs { path: path.to_owned(), what };
    let read = |_| differs("its headers".to_owned());
    // The cache keeps everything it read. A new cache per part limits its size.
    let (old, new) = (ReadCache::new(original), ReadCache::new(copy));
    let (old, new) = (&old, &new);
    let old_header = Header::parse(old).map_err(read)?;
    let new_header = Header::parse(new).map_err(read)?;
    let endian = old_header.endian().map_err(read)?;
    let olds = old_header.program_headers(endian, old).map_err(read)?;
    let news = new_header.program_headers(endian, new).map_err(read)?;
    let mut nr = 0;
    for (which, (a, b)) in olds.iter().zip(news).enumerate() {
        let is_load = a.p_type(endian) == PT_LOAD;
        let (offset, vaddr) = (b.p_offset(endian), b.p_vaddr(endian));
        let agrees = !is_load || vaddr.wrapping_sub(offset).is_multiple_of(align);
        let facts = |s: &object::elf::ProgramHeader64<Endianness>| {
            (s.p_type(endian), s.p_vaddr(endian), s.p_filesz(endian), s.p_memsz(endian))
        };
        let segment = Moved { old: a.p_offset(endian), new: offset, len: a.p_filesz(endian) };
        if !agrees || facts(a) != facts(b) || !is_same(original, copy, &segment) {
            return Err(differs(format!("segment {which}")));
        }
        nr += 1;
    }
    let olds = old_header.section_headers(endian, old).map_err(read)?;
    let news = new_header.section_headers(endian, new).map_err(read)?;
    if olds.len() != news.len() {
        return Err(differs("the number of sections".to_owned()));
    }
    for (which, (a, b)) in olds.iter().zip(news).enumerate() {
        let kind = a.sh_type(endian);
        let len = if kind == SHT_NOBITS || kind == SHT_NULL { 0 } else { a.sh_size(endian) };
        let facts = |s: &object::elf::SectionHeader64<Endianness>| {
            (s.sh_type(endian), s.sh_addr(endian), s.sh_size(endian), s.sh_name(endian))
        };
        let section = Moved { old: a.sh_offset(endian), new: b.sh_offset(endian), len };
        if facts(a) != facts(b) || !is_same(original, copy, &section) {
            return Err(differs(format!("section {which}")));
        }
        nr += 1;
    }
    Ok(nr)
}

struct Moved {
    old: u64,
    new: u64,
    len: u64,
}

/// Returns whether the bytes are equal except for headers inside them.
fn is_same(original: &File, copy: &File, &Moved { old, new, len }: &Moved) -> bool {
    let headers = headers(original);
    let mut at = 0;
    while at < len {
        let next = len.min(at + CHUNK_BYTES);
        let part = |file: &File, from: u64| {
            let cache = ReadCache::new(file);
            (&cache).read_bytes_at(from, next - at).map(<[u8]>::to_vec)
        };
        let (Ok(a), Ok(b)) = (part(original, old + at), part(copy, new + at)) else { return false };
        let is_header = |nr: usize| headers.iter().any(|h| h.contains(&(old + at + nr as u64)));
        if a.len() != b.len() || (a != b && (0..a.len()).any(|nr| a[nr] != b[nr] && !is_header(nr)))
        {
            return false;
        }
        at = next;
    }
    true
}

/// Returns the ranges of the original's file and program headers, which differ on purpose.
fn headers(original: &File) -> Vec<std::ops::Range<u64>> {
    let cache = ReadCache::new(original);
    let cache = &cache;
    let Ok(header) = Header::parse(cache) else { return Vec::new() };
    let Ok(endian) = header.endian() else { return Vec::new() };
    let len = header.program_headers(endian, cache).map_or(0, size_of_val) as u64;
    let start = header.e_phoff(endian);
    vec![0..size_of::<Header>() as u64, start..start.saturating_add(len)]
}
