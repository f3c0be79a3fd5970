//! The queue of folios that may be worth splitting (docs/behaviour G.2).
//!
//! Answers to: `deferred_split_folio`.
//!
//! Owns the order in which the shrinker sees folios. Does not own why a folio is queued.
//!
//! Invariants:
//! - I1: a folio is queued once, under the number it carries itself ([`Folio::deferred`]).

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use crate::folio::{Folio, FolioId};

/// Folios by the time they were queued.
#[derive(Clone, Debug, Default)]
pub struct Deferred {
    queue: BTreeMap<NonZeroU64, FolioId>,
    nr_pushed: u64,
}

impl Deferred {
    /// Appends a folio that is not queued yet.
    pub(crate) fn push(&mut self, id: FolioId, folio: &mut Folio) {
        if folio.deferred.is_some() {
            return;
        }
        self.nr_pushed += 1;
        let Some(number) = NonZeroU64::new(self.nr_pushed) else { unreachable!("just raised") };
        folio.deferred = Some(number);
        self.queue.insert(number, id);
    }

    /// Takes a folio out, if it is queued.
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

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
