//! The async entry point: the reader reached the marker (docs/behaviour A.4).
//!
//! Corresponds to: `page_cache_async_ra`, `ondemand_readahead`.

use super::sync::{self, merge_next};
use super::window::{max_pages, next_pages};
use super::{Fill, Plan, RaState};
use crate::mapping::search::next_miss;
use crate::mapping::tree::Tree;
use crate::rules::readahead::{Entry, Ramp, ReadaheadRules};
use crate::units::Order;

/// A read or fault that reached the marker.
#[derive(Clone, Copy, Debug)]
pub struct MarkerHit {
    /// Head of the marked folio for a read call; faulting page for mapped access (A.4.6).
    pub index: u64,
    /// Order of the marked folio.
    pub order: Order,
    /// Pages that the reader still wants.
    pub nr_pages: u64,
    /// Largest I/O of the device in pages.
    pub io_pages: u64,
}

/// Order increase at a marker hit (A.4.4).
const ORDER_STEP: u8 = 2;

/// Chooses the next window; `None` if every page within reach is cached.
pub fn choose(
    state: &mut RaState,
    tree: &Tree,
    hit: MarkerHit,
    rules: &ReadaheadRules,
) -> Option<Plan> {
    let max = max_pages(hit.nr_pages, state.ra_pages, hit.io_pages);
    // The first page does not indicate a stream: the file restarts (A.3.3).
    if rules.entry == Entry::Unified && hit.index == 0 {
        return Some(sync::start_of_file(state, hit.nr_pages, max, Fill::Raise(hit.order)));
    }
    let expected = hit.order.round_down(state.mark());
    let is_end = rules.entry == Entry::Unified && hit.index == state.start + state.size;
    // The last window's own marker: the reader follows, so advance the window (A.4.2).
    if hit.index == expected || is_end {
        state.start += state.size;
        state.size = state.size.max(next_pages(state.size, max));
    } else {
        // Another stream left this marker: start the window after the cached run (A.4.3).
        let hole = next_miss(tree, hit.index + 1, max, rules.forward_search);
        let is_beyond = hole == 0 || hole - hit.index > max;
        if is_beyond {
            return None;
        }
        state.start = hole;
        state.size = next_pages(hole - hit.index + hit.nr_pages, max);
    }
    if rules.ramp == Ramp::Remembered {
        // The order grows with each window, whatever the marked folio's order is (A.4.4, A.4.5).
        state.order = state.order.raised(ORDER_STEP);
        trim(state, max);
    }
    state.async_size = state.size;
    if rules.entry == Entry::Unified {
        merge_next(state, hit.index, max);
    }
    let fill = match rules.ramp {
        Ramp::Remembered => Fill::Exactly(state.order),
        Ramp::Inherited => Fill::Raise(hit.order),
    };
    Some(Plan::window(state, state.start, fill))
}

/// \[6.17+\] Ends the window on a natural boundary of its order (A.4.4, L.3).
fn trim(state: &mut RaState, max: u64) {
    let align = state.order.min(Order::alignment_of(max));
    let end = align.round_down(state.start + state.size);
    if end > state.start {
        state.size = end - state.start;
    }
}
