//! Determines which folio sizes can map a program's segments naturally aligned, and why other sizes
//! cannot.
//!
//! A folio is aligned to its size in the file. For one PMD entry or contpte block to map it, it
//! must also be aligned in memory:
//!
//! ```text
//!   file     |  offset o ....|  block  |  block  |..      multiples of the size
//!   memory   |  load + v ....|  block  |  block  |..      aligned in both iff load + v = o mod size
//!              load: fixed, or known only mod the loader's guarantee
//! ```
//!
//! | file | load address |
//! |---|---|
//! | fixed program | 0 |
//! | position-independent program | the kernel chooses a random multiple of the segments' largest alignment (Linux 5.10), or of the base page size if that is larger |
//! | shared object | the loader requests one range, up to the end of .bss, and honours the segments' alignment (glibc 2.35). If they request none, ext4, XFS and btrfs place a range that spans a PMD congruently (docs/behaviour B.6.3) |
//! | shared object of a 32-bit process | a multiple of the alignment: the kernel does not place it congruently |
//!
//! Owns the arithmetic and the loader's guarantees, and reads no files. Only a replay shows the
//! folio sizes that a kernel itself chooses. docs/design/alignment.md has the evidence.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use serde::Serialize;

use crate::elf::{Class, ElfFile, ElfKind, Load};
use crate::setting::thp::size_name;
use crate::shell::{as_typed, quoted};

const WRITE: u32 = 2;
const EXECUTE: u32 = 4;

/// The kernel and the filesystem that a file is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ground {
    pub page_bytes: u64,
    pub pmd_bytes: u64,
    /// The filesystem's largest folio.
    pub folio_bytes_max: u64,
    /// It maps files that span a PMD range congruently.
    pub places_aligned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AlignRefusal {
    TooSmall,
    /// It contains no whole aligned block.
    NoWholeBlock,
    /// Address and file offset differ mod the size at every load address.
    Incongruent,
    /// Load addresses are random in smaller steps: aligned only by chance.
    RandomAddress,
    Filesystem,
}

impl AlignRefusal {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooSmall => "too_small",
            Self::NoWholeBlock => "no_whole_block",
            Self::Incongruent => "incongruent",
            Self::RandomAddress => "random_address",
            Self::Filesystem => "filesystem",
        }
    }
}

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
                "{} makes a copy that is aligned",
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
                    "its alignment is {kib}K, so its load address is a random multiple of {kib}K"
                )
            }
        }
    }
}

/// A file's load bias: `residue` mod `modulus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bias {
    residue: u64,
    modulus: u64,
}

/// A multiple of every folio size; fixed addresses are known mod this.
const FIXED_MODULUS: u64 = 1 << 40;

/// Returns the guaranteed alignment of a load address in bytes; `None` for a fixed address.
#[must_use]
pub fn step_bytes(elf: &ElfFile, ground: Ground) -> Option<u64> {
    (elf.kind != ElfKind::Fixed).then(|| bias(elf, ground).modulus)
}

fn bias(elf: &ElfFile, ground: Ground) -> Bias {
    let page = ground.page_bytes;
    let modulus = elf.loads.iter().map(|load| load.align).max().unwrap_or(0).max(page);
    let modulus = modulus.min(FIXED_MODULUS);
    let start = |value: u64| value & !(page - 1);
    let Some(first) = elf.loads.first() else { return Bias { residue: 0, modulus: page } };
    if elf.kind == ElfKind::Fixed {
        return Bias { residue: 0, modulus: FIXED_MODULUS };
    }
    let is_library = elf.kind != ElfKind::Program && elf.class == Class::Bits64;
    if is_library && modulus == page && is_placed(&elf.loads, ground) {
        let modulus = ground.pmd_bytes;
        let residue = start(first.offset).wrapping_sub(start(first.vaddr)) & (modulus - 1);
        return Bias { residue, modulus };
    }
    let below = start(first.vaddr) & (modulus - 1);
    Bias { residue: below.wrapping_neg() & (modulus - 1), modulus }
}

/// Returns whether the loader's single mapping, which includes .bss, spans a PMD range of the file,
/// on a filesystem that aligns such mappings.
fn is_placed(loads: &[Load], ground: Ground) -> bool {
    let (Some(first), Some(last)) = (loads.first(), loads.last()) else { return false };
    let Ground { page_bytes: page, pmd_bytes, places_aligned, .. } = ground;
    let start = first.offset & !(page - 1);
    let end = last.vaddr.saturating_add(last.mem_bytes).saturating_add(page - 1) & !(page - 1);
    let end = start.saturating_add(end.saturating_sub(first.vaddr & !(page - 1)));
    let block = start.checked_next_multiple_of(pmd_bytes).unwrap_or(u64::MAX);
    places_aligned && end.saturating_sub(block) >= pmd_bytes
}

/// Returns the bytes of segment `nr` that whole folios of `bytes` map naturally aligned. A mapping
/// has whole pages, so it includes the rest of its first and last page.
///
/// ```
/// use largefolio_linux::alignment::{Ground, AlignRefusal, covered};
/// use largefolio_linux::elf::{ElfFile, ElfKind, Load};
///
/// // A linker's default: text at 4K, in a program that is loaded at any multiple of 4K.
/// let ground = Ground {
///     page_bytes: 4 << 10, pmd_bytes: 2 << 20, folio_bytes_max: 2 << 20, places_aligned: true,
/// };
/// let of = |load, bytes| {
///     let elf = ElfFile { kind: ElfKind::Program, loads: vec![load], ..ElfFile::default() };
///     covered(&elf, 0, ground, bytes)
/// };
/// let text = Load { offset: 0x1000, vaddr: 0x1000, file_bytes: 3 << 20, align: 4096, ..Load::default() };
/// assert_eq!(of(text, 64 << 10), Err(AlignRefusal::RandomAddress));
/// // Linked with -z max-page-size=2097152.
/// let text = Load { offset: 2 << 20, vaddr: 2 << 20, align: 2 << 20, ..text };
/// assert_eq!(of(text, 2 << 20), Ok(2 << 20));
/// assert_eq!(of(text, 64 << 10), Ok(3 << 20));
/// ```
///
/// # Errors
/// The first matching reason of [`AlignRefusal`] if there are no such bytes.
///
/// # Panics
/// If there is no segment `nr`, or `bytes` is not a power of two.
pub fn covered(elf: &ElfFile, nr: usize, ground: Ground, bytes: u64) -> Result<u64, AlignRefusal> {
    assert!(bytes.is_power_of_two(), "a folio of {bytes} bytes");
    let load = &elf.loads[nr];
    if load.file_bytes < bytes {
        return Err(AlignRefusal::TooSmall);
    }
    let page_mask = ground.page_bytes - 1;
    let first = (load.offset & !page_mask).checked_next_multiple_of(bytes);
    let end = load.offset.saturating_add(load.file_bytes).saturating_add(page_mask);
    let end = end & !page_mask & !(bytes - 1);
    let bias = bias(elf, ground);
    let known = bytes.min(bias.modulus);
    let apart = bias.residue.wrapping_add(load.vaddr).wrapping_sub(load.offset);
    if apart & (known - 1) != 0 {
        return Err(AlignRefusal::Incongruent);
    } else if bias.modulus < bytes {
        return Err(AlignRefusal::RandomAddress);
    }
    match first {
        Some(first) if first < end && bytes > ground.folio_bytes_max => {
            Err(AlignRefusal::Filesystem)
        }
        Some(first) if first < end => Ok(end - first),
        _ => Err(AlignRefusal::NoWholeBlock),
    }
}

/// Returns the segments that share a file page with segment `nr`: the linker did not separate code
/// from data, so another mapping contains the same text page.
#[must_use]
pub fn sharing(loads: &[Load], nr: usize, page_bytes: u64) -> Vec<usize> {
    let pages = |load: &Load| {
        let end = load.offset.saturating_add(load.file_bytes);
        (load.offset / page_bytes, end.saturating_sub(1) / page_bytes)
    };
    let is_empty = |load: &Load| load.file_bytes == 0;
    let (first, last) = pages(&loads[nr]);
    let others = loads.iter().enumerate().filter(|(other, load)| {
        let (start, end) = pages(load);
        *other != nr && !is_empty(load) && start <= last && first <= end
    });
    if is_empty(&loads[nr]) { Vec::new() } else { others.map(|(other, _)| other).collect() }
}

pub(crate) fn has_text_of(elf: &ElfFile, bytes: u64) -> bool {
    elf.loads.iter().any(|load| load.prot & EXECUTE != 0 && load.file_bytes >= bytes)
}

/// Returns whether entries of `block_bytes` can map some of a file's text.
#[must_use]
pub fn judge(elf: &ElfFile, block_bytes: u64, ground: Ground) -> Placed {
    let texts = elf.loads.iter().enumerate().filter(|(_, load)| load.prot & EXECUTE != 0);
    let texts: Vec<_> = texts.map(|(nr, _)| covered(elf, nr, ground, block_bytes)).collect();
    let text_bytes = texts.iter().flatten().sum();
    if text_bytes > 0 {
        let read_only = elf.loads.iter().filter(|load| load.prot & WRITE == 0);
        let ends = |load: &Load| load.offset..load.offset.saturating_add(load.file_bytes);
        let file = read_only.map(ends).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        return Placed::Mappable { text_bytes, file: file.unwrap_or_default() };
    }
    let has = |refusal| texts.contains(&Err(refusal));
    Placed::Unmappable(if has(AlignRefusal::RandomAddress) {
        Obstacle::Random(bias(elf, ground).modulus)
    } else if has(AlignRefusal::Incongruent) && !has(AlignRefusal::NoWholeBlock) {
        Obstacle::Incongruent(block_bytes)
    } else {
        Obstacle::TooSmall(block_bytes)
    })
}

#[cfg(test)]
mod tests;
