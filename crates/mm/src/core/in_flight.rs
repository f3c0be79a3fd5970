//! Reads in flight: the folios that a fault has begun to read, and when they become mappable.
//!
//! Corresponds to: `folio_end_read`, `lock_folio_maybe_drop_mmap`.
//!
//! ```text
//!   cold fault:  window -> request 1, request 2 .. | waits until the request of its page and all
//!                                                  | earlier ones complete | fault-around | ends
//!   marker hit:  window -> request 1 ..            | does not wait         | fault-around | ends
//! ```
//!
//! The model has no clock. Instead, it follows four rules:
//! - A device completes requests in the order in which they were made.
//! - A fault waits for the request that contains its own page, and for no later request.
//! - A reclaim that frees too little outlasts all requests made before it (P.1.7).
//! - All other requests complete when the fault ends, before anything else happens.
//!
//! If a fault hits a marker, fault-around therefore maps nothing from the readahead window that
//! this fault starts (docs/design/fidelity.md, "In flight").
//!
//! Owns the requests and the locks on their folios. Does not own the windows
//! ([`crate::readahead`]).
//!
//! Invariants:
//! - I1: no request is in flight outside a fault.
//! - I2: a folio in `folios` is locked and in the page cache; request numbers ascend.

use crate::folio::{FolioId, FolioTable, Owner};
use crate::units::PageIndex;

/// How a device departs from the rules. Known only from recordings of kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Requests that complete before the fault maps anything, although the fault does not wait for
    /// them. `u32::MAX` for a device that reads synchronously.
    pub nr_early: u32,
    /// First page still being read in the request that the fault waited for. A driver that
    /// completes a request page by page wakes the fault before the request ends.
    pub late_from: Option<PageIndex>,
}

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    is_fault: bool,
    nr_requests: u32,
    completion: Completion,
    folios: Vec<(u32, FolioId)>,
}

impl InFlight {
    pub(crate) fn begin(&mut self) {
        (self.is_fault, self.nr_requests) = (true, 0);
    }

    pub(crate) fn set_completion(&mut self, completion: Completion) {
        self.completion = completion;
    }

    pub(crate) fn add(&mut self, id: FolioId) -> bool {
        let is_later = self.is_fault && self.completion.nr_early < u32::MAX;
        if is_later {
            self.folios.push((self.nr_requests, id));
        }
        is_later
    }

    pub(crate) fn submit(&mut self) {
        let is_empty = self.folios.last().is_none_or(|&(request, _)| request < self.nr_requests);
        self.nr_requests += u32::from(!is_empty);
    }

    /// Completes the requests made so far.
    pub(crate) fn complete(&mut self, folios: &mut FolioTable) {
        let end = self.folios.partition_point(|&(request, _)| request < self.nr_requests);
        unlock(self.folios.drain(..end), folios);
    }

    pub(crate) fn wait(&mut self, id: Option<FolioId>, folios: &mut FolioTable) {
        let place = id.and_then(|id| self.folios.iter().position(|(_, other)| *other == id));
        let nr_waited = place.map_or(0, |place| self.folios[place].0 + 1);
        let nr_complete = nr_waited.saturating_add(self.completion.nr_early);
        let mut end = self.folios.partition_point(|&(request, _)| request < nr_complete);
        if let (Some(from), Some(place)) = (self.completion.late_from, place) {
            let behind = self.folios[place + 1..end].iter();
            let nr_in_time = behind.take_while(|(_, id)| end_of(folios, *id) <= from).count();
            end = place + 1 + nr_in_time;
        }
        unlock(self.folios.drain(..end), folios);
    }

    pub(crate) fn end_of_request(&self, id: FolioId, folios: &FolioTable) -> Option<PageIndex> {
        let (request, _) = *self.folios.iter().find(|(_, other)| *other == id)?;
        let end = self.folios.partition_point(|&(other, _)| other <= request);
        self.folios[..end].last().map(|&(_, id)| end_of(folios, id))
    }

    /// Requests that must complete before `id` is read; 0 if it is not in flight.
    pub(crate) fn nr_until(&self, id: FolioId) -> u32 {
        let first = self.folios.first().map_or(0, |&(request, _)| request);
        let of_folio = self.folios.iter().find(|(_, other)| *other == id);
        of_folio.map_or(0, |(request, _)| request - first + 1)
    }

    pub(crate) fn end(&mut self, folios: &mut FolioTable) {
        unlock(self.folios.drain(..), folios);
        self.is_fault = false;
    }
}

fn end_of(folios: &FolioTable, id: FolioId) -> PageIndex {
    let folio = folios.get(id);
    let Owner::File { index, .. } = folio.owner else {
        unreachable!("I2: it is in the page cache")
    };
    PageIndex(index.0 + folio.nr_pages())
}

fn unlock(read: impl Iterator<Item = (u32, FolioId)>, folios: &mut FolioTable) {
    for (_, id) in read {
        folios.get_mut(id).is_locked = false;
    }
}
