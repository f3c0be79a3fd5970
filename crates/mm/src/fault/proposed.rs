//! Orders for executable memory, proposed for series 000 (docs/behaviour K.1.4,
//! [`crate::rules::order`]).
//!
//! Differs: no kernel has this.

use super::Fault;
use super::choice::Choice;
use crate::core::open_file::RaState;
use crate::memory::Memory;
use crate::readahead::{Issue, OrderHint};
use crate::rules::order::PressureOrder;
use crate::units::Order;

impl Memory {
    pub(super) fn with_exec_min(&self, fault: &Fault, choice: Choice) -> Choice {
        let orders = self.core.mapping(self.open_file(fault.open()).mapping).orders;
        let min = self.rules.order.exec_min(self.rules.page, orders.max);
        if min == Order::ZERO || !fault.vma.prot.can_exec {
            return choice;
        }
        match choice {
            Choice::Nothing => Choice::ExecBlock(min),
            Choice::Around => Choice::AroundInFolios(min),
            Choice::ExecBlock(order) => Choice::ExecBlock(order.max(min)),
            Choice::ExecWindow(order) => Choice::ExecWindow(order.max(min)),
            Choice::Forced(_) | Choice::Sequential | Choice::AroundInFolios(_) => choice,
        }
    }

    pub(super) fn exec_order_now(&self, order: Order) -> Order {
        if self.rules.order.pressure == PressureOrder::Ignored {
            return order;
        }
        let low = self.core.pressure.watermarks.low;
        let is_free = |&order: &Order| self.core.buddy.check_watermark(order, low).is_ok();
        let orders = (1..=order.get()).rev().map(Order::new);
        orders.filter(is_free).max().unwrap_or(Order::ZERO)
    }
}

pub(super) fn around_in_folios(fault: &Fault, state: &mut RaState, order: Order) -> Issue {
    let first = fault.index().saturating_sub(state.ra_pages / 2);
    state.start = order.round_down(first);
    state.size = order.round_up(first + state.ra_pages.max(1)) - state.start;
    state.async_size = state.ra_pages / 4;
    state.order = order;
    Issue::Window { start: state.start, hint: OrderHint::Exactly(order) }
}
