//! What a machine is made of, and why it cannot be made.

use crate::buddy::{Ageing, BuddyError, Fragmentation};
use crate::core::hugetlb::{HugePool, PoolError};
use crate::rules::Arch;

/// The machine under the rules.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides contpte, exec windows and the order of clearing.
    pub arch: Arch,
    /// Physical memory in bytes.
    pub ram_bytes: u64,
    /// Pages that are taken before anything runs, scattered by a seed.
    pub fragmentation: Option<Fragmentation>,
    /// What other programs did to memory before anything runs; `None` for a fresh machine.
    pub ageing: Option<Ageing>,
    /// Swap space in bytes; without any, anonymous memory is never reclaimed.
    pub swap_bytes: u64,
    /// Pools of huge pages, taken from the memory; one of each size at most.
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
            huge_pools: Vec::new(),
        }
    }
}

/// Why a memory manager cannot be made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The allocator refused its configuration.
    #[error(transparent)]
    Buddy(#[from] BuddyError),
    /// Not even one page is free.
    #[error("no page is free for the kernel's own use: give the model more memory")]
    NoPage,
    /// The host has no room for the bytes of the model's memory.
    #[error(
        "the model's memory takes {} MiB, more than this process can get: raise its limit \
         (ulimit -v), or model less memory",
        bytes >> 20
    )]
    NoRoom {
        /// The bytes.
        bytes: u64,
    },
    /// Somebody ended the ageing of memory.
    #[error("stopped while memory was aged")]
    Stopped,
    /// The pools of huge pages are of no size of the machine, or larger than memory.
    #[error(transparent)]
    Pool(#[from] PoolError),
}
