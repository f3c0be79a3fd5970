//! The window of a cold fault: start, length and folio order (docs/behaviour B.4.6 .. B.4.9).
//!
//! Corresponds to: `do_sync_mmap_readahead`.

use super::Fault;
use super::choice::Choice;
use super::proposed::around_in_folios;
use crate::core::open_file::RaState;
use crate::readahead::{Issue, OrderHint};
use crate::units::Order;
use crate::vma::AccessAdvice;

pub(super) fn window_of(
    fault: &Fault,
    state: &mut RaState,
    choice: &Choice,
    start_order: Option<Order>,
) -> Issue {
    match *choice {
        Choice::Forced(order) => forced_window(fault, state, order),
        Choice::ExecBlock(order) => exec_block(fault, state, order),
        Choice::ExecWindow(order) => exec_window(fault, state, order),
        Choice::Around => around(fault, state, start_order),
        Choice::AroundInFolios(order) => around_in_folios(fault, state, order),
        Choice::Nothing | Choice::Sequential => unreachable!("chosen when it is read"),
    }
}

fn around(fault: &Fault, state: &mut RaState, start_order: Option<Order>) -> Issue {
    state.start = fault.index().saturating_sub(state.ra_pages / 2);
    state.size = state.ra_pages;
    state.async_size = state.ra_pages / 4;
    let hint = start_order.map_or(OrderHint::Raise(Order::ZERO), OrderHint::Exactly);
    state.order = start_order.unwrap_or(Order::ZERO);
    Issue::Window { start: state.start, hint }
}

/// The state's start is not updated (B.4.6).
fn forced_window(fault: &Fault, state: &mut RaState, order: Order) -> Issue {
    let nr_pages = order.nr_pages();
    let is_random = fault.vma.advice.access == AccessAdvice::Random;
    // Read the second block ahead, unless the caller advised `MADV_RANDOM`.
    state.size = if is_random { nr_pages } else { 2 * nr_pages };
    state.async_size = nr_pages;
    state.order = order;
    Issue::Window { start: order.round_down(fault.index()), hint: OrderHint::Exactly(order) }
}

/// The state's start is not updated (B.4.9).
fn exec_block(fault: &Fault, state: &mut RaState, order: Order) -> Issue {
    state.size = order.nr_pages();
    state.async_size = 0;
    state.order = order;
    Issue::Window { start: order.round_down(fault.index()), hint: OrderHint::Raise(order) }
}

fn exec_window(fault: &Fault, state: &mut RaState, order: Order) -> Issue {
    let (first, end) = fault.vma.file_range();
    // Forward only and inside the area: padding between segments is never executed (B.4.7).
    let start = order.round_down(fault.index()).max(first);
    state.start = start;
    state.size = order.round_up(start + state.ra_pages).min(end) - start;
    state.async_size = 0;
    state.order = order;
    Issue::Window { start, hint: OrderHint::Exactly(order) }
}
