//! `MADV_COLLAPSE`: a process collapses its own memory now (docs/behaviour H.5.1, H.5.2).
//!
//! Corresponds to: `madvise_collapse`.

use super::file::FileRange;
use super::{CollapseTarget, Initiator};
use crate::counters::collapse::{CollapseRefusal, Done};
use crate::memory::Memory;
use crate::rules::collapse::{DirtyRange, EmptyBlock, PrivateData, ShortRequest};
use crate::units::PageRange;
use crate::units::VpnRange;
use crate::units::{MmId, Vaddr, Vpn};
use crate::vma::{Backing, Vma};

/// Errno of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    /// `EINVAL`: a retry cannot succeed.
    Einval,
    /// `EAGAIN`: a retry may succeed.
    Eagain,
    /// `ENOMEM`: no memory, or a part of the range is not mapped.
    Enomem,
    /// `EBUSY`: a limit was reached.
    Ebusy,
}

/// Why a call did not collapse its whole range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MADV_COLLAPSE: {refusal} ({errno:?})")]
pub struct CollapseError {
    /// Errno that the call returns.
    pub errno: Errno,
    /// Refusal of the last block that failed.
    pub refusal: CollapseRefusal,
}

impl Memory {
    /// Collapses every whole PMD block of `[at, at + len_bytes)`, whatever the settings are.
    ///
    /// # Errors
    /// Returns the last refusal and its errno. The other blocks are still collapsed, unless the
    /// refusal ended the walk.
    pub fn madvise_collapse(
        &mut self,
        mm: MmId,
        at: Vaddr,
        len_bytes: u64,
    ) -> Result<(), CollapseError> {
        self.each_area(mm, at, len_bytes, |memory, vma, range| memory.collapse_area(mm, vma, range))
    }

    pub(super) fn each_area(
        &mut self,
        mm: MmId,
        at: Vaddr,
        len_bytes: u64,
        mut each: impl FnMut(&mut Self, &Vma, VpnRange) -> Result<(), CollapseRefusal>,
    ) -> Result<(), CollapseError> {
        if len_bytes == 0 && at.0.is_multiple_of(self.rules.page.bytes()) {
            return Ok(());
        }
        let range = self.checked_range(at, len_bytes);
        let VpnRange { start, end } =
            range.map_err(|_| self.error(CollapseRefusal::AddressRange))?;
        if self.space(mm).is_dead {
            return Err(self.error(CollapseRefusal::AnyProcess));
        }
        let (mut next, mut has_hole) = (start, false);
        for part in self.space(mm).vmas.overlapping(start, end) {
            has_hole |= part.start > next;
            next = part.end;
            let Some(&vma) = self.space(mm).vmas.find(part.start) else { continue };
            let collapsed = each(self, &vma, VpnRange { start: part.start, end: part.end });
            collapsed.map_err(|refusal| self.error(refusal))?;
        }
        if has_hole || next < end { Err(self.error(CollapseRefusal::VmaNull)) } else { Ok(()) }
    }

    fn collapse_area(
        &mut self,
        mm: MmId,
        vma: &Vma,
        VpnRange { start, end }: VpnRange,
    ) -> Result<(), CollapseRefusal> {
        let pmd = self.rules.page.pmd_order();
        let (first, last) = (pmd.round_up(start.0), pmd.round_down(end.0));
        let short = self.rules.collapse.short_request;
        let vma = &self.thp_area(mm, vma, Initiator::Advice);
        if !self.can_collapse(vma, Initiator::Advice) {
            self.count_outcome(Initiator::Advice, Err(CollapseRefusal::VmaCheck));
            return Err(CollapseRefusal::VmaCheck);
        }
        // The request contained no whole block, so nothing could fail (H.5.2, 7.2).
        if first >= last && short == ShortRequest::Done {
            return Ok(());
        }
        if first > last {
            return Err(CollapseRefusal::Fail);
        }
        let (mut refused, mut next) = (Ok(()), first);
        while next < last && !self.core.work.is_spent() {
            if let Some(used) = self.after_empty(mm, vma, PageRange { first: next, end: last }) {
                self.count_refused(CollapseRefusal::NoPteTable, (used - next) >> pmd.get());
                (refused, next) = (Err(CollapseRefusal::NoPteTable), used);
                continue;
            }
            let first = Vpn(next);
            next += pmd.nr_pages();
            let target =
                CollapseTarget { mm, vma: *vma, first, order: pmd, initiator: Initiator::Advice };
            let outcome = self.collapse_block(&target);
            self.count_outcome(Initiator::Advice, outcome);
            if let Err(refusal) = outcome {
                refused = Err(refusal);
                let is_file = vma.backing != Backing::Anon;
                let is_unmapped = is_file && refusal == CollapseRefusal::NoPteTable;
                // The next block would fail the same way, unless this one only lacks a table.
                if !self.goes_on_after(refusal) && !is_unmapped {
                    break;
                }
            }
        }
        refused
    }

    /// Skips a run of blocks without a table in one step: returns its end.
    fn after_empty(
        &self,
        mm: MmId,
        vma: &Vma,
        PageRange { first: next, end: last }: PageRange,
    ) -> Option<u64> {
        if vma.backing != Backing::Anon || !self.goes_on_after(CollapseRefusal::NoPteTable) {
            return None;
        }
        let used = self.space(mm).table.first_slot_in(Vpn(next), last - next);
        let used = used.map_or(last, |used| used.0);
        (used > next).then_some(used)
    }

    fn collapse_block(&mut self, target: &CollapseTarget) -> Result<Done, CollapseRefusal> {
        self.step(CollapseRefusal::AnyProcess)?;
        self.step(CollapseRefusal::VmaCheck)?;
        let Some(range) = self.file_range(target) else { return self.collapse_anon(target) };
        let (lacks_table, lacks_ptes) = (self.lacks_table(target), self.lacks_ptes(target));
        match self.collapse_file_or_dirty(&range) {
            Ok(Done::Collapsed) if lacks_ptes => Err(CollapseRefusal::NoPteTable),
            Ok(_) | Err(CollapseRefusal::PteMappedHugepage) if lacks_table => {
                Err(CollapseRefusal::NoPteTable)
            }
            Ok(Done::Collapsed) => self.install_pmd(target).map(|_| Done::Collapsed),
            Ok(Done::Already) | Err(CollapseRefusal::PteMappedHugepage) => self.install_pmd(target),
            Err(refusal) => Err(refusal),
        }
    }

    /// Collapses a block of a file; a dirty one is tried again after writing it back (H.5.1).
    pub(super) fn collapse_file_or_dirty(
        &mut self,
        range: &FileRange,
    ) -> Result<Done, CollapseRefusal> {
        match self.collapse_file(range) {
            Err(CollapseRefusal::PageDirtyOrWriteback) => self.collapse_dirty(range),
            collapsed => collapsed,
        }
    }

    fn collapse_dirty(&mut self, range: &FileRange) -> Result<Done, CollapseRefusal> {
        if self.rules.collapse.dirty != DirtyRange::WrittenBack {
            return Err(CollapseRefusal::PageDirtyOrWriteback);
        }
        self.write_back(range.file, range.pages());
        self.step(CollapseRefusal::PageDirtyOrWriteback)?;
        self.collapse_file(range)
    }

    fn goes_on_after(&self, refusal: CollapseRefusal) -> bool {
        match refusal {
            // Nothing is mapped there: a failure up to 6.18, skipped from 6.19 on.
            CollapseRefusal::NoPteTable => {
                self.rules.collapse.empty_block == EmptyBlock::SteppedOver
            }
            CollapseRefusal::PteNonPresent
            | CollapseRefusal::PageRo
            | CollapseRefusal::LackReferencedPage
            | CollapseRefusal::PageCount
            | CollapseRefusal::PageLock
            | CollapseRefusal::PageCompound
            | CollapseRefusal::PageLru
            | CollapseRefusal::DelPageLru => true,
            _ => false,
        }
    }

    pub(super) fn error(&self, refusal: CollapseRefusal) -> CollapseError {
        let errno = match refusal {
            CollapseRefusal::AllocHugePageFail | CollapseRefusal::VmaNull => Errno::Enomem,
            CollapseRefusal::CgroupChargeFail | CollapseRefusal::ExceedNonePte => Errno::Ebusy,
            CollapseRefusal::PageCount
            | CollapseRefusal::PageLock
            | CollapseRefusal::PageLru
            | CollapseRefusal::DelPageLru
            | CollapseRefusal::PageFilled
            | CollapseRefusal::PageDirtyOrWriteback => Errno::Eagain,
            CollapseRefusal::PageHasPrivate => match self.rules.collapse.private_data {
                PrivateData::Invalid => Errno::Einval,
                PrivateData::Again => Errno::Eagain,
            },
            _ => Errno::Einval,
        };
        CollapseError { errno, refusal }
    }
}
