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

use super::RaState;
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

/// The order a window is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderHint {
    /// Where orders are inherited, two more than this one (A.5.3); else the state's order.
    Raise(Order),
    /// This order, as far as mapping and window allow.
    Exactly(Order),
}

/// What an entry decided to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issue {
    /// The state's `size` pages from `start`, in large folios where possible.
    Window {
        /// Index of the first page.
        start: u64,
        /// Order to fill the window with, before its length limits it.
        hint: OrderHint,
    },
    /// Pages in the smallest folios; the state does not describe them.
    Base {
        /// Index of the first page.
        start: u64,
        /// Base pages from there on.
        nr_pages: u64,
        /// Pages behind the marker; 0 = no marker.
        lookahead: u64,
    },
}

/// Bytes a forced read submits at a time (A.3.2 step 2).
const FORCED_CHUNK_BYTES: u64 = 2 << 20;

/// What is read into.
#[derive(Clone, Copy, Debug)]
pub struct ReadTarget {
    /// File that is read.
    pub file: MappingId,
    /// Orders its folios may have; where none fits, the smallest of the mapping is taken. All of
    /// them without a per-size control (K.1.4).
    pub allowed: Orders,
}

/// Consecutive pages of a file.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Index of the first page.
    pub start: u64,
    /// Base pages from there on.
    pub nr_pages: u64,
}

/// Memory that a read takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Base pages from there on.
    pub(crate) nr_pages: u64,
    /// Largest order among its folios.
    pub(crate) order: Order,
}

impl Memory {
    pub(crate) fn read(&mut self, open: OpenId, target: ReadTarget, chosen: Issue) {
        let mut state = self.open_file(open).state;
        let room = room(&self.core, &self.rules, target, &state, chosen);
        self.make_room(room.nr_pages, room.order);
        run(self, target, &mut state, chosen);
        self.open_file_mut(open).state = state;
        self.end_window();
    }

    pub(crate) fn read_forced(&mut self, file: MappingId, run: Run) {
        forced(self, file, run);
        self.end_window();
    }

    /// Inserts one folio of a window. Under a limit it stays locked until the window ends.
    pub(crate) fn insert_for_read(&mut self, new: NewFolio) -> Result<FolioId, InsertRefusal> {
        let id = self.insert(new, ChargeEffort::Once)?;
        let folio = self.core.folios.get_mut(id);
        if self.core.groups.is_limited() && !folio.is_locked {
            folio.is_locked = true;
            self.window.push(id);
        }
        Ok(id)
    }

    /// Unlocks a window only when all of it is requested, so its own reclaim cannot evict it.
    fn end_window(&mut self) {
        for id in self.window.drain(..) {
            self.core.folios.get_mut(id).is_locked = false;
        }
    }
}

/// Reads what `issue` says.
pub(crate) fn run(memory: &mut Memory, target: ReadTarget, state: &mut RaState, issue: Issue) {
    let mut reader = Reader { memory, file: target.file };
    match issue {
        Issue::Window { start, hint } => reader.window(state, start, hint, target.allowed),
        Issue::Base { start, nr_pages, lookahead } => {
            reader.base(Span { start, nr_pages, lookahead });
        }
    }
}

/// What is needed to read `issue`.
pub(crate) fn room(
    core: &Core,
    rules: &Rules,
    target: ReadTarget,
    state: &RaState,
    issue: Issue,
) -> Room {
    let min = core.mapping(target.file).orders.min;
    match issue {
        Issue::Window { hint, .. } => {
            let order = window_order(core, rules, target, state, hint);
            Room { nr_pages: state.size, order: target.allowed.up_to(order).max(min) }
        }
        Issue::Base { nr_pages, .. } => Room { nr_pages, order: min },
    }
}

/// Reads exactly the pages of `run` in the smallest folios, in chunks (A.3.2 step 2).
pub(crate) fn forced(memory: &mut Memory, file: MappingId, run: Run) {
    let chunk = memory.rules.page.pages_in(FORCED_CHUNK_BYTES);
    let mut reader = Reader { memory, file };
    let mut done = 0;
    while done < run.nr_pages {
        let nr_pages = chunk.min(run.nr_pages - done);
        reader.base(Span { start: run.start + done, nr_pages, lookahead: 0 });
        done += nr_pages;
    }
}

/// Who reads: the file, and where its folios go.
struct Reader<'a> {
    memory: &'a mut Memory,
    file: MappingId,
}

impl Reader<'_> {
    /// Fills the state's window from `start` with folios as large as allowed (A.5).
    fn window(&mut self, state: &mut RaState, start: u64, hint: OrderHint, allowed: Orders) {
        self.memory.core.counters.nr_windows += 1;
        self.memory.core.observe(Observed::Window { mapping: self.file, start, state: *state });
        let mapping = self.memory.core.mapping(self.file);
        let orders = mapping.orders;
        let Some(last) = mapping.last_index(self.memory.rules.page) else { return };
        let whole = Span { start, nr_pages: state.size, lookahead: state.async_size };
        if !takes_large(&self.memory.rules, mapping, state.size) {
            // Nothing large fits here: the ramp starts again from base pages (A.5.2).
            state.order = Order::ZERO;
            self.rest(whole);
            return;
        }
        let order =
            preferred_order(&self.memory.rules, orders.max, state, hint, allowed).max(orders.min);
        state.order = order;
        let limit = last.0.min((start + state.size).saturating_sub(1));
        let reaches_end = start + state.size > last.0;
        // Behind the end of the file there is nothing to read next.
        let has_marker =
            !(reaches_end && self.memory.rules.readahead.eof_marker == EofMarker::Omitted);
        let mark = has_marker.then(|| state.mark_of(start));
        let first = mapping.align_down(start);
        let filled = self.fill(Fill { first, limit, order, mark, allowed });
        self.memory.core.submit();
        if let Err(index) = filled {
            // Memory is short, or something is cached: the rest comes in base pages (A.5.8).
            let nr_pages = match self.memory.rules.readahead.remainder {
                Remainder::WholeSize => state.size,
                Remainder::Rest => state.size.saturating_sub(index - first),
            };
            self.rest(Span { start: index, nr_pages, lookahead: state.async_size });
        }
    }

    /// What large folios did not read, by the base-order path. Where the rest is asked for, there
    /// must be one: a fresh state that meets a marker at page 0 has a window of no page.
    fn rest(&mut self, span: Span) {
        if span.nr_pages > 0 || self.memory.rules.readahead.remainder == Remainder::WholeSize {
            self.base(span);
        }
    }

    /// A.5.5: naturally aligned folios over the range; the index that could not be inserted on
    /// error.
    fn fill(&mut self, range: Fill) -> Result<(), u64> {
        let min = self.memory.core.mapping(self.file).orders.min;
        let mut index = range.first;
        while index <= range.limit {
            let order = fitting_order(&self.memory.rules, min, range, index);
            let is_marked = range.mark.is_some_and(|mark| order.round_down(mark) == index);
            let folio = NewFolio { file: self.file, index: PageIndex(index), order, is_marked };
            self.memory.insert_for_read(folio).map_err(|_| index)?;
            index += order.nr_pages();
        }
        Ok(())
    }

    /// Base-order path (A.6): the smallest folios, cached indices are stepped over.
    fn base(&mut self, span: Span) {
        let file = self.file;
        let mapping = self.memory.core.mapping(file);
        let (min, last) = (mapping.orders.min, mapping.last_index(self.memory.rules.page));
        let Some(last) = last else { return };
        if span.start > last.0 {
            return;
        }
        let Span { start, mut nr_pages, mut lookahead } = span;
        // Nothing lies behind the last page (A.6.1).
        if nr_pages > last.0 - start {
            nr_pages = last.0 - start + 1;
            if self.memory.rules.readahead.eof_marker == EofMarker::Omitted {
                lookahead = 0;
            }
        }
        self.memory.core.observe(Observed::Base { mapping: file, start, nr_pages, lookahead });
        let mark = (lookahead > 0)
            .then(|| (start + nr_pages).checked_sub(lookahead).map(|mark| min.round_up(mark)))
            .flatten();
        let mut index = min.round_down(start);
        let end = start + nr_pages;
        self.memory.core.work.add_cheap(nr_pages);
        while index < end {
            let at = PageIndex(index);
            let is_marked = mark == Some(index);
            if self.memory.core.find(file, at).is_some() {
                // A cached page ends the request: what follows is read by another.
                self.memory.core.submit();
            } else if self
                .memory
                .insert_for_read(NewFolio { file, index: at, order: min, is_marked })
                .is_err()
            {
                break;
            }
            index += min.nr_pages();
        }
        self.memory.core.submit();
    }
}

/// Whether a window of `nr_pages` gets large folios: one below the shortest does not (A.5.2).
pub(crate) fn takes_large(rules: &Rules, mapping: &Mapping, nr_pages: u64) -> bool {
    let min_window = rules.readahead.large_window_min_pages;
    let is_short = min_window > 0 && nr_pages < min_window.max(mapping.min_pages());
    mapping.orders.is_large() && !is_short
}

/// The order that [`run`] fills the state's window with, before its length and its place limit it.
pub(crate) fn window_order(
    core: &Core,
    rules: &Rules,
    target: ReadTarget,
    state: &RaState,
    hint: OrderHint,
) -> Order {
    let mapping = core.mapping(target.file);
    let orders = mapping.orders;
    if !takes_large(rules, mapping, state.size) {
        return orders.min;
    }
    preferred_order(rules, orders.max, state, hint, target.allowed).max(orders.min)
}

/// A.5.3: the order to fill the window with. It may be one that no folio is allowed to have: the
/// ramp climbs over it.
fn preferred_order(
    rules: &Rules,
    max: Order,
    state: &RaState,
    hint: OrderHint,
    allowed: Orders,
) -> Order {
    // A folio larger than the window would read more than was decided (A.5.3).
    // A window of no page (a fresh state met a marker) sets no limit.
    let by_size = if state.size == 0 { max } else { Order::floor_of(state.size) };
    match (rules.readahead.ramp, hint) {
        // The state has kept the order; what the marked folio is does not matter.
        (Ramp::Remembered, OrderHint::Raise(_)) => state.order.min(max).min(by_size),
        // The marked folio was read well: the next ones may be larger.
        (_, OrderHint::Raise(order)) if order < max => step(order, allowed).min(max).min(by_size),
        (_, OrderHint::Raise(order) | OrderHint::Exactly(order)) => order.min(max).min(by_size),
    }
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

/// A range to fill with folios of at most `order`.
#[derive(Clone, Copy)]
struct Fill {
    first: u64,
    limit: u64,
    order: Order,
    mark: Option<u64>,
    allowed: Orders,
}

/// Largest order at `index` that is aligned and ends within the range.
fn fitting_order(rules: &Rules, min: Order, range: Fill, index: u64) -> Order {
    // Aligned in the file, so that large entries can map it (A.5.5, A.5.6).
    let mut order = range.order.min(Order::alignment_of(index));
    while order > min && index + order.nr_pages() - 1 > range.limit {
        order = order.lower().unwrap_or(min);
    }
    largest_folio(rules, min, range.allowed, order)
}

/// Largest order of a folio that has at most `order`.
pub(crate) fn largest_folio(rules: &Rules, min: Order, allowed: Orders, order: Order) -> Order {
    let order = allowed.up_to(order).max(min);
    // In 6.1 a folio of order 1 is never used (A.5.5).
    let skips = rules.readahead.order1 == OrderOne::Never && order == Order::new(1);
    if skips { Order::ZERO.max(min) } else { order }
}

/// Pages for the base-order path.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    nr_pages: u64,
    lookahead: u64,
}
