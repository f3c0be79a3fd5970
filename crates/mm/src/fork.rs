//! fork: copies an address space (docs/behaviour E.1, E.2).
//!
//! Corresponds to: `dup_mmap`, `copy_page_range`, `copy_present_ptes`, `copy_huge_pmd`,
//! `folio_try_dup_anon_rmap_ptes`, `vma_needs_copy`.
//!
//! Copies every area, and the pages in areas that have anonymous pages (E.1.5); the child faults in
//! the rest. Pages are copied in batches of one folio; pinned pages are copied immediately (E.1.3).

use crate::core::Core;
use crate::core::mapped::Level;
use crate::core::space::SwapEntry;
use crate::counters::mapcounts::MapcountUpdates;
use crate::folio::frames::Flag;
use crate::folio::{FolioId, FolioTable};
use crate::memory::Memory;
use crate::pgtable::{Batch, Copied, CopiedPmd, Copier, FolioSpan, PteFlags};
use crate::rmap::owners::IdsExhausted;
use crate::rules::anon::Batching;
use crate::units::VpnRange;
use crate::units::{MmId, Order, Pfn};
use crate::vma::{Sharing, Vma};

const STEPS_OF_FORK: u64 = 64;

/// Why fork failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForkError {
    /// A pinned page could not be copied.
    #[error("out of memory while fork copies a pinned page: give the model more memory")]
    OutOfMemory,
    /// No owner id is free for the child.
    #[error(transparent)]
    OwnerIds(#[from] IdsExhausted),
}

impl Memory {
    /// Copies the address space of `parent`. Both sides map their anonymous pages read-only.
    ///
    /// # Errors
    /// Fails without a child if a pinned page cannot be copied or no owner id is free.
    pub fn fork(&mut self, parent: MmId) -> Result<MmId, ForkError> {
        self.keep_balance();
        loop {
            match self.try_fork(parent) {
                Err(ForkError::OutOfMemory) if self.reclaim_at_last() > 0 => {}
                answer => return answer,
            }
        }
    }

    fn try_fork(&mut self, parent: MmId) -> Result<MmId, ForkError> {
        let child = self.try_new_space()?;
        let vmas = self.space(parent).vmas.forked();
        let areas: Vec<Vma> = vmas.iter().copied().collect();
        self.core.work.add(STEPS_OF_FORK + areas.len() as u64);
        self.space_mut(child).group = self.space(parent).group;
        self.space_mut(child).comm = self.space(parent).comm;
        self.space_mut(child).thp_off = self.space(parent).thp_off;
        self.space_mut(child).vmas = vmas;
        self.core.buddy.add_task(child, Some(parent));
        self.inherit_program(parent, child);
        if self.space(parent).is_scanned {
            self.khugepaged_enter(child);
        }
        let copied = areas
            .iter()
            .filter(|vma| vma.has_anon() && vma.sharing == Sharing::Private)
            .try_for_each(|vma| self.copy_area(parent, child, vma));
        if let Err(error) = copied {
            self.exit(child);
            return Err(error);
        }
        self.fork_huge(parent, child);
        Ok(child)
    }

    fn copy_area(&mut self, parent: MmId, child: MmId, vma: &Vma) -> Result<(), ForkError> {
        self.count_walk(parent, VpnRange { start: vma.start, end: vma.end }, 1);
        self.flush(parent, vma.start, vma.nr_pages());
        let batching = self.rules.anon.batching;
        let (of_parent, of_child, core) = self.two_spaces(parent, child);
        of_child.uses_huge_zero |= of_parent.uses_huge_zero;
        let has_pinned = of_parent.has_pinned;
        let writable = if vma.prot.can_write { PteFlags::WRITABLE } else { PteFlags::NONE };
        let own_flags = writable | PteFlags::DIRTY;
        let mut copy =
            ForkCopy { core, parent, child, batching, has_pinned, own_flags, last: None };
        of_parent.table.copy_range(&mut of_child.table, vma.start, vma.nr_pages(), &mut copy)?;
        self.fork_swapped(parent, child, VpnRange { start: vma.start, end: vma.end });
        Ok(())
    }

    pub(crate) fn fork_swapped(
        &mut self,
        parent: MmId,
        child: MmId,
        VpnRange { start, end }: VpnRange,
    ) {
        let slots = self.space_mut(parent).swapped.share(start, end);
        for (vpn, slot) in slots {
            if let Some(swap) = &mut self.core.pressure.swap {
                swap.get(slot);
            }
            self.space_mut(child).swapped.insert(vpn, SwapEntry { slot, is_exclusive: false });
        }
    }
}

struct ForkCopy<'a> {
    core: &'a mut Core,
    parent: MmId,
    child: MmId,
    batching: Batching,
    has_pinned: bool,
    own_flags: PteFlags,
    last: Option<FolioId>,
}

impl ForkCopy<'_> {
    fn is_pinned(&self, id: FolioId, pfn: Pfn, nr: u64) -> bool {
        let folios: &FolioTable = &self.core.folios;
        self.has_pinned
            && folios.get(id).pins > 0
            && folios.frames().count(Flag::Exclusive, pfn, nr) > 0
    }

    fn copy_pinned(&mut self, id: FolioId, batch: Batch) -> Result<Copied, ForkError> {
        let folio = self.core.folios.get(id);
        let crate::folio::Owner::Anon { index } = folio.owner else {
            unreachable!("only anonymous pages are exclusive")
        };
        let index = index.plus(batch.pfn.0 - folio.pfn.0);
        let own = self.core.alloc_anon(Order::ZERO, index).ok_or(ForkError::OutOfMemory)?;
        let pfn = self.core.folios.get(own).pfn;
        self.core.copy_page(batch.pfn, pfn);
        self.core.map_new_anon(own, self.child, Level::Ptes);
        self.core.counters.nr_fork_copied += 1;
        Ok(Copied::Own(pfn, self.own_flags))
    }

    fn count_updates(&mut self, before: MapcountUpdates) {
        let counters = &mut self.core.counters;
        counters.mapcounts_forked += counters.mapcounts_set - before;
    }
}

impl Copier for ForkCopy<'_> {
    type Error = ForkError;

    fn folio_of(&mut self, pfn: Pfn) -> FolioSpan {
        self.last = self.core.folios.of_pfn(pfn);
        let (Some(id), Batching::Folio) = (self.last, self.batching) else {
            return FolioSpan::single(pfn);
        };
        self.core.folios.get(id).span()
    }

    fn batch(&mut self, batch: Batch) -> Result<Copied, ForkError> {
        let Batch { pfn, nr, .. } = batch;
        let Some(id) = self.last else { unreachable!("I3: a PTE maps a folio or is special") };
        if self.core.folios.get(id).is_anon() {
            if self.is_pinned(id, pfn, nr) {
                return if nr > 1 { Ok(Copied::OneByOne) } else { self.copy_pinned(id, batch) };
            }
            self.core.folios.frames_mut().clear(Flag::Exclusive, pfn, nr);
        }
        let before = self.core.counters.mapcounts_set;
        self.core.add_ptes(id, self.child, pfn, nr);
        self.count_updates(before);
        self.core.counters.nr_forked += nr;
        self.core.counters.nr_batches_forked += 1;
        let is_large = self.core.folios.get(id).order > Order::ZERO;
        self.core.counters.nr_large_batches_forked += u64::from(is_large);
        Ok(Copied::Shared)
    }

    fn pmd(&mut self, pfn: Pfn, flags: PteFlags) -> CopiedPmd {
        if flags.contains(PteFlags::SPECIAL) {
            return CopiedPmd::Shared;
        }
        let Some(id) = self.core.folios.of_pfn(pfn) else {
            unreachable!("I3: an entry maps a folio or is special")
        };
        if !self.core.folios.get(id).is_anon() {
            return CopiedPmd::Skipped;
        }
        if self.is_pinned(id, pfn, 1) {
            self.core.folios.get_mut(id).is_dirty |= flags.contains(PteFlags::DIRTY);
            self.core.counters.thp_split_pmd += 1;
            self.core.pmd_to_ptes(id, self.parent);
            return CopiedPmd::Split;
        }
        self.core.folios.frames_mut().clear(Flag::Exclusive, pfn, 1);
        let before = self.core.counters.mapcounts_set;
        self.core.add_pmd(id, self.child);
        self.count_updates(before);
        self.core.counters.nr_forked += 1;
        self.core.counters.nr_pmds_forked += 1;
        CopiedPmd::Shared
    }
}
