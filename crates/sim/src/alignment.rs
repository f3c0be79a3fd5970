//! Which folio sizes can map a program's segments naturally aligned, and why others cannot.
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
//! Owns the arithmetic and the loader's guarantees. Does not read files. The folio sizes that a
//! kernel chooses itself come from a replay.

use largefolio_mm::mapping::disk::Disk;
use largefolio_mm::placement::spans_pmd;
use largefolio_mm::rules::Rules;
use largefolio_mm::units::{Order, PageSize};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loading {
    Fixed,
    /// A position-independent program: the kernel chooses a random multiple of its segments'
    /// largest alignment (Linux 5.10), at least of the base page.
    Program,
    /// A shared object: the loader requests one range and honours the segments' alignment (glibc
    /// 2.35). If they request none, ext4, XFS and btrfs place a file that spans a PMD range
    /// congruently (docs/behaviour B.6.3; `mm::placement`).
    Library,
    /// A shared object of a 32-bit process, which the kernel does not place congruently.
    Library32,
}

/// A validated LOAD segment: no sum of its fields overflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    pub offset: u64,
    /// Address before the load bias.
    pub vaddr: u64,
    pub file_bytes: u64,
    /// Requested alignment; 0 and 1 mean none.
    pub align: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    TooSmall,
    /// It contains no whole aligned block.
    NoWholeBlock,
    /// Address and file offset differ mod the size at every load address.
    Incongruent,
    /// Load addresses are random in smaller steps: aligned only by chance.
    RandomAddress,
    Filesystem,
}

impl Refusal {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ground {
    pub page: PageSize,
    pub max: Order,
    pub places_aligned: bool,
}

impl Ground {
    #[must_use]
    pub fn of(rules: &Rules, filesystem: &str) -> Self {
        let max = rules.order_range(filesystem).max;
        let places_aligned = Disk::of(filesystem).places_aligned;
        Self { page: rules.page, max, places_aligned }
    }
}

/// Returns the sizes that one TLB entry can hold on some machine (C), limited to the page cache's
/// folios: 16K by the hardware with 4K base pages, a contpte block, a PMD entry.
#[must_use]
pub fn sizes(rules: &Rules) -> Vec<u64> {
    let page = rules.page;
    let max = page.bytes() << rules.max_pagecache_order().get();
    let contpte = page.bytes() << page.contpte_order().get();
    let pmd = page.bytes() << page.pmd_order().get();
    let mut sizes = vec![16 << 10, 64 << 10, contpte, pmd];
    sizes.retain(|&bytes| bytes > page.bytes() && bytes <= max);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
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
pub fn step_bytes(loading: Loading, segments: &[Segment], ground: Ground) -> Option<u64> {
    (loading != Loading::Fixed).then(|| bias(loading, segments, ground).modulus)
}

fn bias(loading: Loading, segments: &[Segment], ground: Ground) -> Bias {
    let page = ground.page.bytes();
    let asked = segments.iter().map(|segment| segment.align).max().unwrap_or(0).max(page);
    let asked = asked.min(FIXED_MODULUS);
    let start = |value: u64| value & !(page - 1);
    let Some(first) = segments.first() else { return Bias { residue: 0, modulus: page } };
    match loading {
        Loading::Fixed => Bias { residue: 0, modulus: FIXED_MODULUS },
        Loading::Library if asked == page && is_placed(segments, ground) => {
            let pmd = page << ground.page.pmd_order().get();
            let residue = start(first.offset).wrapping_sub(start(first.vaddr)) & (pmd - 1);
            Bias { residue, modulus: pmd }
        }
        Loading::Program | Loading::Library | Loading::Library32 => {
            let below = start(first.vaddr) & (asked - 1);
            Bias { residue: below.wrapping_neg() & (asked - 1), modulus: asked }
        }
    }
}

/// Returns whether the loader's single mapping spans a PMD range of the file, on a filesystem that
/// aligns such mappings.
fn is_placed(segments: &[Segment], ground: Ground) -> bool {
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else { return false };
    let page = ground.page;
    let bytes = last.vaddr.saturating_add(last.file_bytes).saturating_sub(first.vaddr);
    let pgoff = first.offset >> page.shift();
    ground.places_aligned && spans_pmd(pgoff, page.pages_in(bytes), page.pmd_order())
}

/// Returns the bytes of segment `nr` that whole folios of `bytes` map naturally aligned.
///
/// ```
/// use largefolio_mm::units::{Order, PageSize};
/// use largefolio_sim::alignment::{Ground, Loading, Refusal, Segment, covered};
///
/// // What a linker makes by default: text at 4K of a program that is loaded in steps of 4K.
/// let text = Segment { offset: 0x1000, vaddr: 0x1000, file_bytes: 3 << 20, align: 4096 };
/// let ground = Ground { page: PageSize::K4, max: Order::new(9), places_aligned: true };
/// let of = |text, bytes| covered(Loading::Program, &[text], 0, ground, bytes);
/// assert_eq!(of(text, 64 << 10), Err(Refusal::RandomAddress));
/// // Linked with -z max-page-size=2097152.
/// let text = Segment { offset: 2 << 20, vaddr: 2 << 20, align: 2 << 20, ..text };
/// assert_eq!(of(text, 2 << 20), Ok(2 << 20));
/// assert_eq!(of(text, 64 << 10), Ok(3 << 20));
/// ```
///
/// # Errors
/// The first matching reason of [`Refusal`] if there are no such bytes.
///
/// # Panics
/// If there is no segment `nr`, or `bytes` is not a power of two.
pub fn covered(
    loading: Loading,
    segments: &[Segment],
    nr: usize,
    ground: Ground,
    bytes: u64,
) -> Result<u64, Refusal> {
    assert!(bytes.is_power_of_two(), "a folio of {bytes} bytes");
    let segment = &segments[nr];
    let mask = bytes - 1;
    if segment.file_bytes < bytes {
        return Err(Refusal::TooSmall);
    }
    let page_mask = ground.page.bytes() - 1;
    let first = (segment.offset & !page_mask).checked_next_multiple_of(bytes);
    // Include the file's last page, even if the segment covers only part of it.
    let end = segment.offset.saturating_add(segment.file_bytes).saturating_add(page_mask);
    let end = end & !page_mask & !mask;
    let bias = bias(loading, segments, ground);
    let known = bytes.min(bias.modulus);
    let apart = bias.residue.wrapping_add(segment.vaddr).wrapping_sub(segment.offset);
    if apart & (known - 1) != 0 {
        return Err(Refusal::Incongruent);
    } else if bias.modulus < bytes {
        return Err(Refusal::RandomAddress);
    }
    match first {
        Some(first) if first < end => {
            let max = ground.page.bytes() << ground.max.get();
            if bytes > max { Err(Refusal::Filesystem) } else { Ok(end - first) }
        }
        _ => Err(Refusal::NoWholeBlock),
    }
}

/// Returns the segments that share a file page with segment `nr`: the linker did not separate code
/// from data, so another mapping contains the same text page.
#[must_use]
pub fn sharing(segments: &[Segment], nr: usize, page: PageSize) -> Vec<usize> {
    let pages = |segment: &Segment| {
        let end = segment.offset.saturating_add(segment.file_bytes);
        (segment.offset >> page.shift(), end.saturating_sub(1) >> page.shift())
    };
    let is_empty = |segment: &Segment| segment.file_bytes == 0;
    let (first, last) = pages(&segments[nr]);
    let others = segments.iter().enumerate().filter(|(other, segment)| {
        let (start, end) = pages(segment);
        *other != nr && !is_empty(segment) && start <= last && first <= end
    });
    if is_empty(&segments[nr]) { Vec::new() } else { others.map(|(other, _)| other).collect() }
}

#[cfg(test)]
mod tests;
