//! Read faults on a file in memory that is partly cached.

use largefolio_mm::core::NewFolio;
use largefolio_mm::fault::Access;
use largefolio_mm::map::Map;
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::units::{MmId, Order, PageIndex, Vaddr};
use largefolio_mm::vma::Prot;

use super::{ARCH, AnonBenchError};
use crate::cost::Mark;
use crate::kernel::Kernel;

#[derive(Debug)]
pub struct FileBench {
    memory: Memory,
    mm: MmId,
    at: Vaddr,
    len_bytes: u64,
}

impl FileBench {
    /// Creates an untouched mapping of `len_bytes` with a cached base page at every multiple of
    /// `step_bytes`.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn new(kernel: &Kernel, len_bytes: u64, step_bytes: u64) -> Result<Self, AnonBenchError> {
        let page = kernel.rules.page;
        let config = Config { ram_bytes: 2 * len_bytes + (1 << 30), ..Config::new(ARCH) };
        let mut memory = Memory::new(kernel.rules.clone(), &config)?;
        let file = memory.add_memory_file(len_bytes);
        let step = page.pages_in(step_bytes).max(1);
        for nr in 0..page.pages_in(len_bytes).div_ceil(step) {
            let folio = NewFolio::new(file, PageIndex(nr * step), Order::ZERO);
            memory.cache_folio(folio).map_err(|_| AnonBenchError::NoMemory)?;
        }
        let (mm, open) = (memory.new_space(), memory.open(file));
        let at = Vaddr(0x4000_0000_0000);
        memory.mmap(mm, Map::file(open, 0, len_bytes, Prot::READ).at(at))?;
        Ok(Self { memory, mm, at, len_bytes })
    }

    /// Loads a byte at every multiple of `step_bytes`.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn load_each(&mut self, step_bytes: u64) -> Result<(), AnonBenchError> {
        for nr in 0..self.len_bytes / step_bytes {
            let addr = Vaddr(self.at.0 + nr * step_bytes);
            self.memory.touch(self.mm, addr, Access::Read)?;
        }
        Ok(())
    }

    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { counters: *self.memory.counters(), ram: self.memory.core().ram.counted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_maps_the_cached_pages_of_its_64k_and_allocates_none() {
        let kernel = Kernel::parse("6.18+page=4K").unwrap();
        for nr_cached in [1, 4, 16] {
            let mut bench = FileBench::new(&kernel, 4 << 20, (64 << 10) / nr_cached).unwrap();
            let before = bench.mark();
            bench.load_each(64 << 10).unwrap();
            let events = bench.mark().since(&before, 4096);
            assert_eq!((events.faults, events.folios_allocated), (64, 0), "{nr_cached}");
            assert_eq!(events.faults_around, 64, "{nr_cached}");
            assert_eq!(events.entries_mapped, 64 * nr_cached);
            assert_eq!(events.batches_mapped, 64 * nr_cached);
        }
    }
}
