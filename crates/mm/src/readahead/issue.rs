//! Issue: fills a window with folios and reads them (docs/behaviour A.5, A.6).
//!
//! Corresponds to: `page_cache_ra_order`, `page_cache_ra_unbounded`, `do_page_cache_ra`,
//! `force_page_cache_ra`.
//!
//! Large folios come first. Pages that they cannot hold, because the filesystem has no large
//! folios, memory is short, or an index is already cached, take the base-order path.
//!
//! Invariants (docs/behaviour L.1, L.2):
//! - I1: every folio is naturally aligned, and none extends past the window or the file's last page
//!   unless the mapping's smallest order forces it.
//! - I2: at most one marker per window, and none with `async_size == 0`.

use super::{Fill, Plan, RaState, ReadTarget};
use crate::core::groups::ChargeEffort;
use crate::core::observed::Observed;
use crate::core::{Core, InsertRefusal, NewFolio};
use crate::folio::FolioId;
use crate::mapping::Mapping;
use crate::memory::Memory;
use crate::rules::Rules;
use crate::rules::anon::Orders;
use crate::rules::readahead::{EofMarker, OrderOne, Ramp, Remainder};
use crate::units::{MappingId, Order, PageIndex};
use crate::vma::OpenId;

/// Bytes a forced read submits at a time (A.3.2 step 2).
const FORCED_CHUNK_BYTES: u64 = 2 << 20;

impl Memory {
    /// Reads `plan` through `open`.
    pub(crate) fn read(&mut self, open: OpenId, target: ReadTarget, plan: Plan) {
        if plan.fill == Fill::Chunks {
            return self.read_chunks(target.file, plan);
        }
        let mut state = self.open_file(open).state;
        let order = order_of(&self.core, &self.rules, target, &state, plan);
        let min = self.core.mapping(target.file).orders.min;
        let largest = order.map_or(min, |order| target.allowed.up_to(order.max(min)).max(min));
        self.make_room(plan.nr_pages, largest);
        if plan.is_window() {
            self.read_window(target, &mut state, plan, order);
            self.open_file_mut(open).state = state;
        } else {
            self.read_smallest(target.file, plan);
        }
        self.end_window();
    }

    /// Reads exactly the plan's pages in the smallest folios, in chunks (A.3.2 step 2).
    pub(crate) fn read_chunks(&mut self, file: MappingId, plan: Plan) {
        let chunk = self.rules.page.pages_in(FORCED_CHUNK_BYTES);
        let mut done = 0;
        while done < plan.nr_pages {
            let nr_pages = chunk.min(plan.nr_pages - done);
            self.read_smallest(file, Plan { nr_pages, ..Plan::chunks(plan.start + done, 0) });
            done += nr_pages;
        }
        self.end_window();
    }

    /// Inserts one folio of a window. Under a limit it stays locked until the window ends.
    fn insert_for_read(&mut self, new: NewFolio) -> Result<FolioId, InsertRefusal> {
        let id = self.insert(new, ChargeEffort::Once)?;
        let folio = self.core.folios.get_mut(id);
        if self.core.groups.is_limited() && !folio.is_locked {
            folio.is_locked = true;
            self.window.push(id);
        }
        Ok(id)
    }

    /// Requests the reads of what was inserted since the last request.
    fn submit(&mut self) {
        self.core.submit();
        self.nr_requested = self.window.len();
    }

    /// Unlocks a window only when all of it is requested, so its own reclaim cannot evict it.
    fn end_window(&mut self) {
        self.nr_requested = self.window.len();
        self.unlock_requested();
    }

    fn unlock_requested(&mut self) {
        for id in self.window.drain(..std::mem::take(&mut self.nr_requested)) {
            self.core.folios.get_mut(id).is_locked = false;
        }
    }

    /// Completes the requested reads (P.1.7). What the window has only inserted stays locked.
    pub(crate) fn complete_reads(&mut self) {
        self.unlock_requested();
        self.core.complete_reads();
    }

    /// Fills the state's window with folios of up to `order`; `None` = base pages (A.5).
    fn read_window(
        &mut self,
        ReadTarget { file, allowed, .. }: ReadTarget,
        state: &mut RaState,
        plan: Plan,
        order: Option<Order>,
    ) {
        let start = plan.start;
        self.core.counters.nr_windows += 1;
        self.core.observe(Observed::Window { mapping: file, start, state: *state });
        let mapping = self.core.mapping(file);
        let Some(last) = mapping.last_index(self.rules.page) else { return };
        let Some(order) = order else {
            // Nothing large fits here: the ramp starts again from base pages (A.5.2).
            state.order = Order::ZERO;
            return self.read_rest(file, plan);
        };
        let order = order.max(mapping.orders.min);
        state.order = order;
        let limit = last.0.min((start + plan.nr_pages).saturating_sub(1));
        let reaches_end = start + plan.nr_pages > last.0;
        // Nothing follows the end of the file.
        let has_marker = !(reaches_end && self.rules.readahead.eof_marker == EofMarker::Omitted);
        let mark = has_marker.then(|| state.mark_of(start));
        let first = mapping.align_down(start);
        let filled = self.fill(file, allowed, Aligned { first, limit, order, mark });
        self.submit();
        if let Err(index) = filled {
            // Memory is short, or something is cached: the rest comes in base pages (A.5.8).
            let nr_pages = match self.rules.readahead.remainder {
                Remainder::WholeSize => plan.nr_pages,
                Remainder::Rest => plan.nr_pages.saturating_sub(index - first),
            };
            self.read_rest(file, Plan { start: index, nr_pages, ..plan });
        }
    }

    /// What large folios did not read, by the base-order path. With [`Remainder::Rest`] there must
    /// be one: a fresh state that meets a marker at page 0 has a window without pages.
    fn read_rest(&mut self, file: MappingId, plan: Plan) {
        if plan.nr_pages > 0 || self.rules.readahead.remainder == Remainder::WholeSize {
            self.read_smallest(file, plan);
        }
    }

    /// A.5.5: naturally aligned folios over the range; the index that could not be inserted on
    /// error.
    fn fill(&mut self, file: MappingId, allowed: Orders, range: Aligned) -> Result<(), u64> {
        let min = self.core.mapping(file).orders.min;
        let mut index = range.first;
        while index <= range.limit {
            let order = fitting_order(min, range, index);
            let order = largest_folio(&self.rules, min, allowed, order);
            let is_marked = range.mark.is_some_and(|mark| order.round_down(mark) == index);
            let new = NewFolio::new(file, PageIndex(index), order);
            let folio = NewFolio { is_marked, ..new };
            self.insert_for_read(folio).map_err(|_| index)?;
            index += order.nr_pages();
        }
        Ok(())
    }

    /// Base-order path (A.6): the smallest folios, cached indices are stepped over.
    fn read_smallest(&mut self, file: MappingId, plan: Plan) {
        let mapping = self.core.mapping(file);
        let (min, last) = (mapping.orders.min, mapping.last_index(self.rules.page));
        let Some(last) = last else { return };
        if plan.start > last.0 {
            return;
        }
        let Plan { start, mut nr_pages, nr_ahead: mut lookahead, .. } = plan;
        // Nothing lies behind the last page (A.6.1).
        if nr_pages > last.0 - start {
            nr_pages = last.0 - start + 1;
            if self.rules.readahead.eof_marker == EofMarker::Omitted {
                lookahead = 0;
            }
        }
        self.core.observe(Observed::Base { mapping: file, start, nr_pages, lookahead });
        let mark = (lookahead > 0)
            .then(|| (start + nr_pages).checked_sub(lookahead).map(|mark| min.round_up(mark)))
            .flatten();
        let mut index = min.round_down(start);
        let end = start + nr_pages;
        self.core.work.add_cheap(nr_pages);
        while index < end {
            let at = PageIndex(index);
            let is_marked = mark == Some(index);
            if self.core.find(file, at).is_some() {
                // A cached page ends the request: what follows is read by another.
                self.submit();
            } else if self
                .insert_for_read(NewFolio { is_marked, ..NewFolio::new(file, at, min) })
                .is_err()
            {
                break;
            }
            index += min.nr_pages();
        }
        self.submit();
    }
}

/// Whether a window of `nr_pages` gets large folios: one below the shortest does not (A.5.2).
pub(crate) fn takes_large(rules: &Rules, mapping: &Mapping, nr_pages: u64) -> bool {
    let min_window = rules.readahead.large_window_min_pages;
    let is_short = min_window > 0 && nr_pages < min_window.max(mapping.min_pages());
    mapping.orders.is_large() && !is_short
}

/// The order to fill `plan` with, before its place limits it; `None` = the smallest folios.
pub(crate) fn order_of(
    core: &Core,
    rules: &Rules,
    target: ReadTarget,
    state: &RaState,
    plan: Plan,
) -> Option<Order> {
    let mapping = core.mapping(target.file);
    let is_large = plan.is_window() && takes_large(rules, mapping, plan.nr_pages);
    is_large.then(|| preferred_order(rules, mapping.orders.max, state, plan, target.allowed))
}

/// A.5.3: the order to fill the window with. It may be one that no folio is allowed to have: the
/// ramp climbs over it.
fn preferred_order(
    rules: &Rules,
    max: Order,
    state: &RaState,
    plan: Plan,
    allowed: Orders,
) -> Order {
    // A folio larger than the window would read more than was decided (A.5.3).
    // A window without pages (a fresh state met a marker) sets no limit.
    let by_size = if plan.nr_pages == 0 { max } else { Order::floor_of(plan.nr_pages) };
    let order = match (rules.readahead.ramp, plan.fill) {
        // The state has kept the order, whatever the marked folio's order is.
        (Ramp::Remembered, Fill::Raise(_)) => state.order,
        // The marked folio was read well: the next ones may be larger.
        (_, Fill::Raise(order)) if order < max => step(order, allowed),
        (_, Fill::Raise(order) | Fill::Exactly(order)) => order,
        (_, Fill::Smallest | Fill::Chunks) => Order::ZERO,
    };
    order.min(max).min(by_size)
}

/// How far a ramp that inherits its order steps: two orders, or to the next allowed one where a
/// control leaves both out; else it would never leave base pages.
fn step(order: Order, allowed: Orders) -> Order {
    let by_two = order.raised(2);
    if allowed.up_to(by_two) > order {
        return by_two;
    }
    allowed.descending().take_while(|&next| next > order).last().unwrap_or(by_two)
}

/// A range to fill with folios of at most `order`, naturally aligned.
#[derive(Clone, Copy)]
struct Aligned {
    first: u64,
    limit: u64,
    order: Order,
    mark: Option<u64>,
}

/// Largest order at `index` that is aligned and ends within the range.
fn fitting_order(min: Order, range: Aligned, index: u64) -> Order {
    // Aligned in the file, so that large entries can map it (A.5.5, A.5.6).
    let mut order = range.order.min(Order::alignment_of(index));
    while order > min && index + order.nr_pages() - 1 > range.limit {
        order = order.lower().unwrap_or(min);
    }
    order
}

/// Largest order of a folio that has at most `order`.
pub(crate) fn largest_folio(rules: &Rules, min: Order, allowed: Orders, order: Order) -> Order {
    let order = allowed.up_to(order).max(min);
    // In 6.1 a folio of order 1 is never used (A.5.5).
    let skips = rules.readahead.order1 == OrderOne::Never && order == Order::new(1);
    if skips { Order::ZERO.max(min) } else { order }
}
