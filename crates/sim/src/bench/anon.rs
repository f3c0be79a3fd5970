//! Anonymous memory by folio size: first touch, fork, munmap, copy-on-write (series 004).

use largefolio_mm::fault::{Access, FaultError};
use largefolio_mm::fork::ForkError;
use largefolio_mm::map::{Madvice, Map, MapError};
use largefolio_mm::memory::{Config, Memory, MemoryError};
use largefolio_mm::ram::{Bytes, Counted, Moved, Ram};
use largefolio_mm::rules::Arch;
use largefolio_mm::rules::anon::{Enabled, SizeMode};
use largefolio_mm::space::MmId;
use largefolio_mm::units::{Pfn, Vaddr};
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
pub struct AnonBench<R = Counted> {
    memory: Memory<R>,
    mm: MmId,
    at: Vaddr,
    folio_bytes: u64,
    len_bytes: u64,
}

impl AnonBench {
    /// A region of `len_bytes`, not touched yet, on a machine with room for two of it and no bytes.
    ///
    /// # Errors
    /// Sizes that `kernel` does not have.
    pub fn new(kernel: &Kernel, folio_bytes: u64, len_bytes: u64) -> Result<Self, AnonBenchError> {
        let ram_bytes = 2 * len_bytes + (1 << 30);
        Self::build(kernel, (folio_bytes, len_bytes), ram_bytes, Counted::default())
    }
}

impl AnonBench<Bytes> {
    /// A region of `len_bytes`, not touched yet, on a machine with little more memory than that;
    /// all of it has bytes, which the host has handed out already.
    ///
    /// # Errors
    /// Sizes that `kernel` does not have.
    pub fn with_bytes(
        kernel: &Kernel,
        folio_bytes: u64,
        len_bytes: u64,
    ) -> Result<Self, AnonBenchError> {
        let (page, ram_bytes) = (kernel.rules.page, len_bytes + (64 << 20));
        let mut ram = Bytes::new(page, ram_bytes);
        for pfn in (0..ram_bytes >> page.shift()).map(Pfn) {
            ram.frame_mut(pfn).fill(1);
        }
        Self::build(kernel, (folio_bytes, len_bytes), ram_bytes, ram)
    }

    /// What was cleared around a page so far.
    #[must_use]
    pub fn cleared(&self) -> Moved {
        self.memory.cache().ram.counted.cleared
    }
}

impl<R: Ram> AnonBench<R> {
    fn build(
        kernel: &Kernel,
        (folio_bytes, len_bytes): (u64, u64),
        ram_bytes: u64,
        ram: R,
    ) -> Result<Self, AnonBenchError> {
        let mut rules = kernel.rules.clone();
        let is_large = folio_bytes > rules.page.bytes();
        rules.anon.thp = Enabled::Madvise;
        rules.anon.pmd = SizeMode::Never;
        rules.anon.size_kib.clear();
        if is_large && rules.anon.set_size(folio_bytes, SizeMode::Madvise).is_none() {
            let kernel = kernel.name.clone();
            return Err(AnonBenchError::NoSize { kernel, kib: folio_bytes >> 10 });
        }
        let config = Config { ram_bytes, ..Config::new(Arch::X86_64) };
        let mut memory = Memory::with_ram(rules, &config, ram)?;
        let mm = memory.new_space();
        let at = Vaddr(0x4000_0000_0000);
        let mut bench = Self { memory, mm, at, folio_bytes, len_bytes };
        bench.mmap()?;
        Ok(bench)
    }

    fn mmap(&mut self) -> Result<(), AnonBenchError> {
        let map = Map::anon(self.len_bytes, Prot::READ_WRITE).at(self.at);
        self.memory.mmap(self.mm, map)?;
        let is_large = self.folio_bytes > self.memory.rules.page.bytes();
        let advice = if is_large { Madvice::Hugepage } else { Madvice::Nohugepage };
        Ok(self.memory.madvise(self.mm, self.at, self.len_bytes, advice)?)
    }

    /// A fresh region in place of the old one.
    ///
    /// # Errors
    /// Never for the region of this type.
    pub fn remap(&mut self) -> Result<(), AnonBenchError> {
        self.munmap()?;
        self.mmap()
    }

    /// Stores to every folio.
    ///
    /// # Errors
    /// When memory is exhausted.
    pub fn fault_all(&mut self) -> Result<(), AnonBenchError> {
        self.store_each(self.folio_bytes)
    }

    /// Stores to every base page.
    ///
    /// # Errors
    /// When memory is exhausted.
    pub fn store_all(&mut self) -> Result<(), AnonBenchError> {
        self.store_each(self.memory.rules.page.bytes())
    }

    fn store_each(&mut self, step_bytes: u64) -> Result<(), AnonBenchError> {
        for nr in 0..self.len_bytes / step_bytes {
            let addr = Vaddr(self.at.0 + nr * step_bytes);
            self.memory.touch(self.mm, addr, Access::Write)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_store_a_folio_clears_the_whole_region_and_each_round_again() {
        for (size, nr_folios, nr_units) in
            [(4 << 10, 1024, 1024), (64 << 10, 64, 128), (2 << 20, 2, 4)]
        {
            let kernel = Kernel::parse("7.0+page=4K").unwrap();
            let mut bench = AnonBench::with_bytes(&kernel, size, 4 << 20).unwrap();
            for round in 1..=3 {
                bench.fault_all().unwrap();
                let cleared = bench.cleared();
                assert_eq!(cleared.nr_bytes, round * (4 << 20));
                assert_eq!(
                    (cleared.nr_folios, cleared.nr_units),
                    (round * nr_folios, round * nr_units)
                );
                bench.remap().unwrap();
            }
        }
    }
}
