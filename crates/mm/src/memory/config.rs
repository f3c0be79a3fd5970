//! The configuration of a machine, and its errors.

use crate::buddy::{Ageing, BuddyError, Fragmentation};
use crate::core::hugetlb::{HugePool, PoolError};
use crate::nodes::NodeConfig;
use crate::rules::Arch;

/// Hardware of the machine; the rules describe the kernel.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides contpte, exec windows and the order of clearing.
    pub arch: Arch,
    /// Physical memory in bytes.
    pub ram_bytes: u64,
    /// Pages allocated before any operation runs, scattered by a seed.
    pub fragmentation: Option<Fragmentation>,
    /// Earlier use of memory by other programs; `None` for a fresh machine.
    pub ageing: Option<Ageing>,
    /// Swap space in bytes; without any, anonymous memory is never reclaimed.
    pub swap_bytes: u64,
    /// NUMA nodes that share the memory; none: one.
    pub nodes: Vec<NodeConfig>,
    /// Hugetlb pools, allocated from the memory; at most one per size.
    pub huge_pools: Vec<HugePool>,
}

impl Config {
    /// 16 GiB of unfragmented memory, no swap space.
    #[must_use]
    pub fn new(arch: Arch) -> Self {
        Self {
            arch,
            ram_bytes: 16 << 30,
            fragmentation: None,
            ageing: None,
            swap_bytes: 0,
            nodes: Vec::new(),
            huge_pools: Vec::new(),
        }
    }
}

/// Why a memory manager cannot be created.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The allocator refused its configuration.
    #[error(transparent)]
    Buddy(#[from] BuddyError),
    /// No page is free.
    #[error("no page is free for the kernel's own use; give the model more memory")]
    NoPage,
    /// The host has no room for the bytes of the model's memory.
    #[error(
        "the model's memory takes {} MiB, which is more than this process can allocate; raise its \
         limit (ulimit -v), or model less memory",
        bytes >> 20
    )]
    NoRoom {
        /// Bytes needed.
        bytes: u64,
    },
    /// The caller stopped the ageing of memory.
    #[error("interrupted while memory was being aged")]
    Stopped,
    /// A hugetlb pool has a size that the machine lacks, or is larger than memory.
    #[error(transparent)]
    Pool(#[from] PoolError),
}
