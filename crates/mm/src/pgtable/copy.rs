//! Copies a range into another page table, as fork does (docs/behaviour E.1, E.2).
//!
//! Corresponds to: `copy_pte_range`.
//!
//! Owns the walk, the batches and the flags on both sides. Does not own the counts: a [`Copier`]
//! decides about each batch and counts it.

use crate::units::{Pfn, Vpn};

use super::directory::PmdSlot;
use super::pte::{FolioSpan, Pte, PteFlags};
use super::walk::{Batch, Part, batch_len};
use super::{PageTable, end_of};

/// fork's decision about a batch of PTEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// Both sides map it read-only.
    Shared,
    /// Only the child maps this page, with these flags. Only for batches of one page.
    Own(Pfn, PteFlags),
    /// The batch cannot be shared as a whole: offer its pages one by one.
    OneByOne,
}

/// fork's decision about a PMD entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopiedPmd {
    /// Both sides map it read-only.
    Shared,
    /// The child does not map it.
    Skipped,
    /// Split it first, then offer its PTEs.
    Split,
}

/// Decides about batches and counts them before they are copied.
pub trait Copier {
    /// Why the copy cannot continue.
    type Error;
    /// Returns the folio of a non-special page, which limits the batch.
    fn folio_of(&mut self, pfn: Pfn) -> FolioSpan;
    /// Decides about a batch of PTEs of one folio.
    ///
    /// # Errors
    /// Ends the copy. Entries copied before stay.
    fn batch(&mut self, batch: Batch) -> Result<Copied, Self::Error>;
    /// Decides about a PMD entry.
    fn pmd(&mut self, pfn: Pfn, flags: PteFlags) -> CopiedPmd;
}

impl PageTable {
    /// Copies the entries of `nr` pages from `vpn` into `child`, which maps none of them.
    ///
    /// A batch: PTEs of one folio with consecutive page frames and equal dirty bits (E.1.1).
    /// The child's entries are read-only and old. The parent's become read-only if they are shared.
    /// Whole contpte blocks stay folded (E.1.4).
    ///
    /// # Errors
    /// The copier's error. Pages before it are copied.
    ///
    /// # Panics
    /// If the range covers only part of a PMD leaf.
    pub fn copy_range<C: Copier>(
        &mut self,
        child: &mut Self,
        vpn: Vpn,
        nr: u64,
        copier: &mut C,
    ) -> Result<(), C::Error> {
        let end = end_of(vpn, nr);
        let mut at = vpn;
        self.directory.copy_tables(&mut child.directory, self.slot_nr(vpn), self.slot_nr(end));
        while let Some(part) = self.next_part(at, end) {
            at = part.end;
            match part.slot {
                PmdSlot::Table(id) => self.copy_table(child, id, part, copier)?,
                PmdSlot::Leaf(pte) => self.copy_leaf(child, pte, part, copier)?,
                PmdSlot::Empty => {}
            }
        }
        Ok(())
    }

    fn copy_leaf<C: Copier>(
        &mut self,
        child: &mut Self,
        pte: Pte,
        part: Part,
        copier: &mut C,
    ) -> Result<(), C::Error> {
        assert!(
            part.is_whole(self.pmd_order),
            "the range {}..{} cuts a PMD leaf",
            part.vpn,
            part.end
        );
        match copier.pmd(pte.pfn(), pte.flags()) {
            CopiedPmd::Skipped => Ok(()),
            CopiedPmd::Shared => {
                let read_only = pte.with_flags(pte.flags().without(PteFlags::WRITABLE));
                self.directory.set(self.slot_nr(part.vpn), PmdSlot::Leaf(read_only));
                child.map_pmd(part.vpn, pte.pfn(), pte.flags().without(DROPPED));
                Ok(())
            }
            CopiedPmd::Split => {
                self.split_pmd(part.vpn);
                let PmdSlot::Table(id) = self.slot(part.vpn) else { unreachable!("just split") };
                self.copy_table(child, id, part, copier)
            }
        }
    }

    fn copy_table<C: Copier>(
        &mut self,
        child: &mut Self,
        id: u32,
        part: Part,
        copier: &mut C,
    ) -> Result<(), C::Error> {
        // An empty table is copied too, so no PMD folio fits there later.
        let child_id = child.table_for(part.vpn);
        let first = self.position(part.vpn);
        let end = first + part.nr() as usize;
        let mut at = first;
        let mut limit = usize::MAX;
        let mut single_until = 0;
        while at < end {
            let ptes = &self.tables.ptes(id)[at..end];
            let pte = ptes[0];
            if !pte.is_present() {
                at += 1;
                continue;
            }
            let vpn = part.vpn.plus((at - first) as u64);
            if pte.flags().contains(PteFlags::SPECIAL) {
                child.copy_pte(child_id, at, pte.with_flags(pte.flags().without(DROPPED)));
                at += 1;
                continue;
            }
            let span = copier.folio_of(pte.pfn());
            if at >= single_until {
                limit = usize::MAX;
            }
            let max = (span.nr_from(pte.pfn()) as usize).min(ptes.len()).min(limit);
            let nr = batch_len(&ptes[..max], PteFlags::DIRTY);
            let flags = ptes[..nr].iter().fold(PteFlags::NONE, |all, pte| all | pte.flags());
            let batch = Batch { vpn, pfn: pte.pfn(), nr: nr as u64, flags };
            match copier.batch(batch)? {
                Copied::Shared => {
                    if flags.contains(PteFlags::WRITABLE) {
                        self.write_protect(id, at, batch);
                    }
                    child.copy_batch(child_id, at, batch, span);
                }
                Copied::Own(pfn, flags) => child.copy_pte(child_id, at, Pte::new(pfn, flags)),
                Copied::OneByOne => {
                    assert!(nr > 1, "a single page is shared or copied");
                    (limit, single_until) = (1, at + nr);
                    continue;
                }
            }
            at += nr;
        }
        Ok(())
    }

    fn copy_pte(&mut self, id: u32, position: usize, pte: Pte) {
        self.tables.fill(id, position, std::iter::once(pte));
        self.stats.nr_ptes += 1;
    }

    fn copy_batch(&mut self, id: u32, position: usize, batch: Batch, span: FolioSpan) {
        let first = Pte::new(batch.pfn, batch.flags.without(DROPPED));
        self.tables.fill(id, position, (0..batch.nr).map(|by| first.advanced(by)));
        self.stats.nr_ptes += batch.nr;
        if self.contpte_order.is_none() {
            return;
        }
        if batch.nr == 1 {
            self.try_fold_last(batch.vpn, span);
        } else {
            self.fold_whole_blocks(batch.vpn, batch.nr);
        }
    }

    fn write_protect(&mut self, id: u32, position: usize, batch: Batch) {
        self.unfold_edges(batch.vpn, batch.nr);
        for pte in &mut self.tables.ptes_mut(id)[position..position + batch.nr as usize] {
            *pte = pte.with_flags(pte.flags().without(PteFlags::WRITABLE));
        }
    }
}

const DROPPED: PteFlags = PteFlags::WRITABLE.with(PteFlags::YOUNG);
