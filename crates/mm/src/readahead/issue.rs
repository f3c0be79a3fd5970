//! Issue: fills a window with folios and reads them (docs/behaviour A.5, A.6).
//!
//! Large folios first; what they cannot hold - the filesystem has none, memory is short, an index
//! is cached already - goes through the base-order path.
//!
//! Invariants (docs/behaviour L.1, L.2):
//! - I1: every folio is naturally aligned and none passes the window or the last page of the file,
//!   unless the mapping's smallest order forces it.
//! - I2: at most one marker per window, and none with `async_size == 0`.

use super::RaState;
use crate::core::Core;
use crate::core::observed::Observed;
use crate::ram::Ram;
use crate::rules::anon::Orders;
use crate::rules::{EofMarker, OrderOne, Ramp, Remainder, Rules};
use crate::units::{MappingId, Order, PageIndex};

/// The order a window is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
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
        /// First index.
        start: u64,
        /// Order asked for.
        hint: Hint,
    },
    /// Pages in the smallest folios; the state does not describe them.
    Base {
        /// First index.
        start: u64,
        /// Pages.
        nr_pages: u64,
        /// Pages behind the marker; 0 = no marker.
        lookahead: u64,
    },
}

/// Bytes a forced read submits at a time (A.3.2 step 2).
const FORCED_CHUNK_BYTES: u64 = 2 << 20;

/// What is read into.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The file.
    pub file: MappingId,
    /// Orders its folios may have; where none fits, the smallest of the mapping is taken. All of
    /// them without a per-size control (K.1.4).
    pub allowed: Orders,
}

/// Reads what `issue` says.
pub fn run<R: Ram>(
    cache: &mut Core<R>,
    rules: &Rules,
    target: Target,
    state: &mut RaState,
    issue: Issue,
) {
    match issue {
        Issue::Window { start, hint } => window(cache, rules, target, state, (start, hint)),
        Issue::Base { start, nr_pages, lookahead } => {
            base(cache, rules, target.file, Span { start, nr_pages, lookahead });
        }
    }
}

/// What is needed to read `issue`: pages, and the largest order among its folios.
pub(crate) fn room<R: Ram>(
    cache: &Core<R>,
    rules: &Rules,
    Target { file, allowed }: Target,
    (state, issue): (&RaState, Issue),
) -> (u64, Order) {
    let orders = cache.mapping(file).orders;
    match issue {
        Issue::Window { hint, .. } if orders.is_large() => {
            let order = preferred_order(rules, orders.max, state, (hint, allowed));
            (state.size, allowed.up_to(order).max(orders.min))
        }
        Issue::Window { .. } => (state.size, orders.min),
        Issue::Base { nr_pages, .. } => (nr_pages, orders.min),
    }
}

/// Reads exactly `nr_pages` from `start` in the smallest folios, in chunks (A.3.2 step 2).
pub fn forced<R: Ram>(
    cache: &mut Core<R>,
    rules: &Rules,
    file: MappingId,
    (start, nr_pages): (u64, u64),
) {
    let chunk = rules.page.pages_in(FORCED_CHUNK_BYTES);
    let mut done = 0;
    while done < nr_pages {
        let nr = chunk.min(nr_pages - done);
        base(cache, rules, file, Span { start: start + done, nr_pages: nr, lookahead: 0 });
        done += nr;
    }
}

/// Large-folio issue (A.5).
fn window<R: Ram>(
    cache: &mut Core<R>,
    rules: &Rules,
    Target { file, allowed }: Target,
    state: &mut RaState,
    (start, hint): (u64, Hint),
) {
    cache.counters.nr_windows += 1;
    cache.observe(Observed::Window { mapping: file, start, state: *state });
    let mapping = cache.mapping(file);
    let orders = mapping.orders;
    let Some(last) = mapping.last_index(rules.page) else { return };
    let whole = Span { start, nr_pages: state.size, lookahead: state.async_size };
    let min_window = rules.readahead.large_window_min_pages;
    let is_short = min_window > 0 && state.size < min_window.max(mapping.min_pages());
    if !orders.is_large() || is_short {
        state.order = Order::ZERO;
        rest(cache, rules, file, whole);
        return;
    }
    let order = preferred_order(rules, orders.max, state, (hint, allowed)).max(orders.min);
    state.order = order;
    let limit = last.0.min((start + state.size).saturating_sub(1));
    let reaches_end = start + state.size > last.0;
    let has_marker = !(reaches_end && rules.readahead.eof_marker == EofMarker::Omitted);
    let mark = has_marker.then(|| state.mark_of(start));
    let first = mapping.align_down(start);
    let filled = fill(cache, rules, file, Fill { first, limit, order, mark, allowed });
    cache.submit();
    if let Err(index) = filled {
        let nr_pages = match rules.readahead.remainder {
            Remainder::WholeSize => state.size,
            Remainder::Rest => state.size.saturating_sub(index - first),
        };
        let span = Span { start: index, nr_pages, lookahead: state.async_size };
        rest(cache, rules, file, span);
    }
}

/// What large folios did not read, by the base-order path. Where the rest is asked for, there must
/// be one: a fresh state that meets a marker at page 0 has a window of no page.
fn rest<R: Ram>(cache: &mut Core<R>, rules: &Rules, file: MappingId, span: Span) {
    if span.nr_pages > 0 || rules.readahead.remainder == Remainder::WholeSize {
        base(cache, rules, file, span);
    }
}

/// A.5.3: the order to fill the window with. It may be one that no folio is allowed to have: the
/// ramp climbs over it.
fn preferred_order(
    rules: &Rules,
    max: Order,
    state: &RaState,
    (hint, allowed): (Hint, Orders),
) -> Order {
    // A window of no page (a fresh state met a marker) sets no limit.
    let by_size = if state.size == 0 { max } else { Order::floor_of(state.size) };
    match (rules.readahead.ramp, hint) {
        (Ramp::Remembered, Hint::Raise(_)) => state.order.min(max).min(by_size),
        (_, Hint::Raise(order)) if order < max => step(order, allowed).min(max).min(by_size),
        (_, Hint::Raise(order) | Hint::Exactly(order)) => order.min(max).min(by_size),
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

/// A.5.5: naturally aligned folios over the range; the index that could not be inserted on error.
fn fill<R: Ram>(
    cache: &mut Core<R>,
    rules: &Rules,
    file: MappingId,
    range: Fill,
) -> Result<(), u64> {
    let min = cache.mapping(file).orders.min;
    let mut index = range.first;
    while index <= range.limit {
        let order = fitting_order(rules, min, range, index);
        let is_marked = range.mark.is_some_and(|mark| order.round_down(mark) == index);
        cache.insert(file, PageIndex(index), order, is_marked).map_err(|_| index)?;
        index += order.nr_pages();
    }
    Ok(())
}

/// Largest order at `index` that is aligned and ends within the range.
fn fitting_order(rules: &Rules, min: Order, range: Fill, index: u64) -> Order {
    let mut order = range.order.min(Order::alignment_of(index));
    while order > min && index + order.nr_pages() - 1 > range.limit {
        order = order.lower().unwrap_or(min);
    }
    let order = range.allowed.up_to(order).max(min);
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

/// Base-order path (A.6): the smallest folios, cached indices are stepped over.
fn base<R: Ram>(cache: &mut Core<R>, rules: &Rules, file: MappingId, span: Span) {
    let mapping = cache.mapping(file);
    let (min, last) = (mapping.orders.min, mapping.last_index(rules.page));
    let Some(last) = last else { return };
    if span.start > last.0 {
        return;
    }
    let Span { start, mut nr_pages, mut lookahead } = span;
    if nr_pages > last.0 - start {
        nr_pages = last.0 - start + 1;
        if rules.readahead.eof_marker == EofMarker::Omitted {
            lookahead = 0;
        }
    }
    cache.observe(Observed::Base { mapping: file, start, nr_pages, lookahead });
    let mark = (lookahead > 0)
        .then(|| (start + nr_pages).checked_sub(lookahead).map(|mark| min.round_up(mark)))
        .flatten();
    let mut index = min.round_down(start);
    let end = start + nr_pages;
    cache.work.add_cheap(nr_pages);
    while index < end {
        let is_cached = cache.mapping(file).tree.get(PageIndex(index)).is_some();
        if is_cached {
            cache.submit();
        } else if cache.insert(file, PageIndex(index), min, mark == Some(index)).is_err() {
            break;
        }
        index += min.nr_pages();
    }
    cache.submit();
}
