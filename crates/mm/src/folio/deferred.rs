//! The queue of folios that may be worth splitting (docs/behaviour G.2).
//!
//! Corresponds to: `deferred_split_folio`.
//!
//! Owns the order in which the shrinker sees folios, but not why a folio is queued.
//!
//! Invariants:
//! - I1: a folio is queued at most once, under its own number ([`Folio::deferred`]).

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use crate::folio::{Folio, FolioId};

/// Folios in the order in which they were queued.
#[derive(Clone, Debug, Default)]
pub struct Deferred {
    queue: BTreeMap<NonZeroU64, FolioId>,
    nr_pushed: u64,
    /// Scans that earlier passes left to later ones (`nr_deferred`).
    pub(crate) nr_put_off: u64,
}

impl Deferred {
    pub(crate) fn push(&mut self, id: FolioId, folio: &mut Folio) {
        if folio.deferred.is_some() {
            return;
        }
        self.nr_pushed += 1;
        let Some(number) = NonZeroU64::new(self.nr_pushed) else { unreachable!("just raised") };
        folio.deferred = Some(number);
        self.queue.insert(number, id);
    }

    pub(crate) fn remove(&mut self, folio: &mut Folio) {
        if let Some(number) = folio.deferred.take() {
            self.queue.remove(&number);
        }
    }

    /// The folios, first queued first.
    pub fn iter(&self) -> impl Iterator<Item = (NonZeroU64, FolioId)> {
        self.queue.iter().map(|(&number, &id)| (number, id))
    }

    /// Folios that wait for the shrinker.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no folio waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
