//! Collapsing anonymous memory (docs/behaviour H.6.2, H.6.3, H.6.4 g).
//!
//! Corresponds to: `collapse_huge_page`, `__collapse_huge_page_swapin`,
//! `__collapse_huge_page_copy`.
//!
//! ```text
//!   PTE table   | a | b | - | 0 | c |  --copy-->  folio | a | b | 0 | 0 | c |
//!   detached while it is copied: no entry can be used; put back if anything fails
//! ```
//!
//! Differs: when a PMD entry replaces a table, the table is not deposited for a later split,
//! because tables take no memory here.

use super::CollapseTarget;
use super::scan::{PteLimits, is_hole, position};
use crate::core::mapped::Level;
use crate::core::work::steps_of_block;
use crate::counters::collapse::{CollapseRefusal, Done};
use crate::fault::{Access, Fault, FaultCause, Pass};
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::pgtable::{Batch, DetachedTable, PmdState, Pte, PteFlags};
use crate::ram::{Stretch, StretchWork};
use crate::rules::anon::Underused;
use crate::units::{PageIndex, Pfn};
use crate::vma::{Prot, Vma};

impl Memory {
    pub(super) fn collapse_anon(
        &mut self,
        target: &CollapseTarget,
    ) -> Result<Done, CollapseRefusal> {
        let limits = self.limits(target);
        let ptes = match self.table_of(target) {
            Ok(ptes) => ptes,
            Err(refused) => return refused,
        };
        self.core.work.add(steps_of_block(target.order));
        self.examine_ptes(target, &ptes, limits)?;
        self.collapse_scanned(target, limits)?;
        Ok(Done::Collapsed)
    }

    pub(super) fn table_of(
        &mut self,
        target: &CollapseTarget,
    ) -> Result<Vec<Pte>, Result<Done, CollapseRefusal>> {
        let found = match self.space(target.mm).table.pmd(target.first) {
            PmdState::Leaf => Err(Ok(Done::Already)),
            PmdState::Empty => Err(Err(CollapseRefusal::NoPteTable)),
            PmdState::Table { .. } => self.ptes_of(target).ok_or(Err(CollapseRefusal::NoPteTable)),
        };
        if found.is_err() {
            self.khugepaged.nr_examined = 1;
        }
        found
    }

    pub(super) fn collapse_scanned(
        &mut self,
        target: &CollapseTarget,
        limits: PteLimits,
    ) -> Result<(), CollapseRefusal> {
        let id = self.alloc_for(target)?;
        // Not mapped yet: the reclaim that swap-in can start must not find it.
        let _ = self.core.folios.isolate(id);
        let collapsed = self.collapse_into(target, limits, id);
        if collapsed.is_ok() {
            self.core.folios.putback(id);
        } else {
            let folio = self.core.take(id);
            self.core.buddy.free(folio.pfn, folio.order);
        }
        collapsed
    }

    fn alloc_for(&mut self, target: &CollapseTarget) -> Result<FolioId, CollapseRefusal> {
        let index = PageIndex(target.vma.index_of(target.first));
        let effort = self.collapse_effort(target.initiator);
        let injected = self.step(CollapseRefusal::AllocHugePageFail);
        let route = self.anon_collapse_route(target);
        let id = injected.and_then(|()| {
            let id = self.on_route(route, |memory| memory.alloc_anon(target.order, effort, index));
            id.ok_or(CollapseRefusal::AllocHugePageFail)
        });
        self.count_alloc(target.order, id.map(|_| ()));
        id
    }

    fn collapse_into(
        &mut self,
        target: &CollapseTarget,
        limits: PteLimits,
        id: FolioId,
    ) -> Result<(), CollapseRefusal> {
        self.step(CollapseRefusal::CgroupChargeFail)?;
        self.step(CollapseRefusal::VmaCheck)?;
        self.swap_in_block(target)?;
        // Reclaim may have split folios of the block, so check all pages again.
        let table = &mut self.space_mut(target.mm).table;
        let table = table.detach_table(target.first).ok_or(CollapseRefusal::NoPteTable)?;
        self.flush(target.mm, target.first, target.nr_pages());
        let copied = self.isolate_and_copy(target, limits, id, &table);
        self.space_mut(target.mm).table.attach_table(table);
        copied?;
        self.replace_by(target, id);
        Ok(())
    }

    /// Swaps in each page once (H.6.2), even if a cgroup at its limit swaps it out again.
    fn swap_in_block(&mut self, target: &CollapseTarget) -> Result<(), CollapseRefusal> {
        let CollapseTarget { mm, vma, first, .. } = *target;
        let end = first.plus(target.nr_pages());
        let mut at = first;
        while let Some((vpn, slot)) = self.space(mm).swapped.first_in(at, end.0 - at.0) {
            self.step(CollapseRefusal::PteNonPresent)?;
            let cause = FaultCause::default();
            let fault = Fault { mm, vpn, access: Access::Read, vma, pass: Pass::First, cause };
            self.swap_in(&fault, slot).map_err(|_| CollapseRefusal::PteNonPresent)?;
            at = vpn.plus(1);
        }
        match self.space(mm).swapped.first_in(first, target.nr_pages()) {
            Some(_) => Err(CollapseRefusal::PteNonPresent),
            None => Ok(()),
        }
    }

    fn isolate_and_copy(
        &mut self,
        target: &CollapseTarget,
        limits: PteLimits,
        id: FolioId,
        table: &DetachedTable,
    ) -> Result<(), CollapseRefusal> {
        let ptes = self.space(target.mm).table.detached_ptes(table);
        let ptes =
            ptes[position(target.first, ptes.len())..][..target.nr_pages() as usize].to_vec();
        self.check_ptes(target, &ptes, limits)?;
        for _ in ptes.iter().filter(|&&pte| !is_hole(pte)) {
            self.step(CollapseRefusal::PageLock)?;
            self.step(CollapseRefusal::DelPageLru)?;
        }
        let pfn = self.core.folios.get(id).pfn;
        let mut done = 0;
        let mut stretch = Stretch::default();
        while done < ptes.len() {
            let nr = nr_in_run(&ptes[done..]);
            self.copy_run(&ptes[done..done + nr], pfn.plus(done as u64), &mut stretch)?;
            done += nr;
        }
        self.core.stretches.stretch(stretch); // D.4.7: no point in a collapse
        Ok(())
    }

    fn copy_run(
        &mut self,
        run: &[Pte],
        to: Pfn,
        stretch: &mut Stretch,
    ) -> Result<(), CollapseRefusal> {
        let nr = run.len() as u64;
        if is_hole(run[0]) {
            self.core.folios.forget_writes(to, nr);
            self.core.ram.zero(to, nr);
            stretch.add(StretchWork::Clear, nr, 1);
            return Ok(());
        }
        for _ in run {
            self.step(CollapseRefusal::CopyMc)?;
        }
        let plan = self.rules.clear.move_plan(self.arch, self.rules.page, nr);
        self.core.copy_pages(run[0].pfn(), to, &plan);
        stretch.add_units(StretchWork::Copy, &plan);
        Ok(())
    }

    fn replace_by(&mut self, target: &CollapseTarget, id: FolioId) {
        let CollapseTarget { mm, first, order, .. } = *target;
        let nr = order.nr_pages();
        let pmd = self.rules.page.pmd_order();
        self.zap(mm, first, first.plus(nr));
        let flags = collapsed_flags(&target.vma);
        let span = self.core.folios.get(id).span();
        if order == pmd {
            self.space_mut(mm).table.free_empty_tables(first, nr);
            self.core.map_new_anon(id, mm, Level::Pmd);
            self.space_mut(mm).table.map_pmd(first, span.first, flags);
            if self.rules.anon.shrink_underused == Underused::Queued {
                self.core.deferred.push(id, self.core.folios.get_mut(id));
            }
        } else {
            self.core.map_new_anon(id, mm, Level::Ptes);
            let batch = Batch { vpn: first, pfn: span.first, nr, flags };
            self.space_mut(mm).table.map_ptes(batch, span);
        }
    }
}

fn nr_in_run(ptes: &[Pte]) -> usize {
    let first = ptes[0];
    let belongs = |(by, pte): (usize, &Pte)| {
        is_hole(first) == is_hole(*pte)
            && (is_hole(first) || pte.pfn() == first.pfn().plus(by as u64))
    };
    ptes.iter().enumerate().take_while(|&next| belongs(next)).count()
}

fn collapsed_flags(vma: &Vma) -> PteFlags {
    let writable = if vma.prot.can_write { PteFlags::WRITABLE } else { PteFlags::NONE };
    let closed = if vma.prot == Prot::NONE { PteFlags::NO_ACCESS } else { PteFlags::NONE };
    PteFlags::YOUNG | PteFlags::DIRTY | writable | closed
}
