//! The machine's sizes: its base page size, the memory that one TLB entry covers, and the folio
//! size worth aiming for.
//!
//! ```text
//!                         x86-64   arm64 4K   arm64 16K   arm64 64K
//!   contpte block          (64K)        64K          2M          2M     docs/behaviour C.1
//!   PMD entry                 2M         2M         32M        512M
//!   block                     2M         2M          2M          2M     the larger one up to 2M
//!   text block                2M        64K          2M          2M     the smallest one entry covers
//! ```
//!
//! docs/design/machine-sizes.md explains why the block is the target size.

use crate::system::{Live, System as _};

/// The largest useful block. Sparse use wastes a larger one, and a buddy allocator rarely has it
/// after a few hours of uptime.
const BLOCK_BYTES_MAX: u64 = 2 << 20;

#[must_use]
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

pub(crate) fn pmd_bytes() -> usize {
    usize::try_from(Geometry::running().pmd_bytes()).unwrap_or(usize::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub page_bytes: u64,
    pub pmd_order: u32,
    /// Order of an arm64 contpte block with this base page. On other machines only a yardstick.
    pub contpte_order: u32,
    pub has_contpte: bool,
}

impl Geometry {
    #[must_use]
    pub fn running() -> Self {
        Self::of(Live.page_bytes())
    }

    /// Returns the sizes for base pages of `page_bytes`: 4K, 16K or 64K. Any other than 4K means
    /// arm64.
    #[must_use]
    pub const fn of(page_bytes: u64) -> Self {
        let has_contpte = cfg!(target_arch = "aarch64") || page_bytes > 4 << 10;
        Self { has_contpte, ..Self::arm64(page_bytes) }
    }

    #[must_use]
    pub const fn arm64(page_bytes: u64) -> Self {
        // A page table has page / 8 entries. docs/behaviour C.1: 16, 128 and 32 pages.
        let pmd_order = if page_bytes < 16 { 0 } else { page_bytes.ilog2() - 3 };
        let contpte_order = match page_bytes {
            16384 => 7,
            65536 => 5,
            _ => 4,
        };
        Self { page_bytes, pmd_order, contpte_order, has_contpte: true }
    }

    #[must_use]
    pub const fn pmd_bytes(&self) -> u64 {
        self.page_bytes << self.pmd_order
    }

    #[must_use]
    pub const fn contpte_bytes(&self) -> u64 {
        self.page_bytes << self.contpte_order
    }

    /// Returns the worthwhile size: the page cache is filled with it and memory is judged by it.
    #[must_use]
    pub const fn block_bytes(&self) -> u64 {
        let pmd_bytes = self.pmd_bytes();
        if pmd_bytes <= BLOCK_BYTES_MAX { pmd_bytes } else { self.contpte_bytes() }
    }

    /// Returns the size that suffices for text: the smallest that one TLB entry covers. Linkers
    /// align text for it.
    #[must_use]
    pub const fn text_block_bytes(&self) -> u64 {
        if self.has_contpte { self.contpte_bytes() } else { self.pmd_bytes() }
    }

    /// Returns whether PMD entries map blocks, so smaps shows large memory without root.
    #[must_use]
    pub const fn is_block_pmd(&self) -> bool {
        self.block_bytes() == self.pmd_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_base_page_has_its_sizes() {
        let sizes = |geometry: Geometry| {
            [
                geometry.contpte_bytes(),
                geometry.pmd_bytes(),
                geometry.block_bytes(),
                geometry.text_block_bytes(),
            ]
        };
        let x86 = Geometry { has_contpte: false, ..Geometry::arm64(4 << 10) };
        assert_eq!(sizes(x86), [64 << 10, 2 << 20, 2 << 20, 2 << 20]);
        assert_eq!(sizes(Geometry::arm64(4 << 10)), [64 << 10, 2 << 20, 2 << 20, 64 << 10]);
        assert_eq!(sizes(Geometry::arm64(16 << 10)), [2 << 20, 32 << 20, 2 << 20, 2 << 20]);
        assert_eq!(sizes(Geometry::arm64(64 << 10)), [2 << 20, 512 << 20, 2 << 20, 2 << 20]);
        assert!(x86.is_block_pmd() && !Geometry::arm64(64 << 10).is_block_pmd());
    }
}
