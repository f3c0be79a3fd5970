//! Page tables of a collapsed block of a file (docs/behaviour H.5 steps 6 and 7).
//!
//! Answers to: `retract_page_tables`, `collapse_pte_mapped_thp`.
//!
//! With the table gone, the next fault can map the block by one entry.

use super::CollapseTarget;
use super::file::FileRange;
use crate::counters::collapse::{CollapseRefusal, Done};
use crate::fault::{Access, Fault, Pass};
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::pgtable::PmdState;
use crate::rules::collapse::PmdTable;
use crate::units::{MmId, PageIndex, Vpn};
use crate::vma::Vma;

impl Memory {
    /// Frees the tables of areas that map the whole block aligned and have no private pages.
    pub(super) fn retract_tables(&mut self, range: &FileRange) {
        for (mm, start, end) in self.mapped_ranges(range.file, range.pages()) {
            let is_whole = end.0 - start.0 == range.order.nr_pages();
            let is_aligned = range.order.is_aligned(start.0);
            let has_anon = self.space(mm).vmas.find(start).is_some_and(Vma::has_anon);
            // The table may hold a private copy, or another area may need part of it (H.5).
            if is_whole && is_aligned && !has_anon {
                self.drop_table(mm, start);
            }
        }
    }

    fn drop_table(&mut self, mm: MmId, first: Vpn) {
        let nr = self.rules.page.pmd_order().nr_pages();
        if self.space_mut(mm).table.free_empty_tables(first, nr) > 0 {
            self.flush(mm, first, nr);
        }
    }

    /// Frees one process's table if it maps only the folio's pages. `Already`: there is no table.
    pub(super) fn retract_one(&mut self, target: &CollapseTarget) -> Result<Done, CollapseRefusal> {
        let entry = self.huge_entry(target)?;
        match self.space(target.mm).table.pmd(target.first) {
            PmdState::Empty | PmdState::Leaf => return Ok(Done::Already),
            PmdState::Table { .. } => {}
        }
        self.step(CollapseRefusal::Fail)?;
        // A private page would be lost with the table.
        if !self.maps_only(target, entry) {
            return Err(CollapseRefusal::Fail);
        }
        self.zap(target.mm, target.first, target.first.plus(target.nr_pages()));
        self.drop_table(target.mm, target.first);
        Ok(Done::Collapsed)
    }

    pub(super) fn lacks_table(&self, target: &CollapseTarget) -> bool {
        let has_one = self.space(target.mm).table.has_pmd_table(target.first);
        self.rules.collapse.pmd_table != PmdTable::Made && !has_one
    }

    pub(super) fn lacks_ptes(&self, target: &CollapseTarget) -> bool {
        let pmd = self.space(target.mm).table.pmd(target.first);
        self.rules.collapse.pmd_table == PmdTable::Block && pmd == PmdState::Empty
    }

    pub(super) fn install_pmd(&mut self, target: &CollapseTarget) -> Result<Done, CollapseRefusal> {
        let done = self.retract_one(target)?;
        if self.space(target.mm).table.pmd(target.first) == PmdState::Leaf {
            return Ok(Done::Already);
        }
        let entry = self.huge_entry(target)?;
        let CollapseTarget { mm, vma, first: vpn, .. } = *target;
        let fault = Fault { mm, vpn, access: Access::Read, vma, pass: Pass::First };
        if self.try_map_pmd(&fault, entry, true) { Ok(done) } else { Err(CollapseRefusal::Fail) }
    }

    fn huge_entry(&self, target: &CollapseTarget) -> Result<Entry, CollapseRefusal> {
        let range = self.file_range(target).ok_or(CollapseRefusal::VmaCheck)?;
        let entry = self.core.find(range.file, PageIndex(range.first));
        entry.filter(|entry| entry.order == target.order).ok_or(CollapseRefusal::Fail)
    }

    fn maps_only(&self, target: &CollapseTarget, entry: Entry) -> bool {
        let pfn = self.core.folios.get(entry.folio).pfn;
        let ptes = self.ptes_of(target).unwrap_or_default();
        !self.has_swapped(target)
            && (pfn.0..).zip(ptes).all(|(expected, pte)| pte.is_none() || pte.pfn().0 == expected)
    }
}
