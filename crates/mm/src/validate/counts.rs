//! Checks folio counts against the page tables: I11 .. I13, I17.
//!
//! Checks a file's gate: I14. The mapping's own check covers its huge folios.
//!
//! Checks the state of memory pressure: I15, I16.
//!
//! Checks hugetlb pages: I18.

use std::collections::BTreeMap;

use crate::core::hugetlb::{HugeOwner, Pool};
use crate::counters::NR_ORDERS;
use crate::counters::mapped::MappedCounters;
use crate::folio::FolioId;
use crate::folio::frames::Flag;
use crate::memory::Memory;
use crate::pgtable::PmdState;
use crate::rules::Writers;
use crate::units::{MappingId, MmId, Order, PageIndex, Pfn, SwapSlot};
use crate::validate::Violation;
use crate::vma::Sharing;

#[derive(Default)]
struct OfFolio {
    nr_pmds: u64,
    nr_pmd_maps: u64,
    ptes: BTreeMap<Pfn, u64>,
    by_mm: BTreeMap<MmId, u64>,
}

#[derive(Default)]
pub(super) struct EntryCounts {
    folios: BTreeMap<FolioId, OfFolio>,
}

impl EntryCounts {
    pub(super) fn add_pmd(&mut self, id: FolioId, mm: MmId, refs: u64) {
        let of = self.folios.entry(id).or_default();
        of.nr_pmds += 1;
        of.nr_pmd_maps += refs;
        *of.by_mm.entry(mm).or_default() += refs;
    }

    pub(super) fn add_ptes(&mut self, id: FolioId, mm: MmId, (pfn, nr): (Pfn, u64)) {
        let of = self.folios.entry(id).or_default();
        for pfn in pfn.0..pfn.0 + nr {
            *of.ptes.entry(Pfn(pfn)).or_default() += 1;
        }
        *of.by_mm.entry(mm).or_default() += nr;
    }

    pub(super) fn nr_maps(&self, id: FolioId) -> u64 {
        self.folios.get(&id).map_or(0, |of| of.nr_pmd_maps + of.ptes.values().sum::<u64>())
    }

    fn nr_pmds(&self, id: FolioId) -> u64 {
        self.folios.get(&id).map_or(0, |of| of.nr_pmds)
    }

    fn nr_ptes_of(&self, id: FolioId, pfn: Pfn) -> u64 {
        self.folios.get(&id).and_then(|of| of.ptes.get(&pfn)).copied().unwrap_or(0)
    }

    fn by_mm(&self, id: FolioId) -> BTreeMap<MmId, u64> {
        self.folios.get(&id).map(|of| of.by_mm.clone()).unwrap_or_default()
    }
}

impl Memory {
    pub(super) fn check_counts(&self, id: FolioId, entries: &EntryCounts) -> Result<(), Violation> {
        let folio = self.core.folios.get(id);
        let frames = self.core.folios.frames();
        let nr_pmds = entries.nr_pmds(id);
        let agree = |what, counted, found| {
            if counted == found {
                Ok(())
            } else {
                Err(Violation::I11 { folio: id, what, counted, found })
            }
        };
        agree("PMD entries", folio.pmd_maps(), nr_pmds)?;
        let shape = self.core.shape(folio.order);
        folio.mapcount.validate(&shape).map_err(|broken| Violation::Mapcount(id, broken))?;
        let has_page_maps = shape.has_page_counts();
        for (page, pfn) in (0..).zip((folio.pfn.0..folio.end_pfn().0).map(Pfn)) {
            let nr_maps = entries.nr_ptes_of(id, pfn) + nr_pmds;
            if has_page_maps {
                let counted = folio.mapcount.page_mapcount(&shape, page).into();
                agree("mappings of a page", counted, nr_maps)?;
            }
            if frames.get(Flag::Exclusive, pfn) {
                let is_swapped = |first: SwapSlot| self.core.is_slot_used(first.plus(page.into()));
                let is_sound = folio.is_anon()
                    && (nr_maps == 1 || nr_maps == 0 && !folio.slot().is_some_and(is_swapped));
                agree("exclusive page's mappings", u64::from(is_sound), 1)?;
            }
        }
        Ok(())
    }

    pub(super) fn check_owners(&self, id: FolioId, entries: &EntryCounts) -> Result<(), Violation> {
        let folio = self.core.folios.get(id);
        if !folio.is_large() {
            return Ok(());
        }
        let by_mm = entries.by_mm(id);
        let nr_of = |mm: MmId| by_mm.get(&mm).copied().unwrap_or(0);
        let claim = |what| Err(Violation::I12 { folio: id, what });
        let Some(owners) = folio.mapcount.owners(&self.core.shape(folio.order)) else {
            return Ok(());
        };
        let ids: Vec<_> = by_mm.keys().map(|&mm| (self.core.processes.of(mm), mm)).collect();
        for slot in owners.slots {
            let Some(owner) = slot.owner else { continue };
            let mm = ids.iter().find(|(id, _)| *id == owner).map(|&(_, mm)| mm);
            if i64::from(slot.mapcount) + 1 > mm.map_or(0, nr_of).cast_signed() {
                return claim("a slot counts more than its process maps");
            }
        }
        if !owners.is_shared && by_mm.len() > 1 {
            return claim("it is marked exclusive but two processes map it");
        }
        Ok(())
    }

    pub(super) fn check_mapped(&self, entries: &EntryCounts) -> Result<(), Violation> {
        let mut found = MappedCounters::default();
        for (&id, of) in &entries.folios {
            let folio = self.core.folios.get(id);
            let has_page_maps = self.core.shape(folio.order).has_page_counts();
            let is_whole = of.nr_pmds > 0 || !(has_page_maps || of.ptes.is_empty());
            let nr_mapped = if is_whole { folio.nr_pages() } else { of.ptes.len() as u64 };
            let nr_by_pmd = if of.nr_pmds > 0 { folio.nr_pages() } else { 0 };
            found.add(folio.mapped_kind(), nr_mapped.cast_signed(), nr_by_pmd.cast_signed());
        }
        let counted = self.core.counters.mapped;
        if counted == found { Ok(()) } else { Err(Violation::I17 { counted, found }) }
    }

    pub(super) fn check_sizes(&self) -> Result<(), Violation> {
        let (mut nr_queued, mut nr_exclusive) = (0, 0);
        let mut nr_anon = [0; NR_ORDERS];
        let mut nr_partial = [0; NR_ORDERS];
        for (id, folio) in self.core.folios.iter() {
            let order = usize::from(folio.order.get());
            nr_queued += u64::from(folio.deferred.is_some());
            nr_anon[order] += u64::from(folio.is_anon());
            nr_partial[order] += u64::from(folio.is_partially_mapped);
            let nr_pages = folio.nr_pages();
            nr_exclusive += self.core.folios.frames().count(Flag::Exclusive, folio.pfn, nr_pages);
            if folio.is_partially_mapped && folio.deferred.is_none() {
                let what = "partially mapped folio queued";
                return Err(Violation::I11 { folio: id, what, counted: 1, found: 0 });
            }
        }
        let agree = |what, counted, found| {
            if counted == found { Ok(()) } else { Err(Violation::I13 { what, counted, found }) }
        };
        let is_known = |(number, id): (_, FolioId)| {
            self.core.folios.try_get(id).is_some_and(|folio| folio.deferred == Some(number))
        };
        let nr_known = self.core.deferred.iter().filter(|&entry| is_known(entry)).count() as u64;
        agree("deferred-split queue", self.core.deferred.len() as u64, nr_queued)?;
        agree("deferred-split queue's folios", nr_known, nr_queued)?;
        let nr_pages = self.core.buddy.nr_pages();
        let all_exclusive = self.core.folios.frames().count(Flag::Exclusive, Pfn(0), nr_pages);
        agree("exclusive pages", all_exclusive, nr_exclusive)?;
        for order in (0..NR_ORDERS as u8).map(Order::new) {
            let size = self.core.counters.size(order);
            let nr = usize::from(order.get());
            agree("nr_anon", size.nr_anon, nr_anon[nr])?;
            agree("nr_anon_partially_mapped", size.nr_anon_partially_mapped, nr_partial[nr])?;
        }
        Ok(())
    }
}

impl Memory {
    pub(super) fn check_gates(&self) -> Result<(), Violation> {
        let mut writecounts = BTreeMap::<MappingId, i64>::new();
        for (_, open) in self.opens().filter(|(_, open)| open.is_writer) {
            *writecounts.entry(open.mapping).or_default() += 1;
        }
        for file in self.spaces().filter_map(|(_, space)| space.exe) {
            *writecounts.entry(file).or_default() -= 1;
        }
        for (file, mapping) in self.core.mappings() {
            let agree = |what, counted, found| {
                if counted == found {
                    Ok(())
                } else {
                    Err(Violation::I14 { file, what, counted, found })
                }
            };
            let writecount = writecounts.get(&file).copied().unwrap_or(0);
            agree("i_writecount", mapping.gate.writecount().into(), writecount)?;
            if writecount > 0 && self.rules.writers == Writers::DropCache {
                agree("huge folios in a file with writers", mapping.gate.nr_thps().into(), 0)?;
            }
        }
        Ok(())
    }
}

impl Memory {
    pub(super) fn check_reclaim(&self) -> Result<(), Violation> {
        self.core.folios.validate_lru().map_err(|(folio, what)| Violation::I15 { folio, what })?;
        let mut users: BTreeMap<SwapSlot, u64> = BTreeMap::new();
        for (_, space) in self.all_spaces() {
            for (vpn, slot) in space.swapped.iter() {
                *users.entry(slot).or_default() += 1;
                if space.table.leaf(vpn).is_some() || space.vmas.find(vpn).is_none() {
                    return Err(Violation::I16 { what: "a swapped page is mapped, or in no area" });
                }
                if !matches!(space.table.pmd(vpn), PmdState::Table { .. }) {
                    return Err(Violation::I16 { what: "a swapped page has no PTE table" });
                }
            }
        }
        for (file, mapping) in self.core.mappings() {
            if mapping.shadows.validate().is_err() {
                return Err(Violation::I16 { what: "shadows overlap" });
            }
            for (&PageIndex(index), &slot) in &mapping.swapped {
                *users.entry(slot).or_default() += 1;
                if self.core.find(file, PageIndex(index)).is_some() {
                    return Err(Violation::I16 { what: "a page is cached and in swap space" });
                }
            }
        }
        if !self.core.is_dirty_sound() {
            return Err(Violation::I16 { what: "dirty pages" });
        }
        if !self.is_swap_cache_sound() {
            return Err(Violation::I16 { what: "the swap cache" });
        }
        let is_sound = match &self.core.pressure.swap {
            Some(swap) => {
                let is_used = |slot| swap.stored(slot).is_some();
                swap.validate(&users) && self.core.pressure.zswap.validate(is_used)
            }
            None => users.is_empty(),
        };
        if is_sound { Ok(()) } else { Err(Violation::I16 { what: "users of slots" }) }
    }

    fn is_swap_cache_sound(&self) -> bool {
        let mut nr = 0;
        for (id, folio) in self.core.folios.iter() {
            let Some(first) = folio.slot() else { continue };
            nr += folio.nr_pages();
            let mut slots = (0..folio.nr_pages()).map(|by| first.plus(by));
            if !slots.all(|slot| self.core.cached_in(slot) == Some(id)) {
                return false;
            }
        }
        self.nr_swap_cached() == nr
    }
}

impl Memory {
    pub(super) fn check_huge_pages(&self) -> Result<(), Violation> {
        let mut entries: BTreeMap<(Order, Pfn), u64> = BTreeMap::new();
        for (_, space) in self.all_spaces() {
            for (vpn, entry) in &space.huge {
                let vma = space.vmas.find(*vpn);
                let area = vma.and_then(crate::vma::Vma::huge);
                let is_sound = vma.is_some_and(|vma| vma.prot.can_write || !entry.is_writable)
                    && area.is_some_and(|area| area.order == entry.order);
                if !is_sound {
                    return Err(of(entry.order, "area of an entry", vpn.0, 0));
                }
                *entries.entry((entry.order, entry.pfn)).or_default() += 1;
            }
        }
        for pool in self.core.hugetlb.pools() {
            self.check_pool(pool, &mut entries)?;
        }
        match entries.first_key_value() {
            None => Ok(()),
            Some(((order, pfn), _)) => Err(of(*order, "entry of a free page", pfn.0, 0)),
        }
    }

    fn check_pool(
        &self,
        pool: &Pool,
        entries: &mut BTreeMap<(Order, Pfn), u64>,
    ) -> Result<(), Violation> {
        let order = pool.order();
        let counts = pool.counts();
        let (mut nr_used, mut nr_to_come) = (0, 0);
        for (pfn, folio) in pool.used() {
            let maps = u64::from(folio.mapcount.entire_mapcount());
            let found = entries.remove(&(order, pfn)).unwrap_or(0);
            if maps != found || (maps == 0 && folio.owner == HugeOwner::Anon) {
                return Err(of(order, "mappings of a page", maps, found));
            }
            nr_used += 1;
            nr_to_come += u64::from(folio.restores_reserve);
        }
        let nr_hugepages = counts.free_hugepages + nr_used;
        if nr_hugepages != counts.nr_hugepages {
            return Err(of(order, "pages", counts.nr_hugepages, nr_hugepages));
        }
        let promised = self.huge_promises(order) + pool.nr_lost();
        let promised = promised.wrapping_sub(nr_to_come);
        if promised != counts.resv_hugepages {
            return Err(of(order, "promises", counts.resv_hugepages, promised));
        }
        Ok(())
    }

    /// Reserved pages that owners have not used and shared files have not filled.
    fn huge_promises(&self, order: Order) -> u64 {
        let mut promised = 0;
        for (_, file) in self.core.hugetlb.files() {
            if file.order == order && file.sharing == Sharing::Shared {
                promised += (file.regions.len() - file.pages.len()) as u64;
            }
        }
        for vma in self.spaces().flat_map(|(_, space)| space.vmas.iter()) {
            let Some(area) = vma.huge().filter(|area| area.order == order && area.is_owner) else {
                continue;
            };
            let index = |vpn| vma.index_of(vpn) >> order.get();
            let range = index(vma.start)..index(vma.end);
            let nr_used = self.core.hugetlb.file(area.file).regions.range(range.clone()).count();
            promised += range.end - range.start - nr_used as u64;
        }
        promised
    }
}

const fn of(order: Order, what: &'static str, counted: u64, found: u64) -> Violation {
    Violation::I18 { order, what, counted, found }
}
