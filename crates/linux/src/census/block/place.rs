//! A block's identity in its file or shared memory: several mappings can contain the same block.

use crate::proc::maps::Vma;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileBlock {
    device: (u32, u32),
    inode: u64,
    order: u32,
    at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPlace {
    device: (u32, u32),
    inode: u64,
    /// The position of address 0, modulo 2^64.
    pos: u64,
}

impl BlockPlace {
    /// Returns `None` for private memory.
    pub(crate) fn of(vma: &Vma) -> Option<Self> {
        let pos = vma.pos.wrapping_sub(vma.range.start);
        vma.has_file().then_some(Self { device: vma.device, inode: vma.inode, pos })
    }

    /// Returns the mapping's block number `block`, counted from [`Vma::first_block`].
    pub(crate) const fn block(&self, order: u32, block: u64, block_bytes: u64) -> FileBlock {
        // The blocks of a shared mapping are the file's, even if they start at another address.
        let at = block.wrapping_mul(block_bytes).wrapping_add(self.pos).div_ceil(block_bytes);
        FileBlock { device: self.device, inode: self.inode, order, at }
    }
}
