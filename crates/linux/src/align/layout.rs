//! Where each part goes in the copy.
//!
//! The file is cut at the ends of its LOAD segments into segments and gaps. A segment moves up to
//! the next offset that agrees with its address. A gap stays directly after the part that it
//! followed. Every offset in the headers is then translated using these pieces.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use object::elf::{
    FileHeader64, PF_X, PT_LOAD, ProgramHeader64, SHF_ALLOC, SHT_NOBITS, SHT_NULL, SectionHeader64,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, ReadRef, pod};

use super::error::AlignError;
use crate::elf::{Class, ElfFile, ElfKind};

/// Offsets and addresses must agree modulo this, or no kernel loads the file.
const PAGE_BYTES: u64 = 4096;
/// Up to this many zero bytes at the end are padding: linkers round the length.
const PADDING_BYTES_MAX: u64 = 16;
const HEAD_BYTES: u64 = 4096;

/// Bytes that stay together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutPiece {
    pub old: Range<u64>,
    pub new: u64,
}

#[derive(Clone, Debug)]
pub struct Layout {
    pub pieces: Vec<LayoutPiece>,
    pub copy_bytes: u64,
    /// Bytes of text in whole blocks.
    pub text_bytes: u64,
    patches: Vec<(u64, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    offset: u64,
    vaddr: u64,
    file_bytes: u64,
    mem_bytes: u64,
    is_text: bool,
    new: u64,
}

type Header = FileHeader64<Endianness>;
type Segment = ProgramHeader64<Endianness>;
type Section = SectionHeader64<Endianness>;

impl Layout {
    /// Lays out `data`, the content of `path`, for `align`, a power of two.
    ///
    /// # Errors
    /// Any refusal of [`AlignError`] that does not concern the copy.
    pub fn of<'data, R: ReadRef<'data>>(
        path: &Path,
        data: R,
        align: u64,
    ) -> Result<Self, AlignError> {
        let elf = ElfFile::parse(path, data)?;
        elf.check(path)?;
        let path_buf = || path.to_owned();
        if elf.class == Class::Bits32 {
            return Err(AlignError::Bits32 { path: path_buf(), align });
        }
        let plan = Planner { path, data, align, file_bytes: elf.file_bytes };
        let head = data.read_bytes_at(0, elf.file_bytes.min(HEAD_BYTES)).unwrap_or_default();
        if head.windows(4).any(|window| window == b"UPX!") {
            return Err(AlignError::Packed(path_buf()));
        }
        let (header, endian, segments, sections) = plan.headers()?;
        let (loads, pieces) = plan.place(segments, endian)?;
        plan.check_end(header, endian, segments, sections)?;
        let blocks = |load: &Load| whole_blocks(load.vaddr, load.file_bytes, align);
        let texts = loads.iter().filter(|load| load.is_text);
        let text_bytes = texts.clone().map(blocks).sum();
        if text_bytes == 0 {
            let text_bytes = texts.map(|load| load.file_bytes).sum();
            return Err(AlignError::NoGain { path: path_buf(), align, text_bytes });
        }
        if is_aligned(&elf, align) {
            return Err(AlignError::Already(path_buf()));
        }
        let end = |piece: &LayoutPiece| piece.new + (piece.old.end - piece.old.start);
        let copy_bytes = pieces.iter().map(end).max().unwrap_or(0);
        let moved = Moved { plan: &plan, loads: &loads, pieces: &pieces, endian };
        let patches = moved.patches(header, segments, sections)?;
        Ok(Self { pieces, copy_bytes, text_bytes, patches })
    }

    /// Writes the copy of `from`, the file that was laid out, to an empty `to`.
    ///
    /// # Errors
    /// A failed read or write.
    pub fn write(
        &self,
        from: &mut (impl Read + Seek),
        to: &mut (impl Write + Seek),
    ) -> io::Result<()> {
        for piece in &self.pieces {
            let len = piece.old.end - piece.old.start;
            from.seek(SeekFrom::Start(piece.old.start))?;
            to.seek(SeekFrom::Start(piece.new))?;
            if io::copy(&mut from.by_ref().take(len), to)? != len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        for (at, bytes) in &self.patches {
            to.seek(SeekFrom::Start(*at))?;
            to.write_all(bytes)?;
        }
        to.flush()
    }
}

fn is_aligned(elf: &ElfFile, align: u64) -> bool {
    let texts = elf.loads.iter().filter(|load| load.prot & 4 != 0);
    let agree = |vaddr: u64, offset: u64| vaddr.wrapping_sub(offset).is_multiple_of(align);
    let mut all = elf.loads.iter();
    texts.clone().count() > 0
        && texts.clone().all(|load| agree(load.vaddr, load.offset))
        && (elf.kind == ElfKind::Fixed || all.any(|load| load.align >= align))
}

fn whole_blocks(start: u64, len: u64, align: u64) -> u64 {
    let first = start.checked_next_multiple_of(align).unwrap_or(u64::MAX);
    (start.saturating_add(len) / align * align).saturating_sub(first)
}

struct Planner<'p, R> {
    path: &'p Path,
    data: R,
    align: u64,
    file_bytes: u64,
}

impl<'data, R: ReadRef<'data>> Planner<'_, R> {
    fn tangled(&self, what: impl Into<String>) -> AlignError {
        AlignError::Tangled { path: self.path.to_owned(), what: what.into(), align: self.align }
    }

    #[expect(
        clippy::type_complexity,
        reason = "the four parts of the headers, taken apart at once"
    )]
    fn headers(
        &self,
    ) -> Result<(&'data Header, Endianness, &'data [Segment], &'data [Section]), AlignError> {
        let damaged = |error: object::read::Error| crate::elf::ElfError::Damaged {
            path: self.path.to_owned(),
            what: error.to_string(),
        };
        let header = Header::parse(self.data).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        let segments = header.program_headers(endian, self.data).map_err(damaged)?;
        let sections = header.section_headers(endian, self.data).map_err(damaged)?;
        Ok((header, endian, segments, sections))
    }

    fn place(
        &self,
        segments: &[Segment],
        endian: Endianness,
    ) -> Result<(Vec<Load>, Vec<LayoutPiece>), AlignError> {
        let (mut loads, mut pieces) = (Vec::new(), Vec::new());
        let (mut old, mut new) = (0_u64, 0_u64);
        for segment in segments {
            let (offset, file_bytes) = (segment.p_offset(endian), segment.p_filesz(endian));
            if segment.p_type(endian) != PT_LOAD || file_bytes == 0 {
                continue;
            }
            let vaddr = segment.p_vaddr(endian);
            let nr = loads.len();
            if !vaddr.wrapping_sub(offset).is_multiple_of(PAGE_BYTES) {
                return Err(self.tangled(format!("address and offset of segment {nr} disagree")));
            }
            if offset < old {
                return Err(self.tangled(format!("segment {nr} overlaps the previous one")));
            }
            if offset > old {
                pieces.push(LayoutPiece { old: old..offset, new });
                new = self.sum(new, offset - old)?;
            }
            let rest = vaddr.wrapping_sub(new) & (self.align - 1);
            new = self.sum(new, rest)?;
            // Headers that a segment contains at the start of the file stay at its start.
            let end = self.sum(offset, file_bytes)?;
            pieces.push(LayoutPiece { old: offset..end, new });
            loads.push(Load {
                offset,
                vaddr,
                file_bytes,
                mem_bytes: segment.p_memsz(endian),
                is_text: segment.p_flags(endian).0 & PF_X.0 != 0,
                new,
            });
            (old, new) = (end, self.sum(new, file_bytes)?);
        }
        if old < self.file_bytes {
            pieces.push(LayoutPiece { old: old..self.file_bytes, new });
            self.sum(new, self.file_bytes - old)?;
        }
        Ok((loads, pieces))
    }

    /// Adds within the copy: a file can have at most 2^63 bytes.
    fn sum(&self, at: u64, len: u64) -> Result<u64, AlignError> {
        let sum = at.checked_add(len).filter(|&sum| i64::try_from(sum).is_ok());
        sum.ok_or_else(|| self.tangled("the copy would exceed the largest file size"))
    }

    fn check_end(
        &self,
        header: &Header,
        endian: Endianness,
        segments: &[Segment],
        sections: &[Section],
    ) -> Result<(), AlignError> {
        let table = |start: u64, nr: usize, size: usize| {
            start.saturating_add((nr as u64).saturating_mul(size as u64))
        };
        let of_segments =
            segments.iter().map(|s| s.p_offset(endian).saturating_add(s.p_filesz(endian)));
        let is_stored = |s: &&Section| s.sh_type(endian) != SHT_NOBITS;
        let of_sections = sections
            .iter()
            .filter(is_stored)
            .map(|s| s.sh_offset(endian).saturating_add(s.sh_size(endian)));
        let tables = [
            table(header.e_phoff(endian), segments.len(), size_of::<Segment>()),
            table(header.e_shoff(endian), sections.len(), size_of::<Section>()),
        ];
        let end = of_segments.chain(of_sections).chain(tables).max().unwrap_or(0);
        let bytes = self.file_bytes.saturating_sub(end);
        let rest = self.data.read_bytes_at(end, bytes.min(PADDING_BYTES_MAX)).unwrap_or_default();
        if bytes > PADDING_BYTES_MAX || rest.iter().any(|&byte| byte != 0) {
            return Err(AlignError::Appended { path: self.path.to_owned(), bytes });
        }
        Ok(())
    }
}

struct Moved<'m, R> {
    plan: &'m Planner<'m, R>,
    loads: &'m [Load],
    pieces: &'m [LayoutPiece],
    endian: Endianness,
}

impl<'data, R: ReadRef<'data>> Moved<'_, R> {
    fn patches(
        &self,
        header: &Header,
        segments: &[Segment],
        sections: &[Section],
    ) -> Result<Vec<(u64, Vec<u8>)>, AlignError> {
        let (endian, mut own) = (self.endian, *header);
        let size = |bytes: usize| bytes as u64;
        let (phoff, shoff) = (header.e_phoff(endian), header.e_shoff(endian));
        let new_phoff = self.range(phoff, size(size_of_val(segments)), "the program headers")?;
        own.e_phoff.set(endian, new_phoff);
        let segments: Vec<Segment> =
            segments.iter().map(|segment| self.segment(segment)).collect::<Result<_, _>>()?;
        let mut patches = vec![(new_phoff, pod::bytes_of_slice(&segments).to_vec())];
        if !sections.is_empty() {
            let place = self.range(shoff, size(size_of_val(sections)), "the section headers")?;
            own.e_shoff.set(endian, place);
            let sections: Vec<Section> =
                sections.iter().map(|section| self.section(section)).collect::<Result<_, _>>()?;
            patches.push((place, pod::bytes_of_slice(&sections).to_vec()));
        }
        // If the first segment moved, its copy of the header moved with it.
        let places = [0, self.range(0, size(size_of::<Header>()), "the file header")?];
        patches.extend(places.map(|at| (at, pod::bytes_of(&own).to_vec())));
        Ok(patches)
    }

    fn segment(&self, old: &Segment) -> Result<Segment, AlignError> {
        let (endian, mut new) = (self.endian, *old);
        let (offset, len) = (old.p_offset(endian), old.p_filesz(endian));
        let is_load = old.p_type(endian) == PT_LOAD;
        if is_load {
            new.p_align.set(endian, self.plan.align.max(old.p_align(endian)));
        }
        let place = if let Some(place) = self.loaded(old.p_vaddr(endian), offset) {
            place
        } else if is_load {
            // It has no bytes in the file, so its offset only has to agree.
            old.p_vaddr(endian) & (self.plan.align - 1)
        } else if len == 0 {
            offset
        } else {
            self.range(offset, len, "a segment")?
        };
        new.p_offset.set(endian, place);
        Ok(new)
    }

    fn section(&self, old: &Section) -> Result<Section, AlignError> {
        let (endian, mut new) = (self.endian, *old);
        let (offset, len) = (old.sh_offset(endian), old.sh_size(endian));
        let kind = old.sh_type(endian);
        if kind == SHT_NULL {
            return Ok(new);
        }
        let is_loaded = old.sh_flags(endian).0 & SHF_ALLOC.0 != 0;
        let loaded = is_loaded.then(|| self.loaded(old.sh_addr(endian), offset)).flatten();
        let place = match loaded {
            Some(place) => place,
            None if kind == SHT_NOBITS || len == 0 => self.point(offset),
            None => self.range(offset, len, "a section")?,
        };
        new.sh_offset.set(endian, place);
        Ok(new)
    }

    /// Translates the offset of a mapped address, if the file's offset agrees with the segment.
    fn loaded(&self, address: u64, offset: u64) -> Option<u64> {
        let of = |load: &Load| {
            let into = address.checked_sub(load.vaddr).filter(|&into| into <= load.mem_bytes)?;
            let is_same = offset.checked_sub(load.offset) == Some(into);
            is_same.then(|| load.new.checked_add(into))?
        };
        // One segment's end can be the next one's start, which takes precedence.
        self.loads.iter().rev().find_map(of)
    }

    fn range(&self, offset: u64, len: u64, what: &str) -> Result<u64, AlignError> {
        let end = offset.checked_add(len);
        let is_inside = |piece: &&LayoutPiece| {
            piece.old.start <= offset && end.is_some_and(|end| end <= piece.old.end)
        };
        let piece = self.pieces.iter().find(is_inside);
        let piece = piece.ok_or_else(|| {
            self.plan.tangled(format!("{what} at {offset:#x} crosses the end of a segment"))
        })?;
        Ok(piece.new + (offset - piece.old.start))
    }

    /// Translates the offset of an empty range. Outside of all pieces it stays unchanged.
    fn point(&self, offset: u64) -> u64 {
        let has = |piece: &&LayoutPiece| (piece.old.start..=piece.old.end).contains(&offset);
        let piece = self.pieces.iter().find(has);
        piece.map_or(offset, |piece| piece.new + (offset - piece.old.start))
    }
}
