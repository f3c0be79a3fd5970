//! One machine with real memory, and short ways to look at blocks.

use largefolio_mm::collapse::{CollapseError, Errno};
use largefolio_mm::counters::collapse::CollapseRefusal;
use largefolio_mm::fault::Access;
use largefolio_mm::folio::FolioId;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::FolioState;
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::pgtable::LeafKind;
use largefolio_mm::ram::Ram;
use largefolio_mm::rules::anon::Enabled;
use largefolio_mm::rules::collapse::{
    CollapseSizes, DirtyFlush, DirtyRange, FileCollapse, Lazyfree, PrivateData, ReadOnlyRange,
    ShortRequest,
};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{MappingId, MmId, PageIndex, Pfn, Vaddr};
use largefolio_mm::view::PageView;
use largefolio_mm::vma::{OpenId, Prot};

/// Address of page 0: a multiple of every PMD size.
pub(crate) const BASE: u64 = 0x4000_0000_0000;
pub(crate) const PAGE: u64 = 4096;
pub(crate) const N: u64 = 512;

pub(crate) fn addr(page: u64) -> Vaddr {
    Vaddr(BASE + page * PAGE)
}

pub(crate) const fn mark(page: u64) -> u8 {
    0x80 | page as u8
}

pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) mm: MmId,
    wake_ns: u64,
}

pub(crate) fn old_rules() -> Rules {
    let mut rules = Rules::example();
    rules.collapse.file = FileCollapse::Readers;
    rules.collapse.read_only = ReadOnlyRange::Refused;
    rules.anon.thp = Enabled::Never;
    rules
}

pub(crate) fn new_rules() -> Rules {
    let mut rules = Rules::example();
    rules.collapse.file = FileCollapse::LargeFolios;
    rules.collapse.sizes = CollapseSizes::Enabled;
    rules.collapse.lazyfree = Lazyfree::Refused;
    rules.collapse.dirty = DirtyRange::WrittenBack;
    rules.collapse.flush = DirtyFlush::UnlessOpenForWrite;
    rules.collapse.private_data = PrivateData::Again;
    rules.collapse.short_request = ShortRequest::Done;
    rules.anon.thp = Enabled::Never;
    rules
}

pub(crate) type PageContent = Option<(PageView, Vec<u8>)>;

impl World {
    pub(crate) fn new(rules: Rules) -> Self {
        Self::with_ram(rules, 32 << 20)
    }

    pub(crate) fn with_ram(rules: Rules, ram_bytes: u64) -> Self {
        Self::with_swap(rules, ram_bytes, 0)
    }

    pub(crate) fn with_swap(rules: Rules, ram_bytes: u64, swap_bytes: u64) -> Self {
        let config = Config { ram_bytes, swap_bytes, ..Config::new(Arch::X86_64) };
        let ram = Ram::new(rules.page, ram_bytes);
        let mut memory = Memory::with_ram(rules, &config, ram).unwrap();
        let mm = memory.new_space();
        Self { memory, mm, wake_ns: 0 }
    }

    pub(crate) fn mapped(mut self, nr: u64) -> Self {
        let map = Map::anon(nr * PAGE, Prot::READ_WRITE).at(addr(0));
        self.memory.mmap(self.mm, map).unwrap();
        self
    }

    pub(crate) fn with_file(
        mut self,
        filesystem: &str,
        nr: u64,
        prot: Prot,
    ) -> (Self, MappingId, OpenId) {
        let file = self.memory.add_file(nr * PAGE, filesystem);
        let open = self.memory.open(file);
        self.memory.mmap(self.mm, Map::file(open, 0, nr * PAGE, prot).at(addr(0))).unwrap();
        (self, file, open)
    }

    pub(crate) fn write(&mut self, pages: impl IntoIterator<Item = u64>) {
        for page in pages {
            self.memory.store(self.mm, addr(page), &[mark(page); 8]).unwrap();
        }
    }

    pub(crate) fn read(&mut self, pages: impl IntoIterator<Item = u64>) {
        for page in pages {
            self.memory.touch(self.mm, addr(page), Access::Read).unwrap();
        }
    }

    pub(crate) fn byte(&mut self, mm: MmId, page: u64) -> u8 {
        let mut byte = [0];
        self.memory.load(mm, addr(page), &mut byte).unwrap();
        byte[0]
    }

    pub(crate) fn advise(&mut self, advice: Madvice, first: u64, nr: u64) {
        self.memory.madvise(self.mm, addr(first), nr * PAGE, advice).unwrap();
    }

    pub(crate) fn collapse(&mut self, first: u64, nr: u64) -> Result<(), CollapseError> {
        let collapsed = self.memory.madvise_collapse(self.mm, addr(first), nr * PAGE);
        self.memory.validate().unwrap();
        collapsed
    }

    pub(crate) fn scan(&mut self) -> Vec<CollapseRefusal> {
        self.memory.change_rules(|rules| rules.anon.thp = Enabled::Always);
        let vmas = &self.memory.space(self.mm).vmas;
        let nr = vmas.find(addr(0).vpn(self.memory.rules().page)).unwrap().nr_pages();
        self.advise(Madvice::Hugepage, 0, nr);
        self.wake()
    }

    pub(crate) fn wake(&mut self) -> Vec<CollapseRefusal> {
        let before = self.memory.counters().collapse.refused;
        self.memory.run_khugepaged(self.wake_ns);
        self.wake_ns += self.memory.rules().collapse.scan_sleep_ms * 1_000_000;
        self.memory.validate().unwrap();
        let after = self.memory.counters().collapse.refused;
        let more = |refusal: &CollapseRefusal| after[*refusal as usize] > before[*refusal as usize];
        CollapseRefusal::ALL.into_iter().filter(more).collect()
    }

    pub(crate) fn page(&self, page: u64) -> Option<PageView> {
        self.memory.page_at(self.mm, addr(page))
    }

    pub(crate) fn is_huge(&self, page: u64) -> bool {
        self.page(page).is_some_and(|page| page.kind == LeafKind::Pmd)
    }

    pub(crate) fn order(&self, page: u64) -> u8 {
        self.page(page).unwrap().order.get()
    }

    pub(crate) fn bytes(&self, pfn: Pfn) -> Vec<u8> {
        self.memory.core().ram.frame(pfn).to_vec()
    }

    pub(crate) fn content(&self, mm: MmId, nr: u64) -> Vec<PageContent> {
        let see = |page| {
            let view = self.memory.page_at(mm, addr(page))?;
            Some((view, self.bytes(view.pfn)))
        };
        (0..nr).map(see).collect()
    }

    pub(crate) fn cached(&self, file: MappingId) -> Vec<(u64, u8, Vec<Vec<u8>>)> {
        let folio = |entry: largefolio_mm::mapping::tree::Entry| {
            let pfn = self.memory.core().folios.get(entry.folio).pfn;
            let bytes = (0..entry.order.nr_pages()).map(|by| self.bytes(Pfn(pfn.0 + by)));
            (entry.index.0, entry.order.get(), bytes.collect())
        };
        self.memory.folios(file).map(folio).collect()
    }

    pub(crate) fn tune(&mut self, change: impl FnOnce(&mut Rules)) {
        self.memory.change_rules(change);
    }

    pub(crate) fn folio(&self, page: u64) -> FolioId {
        self.memory.core().folios.of_pfn(self.page(page).unwrap().pfn).unwrap()
    }

    pub(crate) fn lock(&mut self, page: u64) {
        let id = self.folio(page);
        self.memory.set_folio_state(id, FolioState::Locked);
    }

    pub(crate) fn isolate(&mut self, page: u64) {
        let id = self.folio(page);
        assert!(self.memory.isolate(id));
    }

    pub(crate) fn putback(&mut self, page: u64) {
        let id = self.folio(page);
        self.memory.putback(id);
    }

    pub(crate) fn change_cached(&mut self, file: MappingId, index: u64, to: FolioState) {
        let id = self.memory.core().find(file, PageIndex(index)).unwrap().folio;
        self.memory.set_folio_state(id, to);
    }
}

pub(crate) fn failed(result: Result<(), CollapseError>) -> (Errno, CollapseRefusal) {
    let error = result.unwrap_err();
    (error.errno, error.refusal)
}
