//! Anonymous memory by folio size: first touch, fork, munmap and copy-on-write (series 004).

use largefolio_mm::fault::{Access, FaultError};
use largefolio_mm::fork::ForkError;
use largefolio_mm::map::{Madvice, Map, MapError};
use largefolio_mm::memory::{Config, Memory, MemoryError};
use largefolio_mm::ram::{Moved, Ram};
use largefolio_mm::rules::anon::{Enabled, SizeMode};
use largefolio_mm::units::{MmId, PageSize, Pfn, Vaddr};
use largefolio_mm::vma::Prot;

use super::ARCH;
use crate::cost::Mark;
use crate::kernel::Kernel;

/// Memory beyond the region, on a machine with real bytes.
const SPARE_BYTES: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum AnonBenchError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Fault(#[from] FaultError),
    #[error(transparent)]
    Fork(#[from] ForkError),
    #[error("kernel {kernel} does not support anonymous folios of {kib} KiB")]
    NoSize { kernel: String, kib: u64 },
    #[error("no memory is left for the page cache")]
    NoMemory,
}

#[derive(Debug)]
pub struct AnonBench {
    pub(super) memory: Memory,
    mm: MmId,
    at: Vaddr,
    folio_bytes: u64,
    len_bytes: u64,
}

impl AnonBench {
    /// Creates an untouched region of `len_bytes` on a machine of twice the memory, which stores no
    /// contents.
    ///
    /// # Errors
    /// Sizes that `kernel` does not have.
    pub fn new(kernel: &Kernel, folio_bytes: u64, len_bytes: u64) -> Result<Self, AnonBenchError> {
        let ram_bytes = 2 * len_bytes + (1 << 30);
        Self::build(kernel, folio_bytes, len_bytes, ram_bytes, Ram::default())
    }

    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { counters: *self.memory.counters(), ram: self.memory.core().ram.counted }
    }
}

impl AnonBench {
    /// Allocates memory for a region of `len_bytes`, already faulted in on the host. Compared
    /// benchmarks should share it, because physical placement affects speed.
    #[must_use]
    pub fn bytes(page: PageSize, len_bytes: u64) -> Ram {
        let ram_bytes = len_bytes + SPARE_BYTES;
        let mut ram = Ram::new(page, ram_bytes);
        for pfn in (0..ram_bytes >> page.shift()).map(Pfn) {
            ram.frame_mut(pfn).fill(1);
        }
        ram
    }

    /// Creates an untouched region of `len_bytes` on a machine with memory `ram`, which was made
    /// for these sizes.
    ///
    /// # Errors
    /// Sizes that `kernel` does not have.
    pub fn with_bytes(
        kernel: &Kernel,
        folio_bytes: u64,
        len_bytes: u64,
        ram: Ram,
    ) -> Result<Self, AnonBenchError> {
        Self::build(kernel, folio_bytes, len_bytes, len_bytes + SPARE_BYTES, ram)
    }

    #[must_use]
    pub fn into_bytes(self) -> Ram {
        self.memory.into_ram()
    }

    #[must_use]
    pub fn cleared(&self) -> Moved {
        self.memory.core().ram.counted.cleared
    }
}

impl AnonBench {
    fn build(
        kernel: &Kernel,
        folio_bytes: u64,
        len_bytes: u64,
        ram_bytes: u64,
        ram: Ram,
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
        let config = Config { ram_bytes, ..Config::new(ARCH) };
        let mut memory = Memory::with_ram(rules, &config, ram)?;
        let mm = memory.new_space();
        let at = Vaddr(0x4000_0000_0000);
        memory.mmap(mm, Map::anon(len_bytes, Prot::READ_WRITE).at(at))?;
        let advice = if is_large { Madvice::Hugepage } else { Madvice::Nohugepage };
        memory.madvise(mm, at, len_bytes, advice)?;
        Ok(Self { memory, mm, at, folio_bytes, len_bytes })
    }

    /// Stores to every folio.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn fault_all(&mut self) -> Result<(), AnonBenchError> {
        self.store_each(self.folio_bytes)
    }

    /// Stores to every base page.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn store_all(&mut self) -> Result<(), AnonBenchError> {
        self.store_each(self.memory.rules().page.bytes())
    }

    /// Loads from every base page.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn load_all(&mut self) -> Result<(), AnonBenchError> {
        self.touch_each(self.memory.rules().page.bytes(), Access::Read)
    }

    fn store_each(&mut self, step_bytes: u64) -> Result<(), AnonBenchError> {
        self.touch_each(step_bytes, Access::Write)
    }

    fn touch_each(&mut self, step_bytes: u64, access: Access) -> Result<(), AnonBenchError> {
        for nr in 0..self.len_bytes / step_bytes {
            let addr = Vaddr(self.at.0 + nr * step_bytes);
            self.memory.touch(self.mm, addr, access)?;
        }
        Ok(())
    }

    /// Forks the process.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn fork(&mut self) -> Result<MmId, AnonBenchError> {
        Ok(self.memory.fork(self.mm)?)
    }

    pub fn exit(&mut self, child: MmId) {
        self.memory.exit(child);
    }

    /// Unmaps the region.
    ///
    /// # Errors
    /// Never for this region.
    pub fn munmap(&mut self) -> Result<(), AnonBenchError> {
        Ok(self.memory.munmap(self.mm, self.at, self.len_bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_each_operation_are_counted_by_folio() {
        let kernel = Kernel::parse("6.18+page=4K").unwrap();
        for (size, nr_folios, nr_pmds) in [(4 << 10, 1024, 0), (64 << 10, 64, 0), (2 << 20, 2, 2)] {
            let mut bench = AnonBench::new(&kernel, size, 4 << 20).unwrap();
            let mut last = bench.mark();
            let mut events = |bench: &AnonBench| {
                let now = bench.mark();
                let events = now.since(&std::mem::replace(&mut last, now), 4096);
                (events.faults, events.folios_allocated, events.entries_mapped, events)
            };
            bench.store_all().unwrap();
            let entries = if nr_pmds > 0 { nr_pmds } else { 1024 };
            let (faults, allocated, mapped, touched) = events(&bench);
            assert_eq!((faults, allocated, mapped), (nr_folios, nr_folios, entries), "{size}");
            assert_eq!(touched.batches_mapped + nr_pmds, nr_folios, "{size}");
            let child = bench.fork().unwrap();
            let (faults, allocated, mapped, forked) = events(&bench);
            assert_eq!((faults, allocated, mapped), (0, 0, 0), "{size}");
            assert_eq!((forked.entries_forked, forked.pmds_forked), (entries, nr_pmds), "{size}");
            assert_eq!(forked.batches_forked + nr_pmds, nr_folios, "{size}");
            bench.store_all().unwrap();
            let (faults, allocated, _, cow) = events(&bench);
            assert_eq!((faults, allocated, cow.copied[&4096]), (1024, 1024, 4 << 20), "{size}");
            bench.exit(child);
        }
    }

    #[test]
    fn what_is_freed_is_counted_when_its_last_entry_goes_and_not_before() {
        let kernel = Kernel::parse("6.18+page=4K").unwrap();
        for (size, nr_folios) in [(4 << 10, 1024), (64 << 10, 64), (2 << 20, 2)] {
            for is_shared in [false, true] {
                let mut bench = AnonBench::new(&kernel, size, 4 << 20).unwrap();
                bench.store_all().unwrap();
                let child = is_shared.then(|| bench.fork().unwrap());
                let before = bench.mark();
                bench.munmap().unwrap();
                let freed = |bench: &AnonBench| {
                    let events = bench.mark().since(&before, 4096);
                    (events.folios_freed, events.pages_freed)
                };
                let all = (nr_folios, 1024);
                assert_eq!(freed(&bench), if is_shared { (0, 0) } else { all }, "{size}");
                if let Some(child) = child {
                    bench.exit(child);
                    assert_eq!(freed(&bench), all, "{size}");
                }
            }
        }
    }

    #[test]
    fn batches_of_large_folios_are_counted_apart_in_fork() {
        let kernel = Kernel::parse("6.18+page=4K").unwrap();
        for (size, expected) in [(4 << 10, (1024, 0)), (64 << 10, (64, 64)), (2 << 20, (0, 0))] {
            let mut bench = AnonBench::new(&kernel, size, 4 << 20).unwrap();
            bench.store_all().unwrap();
            let before = bench.mark();
            bench.fork().unwrap();
            let events = bench.mark().since(&before, 4096);
            assert_eq!((events.batches_forked, events.large_forked), expected, "{size}");
        }
    }

    #[test]
    fn one_store_a_folio_clears_the_whole_region_and_each_round_again() {
        for (size, nr_folios, nr_units) in
            [(4 << 10, 1024, 1024), (64 << 10, 64, 128), (2 << 20, 2, 4)]
        {
            let kernel = Kernel::parse("7.0+page=4K").unwrap();
            let mut ram = AnonBench::bytes(kernel.rules.page, 4 << 20);
            for round in 1..=3 {
                let mut bench = AnonBench::with_bytes(&kernel, size, 4 << 20, ram).unwrap();
                bench.fault_all().unwrap();
                let cleared = bench.cleared();
                assert_eq!(cleared.nr_bytes, round * (4 << 20));
                assert_eq!(
                    (cleared.nr_folios, cleared.nr_units),
                    (round * nr_folios, round * nr_units)
                );
                ram = bench.into_bytes();
            }
        }
    }
}
