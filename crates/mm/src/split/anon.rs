//! Splits an anonymous folio (docs/behaviour G.4.2, G.4.3).
//!
//! Corresponds to: `unmap_folio`, `remap_page`, `try_to_map_unused_to_zeropage`,
//! `deferred_split_scan`, `thp_underused`.
//!
//! Mappings are kept: each PTE maps the same page as before, now as part of a smaller folio.
//! Unmapped pages are freed; pages that were never stored to are replaced by the shared zero page.
//!
//! The deferred-split shrinker: memory pressure splits queued folios (docs/behaviour G.2.4).
//!
//! Differs: a page counts as zero-filled if the model has seen no store to it since it was zeroed;
//! Linux checks the page's bytes, which the model does not always store. The results differ only if
//! a program stores zeroes. A partially mapped folio that cannot be split keeps its place in the
//! queue; Linux moves it to the end.

use crate::core::Core;
use crate::folio::frames::Flag;
use crate::folio::lru::Spot;
use crate::folio::{Folio, FolioId, Owner};
use crate::memory::Memory;
use crate::memory::rmap_walk::Site;
use crate::pgtable::{FolioSpan, Protection, PteFlags};
use crate::rmap::Mapcount;
use crate::rules::anon::SplitZeroPages;
use crate::rules::reclaim::SplitParts;
use crate::units::{Order, PageIndex, Pfn};

impl Memory {
    pub(super) fn split_anon(&mut self, id: FolioId, to: Order) {
        for site in self.sites_of(id).iter().filter(|site| site.is_pmd) {
            self.split_pmd(site.mm, site.vpn);
        }
        let sites = self.sites_of(id);
        self.reopen_sites(&sites);
        for site in &sites {
            self.flush(site.mm, site.vpn, site.nr);
            self.space_mut(site.mm).table.unfold_range(site.vpn, site.nr);
        }
        let spot = self.core.folios.spot(id);
        // The entries' dirty state moves to the folio, and from there to every part.
        self.core.folios.get_mut(id).is_dirty |= self.has_dirty_entry(&sites);
        let whole = self.take_whole(id);
        let mut kept = Vec::new();
        let parts = parts_of(&self.core, &whole, to, &sites);
        let drops_zeroes =
            to == Order::ZERO && self.rules.anon.split_zero_pages == SplitZeroPages::Replaced;
        for part in parts {
            let stored = whole.slot().map(|first| first.plus(part.pfn.0 - whole.pfn.0));
            let is_mapped = part.mapcount.is_mapped();
            // The swap cache keeps pages that can still be swapped in.
            let is_kept = is_mapped || stored.is_some_and(|slot| self.core.is_slot_used(slot));
            let is_zero = drops_zeroes
                && !self.core.folios.is_written(part.pfn)
                && !self.is_page_locked(part.pfn, &sites);
            if is_zero && is_mapped {
                self.map_zero_pages(part.pfn, &sites);
                self.core.counters.nr_split_zero_pages += 1;
            }
            if is_zero || !is_kept {
                let (pfn, nr) = (part.pfn, to.nr_pages());
                self.core.folios.frames_mut().clear(Flag::Exclusive, pfn, nr);
                self.core.buddy.free(pfn, to);
                self.core.forget_cached(stored);
            } else {
                let part_pfn = part.pfn;
                let id = self.insert_part(&whole, part, to);
                if let Some(slot) = stored {
                    self.core.add_to_swap_cache(id, slot);
                }
                kept.push((part_pfn, id));
            }
        }
        self.settle_parts(whole.pfn, kept, spot);
        self.refold(&sites, to);
    }

    /// Puts the parts where the whole was. Each goes next to the older neighbour, so the first comes
    /// last.
    fn settle_parts(&mut self, first: Pfn, mut parts: Vec<(Pfn, FolioId)>, spot: Spot) {
        match self.rules.reclaim.split_parts {
            SplitParts::Ascending => parts.reverse(),
            SplitParts::Descending => parts.sort_by_key(|(pfn, _)| *pfn == first),
        }
        for (_, id) in parts {
            self.core.folios.lru_mut().settle(id, spot);
        }
    }

    fn take_whole(&mut self, id: FolioId) -> Folio {
        let mut whole = self.core.folios.remove(id);
        self.core.deferred.remove(&mut whole);
        self.core.count_split(&whole);
        let size = self.core.counters.size_mut(whole.order);
        size.nr_anon -= 1;
        size.nr_anon_partially_mapped -= u64::from(whole.is_partially_mapped);
        whole
    }

    fn insert_part(&mut self, whole: &Folio, part: SplitPart, to: Order) -> FolioId {
        let Owner::Anon { index } = whole.owner else { unreachable!("an anonymous folio") };
        let index = PageIndex(index.0 + (part.pfn.0 - whole.pfn.0));
        let mut folio = Folio::new(part.pfn, to, Owner::Anon { index });
        folio.is_dirty = whole.is_dirty;
        folio.mapped_by = whole.mapped_by;
        folio.group = whole.group;
        folio.is_lazyfree = whole.is_lazyfree;
        folio.is_workingset = whole.is_workingset;
        folio.mapcount = part.mapcount;
        folio.refs = folio.maps();
        self.core.count_part(&folio);
        let id = self.core.folios.insert(folio);
        self.core.counters.size_mut(to).nr_anon += 1;
        id
    }

    fn map_zero_pages(&mut self, pfn: Pfn, sites: &[Site]) {
        let zero = self.zero_pfn;
        for site in sites {
            let Some(vpn) = site.vpn_of(pfn) else { continue };
            let table = &mut self.space_mut(site.mm).table;
            let kept = table.leaf(vpn).is_some_and(|l| l.flags.contains(PteFlags::NO_ACCESS));
            let access = if kept { PteFlags::NO_ACCESS } else { PteFlags::NONE };
            let flags = PteFlags::YOUNG | PteFlags::SPECIAL | access;
            table.replace_pte(vpn, zero, flags, FolioSpan::single(zero));
        }
    }

    fn refold(&mut self, sites: &[Site], to: Order) {
        if to == Order::ZERO {
            return;
        }
        for site in sites {
            let (space, folios) = self.space_and_folios(site.mm);
            let span_of = |pfn| folios.span_of(pfn);
            space.table.protect_range(site.vpn, site.nr, Protection::default(), span_of);
        }
    }
}

struct SplitPart {
    pfn: Pfn,
    mapcount: Mapcount,
}

fn parts_of(core: &Core, whole: &Folio, to: Order, sites: &[Site]) -> Vec<SplitPart> {
    let shape = core.shape(to);
    let nr_parts = whole.nr_pages() >> to.get();
    let part =
        |by: u64| SplitPart { pfn: whole.pfn.plus(by << to.get()), mapcount: Mapcount::default() };
    let mut parts: Vec<SplitPart> = (0..nr_parts).map(part).collect();
    for site in sites {
        let owner = core.processes.of(site.mm);
        let first = site.pfn.0 - whole.pfn.0;
        for by in first..first + site.nr {
            let page = (by & (to.nr_pages() - 1)) as u32;
            let mapcount = &mut parts[(by >> to.get()) as usize].mapcount;
            let change = mapcount.add_ptes(&shape, owner, page..page + 1);
            assert!(change.is_ok(), "the parts have at most as many mappings as the whole");
        }
    }
    parts
}

impl Memory {
    /// Splits partially mapped or under-used folios among the first `nr_to_scan`. Returns freed
    /// pages.
    pub fn shrink_deferred(&mut self, nr_to_scan: usize) -> u64 {
        let before = self.core.buddy.nr_free_pages();
        let queued: Vec<FolioId> =
            self.core.deferred.iter().take(nr_to_scan).map(|(_, id)| id).collect();
        for id in queued {
            self.shrink_one(id);
        }
        self.core.buddy.nr_free_pages() - before
    }

    fn shrink_one(&mut self, id: FolioId) {
        let folio = self.core.folios.get(id).clone();
        if !folio.is_partially_mapped && !self.is_underused(&folio) {
            self.core.deferred.remove(self.core.folios.get_mut(id));
            return;
        }
        if self.split(id, Order::ZERO).is_ok() {
            self.core.counters.thp_underused_split_page += u64::from(!folio.is_partially_mapped);
        } else if !folio.is_partially_mapped {
            self.core.deferred.remove(self.core.folios.get_mut(id));
        }
    }

    fn is_underused(&self, folio: &Folio) -> bool {
        let limit = self.rules.anon.none_limit(self.rules.page);
        let nr_pages = folio.nr_pages();
        if limit >= self.rules.page.pmd_order().nr_pages() - 1 {
            return false;
        }
        let nr_written = self.core.folios.frames().count(Flag::Written, folio.pfn, nr_pages);
        nr_pages - nr_written > limit
    }

    pub(crate) fn reclaim(&mut self) -> u64 {
        self.shrink_deferred(usize::MAX) + self.shrink_huge_zero()
    }
}
