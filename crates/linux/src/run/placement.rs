//! Whether large TLB entries can map a file's text at its load addresses.
//!
//! A large folio begins at a multiple of its size in the file, and its entry (PMD, contpte) at a
//! multiple of its size in memory. So load bias + vaddr and offset must agree modulo that size, and
//! the segment must contain a whole block. The linker chooses vaddr, offset and `p_align`, the
//! loader the bias. docs/design/alignment.md has the rules and how they were checked.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use crate::elf::{Class, ElfFile, ElfKind, Load};
use crate::geometry::Geometry;
use crate::setting::thp::size_name;
use crate::shell::{as_typed, quoted};

const WRITE: u32 = 2;
const EXECUTE: u32 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    Mappable {
        text_bytes: u64,
        /// Bytes of the file that should be in large folios: text and other read-only segments.
        file: Range<u64>,
    },
    Unmappable(Obstacle),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    TooSmall(u64),
    /// Address and offset disagree modulo this many bytes at any load address.
    Incongruent(u64),
    /// Loaded at a random multiple of this alignment in bytes.
    Random(u64),
}

impl Obstacle {
    #[must_use]
    pub fn remedy(self, file: &Path) -> Option<String> {
        match self {
            Self::TooSmall(_) => None,
            Self::Incongruent(_) | Self::Random(_) => Some(format!(
                "{} makes a well-placed copy",
                as_typed(&format!("folio align {} -o COPY", quoted(file)))
            )),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall(block) => {
                write!(out, "its text contains no whole block of {}", size_name(*block))
            }
            Self::Incongruent(block) => {
                write!(out, "its address and file offset differ modulo {}", size_name(*block))
            }
            Self::Random(step) => {
                let kib = step >> 10;
                write!(
                    out,
                    "its alignment is {kib}K, so it is loaded at a random multiple of {kib}K"
                )
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placing {
    /// From the PMD size on, at addresses congruent to their offset (ext4, XFS, btrfs).
    Alike(Geometry),
    Anywhere,
}

pub(super) fn has_text_of(elf: &ElfFile, bytes: u64) -> bool {
    elf.loads.iter().any(|load| load.prot & EXECUTE != 0 && load.file_bytes >= bytes)
}

pub(super) fn judge(elf: &ElfFile, block_bytes: u64, placing: Placing) -> Placed {
    let texts: Vec<&Load> = elf.loads.iter().filter(|load| load.prot & EXECUTE != 0).collect();
    let is_long = |load: &&&Load| load.file_bytes >= block_bytes;
    if !has_text_of(elf, block_bytes) {
        return Placed::Unmappable(Obstacle::TooSmall(block_bytes));
    }
    let align = elf.loads.iter().map(|load| load.align).max().unwrap_or(0);
    let span = span(elf);
    let is_placed = elf.kind == ElfKind::Shared
        && elf.class == Class::Bits64
        && matches!(placing, Placing::Alike(sizes)
            if span >= sizes.pmd_bytes() && align <= sizes.page_bytes);
    let shift = if elf.kind == ElfKind::Fixed || align >= block_bytes {
        0
    } else if is_placed {
        // The whole image is one mapping at first, placed by its first segment's offset.
        elf.loads.first().map_or(0, |first| first.vaddr.wrapping_sub(first.offset))
    } else {
        return Placed::Unmappable(Obstacle::Random(align));
    };
    let blocks = |load: &Load| blocks(load, shift, block_bytes);
    let text_bytes = texts.iter().filter_map(|load| blocks(load)).sum();
    if text_bytes > 0 {
        let read_only = elf.loads.iter().filter(|load| load.prot & WRITE == 0);
        let ends = |load: &Load| load.offset..load.offset.saturating_add(load.file_bytes);
        let file = read_only.map(ends).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        return Placed::Mappable { text_bytes, file: file.unwrap_or_default() };
    }
    let is_congruent = texts.iter().any(|load| is_long(&load) && blocks(load).is_some());
    Placed::Unmappable(if is_congruent {
        Obstacle::TooSmall(block_bytes)
    } else {
        Obstacle::Incongruent(block_bytes)
    })
}

/// Returns the bytes of whole blocks inside a segment, `None` if address and offset disagree.
fn blocks(load: &Load, shift: u64, block_bytes: u64) -> Option<u64> {
    let bias = load.vaddr.wrapping_sub(load.offset).wrapping_sub(shift);
    if !bias.is_multiple_of(block_bytes) {
        return None;
    }
    let start = load.offset.checked_next_multiple_of(block_bytes).unwrap_or(u64::MAX);
    let end = load.offset.saturating_add(load.file_bytes) / block_bytes * block_bytes;
    Some(end.saturating_sub(start))
}

fn span(elf: &ElfFile) -> u64 {
    let start = elf.loads.iter().map(|load| load.vaddr).min().unwrap_or(0);
    let ends = elf.loads.iter().map(|load| load.vaddr.saturating_add(load.mem_bytes));
    ends.max().unwrap_or(0).saturating_sub(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const M2: u64 = 2 << 20;
    const K4: Geometry = Geometry::arm64(4 << 10);

    fn elf(kind: ElfKind, align: u64, vaddr: u64, offset: u64, file_bytes: u64) -> ElfFile {
        let head =
            Load { prot: 1, align, file_bytes: 0x1000, mem_bytes: 0x1000, ..Load::default() };
        let text = Load { prot: 5, offset, vaddr, file_bytes, mem_bytes: file_bytes, align };
        ElfFile { kind, loads: vec![head, text], ..ElfFile::default() }
    }

    #[test]
    fn a_fixed_program_is_judged_by_its_addresses() {
        let text = |vaddr, offset| {
            judge(&elf(ElfKind::Fixed, 4096, vaddr, offset, 5 * M2), M2, Placing::Alike(K4))
        };
        let well = Placed::Mappable { text_bytes: 4 * M2, file: 0..0x1000 + 5 * M2 };
        assert_eq!(text(0x40_1000, 0x1000), well);
        assert_eq!(text(0x40_2000, 0x1000), Placed::Unmappable(Obstacle::Incongruent(M2)));
    }

    #[test]
    fn a_pie_needs_the_alignment_and_a_library_the_filesystem() {
        let of = |kind, align, places| judge(&elf(kind, align, 0x1000, 0x1000, 5 * M2), M2, places);
        assert_eq!(
            of(ElfKind::Program, 4096, Placing::Alike(K4)),
            Placed::Unmappable(Obstacle::Random(4096))
        );
        assert!(matches!(of(ElfKind::Program, M2, Placing::Anywhere), Placed::Mappable { .. }));
        assert!(matches!(of(ElfKind::Shared, 4096, Placing::Alike(K4)), Placed::Mappable { .. }));
        assert_eq!(
            of(ElfKind::Shared, 4096, Placing::Anywhere),
            Placed::Unmappable(Obstacle::Random(4096))
        );
        assert_eq!(
            of(ElfKind::Shared, 0x1_0000, Placing::Alike(K4)),
            Placed::Unmappable(Obstacle::Random(0x1_0000))
        );
    }

    #[test]
    fn a_smaller_block_fits_a_library_that_is_aligned_to_it_or_placed_as_a_large_one() {
        let of = |align, len| {
            judge(&elf(ElfKind::Shared, align, 0x1000, 0x1000, len), 1 << 16, Placing::Alike(K4))
        };
        assert!(
            matches!(of(1 << 16, M2 / 2), Placed::Mappable { text_bytes, .. } if text_bytes > 0)
        );
        assert_eq!(of(4096, M2 / 2), Placed::Unmappable(Obstacle::Random(4096)));
        assert!(
            matches!(of(4096, 2 * M2), Placed::Mappable { .. }),
            "the kernel places its mapping"
        );
    }

    #[test]
    fn each_base_page_has_the_size_from_which_a_filesystem_places_a_library() {
        let of = |page: u64, align, len| {
            let placing = Placing::Alike(Geometry::arm64(page));
            judge(&elf(ElfKind::Shared, align, 0x1_0000, 0x1_0000, len), M2, placing)
        };
        // As arm64 linkers align it: 64K, larger than pages of 4K and 16K.
        assert_eq!(of(16 << 10, 1 << 16, 40 << 20), Placed::Unmappable(Obstacle::Random(1 << 16)));
        assert!(matches!(of(64 << 10, 1 << 16, 513 << 20), Placed::Mappable { .. }));
        assert_eq!(of(64 << 10, 1 << 16, 40 << 20), Placed::Unmappable(Obstacle::Random(1 << 16)));
        assert!(
            matches!(of(16 << 10, M2, 5 << 20), Placed::Mappable { text_bytes, .. } if text_bytes > 0)
        );
    }

    #[test]
    fn text_without_a_whole_block_is_too_small() {
        let small = elf(ElfKind::Fixed, 4096, 0x40_1000, 0x1000, M2 + 0x1000);
        assert_eq!(
            judge(&small, M2, Placing::Alike(K4)),
            Placed::Unmappable(Obstacle::TooSmall(M2))
        );
        let none = ElfFile { kind: ElfKind::Fixed, ..ElfFile::default() };
        assert_eq!(
            judge(&none, M2, Placing::Alike(K4)),
            Placed::Unmappable(Obstacle::TooSmall(M2))
        );
    }
}
