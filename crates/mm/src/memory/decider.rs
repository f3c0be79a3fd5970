//! Calls a machine's policy, and counts the calls.
//!
//! Each decision point fills in its part of the context and decides which answers it can follow.
//!
//! Invariants:
//! - I1: without a policy, no context is built and nothing is counted.
//! - I2: after a failure, the policy is never called again, and the kernel's own decisions apply.
//! - I3: each call to the policy counts as work. Above the limit, the policy is not called, so the
//!   operation under way ends as it would without a policy.
//! - I4: before a question, the policy learns of all earlier events of the page cache.

use super::Memory;
use crate::core::stall::StallCosts;
use crate::core::swap::Swap;
use crate::folio::lru::LruKind;
use crate::folio::{Folio, FolioId};
use crate::policy::folio as flag;
use crate::policy::{Answer, Context, NR_FREE, Point, Policy, PolicyError, area};
use crate::rules::anon::Orders;
use crate::units::{GroupId, MmId, Order};
use crate::vma::{AccessAdvice, Backing, HugeAdvice, Sharing, Vma};

/// Folios that are counted in the time of one step.
const FOLIOS_OF_STEP: u64 = 64;
/// Points that the page cache's events reach.
const EVENTS: [Point; 3] = [Point::Added, Point::Accessed, Point::Removed];

#[derive(Debug)]
pub(super) struct Decider {
    policy: Box<dyn Policy>,
    handles: [bool; Point::ALL.len()],
    failure: Option<PolicyError>,
    nr_steps: u64,
    state_bytes: u64,
    interval_ns: u64,
    clock_ns: u64,
}

impl Memory {
    /// Lets `policy` answer at the kernel's decision points from now on ([`crate::policy`]).
    pub fn set_policy(&mut self, policy: Box<dyn Policy>) {
        let handles = Point::ALL.map(|point| policy.handles(point));
        let (state_bytes, interval_ns) = (policy.state_bytes(), policy.interval_ns().max(1));
        for point in EVENTS {
            self.core.cache_events.want(point, handles[point as usize]);
        }
        self.decider = Some(Box::new(Decider {
            policy,
            handles,
            failure: None,
            nr_steps: 0,
            state_bytes,
            interval_ns,
            clock_ns: 0,
        }));
    }

    /// Sets the costs of waits, which a policy sees as `group_stall_ns`.
    pub fn set_stall_costs(&mut self, costs: StallCosts) {
        self.core.stalls.costs = costs;
    }

    /// Nanoseconds between two runs of [`Memory::run_policy_interval`]; `None` if the policy wants
    /// none.
    #[must_use]
    pub fn policy_interval_ns(&self) -> Option<u64> {
        let decider = self.decider.as_ref()?;
        decider.handles[Point::Interval as usize].then_some(decider.interval_ns)
    }

    /// Calls the policy for each cgroup, by ascending number, when its clock reaches `clock_ns`.
    pub fn run_policy_interval(&mut self, clock_ns: u64) {
        if let Some(decider) = &mut self.decider {
            decider.clock_ns = clock_ns;
        }
        for group in 0..self.core.groups.nr() {
            if self.policy_handles(Point::Interval) {
                let group = GroupId(group);
                let group_shmem = self.nr_shmem_of(group);
                let context = Context { group_shmem, ..self.context(group) };
                let _ = self.ask(Point::Interval, &context);
            }
        }
    }

    /// Takes the error that stopped the policy; returns it only once.
    pub fn take_policy_failure(&mut self) -> Option<PolicyError> {
        self.decider.as_mut()?.failure.take()
    }

    /// Steps of [`Memory::work`] spent in the policy.
    #[must_use]
    pub fn policy_steps(&self) -> u64 {
        self.decider.as_ref().map_or(0, |decider| decider.nr_steps)
    }

    pub(super) fn policy_bytes(&self) -> u64 {
        self.decider.as_ref().map_or(0, |decider| decider.state_bytes)
    }

    /// Sets a process's program name, as a policy sees it.
    pub fn set_comm(&mut self, mm: MmId, name: &str) {
        let mut comm = [0; 16];
        let last = comm.len() - 1;
        for (byte, of_name) in comm[..last].iter_mut().zip(name.bytes()) {
            *byte = of_name;
        }
        self.space_mut(mm).comm = comm;
    }

    fn nr_shmem_of(&self, group: GroupId) -> u64 {
        self.core.work.add_cheap(self.core.folios.nr_places() as u64 / FOLIOS_OF_STEP);
        let folios = self.core.folios.iter().map(|(_, folio)| folio);
        let is_own =
            |folio: &&Folio| folio.group == group && folio.is_swapbacked && !folio.is_anon();
        folios.filter(is_own).map(Folio::nr_pages).sum()
    }

    #[inline]
    pub(crate) fn policy_handles(&self, point: Point) -> bool {
        self.decider.as_ref().is_some_and(|decider| decider.handles[point as usize])
    }

    pub(crate) fn context(&self, group: GroupId) -> Context {
        let buddy = &self.core.buddy;
        let mut free = [0; NR_FREE];
        for (order, nr_blocks) in (0..=buddy.max_order().get()).zip(&mut free) {
            *nr_blocks = buddy.nr_free_of(Order::new(order));
        }
        let pressure = &self.core.pressure;
        Context {
            page_shift: self.rules.page.shift().into(),
            pmd_order: self.rules.page.pmd_order().get().into(),
            nr_pages: buddy.nr_pages(),
            nr_free: buddy.nr_free_pages(),
            low: pressure.watermarks.low,
            high: pressure.watermarks.high,
            nr_reclaims: pressure.nr_requests,
            swap_free: pressure.swap.as_ref().map_or(0, Swap::nr_free),
            group_max: self.core.groups.get(group).limits.max,
            group_pages: self.core.folios.lru().vec(group).nr_charged(),
            group: group.0.into(),
            group_anon: self.core.folios.lru().vec(group).nr_of_kind(LruKind::Anon),
            group_stall_ns: self.core.stalls.of(group),
            clock_ns: self.decider.as_ref().map_or(0, |decider| decider.clock_ns),
            free,
            ..Context::default()
        }
    }

    pub(crate) fn context_of(&self, mm: MmId, vma: &Vma) -> Context {
        let space = self.space(mm);
        Context {
            comm: space.comm,
            process: mm.0.into(),
            area_start: vma.start.0,
            area_end: vma.end.0,
            area_flags: area_flags(vma),
            ..self.context(space.group)
        }
    }

    pub(crate) fn with_folio(&self, context: &Context, id: FolioId) -> Context {
        let folio = self.core.folios.get(id);
        let flags = [
            (folio.is_anon(), flag::ANON),
            (folio.is_dirty, flag::DIRTY),
            (folio.is_partially_mapped, flag::PARTIAL),
        ];
        let number = id.nr() as u64 + 1;
        let (order, folio_flags) = (folio.order.get().into(), bits(flags));
        Context { order, folio_flags, folio: number, ..*context }
    }

    /// Passes the page cache's events on to the policy.
    pub(crate) fn tell_events(&mut self) {
        for event in self.core.cache_events.take() {
            if self.policy_handles(event.point) {
                let context = Context {
                    folio: event.folio.nr() as u64 + 1,
                    file: u64::from(event.file.0) + 1,
                    index: event.index.0,
                    order: event.order.get().into(),
                    folio_flags: bits([(event.is_dirty, flag::DIRTY)]),
                    ..self.context(event.group)
                };
                let _ = self.put_question(event.point, &context);
            }
        }
    }

    pub(crate) fn ask(&mut self, point: Point, context: &Context) -> Answer {
        if !self.core.cache_events.is_empty() {
            self.tell_events();
        }
        self.put_question(point, context)
    }

    fn put_question(&mut self, point: Point, context: &Context) -> Answer {
        let Some(decider) = &mut self.decider else { return Answer::Own };
        if self.core.work.is_spent() {
            return Answer::Own;
        }
        self.core.counters.policy[point as usize].nr_calls += 1;
        let context = Context { point: point as u64, ..*context };
        let answer = decider.policy.answer(point, &context);
        let nr_steps = decider.policy.nr_steps().saturating_add(1);
        decider.nr_steps = decider.nr_steps.saturating_add(nr_steps);
        self.core.work.add(nr_steps);
        match answer {
            Ok(answer) => answer,
            Err(failure) => {
                decider.failure = Some(failure);
                decider.handles = Default::default();
                Answer::Own
            }
        }
    }

    pub(crate) fn decided_among(
        &mut self,
        point: Point,
        context: &Context,
        possible: Orders,
    ) -> Orders {
        let context = Context { orders: possible.bits(), ..*context };
        let bits = match self.ask(point, &context) {
            Answer::Own => return possible,
            Answer::Value(bits) => bits,
            Answer::Window(_) => {
                self.refused(point);
                return possible;
            }
        };
        if bits & !(possible.bits() | 1) == 0 {
            self.honoured(point);
        } else {
            self.refused(point);
        }
        Orders::from_bits(bits).both(possible)
    }

    pub(crate) fn honoured(&mut self, point: Point) {
        self.core.counters.policy[point as usize].nr_honoured += 1;
    }

    pub(crate) fn refused(&mut self, point: Point) {
        self.core.counters.policy[point as usize].nr_refused += 1;
    }
}

fn area_flags(vma: &Vma) -> u64 {
    bits([
        (vma.prot.can_read, area::READ),
        (vma.prot.can_write, area::WRITE),
        (vma.prot.can_exec, area::EXEC),
        (vma.sharing == Sharing::Shared, area::SHARED),
        (matches!(vma.backing, Backing::File { .. }), area::FILE),
        (vma.advice.huge == HugeAdvice::Huge, area::HUGEPAGE),
        (vma.advice.huge == HugeAdvice::Nohuge, area::NOHUGEPAGE),
        (vma.advice.access == AccessAdvice::Random, area::RANDOM),
        (vma.advice.access == AccessAdvice::Sequential, area::SEQUENTIAL),
    ])
}

fn bits<const N: usize>(flags: [(bool, u64); N]) -> u64 {
    flags.into_iter().map(|(is_set, bit)| if is_set { bit } else { 0 }).sum()
}
