//! Splits a page-cache folio (docs/behaviour G.3.2, G.3.3, G.4.2).
//!
//! Corresponds to: `__split_unmapped_folio`.
//!
//! The folio's pages are unmapped everywhere and fault again; the parts inherit its state.

use crate::folio::{Folio, Owner};
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::policy::Point;
use crate::units::{MappingId, Order, PageIndex};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Uniform(Order),
    /// Into halves, and again the half that contains page `at`, down to order `to`.
    Around {
        at: u64,
        to: Order,
    },
}

impl Cut {
    pub(crate) const fn smallest(self) -> Order {
        match self {
            Self::Uniform(to) | Self::Around { to, .. } => to,
        }
    }

    fn parts(self, order: Order) -> Vec<(u64, Order)> {
        match self {
            Self::Uniform(to) => {
                let nr_parts = order.nr_pages() >> to.get();
                (0..nr_parts).map(|by| (by << to.get(), to)).collect()
            }
            Self::Around { at, to } => parts_around(order, at, to),
        }
    }
}

fn parts_around(order: Order, at: u64, to: Order) -> Vec<(u64, Order)> {
    let (mut first, mut parts) = (0, Vec::new());
    for half in (to.get()..order.get()).rev().map(Order::new) {
        let upper = first + half.nr_pages();
        if at < upper {
            parts.push((upper, half));
        } else {
            parts.push((first, half));
            first = upper;
        }
    }
    parts.push((first, to));
    parts.sort_unstable();
    parts
}

impl Memory {
    pub(super) fn split_file(&mut self, file: MappingId, index: PageIndex, cut: Cut) {
        let Some(entry) = self.core.find(file, index) else {
            unreachable!("the page cache has the folios that it owns")
        };
        self.unmap_file_pages(entry);
        let is_dirty = self.core.folios.get(entry.folio).is_dirty;
        self.core.set_clean(entry.folio);
        self.core.note(Point::Removed, entry.folio);
        let mapping = self.core.mapping_mut(file);
        let nr_file_pages = mapping.nr_file_pages(self.rules.page);
        mapping.tree.remove(index);
        mapping.count_removed(entry.order);
        let spot = self.core.folios.spot(entry.folio);
        let whole = self.core.folios.remove(entry.folio);
        for (by, order) in cut.parts(whole.order) {
            let index = PageIndex(index.0 + by);
            if index.0 >= nr_file_pages {
                // After the end of the file (G.4.1).
                self.core.buddy.free(whole.pfn.plus(by), order);
                continue;
            }
            let mut folio =
                Folio::new(whole.pfn.plus(by), order, Owner::File { mapping: file, index });
            folio.is_marked = whole.is_marked && by == 0;
            folio.is_uptodate = whole.is_uptodate;
            folio.is_workingset = whole.is_workingset;
            folio.is_locked = whole.is_locked;
            folio.is_swapbacked = whole.is_swapbacked;
            folio.refs = order.nr_pages();
            folio.group = whole.group;
            let id = self.core.folios.insert(folio);
            let mapping = self.core.mapping_mut(file);
            mapping.count_inserted(order);
            let inserted = mapping.tree.insert(index, order, id);
            self.core.folios.lru_mut().settle(id, spot);
            let Ok(()) = inserted else { unreachable!("the place of the whole folio is free") };
            if is_dirty {
                self.core.set_dirty(id);
            }
            self.core.note(Point::Added, id);
        }
    }

    pub(crate) fn unmap_file_pages(&mut self, entry: Entry) {
        if self.core.folios.get(entry.folio).maps() == 0 {
            return;
        }
        for site in self.sites_of(entry.folio) {
            self.zap(site.mm, site.vpn, site.vpn.plus(site.nr));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_at_page_100_leaves_the_folios_of_n_28() {
        let parts = Cut::Around { at: 100, to: Order::ZERO }.parts(Order::new(9));
        let shown: Vec<_> = parts.iter().map(|(at, order)| format!("{order}@{at}")).collect();
        let expected = "o6@0 o5@64 o2@96 o0@100 o0@101 o1@102 o3@104 o4@112 o7@128 o8@256";
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn parts_cover_the_folio_without_overlap() {
        for at in 0..64 {
            for to in 0..6 {
                let parts = Cut::Around { at, to: Order::new(to) }.parts(Order::new(6));
                let mut next = 0;
                for (first, order) in parts {
                    assert_eq!(first, next);
                    assert!(order.is_aligned(first));
                    next += order.nr_pages();
                }
                assert_eq!(next, 64);
            }
        }
    }
}
