//! The sync entry point: the first page of a request is absent (docs/behaviour A.3).
//!
//! Corresponds to: `page_cache_sync_ra`, `ondemand_readahead`.

use super::window::{initial_pages, max_pages, next_pages};
use super::{Fill, Plan, RaState};
use crate::mapping::search::prev_miss;
use crate::mapping::tree::Tree;
use crate::rules::readahead::{Entry, ReadaheadRules};
use crate::units::Order;

/// Request of a reader, and limits of its device.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest {
    /// First absent page.
    pub index: u64,
    /// Pages that the reader requests from there on.
    pub nr_pages: u64,
    /// Page of the last read call's end; see [`prev_index`].
    pub prev_index: u64,
    /// Largest I/O of the device in pages.
    pub io_pages: u64,
}

/// Page number of `prev_pos`. If the file was never read, no index follows the result.
#[must_use]
pub fn prev_index(state: &RaState, page_shift: u32) -> u64 {
    state.prev_pos.map_or(u64::MAX >> page_shift, |pos| pos >> page_shift)
}

/// Plans the read for `request` and updates the state (A.3.2 steps 3 and 4).
pub fn choose(
    state: &mut RaState,
    tree: &Tree,
    request: ReadRequest,
    rules: &ReadaheadRules,
) -> Plan {
    let (index, nr) = (request.index, request.nr_pages);
    let max = max_pages(nr, state.ra_pages, request.io_pages);
    // The reader arrived where the last window predicted: sequential (A.3.3).
    if rules.entry == Entry::Unified && index != 0 && continues(state, index) {
        advance(state, max);
        return window(state, index, max, rules);
    }
    let is_sequential = index.wrapping_sub(request.prev_index) <= 1;
    // The start of the file, more than a window, or right after the last read: treated as the start
    // of a stream, so read a first window (A.3.2 step 3).
    if index == 0 || nr > max || is_sequential {
        state.start = index;
        state.size = initial_pages(nr, max);
        state.async_size = match (state.size > nr, rules.entry) {
            // Pages beyond the request are read ahead: reaching them starts the next window.
            (true, _) => state.size - nr,
            // Everything was requested: the second half starts the next window in time.
            (false, Entry::Split) => state.size / 2,
            (false, Entry::Unified) => state.size,
        };
        return window(state, index, max, rules);
    }
    // Neither start nor continuation: the cached pages before it tell stream from random (step 4).
    let miss = prev_miss(tree, index - 1, max, rules.full_search);
    let run = (index - 1).wrapping_sub(miss);
    // No more is cached than one read: random, so no readahead.
    if run <= nr {
        return Plan { start: index, nr_pages: nr, nr_ahead: 0, fill: Fill::Smallest };
    }
    // Cached from the start of the file: a long sequential run, so expect twice as much.
    let run = if run >= index { run * 2 } else { run };
    state.start = index;
    state.size = (run + nr).min(max);
    // One of several streams: its last page starts the next window.
    state.async_size = 1;
    window(state, index, max, rules)
}

/// \[6.1\] Whether `index` is the start of the last window's tail or the page after the window.
fn continues(state: &RaState, index: u64) -> bool {
    index == state.mark() || index == state.start + state.size
}

fn advance(state: &mut RaState, max: u64) {
    state.start += state.size;
    state.size = next_pages(state.size, max);
    state.async_size = state.size;
}

/// \[6.1\] A request at index 0 restarts the file, whichever entry it used (A.3.3).
pub(super) fn start_of_file(state: &mut RaState, nr_pages: u64, max: u64, fill: Fill) -> Plan {
    state.start = 0;
    state.size = initial_pages(nr_pages, max);
    state.async_size = if state.size > nr_pages { state.size - nr_pages } else { state.size };
    merge_next(state, 0, max);
    Plan::window(state, 0, fill)
}

fn window(state: &mut RaState, index: u64, max: u64, rules: &ReadaheadRules) -> Plan {
    if rules.entry == Entry::Unified {
        merge_next(state, index, max);
    }
    state.order = Order::ZERO;
    Plan::window(state, state.start, Fill::Raise(Order::ZERO))
}

/// \[6.1\] A window whose first page would be its marker absorbs the next window (A.3.3).
pub(super) fn merge_next(state: &mut RaState, index: u64, max: u64) {
    if index != state.start || state.size != state.async_size {
        return;
    }
    let next = next_pages(state.size, max);
    if state.size + next <= max {
        state.async_size = next;
        state.size += next;
    } else {
        state.size = max;
        state.async_size = max / 2;
    }
}
