//! The model's state after a step: pages, files, areas and the machine.

use largefolio_mm::mapping::tree::Entry;
use largefolio_mm::pgtable::{Leaf, LeafKind, PteFlags};
use largefolio_mm::rules::anon::{Mapcount, PmdExclusive};
use largefolio_mm::rules::zswap::ZswapShrink;
use largefolio_mm::units::{MmId, Order, Pfn, Vaddr, Vpn, VpnRange};
use largefolio_mm::view::statistics::{CountedBy, Smaps};

use super::super::limit::SwapNumbers;
use super::super::range::PageRange;
use super::super::shmem::CachedFolio;
use super::super::statistics::MachineKib;
use super::super::world::{MappedPage, PageState, World};
use super::super::zswap::ZswapNumbers;
use super::{BASE, ProgramReplay};

impl ProgramReplay {
    /// Returns the cached pages of the program's own file, and how many are in PMD-sized folios, if
    /// the file is on disk.
    pub(in super::super) fn nr_cached(&self) -> Option<(u64, u64)> {
        let own = self.own.filter(|own| own.is_on_disk)?;
        let pmd = self.memory.rules().page.pmd_order();
        let pages_from = |least: Order| {
            let folios = self.memory.folios(own.file).filter(|entry| entry.order >= least);
            folios.map(|entry| entry.order.nr_pages()).sum()
        };
        Some((pages_from(Order::ZERO), pages_from(pmd)))
    }

    /// Returns the cached folios that hold data, if the own file is in memory. mincore does not show
    /// the others.
    pub(in super::super) fn cached_folios(&self) -> Vec<CachedFolio> {
        let Some(own) = self.own.filter(|own| !own.is_on_disk) else { return Vec::new() };
        let folios = &self.memory.core().folios;
        let has_data = |entry: &Entry| folios.get(entry.folio).is_uptodate;
        let folio = |entry: Entry| CachedFolio { first: entry.index.0, order: entry.order.get() };
        self.memory.folios(own.file).filter(has_data).map(folio).collect()
    }

    pub(in super::super) fn world(&self) -> World {
        if let Some(huge) = self.huge {
            return self.huge_world(huge);
        }
        let mut world = World::new(self.nr_pages);
        for (slot, mm) in self.slots.iter().enumerate() {
            let Some(mm) = *mm else { continue };
            let first = Vaddr(BASE).vpn(self.memory.rules().page);
            for leaf in self.memory.space(mm).table.leaves(first, self.nr_pages) {
                // The window does not end at a PMD boundary, so a leaf may reach beyond it.
                let from = leaf.first_vpn.max(first);
                let end = leaf.end_vpn().0.min(first.0 + self.nr_pages);
                for vpn in from.0..end {
                    let state = self.page_state(mm, &leaf, Vpn(vpn));
                    world.slots[slot][(vpn - first.0) as usize] = state;
                }
            }
            let end = first.plus(self.nr_pages);
            for (vpn, _) in self.memory.space(mm).swapped.range(first, end) {
                let page = &mut world.slots[slot][(vpn.0 - first.0) as usize];
                *page = PageState { page: MappedPage::Swapped, ..PageState::default() };
            }
        }
        world
    }

    fn page_state(&self, mm: MmId, leaf: &Leaf, vpn: Vpn) -> PageState {
        let is_pmd = leaf.kind == LeafKind::Pmd;
        let index = (vpn.0 - leaf.first_vpn.0) as u32;
        let pfn = leaf.pfn_of(vpn);
        let folios = &self.memory.core().folios;
        let is_special = leaf.flags.contains(PteFlags::SPECIAL);
        let Some(id) = folios.of_pfn(pfn).filter(|_| !is_special) else {
            let page = if is_pmd { MappedPage::HugeZero { index } } else { MappedPage::Zero };
            // F.5.10: the huge zero folio has no known owner, so it is not counted as shared.
            let anon = &self.memory.rules().anon;
            let is_exclusive = is_pmd
                && anon.mapcount == Mapcount::PerFolio
                && anon.pmd_exclusive != PmdExclusive::FirstNormalPage;
            return PageState { page, is_exclusive, is_pmd, ..PageState::default() };
        };
        let folio = folios.get(id);
        let page = MappedPage::Folio {
            label: folio.pfn.0,
            order: folio.order.get(),
            index: (pfn.0 - folio.pfn.0) as u32,
        };
        let addr = Vaddr(vpn.0 << self.memory.rules().page.shift());
        let view = self.memory.page_at(mm, addr);
        let is_exclusive = view.is_some_and(|view| view.is_exclusively_mapped);
        let mapcount = view.map_or(0, |view| view.mapcount);
        let sum = Some(self.sum_of(pfn));
        let node = self.memory.core().buddy.node_of(pfn).0;
        PageState { page, is_exclusive, is_pmd, is_file: !folio.is_anon(), sum, node, mapcount }
    }

    /// Flushes statistics and batches, as the probe did before each step (`probe/limit.h`).
    pub(super) fn refresh(&mut self) {
        if self.has_nodes {
            self.memory.drain_batches();
        }
        let Some(group) = self.group else { return };
        self.memory.flush_group_stats(group);
        self.memory.drain_batches();
        self.swapped = self.swapped_so_far();
        self.zswapped = self.zswapped_so_far();
    }

    fn zswapped_so_far(&self) -> ZswapNumbers {
        let counters = &self.memory.core().counters.reclaim;
        ZswapNumbers {
            nr_stored: self.memory.nr_zswapped(),
            nr_out: counters.zswpout,
            nr_in: counters.zswpin,
            nr_back: counters.zswpwb,
            nr_zero: counters.swpout_zero + counters.swpin_zero,
        }
    }

    /// Returns whether a kernel's worker writes pages back, at times that depend on the scheduler.
    pub(in super::super) fn is_pool_shrunk(&self) -> bool {
        let is_repeated = self.memory.rules().zswap.shrink != ZswapShrink::Oldest;
        self.memory.counters().reclaim.pool_limit_hit > 0 && is_repeated
    }

    pub(in super::super) fn zswap_numbers(&self) -> ZswapNumbers {
        let (is, was) = (self.zswapped_so_far(), self.zswapped);
        ZswapNumbers {
            nr_stored: is.nr_stored,
            nr_out: is.nr_out - was.nr_out,
            nr_in: is.nr_in - was.nr_in,
            nr_back: is.nr_back - was.nr_back,
            nr_zero: is.nr_zero - was.nr_zero,
        }
    }

    fn swapped_so_far(&self) -> SwapNumbers {
        let counters = &self.memory.core().counters.reclaim;
        let (nr_in, nr_out) = (counters.pswpin, counters.pswpout);
        SwapNumbers {
            nr_in,
            nr_out,
            nr_cached: self.memory.nr_swap_cached(),
            nr_used: self.memory.nr_swapped(),
        }
    }

    pub(in super::super) fn swap_numbers(&self) -> Option<SwapNumbers> {
        self.group?;
        let (is, was) = (self.swapped_so_far(), self.swapped);
        Some(SwapNumbers { nr_in: is.nr_in - was.nr_in, nr_out: is.nr_out - was.nr_out, ..is })
    }

    pub(in super::super) fn smaps(&self, slot: usize, pages: PageRange) -> Option<Smaps> {
        let vpn = |page| self.addr(page).vpn(self.memory.rules().page);
        let pages = VpnRange { start: vpn(pages.first), end: vpn(pages.first + pages.nr) };
        Some(self.memory.smaps(self.slots[slot]?, pages, CountedBy::Kernel))
    }

    pub(in super::super) fn machine(&self) -> MachineKib {
        let counters = self.memory.core().counters.mapped;
        MachineKib::of_model(&counters, self.memory.rules().page.bytes())
    }

    /// Returns the sum of a page's 32-bit words, as the probe computes it: all words of a 4K page;
    /// for a larger page only those in the first 64 bytes of each KiB.
    pub(super) fn sum_of(&self, pfn: Pfn) -> u32 {
        let frame = self.memory.core().ram.frame(pfn);
        let step = if frame.len() > 4096 { 1024 / 64 } else { 1 };
        let parts = frame.as_chunks::<64>().0.iter().step_by(step);
        let words = parts.flat_map(|part| part.as_chunks::<4>().0);
        words.fold(0, |sum: u32, word| sum.wrapping_add(u32::from_le_bytes(*word)))
    }

    pub(in super::super) fn folio_of(&self, slot: usize, page: u64) -> Option<String> {
        let mm = self.slots[slot]?;
        let addr = self.addr(page);
        if self.huge.is_some() {
            let vpn = addr.vpn(self.memory.rules().page);
            let (_, entry) = self.memory.huge_entry_at(mm, vpn)?;
            return Some(format!("{entry:?}, {:?}", self.memory.huge_page(&entry)));
        }
        let view = self.memory.page_at(mm, addr)?;
        let folios = &self.memory.core().folios;
        let folio = folios.get(folios.of_pfn(view.pfn)?);
        Some(format!(
            "order {}, refs {}, maps {}, by PMD {}, page maps {}, exclusive {}, partial {}",
            folio.order,
            folio.refs,
            folio.maps(),
            folio.pmd_maps(),
            view.mapcount,
            view.is_anon_exclusive,
            view.is_partially_mapped,
        ))
    }
}
