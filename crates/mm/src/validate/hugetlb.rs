//! Checks hugetlb pages: I18.

use std::collections::BTreeMap;

use super::Violation;
use crate::core::hugetlb::{HugeOwner, Pool};
use crate::memory::Memory;
use crate::units::{Order, Pfn};
use crate::vma::Sharing;

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
