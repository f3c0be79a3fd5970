//! The steps of programs about hugetlb.

use largefolio_mm::hugetlb::{HugeMap, HugeOwner};
use largefolio_mm::map::Madvice;
use largefolio_mm::units::{MmId, Order, Vaddr};
use largefolio_mm::vma::Prot;

use super::super::huge::{HugeMapping, HugePages, Trim, TrimCall};
use super::super::program::ProcessOp;
use super::super::range::PageRange;
use super::super::world::{MappedPage, PageState, PoolState, World};
use super::{BASE, EFAULT, EINVAL, ENOMEM, ProgramReplay};

impl ProgramReplay {
    /// Runs a step of a program about hugetlb; `None` = a step that other programs also have.
    pub(super) fn huge_step(&mut self, mm: MmId, op: ProcessOp) -> Option<Result<(), u32>> {
        let huge = self.huge?;
        Some(match op {
            ProcessOp::MapHuge(range, how) => self.map_huge(mm, range, how, huge),
            ProcessOp::Trim(range, trim) => self.trim(mm, range, trim),
            ProcessOp::Write(range) => self.write_huge(mm, range),
            ProcessOp::Drop(range) => {
                let (at, len) = self.bytes(range);
                self.advise_part(mm, at, len, Madvice::Dontneed)
            }
            ProcessOp::Protect(range, prot) => {
                let (at, len) = self.bytes(range);
                self.protect_part(mm, at, len, prot)
            }
            _ => return None,
        })
    }

    fn map_huge(
        &mut self,
        mm: MmId,
        range: PageRange,
        how: HugeMapping,
        huge: HugePages,
    ) -> Result<(), u32> {
        let (at, len_bytes) = self.bytes(range);
        let order = self.huge_order(huge);
        let HugeMapping { sharing, is_reserved } = how;
        let prot = Prot::READ_WRITE;
        let map = HugeMap { addr: Some(at), len_bytes, order, prot, sharing, is_reserved };
        self.memory.mmap_huge(mm, map).map(|_| ()).map_err(|_| ENOMEM)
    }

    fn huge_order(&self, huge: HugePages) -> Order {
        self.memory.rules().page.order_of_bytes(huge.kib << 10)
    }

    fn trim(&mut self, mm: MmId, range: PageRange, trim: Trim) -> Result<(), u32> {
        let (at, len) = trim.bytes(range, self.unit_bytes, self.memory.rules().page.bytes());
        let at = Vaddr(BASE + at);
        match trim.call {
            TrimCall::Unmap => self.memory.munmap(mm, at, len).map_err(|_| EINVAL),
            TrimCall::Drop => self.advise_part(mm, at, len, Madvice::Dontneed),
            TrimCall::Free => self.advise_part(mm, at, len, Madvice::Free),
            TrimCall::Protect => self.protect_part(mm, at, len, Prot::READ),
        }
    }

    /// madvise continues after a hole, and returns an error for it.
    fn advise_part(&mut self, mm: MmId, at: Vaddr, len: u64, advice: Madvice) -> Result<(), u32> {
        self.memory.madvise(mm, at, len, advice).map_err(|_| EINVAL)?;
        if self.mapped_bytes(mm, at, len) < len { Err(ENOMEM) } else { Ok(()) }
    }

    /// mprotect stops at the first hole.
    pub(super) fn protect_part(
        &mut self,
        mm: MmId,
        at: Vaddr,
        len: u64,
        prot: Prot,
    ) -> Result<(), u32> {
        let mapped = self.mapped_bytes(mm, at, len);
        if mapped > 0 {
            self.memory.mprotect(mm, at, mapped, prot).map_err(|_| EINVAL)?;
        }
        if mapped < len { Err(ENOMEM) } else { Ok(()) }
    }

    pub(super) fn mapped_bytes(&self, mm: MmId, at: Vaddr, len: u64) -> u64 {
        let page = self.memory.rules().page;
        let (start, end) = (at.vpn(page), Vaddr(at.0 + len).vpn(page));
        let mut next = start;
        for vma in self.memory.space(mm).vmas.overlapping(start, end) {
            if vma.start != next {
                break;
            }
            next = vma.end;
        }
        (next.0 - start.0) << page.shift()
    }

    fn write_huge(&mut self, mm: MmId, range: PageRange) -> Result<(), u32> {
        let last = self.unit_bytes - self.memory.rules().page.bytes();
        for (value, page) in self.values().zip(range.first..range.end()) {
            let at = self.addr(page);
            for at in [at, Vaddr(at.0 + last)] {
                self.memory.store(mm, at, &value.to_le_bytes()).map_err(|_| EFAULT)?;
            }
        }
        Ok(())
    }

    pub(super) fn huge_world(&self, huge: HugePages) -> World {
        let page = self.memory.rules().page;
        let order = self.huge_order(huge);
        let mut world = World::new(self.nr_pages);
        let first = Vaddr(BASE).vpn(page);
        let living = self.slots.iter().enumerate().filter_map(|(slot, mm)| Some((slot, (*mm)?)));
        for (slot, mm) in living {
            for (vpn, entry) in &self.memory.space(mm).huge {
                let view = self.memory.huge_page(entry);
                let label = entry.pfn.0;
                let last = entry.pfn.plus(order.nr_pages() - 1);
                let state = PageState {
                    node: 0,
                    page: MappedPage::Folio { label, order: order.get(), index: 0 },
                    is_exclusive: view.is_exclusively_mapped,
                    is_pmd: true,
                    is_file: view.owner != HugeOwner::Anon,
                    sum: Some(self.sum_of(entry.pfn).wrapping_add(self.sum_of(last))),
                    mapcount: view.mapcount,
                };
                world.counts.insert(label, view.mapcount);
                world.slots[slot][((vpn.0 - first.0) >> order.get()) as usize] = state;
            }
        }
        world.pool = self.memory.huge_counts(order).map(|counts| PoolState {
            nr_free: counts.free_hugepages,
            nr_reserved: counts.resv_hugepages,
            nr_surplus: counts.surplus_hugepages,
        });
        world
    }
}
