//! One machine with real memory, and short ways to use it.

use largefolio_mm::fault::Access;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::ram::Ram;
use largefolio_mm::rules::anon::{AnonRules, Enabled, SizeMode};
use largefolio_mm::rules::clear::{ClearOrder, ClearRules, Preemption};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{MmId, Order, Pfn, Vaddr};
use largefolio_mm::view::PageView;
use largefolio_mm::vma::Prot;

/// Address of page 0: a multiple of every PMD size.
pub(crate) const BASE: u64 = 0x4000_0000_0000;
pub(crate) const PAGE: u64 = 4096;

pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) mm: MmId,
}

pub(crate) fn sizes(kib: &[u64]) -> AnonRules {
    let mut anon = AnonRules::stock();
    for kib in kib {
        anon.set_size(kib << 10, SizeMode::Always).unwrap();
    }
    anon
}

pub(crate) fn clear_rules() -> impl Iterator<Item = ClearRules> {
    let orders =
        [ClearOrder::Converging, ClearOrder::Posted, ClearOrder::Merged, ClearOrder::OnePass];
    let models = [Preemption::Voluntary, Preemption::Lazy];
    let with = |order, preemption| ClearRules { order, preemption, ..ClearRules::stock() };
    orders.into_iter().flat_map(move |order| models.map(|preemption| with(order, preemption)))
}

pub(crate) fn thp() -> AnonRules {
    AnonRules { thp: Enabled::Always, ..AnonRules::stock() }
}

impl World {
    pub(crate) fn new(anon: AnonRules) -> Self {
        Self::on(anon, Arch::X86_64, 64 << 20)
    }

    pub(crate) fn on(anon: AnonRules, arch: Arch, ram_bytes: u64) -> Self {
        let rules = Rules { anon, ..Rules::example() };
        let config = Config { ram_bytes, ..Config::new(arch) };
        let ram = Ram::new(rules.page, ram_bytes);
        let mut memory = Memory::with_ram(rules, &config, ram).unwrap();
        let mm = memory.new_space();
        Self { memory, mm }
    }

    pub(crate) fn mapped(mut self, nr: u64) -> Self {
        self.map(0, nr);
        self
    }

    pub(crate) fn map(&mut self, first: u64, nr: u64) {
        let map = Map::anon(nr * PAGE, Prot::READ_WRITE).at(addr(first));
        self.memory.mmap(self.mm, map).unwrap();
    }

    pub(crate) fn write(&mut self, mm: MmId, page: u64) -> PageView {
        let text = [0x80 | (page as u8); 8];
        self.memory.store(mm, addr(page), &text).unwrap();
        self.check();
        self.memory.page_at(mm, addr(page)).unwrap()
    }

    pub(crate) fn write_all(&mut self, mm: MmId, pages: std::ops::Range<u64>) {
        for page in pages {
            self.write(mm, page);
        }
    }

    pub(crate) fn read(&mut self, mm: MmId, page: u64) -> PageView {
        self.memory.touch(mm, addr(page), Access::Read).unwrap();
        self.check();
        self.memory.page_at(mm, addr(page)).unwrap()
    }

    pub(crate) fn byte(&mut self, mm: MmId, page: u64) -> u8 {
        let mut byte = [0];
        self.memory.load(mm, addr(page), &mut byte).unwrap();
        byte[0]
    }

    pub(crate) fn page(&self, mm: MmId, page: u64) -> Option<PageView> {
        self.memory.page_at(mm, addr(page))
    }

    pub(crate) fn pfn(&self, mm: MmId, page: u64) -> Pfn {
        self.page(mm, page).unwrap().pfn
    }

    pub(crate) fn order(&self, mm: MmId, page: u64) -> u8 {
        self.page(mm, page).unwrap().order.get()
    }

    pub(crate) fn fork(&mut self, mm: MmId) -> MmId {
        let child = self.memory.fork(mm).unwrap();
        self.check();
        child
    }

    pub(crate) fn exit(&mut self, mm: MmId) {
        self.memory.exit(mm);
        self.check();
    }

    pub(crate) fn unmap(&mut self, mm: MmId, first: u64, nr: u64) {
        self.memory.munmap(mm, addr(first), nr * PAGE).unwrap();
        self.check();
    }

    pub(crate) fn protect(&mut self, mm: MmId, first: u64, nr: u64, prot: Prot) {
        self.memory.mprotect(mm, addr(first), nr * PAGE, prot).unwrap();
        self.check();
    }

    pub(crate) fn advise(&mut self, mm: MmId, first: u64, nr: u64, advice: Madvice) {
        self.memory.madvise(mm, addr(first), nr * PAGE, advice).unwrap();
        self.check();
    }

    pub(crate) fn split_pmd(&mut self, mm: MmId) {
        self.protect(mm, 511, 1, Prot::READ);
        self.protect(mm, 511, 1, Prot::READ_WRITE);
    }

    pub(crate) fn check(&self) {
        self.memory.validate().unwrap();
    }

    pub(crate) fn size(&self, order: u8) -> largefolio_mm::counters::SizeCounters {
        *self.memory.counters().size(Order::new(order))
    }
}

pub(crate) fn addr(page: u64) -> Vaddr {
    Vaddr(BASE + page * PAGE)
}
