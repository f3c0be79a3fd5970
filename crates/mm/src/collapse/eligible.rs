//! Which areas may be collapsed at all (docs/behaviour H.1).
//!
//! Corresponds to: `thp_vma_allowable_orders`, `file_thp_enabled`.

use super::Initiator;
use crate::core::space::ThpOff;
use crate::mapping::{Mapping, tree};
use crate::memory::Memory;
use crate::rules::anon::{Enabled, Orders};
use crate::rules::collapse::{CollapseSizes, FileCollapse};
use crate::rules::shmem::{ShmemEnabled, ShmemSizeMode};
use crate::units::{MappingId, MmId, Order};
use crate::vma::{Backing, HugeAdvice, MappedShmem, Vma};

impl Memory {
    /// Turns off THP of a process (`prctl(PR_SET_THP_DISABLE)`, D.2.11).
    pub fn set_thp_off(&mut self, mm: MmId, off: ThpOff) {
        self.space_mut(mm).thp_off = off;
    }

    /// Returns the advice of an area for decisions about THP: turned off, it acts like
    /// `MADV_NOHUGEPAGE`.
    pub(crate) fn thp_advice(&self, mm: MmId, vma: &Vma) -> HugeAdvice {
        let huge = vma.advice.huge;
        match self.space(mm).thp_off {
            ThpOff::None => huge,
            ThpOff::ExceptAdvised if huge == HugeAdvice::Huge => huge,
            ThpOff::ExceptAdvised | ThpOff::All => HugeAdvice::Nohuge,
        }
    }

    /// Returns an area with this advice, for a collapse.
    pub(crate) fn thp_area(&self, mm: MmId, vma: &Vma, initiator: Initiator) -> Vma {
        let mut area = *vma;
        let is_asked_for = initiator == Initiator::Advice;
        if !(is_asked_for && self.space(mm).thp_off == ThpOff::ExceptAdvised) {
            area.advice.huge = self.thp_advice(mm, vma);
        }
        area
    }

    /// Whether `who` may collapse blocks to the PMD size, or khugepaged to any size (H.1.1).
    pub(crate) fn can_collapse(&self, vma: &Vma, initiator: Initiator) -> bool {
        let pmd = self.rules.page.pmd_order();
        // The program opted out, or no aligned block fits inside (H.1.1).
        if vma.advice.huge == HugeAdvice::Nohuge || !fits_a_block(vma, pmd) {
            return false;
        }
        // A hugetlb area has no anonymous pages, so it is never collapsed.
        let Backing::File { open, .. } = vma.backing else {
            let is_on = initiator == Initiator::Advice || !self.collapse_orders(vma).is_empty();
            return is_on && vma.has_anon();
        };
        let mapping = self.core.mapping(self.open_file(open).mapping);
        if mapping.is_shmem {
            return self.shmem_allows(vma, mapping, initiator);
        }
        let is_on = match self.rules.anon.thp {
            Enabled::Always => true,
            Enabled::Madvise => vma.advice.huge == HugeAdvice::Huge,
            Enabled::Never => false,
        };
        (initiator == Initiator::Advice || is_on) && self.file_rule(vma, mapping)
    }

    pub(super) fn collapse_orders(&self, vma: &Vma) -> Orders {
        let page = self.rules.page;
        let enabled = self.rules.anon.enabled(page, vma.advice.huge);
        match self.rules.collapse.sizes {
            CollapseSizes::Enabled => enabled,
            CollapseSizes::PmdOnly if enabled.contains(page.pmd_order()) => {
                Orders::NONE.with(page.pmd_order())
            }
            CollapseSizes::PmdOnly => Orders::NONE,
        }
    }

    pub(super) fn file_rule(&self, vma: &Vma, mapping: &Mapping) -> bool {
        let pmd = self.rules.page.pmd_order();
        match self.rules.collapse.file {
            FileCollapse::Absent => false,
            // Differs: any mapping of the file that runs, not only those that exec made.
            FileCollapse::DenyWrite => mapping.gate.writecount() < 0,
            // Text that has no writers while it is collapsed (H.1.3, series 003).
            FileCollapse::Exec => vma.prot.can_exec && !mapping.gate.is_open_for_write(),
            FileCollapse::Readers => !mapping.gate.is_open_for_write(),
            // The filesystem writes through large folios itself, so writers may stay (H.1.3).
            FileCollapse::LargeFolios => mapping.orders.min <= pmd && pmd <= mapping.orders.max,
        }
    }

    /// Whether the settings allow a collapse of shared memory (Q.3.3). Advice overrides
    /// `shmem_enabled`, but not the PMD size's own control.
    fn shmem_allows(&self, vma: &Vma, mapping: &Mapping, initiator: Initiator) -> bool {
        let rules = &self.rules.shmem;
        let setting = rules.setting(mapping.is_mounted());
        let is_advised = vma.advice.huge == HugeAdvice::Huge;
        let is_forced = initiator == Initiator::Advice;
        if setting == ShmemEnabled::Deny {
            return false;
        }
        let is_unnamed = vma.shmem == MappedShmem::Unnamed;
        match rules.pmd_mode(self.rules.page) {
            ShmemSizeMode::Never if is_unnamed => false,
            ShmemSizeMode::Always | ShmemSizeMode::WithinSize if is_unnamed => true,
            ShmemSizeMode::Advise if is_unnamed => is_advised,
            _ if is_forced => true,
            _ => match setting {
                ShmemEnabled::Never | ShmemEnabled::Deny => false,
                ShmemEnabled::Advise => is_advised,
                ShmemEnabled::WithinSize | ShmemEnabled::Always | ShmemEnabled::Force => true,
            },
        }
    }

    /// Differs: ignores the control of the PMD size.
    pub(super) fn is_within_size(&self, vma: &Vma, file: MappingId, end: u64) -> bool {
        let mapping = self.core.mapping(file);
        !mapping.is_shmem
            || self.rules.shmem.setting(mapping.is_mounted()) != ShmemEnabled::WithinSize
            || vma.advice.huge == HugeAdvice::Huge
            || end <= mapping.nr_file_pages(self.rules.page)
    }
}

/// Whether the last aligned block fits the area, the file offset and the page cache (H.1.1).
fn fits_a_block(vma: &Vma, pmd: Order) -> bool {
    let is_congruent = match vma.backing {
        Backing::Anon => true,
        Backing::File { pgoff, .. } => {
            pmd <= tree::MAX_ORDER && pmd.is_aligned(vma.start.0.wrapping_sub(pgoff))
        }
        Backing::Hugetlb(_) => false,
    };
    let last = vma.end.0.checked_sub(pmd.nr_pages()).map(|last| pmd.round_down(last));
    is_congruent && last.is_some_and(|last| vma.start.0 <= last)
}
