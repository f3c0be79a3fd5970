//! Splitting folios: preconditions, anonymous folios, file folios (docs/behaviour G.4).
//!
//! ```text
//!   uniform, to order 0          [ o3               ]  ->  [0|0|0|0|0|0|0|0]
//!   non-uniform, around page 2   [ o3               ]  ->  [ o1 |0|0|  o2  ]   (buddy-like)
//! ```
//!
//! Owns who may be split and what the parts inherit. Reading order: this file, `sites` (who maps a
//! folio), `anon`, `file`, `truncate`, [`deferred`], `shrink`.
//!
//! Invariants:
//! - I1: a refused split changes nothing.
//! - I2: the parts hold the same pages with the same mappings, less what nobody maps (anonymous),
//!   what is zero-filled and gives way to the shared zero page, and all mappings of files, whose
//!   pages fault again.

mod anon;
pub mod deferred;
mod file;
mod shrink;
mod sites;
mod truncate;

use crate::folio::{Folio, FolioId, Owner};
use crate::memory::Memory;
use crate::ram::Ram;
use crate::units::Order;

pub(crate) use file::Cut;

/// Why a folio was not split (G.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It has that order already, or a smaller one.
    #[error("the folio is not larger than the order asked for")]
    NotLarger,
    /// An anonymous folio cannot have order 1: no room for the deferred-split list.
    #[error("an anonymous folio cannot have order 1")]
    AnonOrderOne,
    /// The file's smallest order is larger.
    #[error("the file has no folios of an order as small as that")]
    BelowMinimum,
    /// The file's filesystem has no large folios.
    #[error("the file has no large folios")]
    NoLargeFolios,
    /// Somebody besides mappings and page cache holds a reference: a pin.
    #[error("the folio is pinned")]
    ExtraReference,
    /// It has left the page cache.
    #[error("the folio belongs to no file any more")]
    Truncated,
}

impl Refusal {
    /// Every refusal, in the order of [`crate::counters::Counters::split_refused`].
    pub const ALL: [Self; 6] = [
        Self::NotLarger,
        Self::AnonOrderOne,
        Self::BelowMinimum,
        Self::NoLargeFolios,
        Self::ExtraReference,
        Self::Truncated,
    ];

    /// Name in exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotLarger => "not_larger",
            Self::AnonOrderOne => "anon_order_one",
            Self::BelowMinimum => "below_minimum",
            Self::NoLargeFolios => "no_large_folios",
            Self::ExtraReference => "extra_reference",
            Self::Truncated => "truncated",
        }
    }
}

impl<R: Ram> Memory<R> {
    /// Splits a folio uniformly into folios of order `to`.
    ///
    /// # Errors
    /// Why not; nothing is changed then.
    pub fn split(&mut self, id: FolioId, to: Order) -> Result<(), Refusal> {
        self.split_as(id, Cut::Uniform(to))
    }

    /// Splits a folio; counts success and refusal.
    pub(crate) fn split_as(&mut self, id: FolioId, cut: Cut) -> Result<(), Refusal> {
        let folio = self.cache.folios.get(id).clone();
        if let Some(refusal) = self.split_refusal(&folio, cut.smallest()) {
            self.cache.counters.split_refused[refusal as usize] += 1;
            self.cache.counters.size_mut(folio.order).split_failed += 1;
            return Err(refusal);
        }
        match folio.owner {
            Owner::Anon { .. } => self.split_anon(id, cut.smallest()),
            Owner::File { mapping, index } => self.split_file(mapping, index, cut),
            Owner::Detached => unreachable!("refused"),
        }
        self.cache.counters.size_mut(folio.order).split += 1;
        Ok(())
    }

    fn split_refusal(&self, folio: &Folio, to: Order) -> Option<Refusal> {
        if to >= folio.order {
            return Some(Refusal::NotLarger);
        }
        let by_owner = match folio.owner {
            Owner::Detached => Some(Refusal::Truncated),
            Owner::Anon { .. } => (to == Order::new(1)).then_some(Refusal::AnonOrderOne),
            Owner::File { mapping, .. } => {
                let orders = self.cache.mapping(mapping).orders;
                if to > Order::ZERO && !orders.is_large() {
                    Some(Refusal::NoLargeFolios)
                } else {
                    (to < orders.min).then_some(Refusal::BelowMinimum)
                }
            }
        };
        let is_kept = matches!(folio.owner, Owner::File { mapping, .. }
            if self.cache.mapping(mapping).disk.keeps_whole(folio));
        by_owner.or((folio.has_extra_refs() || is_kept).then_some(Refusal::ExtraReference))
    }
}
