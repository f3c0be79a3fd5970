//! Splitting folios: preconditions, anonymous folios and file folios (docs/behaviour G.4).
//!
//! Corresponds to: `split_huge_page_to_list_to_order`, `folio_split`.
//!
//! ```text
//!   uniform, to order 0          [ o3               ]  ->  [0|0|0|0|0|0|0|0]
//!   non-uniform, around page 2   [ o3               ]  ->  [ o1 |0|0|  o2  ]   (buddy-like)
//! ```
//!
//! Reading order: this file, `anon`, `file`, `truncate`, `shrink`.
//!
//! Invariants:
//! - I1: a refused split changes nothing.
//! - I2: the parts of an anonymous folio hold the same pages with the same mappings; unmapped pages
//!   are freed, zero-filled ones are replaced by the shared zero page.
//! - I3: the parts of a file folio hold the same pages, unmapped from every process: they fault
//!   again.

mod anon;
mod file;
mod truncate;

use crate::counters::split::SplitRefusal;
use crate::folio::{Folio, FolioId, Owner};
use crate::memory::Memory;
use crate::units::Order;

pub(crate) use file::Cut;

impl Memory {
    /// Splits a folio uniformly into folios of order `to`.
    ///
    /// # Errors
    /// A refused split changes nothing.
    pub fn split(&mut self, id: FolioId, to: Order) -> Result<(), SplitRefusal> {
        self.split_as(id, Cut::Uniform(to))
    }

    pub(crate) fn split_as(&mut self, id: FolioId, cut: Cut) -> Result<(), SplitRefusal> {
        let folio = self.core.folios.get(id).clone();
        if let Some(refusal) = self.split_refusal(&folio, cut.smallest()) {
            self.core.counters.split_refused[refusal as usize] += 1;
            self.core.counters.size_mut(folio.order).split_failed += 1;
            return Err(refusal);
        }
        match folio.owner {
            Owner::Anon { .. } => self.split_anon(id, cut.smallest()),
            Owner::File { mapping, index } => self.split_file(mapping, index, cut),
            Owner::Detached => unreachable!("refused"),
        }
        self.core.counters.size_mut(folio.order).split += 1;
        Ok(())
    }

    fn split_refusal(&self, folio: &Folio, to: Order) -> Option<SplitRefusal> {
        if to >= folio.order {
            return Some(SplitRefusal::NotLarger);
        }
        let by_owner = match folio.owner {
            Owner::Detached => Some(SplitRefusal::Truncated),
            // A folio in the swap cache is split only into base pages (G.4.1).
            Owner::Anon { .. } if folio.slot().is_some() && to > Order::ZERO => {
                Some(SplitRefusal::AnonOrderOne)
            }
            Owner::Anon { .. } => (to == Order::new(1)).then_some(SplitRefusal::AnonOrderOne),
            Owner::File { mapping, .. } => {
                let orders = self.core.mapping(mapping).orders;
                if to > Order::ZERO && !orders.is_large() {
                    Some(SplitRefusal::NoLargeFolios)
                } else {
                    (to < orders.min).then_some(SplitRefusal::BelowMinimum)
                }
            }
        };
        let is_kept = matches!(folio.owner, Owner::File { mapping, .. }
            if self.core.mapping(mapping).disk.keeps_whole(folio));
        by_owner.or((folio.has_extra_refs() || is_kept).then_some(SplitRefusal::ExtraReference))
    }
}
