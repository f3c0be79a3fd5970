//! Reads in flight: what a fault has begun to read, and when it can be mapped.
//!
//! ```text
//!   cold fault:  window -> request 1, request 2 .. | wait for the page: its request and all before
//!                                                  | it are complete | fault-around | fault ends
//!   marker hit:  window -> request 1 ..            | no wait         | fault-around | fault ends
//! ```
//!
//! The model has no clock. Its rule: a device completes requests in the order they are made; a
//! fault waits until the request of its own page is complete, and for no other; what is then in
//! flight completes when the fault has ended, before anything else happens. So fault-around of the
//! fault that hits a marker maps nothing of the window this begins (docs/design/fidelity.md, "In
//! flight").
//!
//! Owns requests and the locks they hold on folios. Does not own what is read
//! ([`crate::readahead`]).
//!
//! Invariants:
//! - I1: outside a fault no request is in flight.
//! - I2: a folio in `folios` is locked, and in the page cache; requests ascend.

use crate::folio::{FolioId, FolioTable};

/// The requests of one fault.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// A fault is being handled: what is read now completes later.
    is_fault: bool,
    /// Requests made so far.
    nr_requests: u32,
    /// Requests complete before anybody waits for them.
    nr_early: u32,
    /// What is being read, with the request's number from 0.
    folios: Vec<(u32, FolioId)>,
}

impl InFlight {
    /// A fault begins.
    pub(crate) fn begin(&mut self) {
        (self.is_fault, self.nr_requests) = (true, 0);
    }

    /// Requests that complete on their own before the fault looks for what it can map: 0 by the
    /// rule above, `u32::MAX` on a device that reads within the call.
    pub(crate) fn set_early(&mut self, nr_requests: u32) {
        self.nr_early = nr_requests;
    }

    /// Adds a folio to the present request; whether its read is in flight now.
    pub(crate) fn add(&mut self, id: FolioId) -> bool {
        let is_later = self.is_fault && self.nr_early < u32::MAX;
        if is_later {
            self.folios.push((self.nr_requests, id));
        }
        is_later
    }

    /// The present request is made: what is read after it belongs to the next.
    pub(crate) fn submit(&mut self) {
        let is_empty = self.folios.last().is_none_or(|&(request, _)| request < self.nr_requests);
        self.nr_requests += u32::from(!is_empty);
    }

    /// Requests from that of `id` on that a fault which waits for `id` does not wait for; for a
    /// fault that waits for nothing, all of them.
    pub(crate) fn wait(&mut self, id: Option<FolioId>, folios: &mut FolioTable) {
        let of_page = id.and_then(|id| self.folios.iter().find(|(_, other)| *other == id));
        let nr_complete = of_page.map_or(0, |(request, _)| request + 1);
        let nr_complete = nr_complete.saturating_add(self.nr_early);
        let at = self.folios.partition_point(|&(request, _)| request < nr_complete);
        unlock(self.folios.drain(..at), folios);
    }

    /// Requests still missing until `id` is read: 0 where it is not in flight.
    pub(crate) fn nr_until(&self, id: FolioId) -> u32 {
        let first = self.folios.first().map_or(0, |&(request, _)| request);
        let of_folio = self.folios.iter().find(|(_, other)| *other == id);
        of_folio.map_or(0, |(request, _)| request - first + 1)
    }

    /// The fault has ended: everything completes.
    pub(crate) fn end(&mut self, folios: &mut FolioTable) {
        unlock(self.folios.drain(..), folios);
        self.is_fault = false;
    }
}

fn unlock(read: impl Iterator<Item = (u32, FolioId)>, folios: &mut FolioTable) {
    for (_, id) in read {
        folios.get_mut(id).is_locked = false;
    }
}
