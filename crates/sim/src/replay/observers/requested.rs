//! Counts requested and allocated folios by size, over time.
//!
//! Owns the counts for a cell and for the ageing before it. The counters belong to
//! [`largefolio_mm::counters`].

use std::collections::BTreeMap;
use std::iter;

use largefolio_mm::buddy::RoundOfAgeing;
use largefolio_mm::counters::{Counters, NR_ORDERS};
use serde::Serialize;

/// A trace is cut into this many parts with equal row counts.
const NR_PARTS: u64 = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requested {
    /// Base pages included.
    pub file_asked: u64,
    pub file_got: u64,
    /// Requests by faults, without base pages.
    pub anon_asked: u64,
    pub anon_got: u64,
}

/// Requests and allocations by folio size in bytes. Unrequested sizes are left out.
pub type RequestedSizes = BTreeMap<u64, Requested>;

pub(crate) fn between(base: &Counters, now: &Counters, page_bytes: u64) -> RequestedSizes {
    let of = |order: usize| {
        let denied = now.nr_file_denied[order] - base.nr_file_denied[order];
        let file_asked = now.nr_file_tried[order] - base.nr_file_tried[order];
        let (now, base) = (&now.sizes[order], &base.sizes[order]);
        let anon_got = now.anon_fault_alloc - base.anon_fault_alloc;
        let fallback = now.anon_fault_fallback - base.anon_fault_fallback;
        let anon_asked = anon_got + fallback;
        Requested { file_asked, file_got: file_asked - denied, anon_asked, anon_got }
    };
    let sizes = (0..NR_ORDERS).map(|order| (page_bytes << order, of(order)));
    sizes.filter(|(_, requested_of)| *requested_of != Requested::default()).collect()
}

pub(crate) fn aged(rounds: &[RoundOfAgeing], page_bytes: u64) -> BTreeMap<u64, RequestedSizes> {
    let sizes = |round: &RoundOfAgeing| {
        let of = |order: usize| Requested {
            file_asked: round.nr_asked[order],
            file_got: round.nr_got[order],
            ..Requested::default()
        };
        let sizes = (0..NR_ORDERS).map(|order| (page_bytes << order, of(order)));
        sizes.filter(|(_, requested_of)| *requested_of != Requested::default()).collect()
    };
    (1..).zip(rounds).map(|(nr, round)| (nr, sizes(round))).collect()
}

#[derive(Debug, Default)]
pub(crate) struct Tenths {
    /// Rows from before the recording; they belong to no part.
    nr_before: u64,
    nr_rows: u64,
    ends: Vec<Counters>,
}

impl Tenths {
    pub(crate) fn of(nr_before: u64, nr_rows: u64) -> Self {
        Self { nr_before, nr_rows, ends: Vec::new() }
    }

    pub(crate) fn again(&self) -> Self {
        Self::of(self.nr_before, self.nr_rows)
    }

    pub(crate) fn next_end(&self) -> u64 {
        let nr = self.ends.len() as u64 + 1;
        if nr > NR_PARTS {
            return u64::MAX;
        }
        let nr_counted = self.nr_rows.saturating_sub(self.nr_before);
        self.nr_before + (nr_counted * nr).div_ceil(NR_PARTS)
    }

    pub(crate) fn end(&mut self, counters: &Counters) {
        self.ends.push(*counters);
    }

    /// Returns the requests since `base`, by the percentage of the trace at which each part ends.
    pub(crate) fn requested(
        &self,
        base: &Counters,
        page_bytes: u64,
    ) -> BTreeMap<u64, RequestedSizes> {
        let starts = iter::once(base).chain(&self.ends);
        let parts = (1..).zip(starts.zip(&self.ends));
        let requested_of = |(start, end)| between(start, end, page_bytes);
        parts.map(|(nr, part)| (100 / NR_PARTS * nr, requested_of(part))).collect()
    }
}
