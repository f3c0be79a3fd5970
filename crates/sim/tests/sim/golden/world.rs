//! One file mapped by one process under a named kernel, with short queries.

use largefolio_mm::core::NewFolio;
use largefolio_mm::core::observed::Observed;
use largefolio_mm::fault::{Access, Touched};
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::pgtable::PageTable;
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{MappingId, MmId, Order, PageIndex, Vaddr, Vpn};
use largefolio_mm::vma::{OpenId, Prot};
use largefolio_sim::kernel::Kernel;

/// Address of file mappings: a multiple of every PMD size.
const BASE: Vaddr = Vaddr(0x4000_0000_0000);

pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) file: MappingId,
    pub(crate) open: OpenId,
    pub(crate) mm: MmId,
    /// Address of file page 0, mapped or not.
    pub(crate) base: Vaddr,
}

impl World {
    /// A file of `nr_pages` on arm64 under `kernel`, not mapped.
    pub(crate) fn arm(kernel: &str, fs: &str, nr_pages: u64) -> Self {
        Self::new(kernel, &Config::new(Arch::Arm64), fs, nr_pages)
    }

    /// Like [`Self::arm`], on x86-64.
    pub(crate) fn x86(kernel: &str, fs: &str, nr_pages: u64) -> Self {
        Self::new(kernel, &Config::new(Arch::X86_64), fs, nr_pages)
    }

    pub(crate) fn new(kernel: &str, config: &Config, fs: &str, nr_pages: u64) -> Self {
        Self::under(Kernel::parse(kernel).unwrap().rules, config, fs, nr_pages)
    }

    pub(crate) fn under(rules: Rules, config: &Config, fs: &str, nr_pages: u64) -> Self {
        let page = rules.page;
        let mut memory = Memory::new(rules, config).unwrap();
        let file = memory.add_file(nr_pages * page.bytes(), fs);
        let open = memory.open(file);
        let mm = memory.new_space();
        memory.watch();
        Self { memory, file, open, mm, base: BASE }
    }

    pub(crate) fn mapped(mut self, prot: Prot) -> Self {
        let nr_pages =
            self.memory.core().mapping(self.file).nr_file_pages(self.memory.rules().page);
        self.map_part(prot, (0, nr_pages));
        self
    }

    /// Maps file pages `[first, end)` at their address relative to `base`.
    pub(crate) fn map_part(&mut self, prot: Prot, (first, end): (u64, u64)) {
        let len_bytes = (end - first) * self.page_bytes();
        let map = Map::file(self.open, first, len_bytes, prot).at(self.addr(first));
        self.memory.mmap(self.mm, map).unwrap();
    }

    /// Shifts the address of file page 0 by `nr_pages`.
    pub(crate) fn shifted(mut self, nr_pages: u64) -> Self {
        self.base = Vaddr(BASE.0 + nr_pages * self.page_bytes());
        self
    }

    pub(crate) fn advised(mut self, advices: &[Madvice]) -> Self {
        for &advice in advices {
            self.advise(advice);
        }
        self
    }

    pub(crate) fn advise(&mut self, advice: Madvice) {
        let areas: Vec<_> = self.memory.space(self.mm).vmas.iter().copied().collect();
        for area in areas {
            let addr = area.start.vaddr(self.memory.rules().page);
            let len_bytes = area.nr_pages() * self.page_bytes();
            self.memory.madvise(self.mm, addr, len_bytes, advice).unwrap();
        }
    }

    pub(crate) fn page_bytes(&self) -> u64 {
        self.memory.rules().page.bytes()
    }

    pub(crate) fn addr(&self, index: u64) -> Vaddr {
        Vaddr(self.base.0 + index * self.page_bytes())
    }

    pub(crate) fn vpn(&self, index: u64) -> Vpn {
        self.addr(index).vpn(self.memory.rules().page)
    }

    pub(crate) fn touch(&mut self, index: u64) -> Touched {
        self.memory.touch(self.mm, self.addr(index), Access::Read).unwrap()
    }

    pub(crate) fn touch_all(&mut self, pages: impl IntoIterator<Item = u64>) {
        for index in pages {
            self.touch(index);
        }
    }

    pub(crate) fn count_misses(&mut self, nr: u32) {
        self.memory.count_misses(self.open, nr);
    }

    pub(crate) fn store(&mut self, index: u64) -> Touched {
        self.memory.touch(self.mm, self.addr(index), Access::Write).unwrap()
    }

    pub(crate) fn read(&mut self, index: u64) {
        self.read_pages(index, 1);
    }

    pub(crate) fn read_pages(&mut self, index: u64, nr_pages: u64) {
        let bytes = self.page_bytes();
        self.memory.pread(self.open, index * bytes, nr_pages * bytes).unwrap();
    }

    /// Caches a folio without readahead; [`World::new_folios`] omits it.
    pub(crate) fn cache(&mut self, index: u64, order: u8) {
        let folio = NewFolio::new(self.file, PageIndex(index), Order::new(order));
        self.memory.cache_folio(folio).unwrap();
        self.memory.take_observed();
    }

    /// Formats all cached folios: `4xo0@0 o2@4`.
    pub(crate) fn folios(&self) -> String {
        printed(self.memory.folios(self.file).map(|entry| (entry.index.0, entry.order.get())))
    }

    /// Formats the folios inserted since the last call, in order.
    pub(crate) fn new_folios(&mut self) -> String {
        let observed = self.memory.take_observed();
        printed(observed.into_iter().filter_map(|event| match event {
            Observed::Insertion { index, order, .. } => Some((index.0, order.get())),
            _ => None,
        }))
    }

    /// Counts the pages inserted since the last call.
    pub(crate) fn nr_new_pages(&mut self) -> u64 {
        let observed = self.memory.take_observed();
        let pages = observed.into_iter().map(|event| match event {
            Observed::Insertion { order, .. } => order.nr_pages(),
            _ => 0,
        });
        pages.sum()
    }

    /// Returns start, size and tail of the last window.
    pub(crate) fn window(&self) -> (u64, u64, u64) {
        let state = self.memory.open_file(self.open).state;
        (state.start, state.size, state.async_size)
    }

    pub(crate) fn miss(&self) -> u32 {
        self.memory.open_file(self.open).state.mmap_miss()
    }

    pub(crate) fn markers(&self) -> Vec<u64> {
        let folios = &self.memory.core().folios;
        let marked = self.memory.folios(self.file).filter(|e| folios.get(e.folio).is_marked);
        marked.map(|entry| entry.index.0).collect()
    }

    pub(crate) fn is_cached(&self, index: u64) -> bool {
        self.memory.core().find(self.file, PageIndex(index)).is_some()
    }

    /// Returns the cached ranges: first and last page.
    pub(crate) fn cached(&self) -> Vec<(u64, u64)> {
        ranges(self.memory.folios(self.file).flat_map(|entry| entry.index.0..entry.end()))
    }

    /// Returns the mapped ranges: first and last page.
    pub(crate) fn present(&self) -> Vec<(u64, u64)> {
        let base = self.base.vpn(self.memory.rules().page);
        let leaves = self.memory.space(self.mm).table.leaves(base, PageTable::VPN_END.0 - base.0);
        let pages = leaves.flat_map(|leaf| leaf.first_vpn.0 - base.0..leaf.end_vpn().0 - base.0);
        self.validate();
        ranges(pages)
    }

    pub(crate) fn validate(&self) {
        self.memory.validate().unwrap();
    }
}

fn printed(folios: impl Iterator<Item = (u64, u8)>) -> String {
    let mut runs: Vec<(u64, u8, u64)> = Vec::new();
    for (index, order) in folios {
        match runs.last_mut() {
            Some((first, same, nr)) if *same == order && *first + (*nr << order) == index => {
                *nr += 1;
            }
            _ => runs.push((index, order, 1)),
        }
    }
    let parts = runs.iter().map(|(index, order, nr)| match nr {
        1 => format!("o{order}@{index}"),
        _ => format!("{nr}xo{order}@{index}"),
    });
    parts.collect::<Vec<_>>().join(" ")
}

/// Returns first and last of each run of consecutive numbers.
fn ranges(pages: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for page in pages {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == page => *last = page,
            _ => ranges.push((page, page)),
        }
    }
    ranges
}
