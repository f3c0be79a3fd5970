//! Anonymous memory by folio size: first touch, fork, munmap, copy-on-write (series 004).

use largefolio_mm::fault::{Access, FaultError};
use largefolio_mm::fork::ForkError;
use largefolio_mm::map::{Madvice, Map, MapError};
use largefolio_mm::memory::{Config, Memory, MemoryError};
use largefolio_mm::rules::Arch;
use largefolio_mm::rules::anon::{Enabled, SizeMode};
use largefolio_mm::space::MmId;
use largefolio_mm::units::Vaddr;
use largefolio_mm::vma::Prot;

use crate::kernel::Kernel;

/// Why a benchmark of the model cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AnonBenchError {
    /// The model could not be set up.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The region could not be mapped or unmapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A store failed.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// A fork failed.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// The kernel has no anonymous folios of this size.
    #[error("kernel {kernel} has no anonymous folios of {kib} KiB")]
    NoSize {
        /// Kernel.
        kernel: String,
        /// Size in KiB.
        kib: u64,
    },
}

/// One process with one anonymous region whose folios have one size.
#[derive(Debug)]
pub struct AnonBench {
    memory: Memory,
    mm: MmId,
    at: Vaddr,
    len_bytes: u64,
}

impl AnonBench {
    /// A region of `len_bytes`, not touched yet, on a machine with room for two of it.
    ///
    /// # Errors
    /// Sizes that `kernel` does not have.
    pub fn new(kernel: &Kernel, folio_bytes: u64, len_bytes: u64) -> Result<Self, AnonBenchError> {
        let mut rules = kernel.rules.clone();
        let is_large = folio_bytes > rules.page.bytes();
        rules.anon.thp = Enabled::Madvise;
        rules.anon.pmd = SizeMode::Never;
        rules.anon.size_kib.clear();
        if is_large && rules.anon.set_size(folio_bytes, SizeMode::Madvise).is_none() {
            let kernel = kernel.name.clone();
            return Err(AnonBenchError::NoSize { kernel, kib: folio_bytes >> 10 });
        }
        let config = Config { ram_bytes: 2 * len_bytes + (1 << 30), ..Config::new(Arch::X86_64) };
        let mut memory = Memory::new(rules, &config)?;
        let mm = memory.new_space();
        let at = Vaddr(0x4000_0000_0000);
        memory.mmap(mm, Map::anon(len_bytes, Prot::READ_WRITE).at(at))?;
        let advice = if is_large { Madvice::Hugepage } else { Madvice::Nohugepage };
        memory.madvise(mm, at, len_bytes, advice)?;
        Ok(Self { memory, mm, at, len_bytes })
    }

    /// Stores to every base page.
    ///
    /// # Errors
    /// When memory is exhausted.
    pub fn store_all(&mut self) -> Result<(), AnonBenchError> {
        let page = self.memory.rules.page.bytes();
        for offset in (0..self.len_bytes).step_by(usize::try_from(page).unwrap_or(4096)) {
            self.memory.touch(self.mm, Vaddr(self.at.0 + offset), Access::Write)?;
        }
        Ok(())
    }

    /// Forks the process.
    ///
    /// # Errors
    /// When memory is exhausted.
    pub fn fork(&mut self) -> Result<MmId, AnonBenchError> {
        Ok(self.memory.fork(self.mm)?)
    }

    /// Ends a child.
    pub fn exit(&mut self, child: MmId) {
        self.memory.exit(child);
    }

    /// Unmaps the region.
    ///
    /// # Errors
    /// Never for the region of this type.
    pub fn munmap(&mut self) -> Result<(), AnonBenchError> {
        Ok(self.memory.munmap(self.mm, self.at, self.len_bytes)?)
    }

    /// Pages kept and pages copied by stores to shared memory so far.
    #[must_use]
    pub fn reused_and_copied(&self) -> (u64, u64) {
        (self.memory.counters().nr_wp_reuse, self.memory.counters().nr_cow)
    }
}
