//! Returns unused memory in large folios.
//!
//! `MADV_DONTNEED` on a page of zeros would lose a write of another thread at that moment.
//! `MADV_COLD` on one page of a PMD-mapped folio makes the kernel split it instead. While the
//! pages are unmapped for the split, the kernel replaces those of only zeros with the shared zero
//! page (Linux 6.12), so no write is lost.

use crate::pages::Pages;
use crate::range::Range;
use crate::sys::{Errno, Madvise, Result, block_bytes, madvise, page_bytes};
use crate::waste::Waste;

/// The result of a split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Bytes under PMD entries before.
    pub huge_bytes: u64,
    /// Bytes of them that are in base pages now.
    pub split_bytes: u64,
    /// Bytes of them that the kernel took back, because they held only zeros.
    pub freed_bytes: u64,
}

/// Splits the range's PMD-mapped folios with at least `zero_bytes_min` of all-zero pages into base
/// pages; 0 splits all. Folios that reach past the range, and those shared with another process
/// since a fork, stay whole. The first page of each becomes the kernel's first choice when memory
/// runs short. `khugepaged` may collapse the memory again, unless it has [`crate::Advice::NoHuge`].
///
/// # Errors
/// `EOPNOTSUPP` before Linux 6.7, and the kernel's.
pub fn split(range: Range, zero_bytes_min: u64) -> Result<Split> {
    let block = block_bytes(page_bytes());
    let mut pages = Pages::open()?;
    let mut sum = Split::default();
    let Some(blocks) = range.blocks(block) else { return Ok(sum) };
    for part in blocks.parts(block) {
        let before = Counted::of(&mut pages, part, zero_bytes_min > 0)?;
        if before.huge_bytes < part.len() as u64 {
            continue;
        }
        sum.huge_bytes += before.huge_bytes;
        if before.waste.zero_bytes < zero_bytes_min {
            continue;
        }
        match madvise(part.start(), page_bytes(), Madvise::Cold) {
            // Locked memory.
            Ok(()) | Err(Errno(libc::EINVAL)) => {}
            Err(error) => return Err(error),
        }
        let after = Counted::of(&mut pages, part, false)?;
        if after.huge_bytes == 0 {
            sum.split_bytes += part.len() as u64;
            sum.freed_bytes += after.zero_page_bytes;
        }
    }
    Ok(sum)
}

#[derive(Default)]
struct Counted {
    /// Without the zero page.
    huge_bytes: u64,
    zero_page_bytes: u64,
    waste: Waste,
}

impl Counted {
    fn of(pages: &mut Pages, block: Range, is_read: bool) -> Result<Self> {
        let bytes = page_bytes() as u64;
        let mut sum = Self::default();
        let mut read = Ok(());
        pages.visit(block, &mut |start, pages| {
            for page in pages {
                sum.huge_bytes += if page.is_huge && !page.is_zero { bytes } else { 0 };
                sum.zero_page_bytes += if page.is_zero { bytes } else { 0 };
            }
            if is_read && read.is_ok() {
                read = sum.waste.count(start, pages);
            }
        })?;
        read?;
        if pages.has_scan() { Ok(sum) } else { Err(Errno(libc::EOPNOTSUPP)) }
    }
}
