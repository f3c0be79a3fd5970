//! Issue: fills a window with folios and reads them (docs/behaviour A.5, A.6).
//!
//! Answers to: `page_cache_ra_order`, `page_cache_ra_unbounded`, `do_page_cache_ra`,
//! `force_page_cache_ra`.
//!
//! Tries large folios first. The base-order path reads the rest: if the filesystem has no large
//! folios, memory is short, or an index is already cached.
//!
//! Invariants (docs/behaviour L.1, L.2):
//! - I1: every folio is naturally aligned and none extends past the window or the last page of the
//!   file, unless the mapping's minimum order forces it.
//! - I2: at most one marker per window, and none with `async_size == 0`.

use std::marker::PhantomData;

use super::RaState;
use crate::core::observed::Observed;
use crate::core::{Core, InsertRefusal, NewFolio};
use crate::folio::FolioId;
use crate::mapping::Mapping;
use crate::ram::Ram;
use crate::rules::Rules;
use crate::rules::anon::Orders;
use crate::rules::readahead::{EofMarker, OrderOne, Ramp, Remainder};
use crate::units::{MappingId, Order, PageIndex};

/// How a window's folio order is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderHint {
    /// If orders are inherited, this order plus two (A.5.3); otherwise the state's order.
    Raise(Order),
    /// Exactly this order, as far as mapping and window allow.
    Exactly(Order),
}

/// Read chosen by an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issue {
    /// The state's `size` pages from `start`, in large folios where possible.
    Window {
        /// Index of the first page.
        start: u64,
        /// Order to use, before the window's length limits it.
        hint: OrderHint,
    },
    /// Pages in the smallest folios, independent of the state.
    Base {
        /// Index of the first page.
        start: u64,
        /// Length in base pages.
        nr_pages: u64,
        /// Pages after the marker; 0 = no marker.
        lookahead: u64,
    },
}

/// Bytes per chunk of a forced read (A.3.2 step 2).
const FORCED_CHUNK_BYTES: u64 = 2 << 20;

/// Target file of a read, and its orders.
#[derive(Clone, Copy, Debug)]
pub struct ReadTarget {
    /// File that is read.
    pub file: MappingId,
    /// Orders that its folios may have, otherwise the mapping's minimum; all without a control
    /// (K.1.4).
    pub allowed: Orders,
}

/// Consecutive pages of a file.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Index of the first page.
    pub start: u64,
    /// Length in base pages.
    pub nr_pages: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) nr_pages: u64,
    pub(crate) order: Order,
}

pub(crate) trait Cache<R> {
    fn core(&self) -> &Core<R>;
    fn core_mut(&mut self) -> &mut Core<R>;
    fn rules(&self) -> &Rules;
    fn insert(&mut self, new: NewFolio) -> Result<FolioId, InsertRefusal>;
}

pub(crate) fn run<R: Ram>(
    cache: &mut impl Cache<R>,
    target: ReadTarget,
    state: &mut RaState,
    issue: Issue,
) {
    let mut reader = Reader { cache, file: target.file, ram: PhantomData };
    match issue {
        Issue::Window { start, hint } => reader.window(state, start, hint, target.allowed),
        Issue::Base { start, nr_pages, lookahead } => {
            reader.base(Span { start, nr_pages, lookahead });
        }
    }
}

pub(crate) fn room<R: Ram>(
    core: &Core<R>,
    rules: &Rules,
    target: ReadTarget,
    state: &RaState,
    issue: Issue,
) -> Room {
    let orders = core.mapping(target.file).orders;
    match issue {
        Issue::Window { hint, .. } if orders.is_large() => {
            let order = preferred_order(rules, orders.max, state, hint, target.allowed);
            let order = target.allowed.up_to(order).max(orders.min);
            Room { nr_pages: state.size, order }
        }
        Issue::Window { .. } => Room { nr_pages: state.size, order: orders.min },
        Issue::Base { nr_pages, .. } => Room { nr_pages, order: orders.min },
    }
}

pub(crate) fn forced<R: Ram>(cache: &mut impl Cache<R>, file: MappingId, run: Run) {
    let chunk = cache.rules().page.pages_in(FORCED_CHUNK_BYTES);
    let mut reader = Reader { cache, file, ram: PhantomData };
    let mut done = 0;
    while done < run.nr_pages {
        let nr_pages = chunk.min(run.nr_pages - done);
        reader.base(Span { start: run.start + done, nr_pages, lookahead: 0 });
        done += nr_pages;
    }
}

struct Reader<'a, C, R> {
    cache: &'a mut C,
    file: MappingId,
    ram: PhantomData<R>,
}

impl<C: Cache<R>, R: Ram> Reader<'_, C, R> {
    fn window(&mut self, state: &mut RaState, start: u64, hint: OrderHint, allowed: Orders) {
        self.cache.core_mut().counters.nr_windows += 1;
        self.cache.core_mut().observe(Observed::Window {
            mapping: self.file,
            start,
            state: *state,
        });
        let mapping = self.cache.core().mapping(self.file);
        let orders = mapping.orders;
        let Some(last) = mapping.last_index(self.cache.rules().page) else { return };
        let whole = Span { start, nr_pages: state.size, lookahead: state.async_size };
        if !takes_large(self.cache.rules(), mapping, state.size) {
            // Nothing large fits here: the ramp restarts from base pages (A.5.2).
            state.order = Order::ZERO;
            self.rest(whole);
            return;
        }
        let order =
            preferred_order(self.cache.rules(), orders.max, state, hint, allowed).max(orders.min);
        state.order = order;
        let limit = last.0.min((start + state.size).saturating_sub(1));
        let reaches_end = start + state.size > last.0;
        // After the end of the file there is nothing to read next.
        let has_marker =
            !(reaches_end && self.cache.rules().readahead.eof_marker == EofMarker::Omitted);
        let mark = has_marker.then(|| state.mark_of(start));
        let first = mapping.align_down(start);
        let filled = self.fill(Fill { first, limit, order, mark, allowed });
        self.cache.core_mut().submit();
        if let Err(index) = filled {
            // Memory is short, or an index is cached: read the rest in base pages (A.5.8).
            let nr_pages = match self.cache.rules().readahead.remainder {
                Remainder::WholeSize => state.size,
                Remainder::Rest => state.size.saturating_sub(index - first),
            };
            self.rest(Span { start: index, nr_pages, lookahead: state.async_size });
        }
    }

    fn rest(&mut self, span: Span) {
        if span.nr_pages > 0 || self.cache.rules().readahead.remainder == Remainder::WholeSize {
            self.base(span);
        }
    }

    fn fill(&mut self, range: Fill) -> Result<(), u64> {
        let min = self.cache.core().mapping(self.file).orders.min;
        let mut index = range.first;
        while index <= range.limit {
            let order = fitting_order(self.cache.rules(), min, range, index);
            let is_marked = range.mark.is_some_and(|mark| order.round_down(mark) == index);
            let folio = NewFolio { file: self.file, index: PageIndex(index), order, is_marked };
            self.cache.insert(folio).map_err(|_| index)?;
            index += order.nr_pages();
        }
        Ok(())
    }

    fn base(&mut self, span: Span) {
        let file = self.file;
        let mapping = self.cache.core().mapping(file);
        let (min, last) = (mapping.orders.min, mapping.last_index(self.cache.rules().page));
        let Some(last) = last else { return };
        if span.start > last.0 {
            return;
        }
        let Span { start, mut nr_pages, mut lookahead } = span;
        if nr_pages > last.0 - start {
            nr_pages = last.0 - start + 1;
            if self.cache.rules().readahead.eof_marker == EofMarker::Omitted {
                lookahead = 0;
            }
        }
        self.cache.core_mut().observe(Observed::Base { mapping: file, start, nr_pages, lookahead });
        let mark = (lookahead > 0)
            .then(|| (start + nr_pages).checked_sub(lookahead).map(|mark| min.round_up(mark)))
            .flatten();
        let mut index = min.round_down(start);
        let end = start + nr_pages;
        self.cache.core().work.add_cheap(nr_pages);
        while index < end {
            let at = PageIndex(index);
            let is_marked = mark == Some(index);
            if self.cache.core().find(file, at).is_some() {
                // A cached page ends the I/O request: another one reads the pages after it.
                self.cache.core_mut().submit();
            } else if self
                .cache
                .insert(NewFolio { file, index: at, order: min, is_marked })
                .is_err()
            {
                break;
            }
            index += min.nr_pages();
        }
        self.cache.core_mut().submit();
    }
}

pub(crate) fn takes_large(rules: &Rules, mapping: &Mapping, nr_pages: u64) -> bool {
    let min_window = rules.readahead.large_window_min_pages;
    let is_short = min_window > 0 && nr_pages < min_window.max(mapping.min_pages());
    mapping.orders.is_large() && !is_short
}

pub(crate) fn window_order<R: Ram>(
    core: &Core<R>,
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

fn preferred_order(
    rules: &Rules,
    max: Order,
    state: &RaState,
    hint: OrderHint,
    allowed: Orders,
) -> Order {
    // A larger folio would read more than was decided (A.5.3). An empty window sets no limit.
    let by_size = if state.size == 0 { max } else { Order::floor_of(state.size) };
    match (rules.readahead.ramp, hint) {
        // The state keeps the order; the marked folio's order does not matter.
        (Ramp::Remembered, OrderHint::Raise(_)) => state.order.min(max).min(by_size),
        // The marked folio was useful: the next ones may be larger.
        (_, OrderHint::Raise(order)) if order < max => step(order, allowed).min(max).min(by_size),
        (_, OrderHint::Raise(order) | OrderHint::Exactly(order)) => order.min(max).min(by_size),
    }
}

/// An inherited order grows by two. If a control excludes both, it grows to the next allowed order;
/// otherwise the ramp would never leave base pages.
fn step(order: Order, allowed: Orders) -> Order {
    let by_two = order.raised(2);
    if allowed.up_to(by_two) > order {
        return by_two;
    }
    allowed.descending().take_while(|&next| next > order).last().unwrap_or(by_two)
}

#[derive(Clone, Copy)]
struct Fill {
    first: u64,
    limit: u64,
    order: Order,
    mark: Option<u64>,
    allowed: Orders,
}

fn fitting_order(rules: &Rules, min: Order, range: Fill, index: u64) -> Order {
    // Aligned in the file, so large entries can map it (A.5.5, A.5.6).
    let mut order = range.order.min(Order::alignment_of(index));
    while order > min && index + order.nr_pages() - 1 > range.limit {
        order = order.lower().unwrap_or(min);
    }
    largest_folio(rules, min, range.allowed, order)
}

pub(crate) fn largest_folio(rules: &Rules, min: Order, allowed: Orders, order: Order) -> Order {
    let order = allowed.up_to(order).max(min);
    // 6.1 never uses folios of order 1 (A.5.5).
    let skips = rules.readahead.order1 == OrderOne::Never && order == Order::new(1);
    if skips { Order::ZERO.max(min) } else { order }
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    nr_pages: u64,
    lookahead: u64,
}
