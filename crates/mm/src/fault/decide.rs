//! A policy's decisions about a fault, within a kernel's limits.
//!
//! Differs: no kernel has this ([`crate::policy`]).

use super::{Access, Fault};
use crate::core::open_file::RaState;
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::policy::{Answer, Context, Point, Window, cause, write};
use crate::readahead::issue::{largest_folio, order_of, takes_large};
use crate::readahead::{Fill, Plan};
use crate::rules::anon::Orders;
use crate::units::Order;

/// A policy may read two PMD folios, as `MADV_HUGEPAGE` does (B.4.6), or the device's maximum.
const WINDOW_PMDS_MAX: u64 = 2;

/// A plan, and the open file's state once it is read.
#[derive(Clone, Copy)]
pub(super) struct Planned {
    pub(super) plan: Plan,
    pub(super) state: RaState,
}

pub(super) enum Decided {
    Own,
    Nothing,
    Read(Plan),
}

fn has_pages_of(own: Window, window: Window) -> bool {
    Window { order: window.order, ..own } == window
}

impl Memory {
    pub(super) fn decided_orders(&mut self, fault: &Fault, orders: Orders) -> Orders {
        if orders.is_empty() || !self.policy_handles(Point::AnonOrder) {
            return orders;
        }
        let context = self.fault_context(fault);
        self.decided_among(Point::AnonOrder, &context, orders)
    }

    pub(super) fn decided_swapin(&mut self, fault: &Fault, orders: Orders) -> Orders {
        if orders.is_empty() || !self.policy_handles(Point::SwapinOrder) {
            return orders;
        }
        let context = self.fault_context(fault);
        self.decided_among(Point::SwapinOrder, &context, orders)
    }

    fn fault_context(&self, fault: &Fault) -> Context {
        let access = match fault.access {
            Access::Read => 1,
            Access::Write => 2,
            Access::Exec => 3,
        };
        Context { page: fault.vpn.0, access, ..self.context_of(fault.mm, &fault.vma) }
    }

    fn file_context(&self, fault: &Fault) -> Context {
        let open = self.open_file(fault.open());
        let mapping = self.core.mapping(open.mapping);
        Context {
            file: u64::from(open.mapping.0) + 1,
            index: fault.index(),
            file_pages: mapping.nr_file_pages(self.rules.page),
            min_order: mapping.orders.min.get().into(),
            max_order: mapping.orders.max.get().into(),
            ra_pages: open.state.ra_pages,
            misses: open.state.mmap_miss().into(),
            ..self.fault_context(fault)
        }
    }

    pub(super) fn decided_window(
        &mut self,
        fault: &Fault,
        own: Option<Planned>,
        is_gated: bool,
    ) -> Decided {
        let cause = if is_gated { cause::GATED } else { cause::COLD };
        self.decided(fault, own, cause)
    }

    pub(super) fn decided_marker(&mut self, fault: &Fault, before: RaState, plan: Plan) -> Decided {
        if !self.policy_handles(Point::Window) {
            return Decided::Own;
        }
        let own = Planned { plan, state: self.open_file(fault.open()).state };
        let decided = self.decided(fault, Some(own), cause::MARKER);
        if matches!(decided, Decided::Nothing) {
            self.open_file_mut(fault.open()).state = before;
        }
        decided
    }

    fn decided(&mut self, fault: &Fault, own: Option<Planned>, cause: u64) -> Decided {
        let own = own.map(|own| (own, self.own_window(fault, own)));
        let mut context = Context { cause, ..self.file_context(fault) };
        if let Some((_, window)) = own {
            context.own_start = window.start;
            context.own_pages = window.nr_pages;
            context.own_ahead = window.nr_ahead;
            context.own_order = window.order;
        }
        match self.ask(Point::Window, &context) {
            Answer::Own => Decided::Own,
            Answer::Value(0) => {
                self.honoured(Point::Window);
                Decided::Nothing
            }
            // The policy kept a read that the state does not describe: leave it to the kernel.
            Answer::Window(window)
                if own.is_some_and(|(own, of_own)| !own.plan.is_window() && of_own == window) =>
            {
                self.honoured(Point::Window);
                Decided::Own
            }
            Answer::Window(window)
                if own.is_some_and(|(_, of_own)| has_pages_of(of_own, window))
                    || self.can_read(&context, window) =>
            {
                let own = own.filter(|(_, of_own)| has_pages_of(*of_own, window));
                Decided::Read(self.follow(fault, &context, window, own))
            }
            Answer::Value(_) | Answer::Window(_) => {
                self.refused(Point::Window);
                Decided::Own
            }
        }
    }

    /// Whether readahead can read `window`. It must contain the absent page, or start after the
    /// marker's page, and be no larger than a kernel's maximum.
    fn can_read(&self, context: &Context, window: Window) -> bool {
        let Window { start, nr_pages, nr_ahead, .. } = window;
        let pmd_pages = self.rules.page.pmd_order().nr_pages();
        let max = context.ra_pages.max(WINDOW_PMDS_MAX * pmd_pages);
        let Some(end) = start.checked_add(nr_pages) else { return false };
        let is_placed = if context.cause == cause::MARKER {
            context.index < start && start < context.file_pages && start - context.index <= 2 * max
        } else {
            start <= context.index && context.index < end
        };
        is_placed && (1..=max).contains(&nr_pages) && nr_ahead <= nr_pages
    }

    /// Copies `window` into the open file's state. If the pages are the kernel's own, the state
    /// becomes the kernel's. An order that the file or the window cannot have is replaced by a
    /// possible one and counted as refused, unless the kernel chose it too. The read itself lowers
    /// an order larger than the window, as in a kernel.
    fn follow(
        &mut self,
        fault: &Fault,
        context: &Context,
        window: Window,
        own: Option<(Planned, Window)>,
    ) -> Plan {
        let Window { start, nr_pages, nr_ahead, order: requested } = window;
        let target = self.fault_target(fault);
        let mapping = self.core.mapping(target.file);
        let min = mapping.orders.min;
        let highest = Order::new(u8::try_from(requested.min(context.max_order)).unwrap_or(0));
        let order = if takes_large(&self.rules, mapping, nr_pages) {
            largest_folio(&self.rules, min, target.allowed, highest)
        } else {
            min
        };
        if u64::from(order.get()) == requested || own.is_some_and(|(_, of_own)| of_own == window) {
            self.honoured(Point::Window);
        } else {
            self.refused(Point::Window);
        }
        let state = &mut self.open_file_mut(fault.open()).state;
        match own {
            Some((own, _)) if own.plan.is_window() => *state = own.state,
            _ => (state.start, state.size, state.async_size) = (start, nr_pages, nr_ahead),
        }
        state.order = highest;
        Plan { start, nr_pages, nr_ahead, fill: Fill::Exactly(highest) }
    }

    fn own_window(&self, fault: &Fault, Planned { plan, state }: Planned) -> Window {
        let target = self.fault_target(fault);
        let min = self.core.mapping(target.file).orders.min;
        let order = order_of(&self.core, &self.rules, target, &state, plan);
        let order = order.map_or(min, |order| order.max(min)).get().into();
        let Plan { start, nr_pages, nr_ahead, .. } = plan;
        Window { start, nr_pages, nr_ahead, order }
    }

    pub(super) fn decided_around(&mut self, fault: &Fault, nr_pages: u64) -> u64 {
        if !self.policy_handles(Point::Around) {
            return nr_pages;
        }
        let context = Context { own: nr_pages, ..self.file_context(fault) };
        let table_pages = self.rules.page.pmd_order().nr_pages();
        match self.ask(Point::Around, &context) {
            Answer::Own => nr_pages,
            Answer::Value(nr) if nr.is_power_of_two() && nr <= table_pages => {
                self.honoured(Point::Around);
                nr
            }
            Answer::Value(_) | Answer::Window(_) => {
                self.refused(Point::Around);
                nr_pages
            }
        }
    }

    pub(super) fn decided_reuse(&mut self, fault: &Fault, id: FolioId, may_reuse: bool) -> bool {
        let folio = self.core.folios.get(id);
        if !folio.is_anon() || !folio.is_large() || !self.policy_handles(Point::Write) {
            return may_reuse;
        }
        let own = if may_reuse { write::REUSE } else { write::COPY };
        let context = Context { own, ..self.fault_context(fault) };
        let context = self.with_folio(&context, id);
        match self.ask(Point::Write, &context) {
            Answer::Own => may_reuse,
            Answer::Value(write::COPY) => {
                self.honoured(Point::Write);
                false
            }
            Answer::Value(write::REUSE) if may_reuse => {
                self.honoured(Point::Write);
                true
            }
            Answer::Value(_) | Answer::Window(_) => {
                self.refused(Point::Write);
                may_reuse
            }
        }
    }
}
