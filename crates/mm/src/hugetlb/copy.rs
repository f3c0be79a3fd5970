//! Copying huge pages at fork, and stores to shared ones (docs/behaviour O.4).
//!
//! Corresponds to: `copy_hugetlb_page_range`, `hugetlb_wp`, `unmap_ref_private`.
//!
//! ```text
//!   store to a read-only entry: mapped once -------------------> kept
//!                               a page is available -----------> copied
//!                               none, owner of reservations ---> taken from the others, kept
//!                               none, child -------------------> SIGBUS
//! ```

use super::fault::HugeFault;
use crate::core::hugetlb::{Charge, HugeOwner};
use crate::core::space::HugeEntry;
use crate::memory::Memory;
use crate::units::{MmId, Pfn, Vpn};
use crate::vma::{Backing, HugeArea, Sharing, Vma};

impl Memory {
    /// The child maps its parent's private pages, both read-only. It owns no reservations (O.4.1).
    pub(crate) fn fork_huge(&mut self, parent: MmId, child: MmId) {
        if self.core.hugetlb.is_empty() {
            return;
        }
        let areas: Vec<Vma> =
            self.space(child).vmas.iter().filter(|vma| vma.huge().is_some()).copied().collect();
        for vma in areas {
            self.space_mut(child).vmas.change(vma.start, vma.end, |vma| {
                if let Backing::Hugetlb(area) = &mut vma.backing {
                    (area.is_owner, area.has_lost) = (false, false);
                }
            });
            if vma.sharing == Sharing::Private {
                self.fork_huge_area(parent, child, &vma);
            }
        }
    }

    fn fork_huge_area(&mut self, parent: MmId, child: MmId, vma: &Vma) {
        let (of_parent, of_child, core) = self.two_spaces(parent, child);
        let owner = core.processes.of(child);
        for (vpn, entry) in of_parent.huge.range_mut(vma.start..vma.end) {
            entry.is_writable = false;
            core.hugetlb.add_map(entry.order, entry.pfn, owner);
            core.hugetlb.folio_mut(entry.order, entry.pfn).is_exclusive = false;
            of_child.huge.insert(*vpn, *entry);
            core.counters.hugetlb.nr_forked += 1;
            core.work.add(1);
        }
        self.flush(parent, vma.start, vma.nr_pages());
    }

    pub(super) fn huge_write_fault(&mut self, fault: &HugeFault, entry: HugeEntry) -> Option<()> {
        let HugeArea { order, .. } = fault.area;
        self.flush(fault.mm, fault.first(), order.nr_pages());
        if self.may_keep_huge(fault, entry) {
            self.keep_huge(fault, entry);
            return Some(());
        }
        let pool = self.core.hugetlb.pool_mut(order);
        if let Some(new) = pool.take(Charge::Available, HugeOwner::Anon) {
            self.copy_huge(fault, entry.pfn, new);
            return Some(());
        }
        // The pool is empty: a child fails, but the owner of the reservations must not (O.4.4).
        if !fault.area.is_owner {
            return None;
        }
        self.take_from_others(fault, entry.pfn);
        self.keep_huge(fault, entry);
        Some(())
    }

    /// Whether no other process maps the page (O.4.2). Shared pages are always stored to in place.
    fn may_keep_huge(&self, fault: &HugeFault, entry: HugeEntry) -> bool {
        let folio = self.core.hugetlb.folio(fault.area.order, entry.pfn);
        fault.vma.sharing == Sharing::Shared || folio.mapcount.mapcount() == 1
    }

    fn keep_huge(&mut self, fault: &HugeFault, entry: HugeEntry) {
        let folio = self.core.hugetlb.folio_mut(fault.area.order, entry.pfn);
        folio.is_exclusive = folio.owner == HugeOwner::Anon;
        self.set_huge(fault, HugeEntry { is_writable: true, ..entry });
        self.core.counters.hugetlb.nr_reused += 1;
    }

    fn set_huge(&mut self, fault: &HugeFault, entry: HugeEntry) {
        self.space_mut(fault.mm).huge.insert(fault.first(), entry);
    }

    fn copy_huge(&mut self, fault: &HugeFault, from: Pfn, to: Pfn) {
        let HugeArea { order, .. } = fault.area;
        let fault_page = fault.vpn.0 - fault.first().0;
        let plan = self.rules.clear.copy_plan(self.arch, self.rules.page, order, fault_page);
        self.core.ram.copy_folio(from, to, &plan);
        self.core.work.add_cheap(order.nr_pages() / 64);
        self.core.counters.hugetlb.nr_cow += 1;
        let owner = self.core.processes.of(fault.mm);
        self.core.hugetlb.add_map(order, to, owner);
        self.set_huge(fault, HugeEntry { pfn: to, order, is_writable: true });
        self.core.hugetlb.remove_map(order, from, owner);
    }

    /// Unmaps the page from every child; those areas get no further pages (O.4.4).
    fn take_from_others(&mut self, fault: &HugeFault, pfn: Pfn) {
        let HugeArea { file, order, .. } = fault.area;
        let index = fault.index() << order.get();
        let sites: Vec<(MmId, Vma, Vpn)> = self
            .spaces()
            .filter(|(mm, _)| *mm != fault.mm)
            .flat_map(|(mm, space)| space.vmas.iter().map(move |vma| (mm, *vma)))
            .filter_map(|(mm, vma)| {
                let area = vma.huge().filter(|area| area.file == file)?;
                let by = index.checked_sub(area.pgoff).filter(|by| *by < vma.nr_pages())?;
                Some((mm, vma, vma.start.plus(by)))
            })
            .collect();
        for (mm, vma, vpn) in sites {
            let is_here = self.space(mm).huge.get(&vpn).is_some_and(|entry| entry.pfn == pfn);
            if !is_here {
                continue;
            }
            self.zap_huge(mm, &vma, vpn, vpn.plus(order.nr_pages()));
            self.space_mut(mm).vmas.change(vma.start, vma.end, |vma| {
                if let Backing::Hugetlb(area) = &mut vma.backing {
                    area.has_lost = true;
                }
            });
            self.core.counters.hugetlb.nr_taken += 1;
        }
    }
}
