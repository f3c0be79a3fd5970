//! Reads in flight: what a fault has begun to read, and when it can be mapped.
//!
//! Answers to: `folio_end_read`, `lock_folio_maybe_drop_mmap`.
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

use crate::folio::{FolioId, FolioTable, Owner};
use crate::units::PageIndex;

/// Where a device departs from the rule. Only recordings of kernels say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Requests that are complete before the fault maps anything, although it does not wait for
    /// them: `u32::MAX` on a device that reads within the call.
    pub nr_early: u32,
    /// First page of the request waited for that is still being read: a driver that completes a
    /// request page by page wakes the fault before it has come to the end.
    pub late_from: Option<PageIndex>,
}

/// The requests of one fault.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// A fault is being handled: what is read now completes later.
    is_fault: bool,
    /// Requests made so far.
    nr_requests: u32,
    /// When they are complete.
    completion: Completion,
    /// What is being read, with the request's number from 0.
    folios: Vec<(u32, FolioId)>,
}

impl InFlight {
    /// A fault begins: nothing is in flight, and what it reads will be.
    pub(crate) fn begin(&mut self) {
        (self.is_fault, self.nr_requests) = (true, 0);
    }

    pub(crate) fn set_completion(&mut self, completion: Completion) {
        self.completion = completion;
    }

    /// Adds a folio to the present request; whether its read is in flight now.
    pub(crate) fn add(&mut self, id: FolioId) -> bool {
        let is_later = self.is_fault && self.completion.nr_early < u32::MAX;
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

    /// The fault waits for `id`, or for nothing, and continues.
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

    /// Page behind the last of the request that reads `id`.
    pub(crate) fn end_of_request(&self, id: FolioId, folios: &FolioTable) -> Option<PageIndex> {
        let (request, _) = *self.folios.iter().find(|(_, other)| *other == id)?;
        let end = self.folios.partition_point(|&(other, _)| other <= request);
        self.folios[..end].last().map(|&(_, id)| end_of(folios, id))
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

/// Page of its file behind the last of a folio.
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
