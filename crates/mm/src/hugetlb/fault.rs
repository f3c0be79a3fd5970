//! Faults on huge pages (docs/behaviour O.3).
//!
//! Corresponds to: `hugetlb_fault`, `hugetlb_no_page`, `alloc_hugetlb_folio`.

use crate::core::hugetlb::{Charge, HugeOwner};
use crate::core::space::HugeEntry;
use crate::fault::{Access, FaultError, FaultOutcome, Touched};
use crate::memory::Memory;
use crate::pgtable::{Leaf, LeafKind, PteFlags};
use crate::rules::Arch;
use crate::units::{MmId, Pfn, Vpn};
use crate::vma::{HugeArea, Sharing, Vma};

#[derive(Clone, Copy, Debug)]
pub(super) struct HugeFault {
    pub(super) mm: MmId,
    pub(super) vpn: Vpn,
    pub(super) access: Access,
    pub(super) vma: Vma,
    pub(super) area: HugeArea,
}

impl HugeFault {
    pub(super) fn first(&self) -> Vpn {
        Vpn(self.area.order.round_down(self.vpn.0))
    }

    pub(super) fn index(&self) -> u64 {
        self.vma.index_of(self.vpn) >> self.area.order.get()
    }
}

const STEPS_OF_FAULT: u64 = 4;

impl Memory {
    pub(crate) fn touch_huge(
        &mut self,
        mm: MmId,
        vpn: Vpn,
        access: Access,
    ) -> Option<Result<Touched, FaultError>> {
        if self.core.hugetlb.is_empty() {
            return None;
        }
        let vma = *self.space(mm).vmas.find(vpn)?;
        let area = vma.huge()?;
        let fault = HugeFault { mm, vpn, access, vma, area };
        Some(self.huge_fault_at(&fault))
    }

    fn huge_fault_at(&mut self, fault: &HugeFault) -> Result<Touched, FaultError> {
        let addr = fault.vpn.0 << self.rules.page.shift();
        let prot = fault.vma.prot;
        let is_allowed = match fault.access {
            Access::Read => prot.can_read,
            Access::Write => prot.can_write,
            Access::Exec => prot.can_exec,
        };
        if !is_allowed {
            return Err(FaultError::Protected(addr));
        }
        let entry = self.space(fault.mm).huge.get(&fault.first()).copied();
        if let Some(entry) = entry
            && (fault.access != Access::Write || entry.is_writable)
        {
            return Ok(Touched { leaf: self.huge_leaf(fault, entry), outcome: FaultOutcome::Hit });
        }
        self.core.counters.pgfault += 1;
        self.core.work.add(STEPS_OF_FAULT);
        let done = match entry {
            Some(entry) => self.huge_write_fault(fault, entry),
            None => self.huge_absent(fault),
        };
        if done.is_none() {
            self.core.counters.hugetlb.nr_sigbus += 1;
            return Err(FaultError::NoHugePage(addr));
        }
        let Some(&entry) = self.space(fault.mm).huge.get(&fault.first()) else {
            unreachable!("a fault that succeeds maps its page")
        };
        Ok(Touched { leaf: self.huge_leaf(fault, entry), outcome: FaultOutcome::Minor })
    }

    fn huge_absent(&mut self, fault: &HugeFault) -> Option<()> {
        // One of its pages was taken away: its content must not come back as zeroes (O.4.4).
        if fault.area.has_lost {
            return None;
        }
        let HugeArea { file, order, .. } = fault.area;
        let cached = self.core.hugetlb.file(file).pages.get(&fault.index()).copied();
        let is_shared = fault.vma.sharing == Sharing::Shared;
        let pfn = match cached {
            Some(pfn) => pfn,
            None => self.new_huge_page(fault)?,
        };
        // A shared page is writable immediately; a private one only after a store.
        let is_stored = is_shared || fault.access == Access::Write;
        let is_writable = is_stored && fault.vma.prot.can_write;
        let owner = self.core.processes.of(fault.mm);
        self.core.hugetlb.add_map(order, pfn, owner);
        let entry = HugeEntry { pfn, order, is_writable };
        self.space_mut(fault.mm).huge.insert(fault.first(), entry);
        self.core.counters.hugetlb.nr_faults += 1;
        Some(())
    }

    fn new_huge_page(&mut self, fault: &HugeFault) -> Option<Pfn> {
        let HugeArea { file: id, order, is_owner, .. } = fault.area;
        let index = fault.index();
        let file = self.core.hugetlb.file(id);
        let has_region = file.regions.contains(&index);
        let (is_promised, owner) = match fault.vma.sharing {
            Sharing::Shared => (has_region, HugeOwner::File(id)),
            Sharing::Private => (is_owner && !has_region, HugeOwner::Anon),
        };
        let charge = if is_promised { Charge::Reservation } else { Charge::Available };
        let pfn = self.core.hugetlb.pool_mut(order).take(charge, owner)?;
        let file = self.core.hugetlb.file_mut(id);
        if is_owner || fault.vma.sharing == Sharing::Shared {
            file.regions.insert(index);
        }
        if fault.vma.sharing == Sharing::Shared {
            file.pages.insert(index, pfn);
        }
        let fault_page = fault.vpn.0 - fault.first().0;
        let plan = self.rules.clear.plan(self.arch, self.rules.page, order, fault_page);
        self.core.ram.clear_folio(pfn, &plan);
        self.core.work.add_cheap(order.nr_pages() / 64);
        self.core.counters.hugetlb.nr_allocated += 1;
        Some(pfn)
    }

    /// The TLB sees a PMD-level entry, a contpte block, or part of a larger page. Differs:
    /// processors keep larger pages in one entry.
    fn huge_leaf(&self, fault: &HugeFault, entry: HugeEntry) -> Leaf {
        let pmd = self.rules.page.pmd_order();
        let order = entry.order.min(pmd);
        let is_contpte = self.arch == Arch::Arm64 && order == self.rules.page.contpte_order();
        let kind = if is_contpte { LeafKind::Contpte } else { LeafKind::Pmd };
        let first_vpn = Vpn(order.round_down(fault.vpn.0));
        let pfn = entry.pfn.plus(first_vpn.0 - fault.first().0);
        let flags = PteFlags::YOUNG | PteFlags::DIRTY;
        let flags = if entry.is_writable { flags | PteFlags::WRITABLE } else { flags };
        Leaf { kind, first_vpn, order, pfn, flags }
    }
}
