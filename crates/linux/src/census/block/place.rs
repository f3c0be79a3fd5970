//! Where a block lies in its file or shared memory: several mappings may show the same one.
//!
//! Owns the identity of such a block.

use crate::proc::maps::Vma;

/// One block of a file or of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileBlock {
    device: (u32, u32),
    inode: u64,
    order: u32,
    at: u64,
}

/// Where the blocks of a mapping lie in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    device: (u32, u32),
    inode: u64,
    /// Of address 0, mod 2^64.
    pos: u64,
}

impl Place {
    /// Of a mapping; `None` of private memory.
    pub(crate) fn of(vma: &Vma) -> Option<Self> {
        let pos = vma.pos.wrapping_sub(vma.range.start);
        vma.has_file().then_some(Self { device: vma.device, inode: vma.inode, pos })
    }

    /// The block `block` of the mapping, counted in its size from [`Vma::first_block`] on.
    pub(crate) const fn block(&self, order: u32, block: u64, block_bytes: u64) -> FileBlock {
        // The blocks of a shared mapping are the file's, though they may begin at another address.
        let at = block.wrapping_mul(block_bytes).wrapping_add(self.pos).div_ceil(block_bytes);
        FileBlock { device: self.device, inode: self.inode, order, at }
    }
}
