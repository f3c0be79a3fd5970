//! Examines isolated folios in order, and the parts of those that it splits (docs/behaviour P.2.8).
//!
//! Corresponds to: `shrink_folio_list`, `split_folio_to_list`, `lru_add_split_folio`.
//!
//! ```text
//!   [ a b c ]    b is split: its first page is evicted without another check,
//!                its other pages are examined next, then c
//! ```
//!
//! A split page that no process maps has no entries to remove. Up to 6.11 it is written to swap
//! space and freed like the others. From 6.12 on it gets a slot, which turns out to be unused: nothing
//! is written, the page is put back, and then freed without counting as reclaimed. It costs as much as
//! a written page.

use super::EvictOutcome;
use super::zswap::SwappedPages;
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::rules::anon::SplitZeroPages;
use crate::rules::reclaim::SplitParts;
use crate::units::{Order, Pfn};

enum Waiting {
    Folio(FolioId),
    /// Already chosen: only its parts were in the way.
    Chosen(FolioId),
    Unmapped(Pfn),
}

#[derive(Default)]
pub(super) struct Examined {
    pub(super) kept: Vec<FolioId>,
    pub(super) nr_freed: u64,
    /// Pages that cost as much as if they had been written.
    pub(super) nr_as_written: u64,
}

impl Memory {
    /// Evicts what `examine` and its parts allow. Returns the folios to put back, in order.
    pub(super) fn examine_in_order(
        &mut self,
        folios: Vec<FolioId>,
        mut examine: impl FnMut(&mut Self, FolioId) -> EvictOutcome,
    ) -> Examined {
        let mut left: Vec<Waiting> = folios.into_iter().rev().map(Waiting::Folio).collect();
        let mut examined = Examined::default();
        while let Some(next) = left.pop() {
            let id = match next {
                Waiting::Folio(id) | Waiting::Chosen(id) => id,
                Waiting::Unmapped(pfn) => {
                    self.examine_unmapped(pfn, &mut examined);
                    continue;
                }
            };
            let folio = self.core.folios.get(id);
            let (pfn, nr_pages) = (folio.pfn, folio.nr_pages());
            let outcome = match next {
                Waiting::Chosen(id) => self.evict(id),
                _ => examine(self, id),
            };
            match outcome {
                EvictOutcome::Freed => examined.nr_freed += nr_pages,
                EvictOutcome::Keep => examined.kept.push(id),
                EvictOutcome::Activate => {
                    self.note_activation(id);
                    examined.kept.push(id);
                }
                EvictOutcome::Split => self.add_parts(pfn, nr_pages, &mut left),
            }
        }
        examined
    }

    fn add_parts(&self, pfn: Pfn, nr_pages: u64, left: &mut Vec<Waiting>) {
        let part = |by: u64| {
            let pfn = pfn.plus(by);
            match self.core.folios.of_pfn(pfn) {
                Some(id) if by == 0 => Waiting::Chosen(id),
                Some(id) => Waiting::Folio(id),
                None => Waiting::Unmapped(pfn),
            }
        };
        let others = 1..nr_pages;
        match self.rules.reclaim.split_parts {
            SplitParts::Ascending => left.extend(others.rev().map(part)),
            SplitParts::Descending => left.extend(others.map(part)),
        }
        left.push(part(0));
    }

    /// Gives a page that nothing maps a slot, which is free again afterwards.
    fn examine_unmapped(&mut self, pfn: Pfn, examined: &mut Examined) {
        let content = self.core.folios.content(pfn);
        let is_written = self.rules.anon.split_zero_pages == SplitZeroPages::Kept;
        let Some(swap) = &mut self.core.pressure.swap else { return };
        let Some(first) = swap.alloc(Order::ZERO) else { return };
        swap.store(first, content, None);
        if is_written {
            let group = self.core.groups.current();
            let _ = self.place_swapped(SwappedPages { first, nr: 1, group, index: None });
            examined.nr_freed += 1;
        } else {
            examined.nr_as_written += 1;
        }
        self.core.drop_unused_slots(first, 1);
    }
}
