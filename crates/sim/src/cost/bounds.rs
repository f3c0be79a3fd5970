//! Error bounds for an estimate: the bounds of its costs, carried through sums and differences.
//!
//! - B1: a cost has the same error wherever it is used. Its terms add up linearly, and in a
//!   difference of two estimates the error applies only to the difference of the events.
//! - B2: two costs have independent errors ([`Interval::sum`]).
//! - B3: an unknown cost is replaced by another machine's, the first of [`STAND_INS`] with this cost.
//!   Its bounds are a factor of [`STAND_IN_WITHIN`] away.
//! - B4: the bounds of a run's change also contain the machine's errors ([`TimeErrors`]).
//! - B5: in an anchored estimate, all user time has one error, that of the slope.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::price::{float, ns_each, quantity, rate_named};
use super::{Cause, CauseTime, Estimate, Interval, Term, TimeKind};
use crate::machine::{Costs, FLOOR_PERCENT, Machine, Quantity, TimeErrors, Unit};

/// Rounding step of a run-time change: 1/10,000 of a percent.
const PARTS: f64 = 1e4;
/// The machines that supply missing costs. The first has the most costs, the second those of memory
/// pressure.
const STAND_INS: [&str; 2] = ["cascadelake", "zen5"];
/// Groups the terms of anchored user time.
const SLOPE: &str = "slope";
/// Factor in both directions: machines differ more than measurements do.
const STAND_IN_WITHIN: f64 = 4.0;

/// Returns the bounds of a time that depends on `cost`, as factors.
pub(super) fn of(cost: &Quantity, costs: &Costs) -> Interval {
    let own = factors(cost);
    match (cost.unit, &costs.clock) {
        (Unit::Cycles, Some(clock)) => {
            let clock = factors(clock);
            let (low, high) = (own.low * clock.low, own.high * clock.high);
            Interval { low, mid: 1.0, high }
        }
        _ => own,
    }
}

fn factors(cost: &Quantity) -> Interval {
    let Interval { low, mid, high } = cost.interval();
    match cost.unit {
        Unit::GbPerS | Unit::GHz => Interval { low: mid / high, mid: 1.0, high: mid / low },
        _ => Interval { low: low / mid, mid: 1.0, high: high / mid },
    }
}

pub(super) fn of_device(costs: &Costs) -> Interval {
    costs.storage_latency.as_ref().map_or(Interval::within(1.0, 2.0), factors)
}

/// Returns a substitute for a cost, and its nanoseconds per event. `name` has no `costs.` prefix.
pub(super) fn stand_in(name: &str) -> Option<(Quantity, f64)> {
    static COSTS: LazyLock<Vec<(&str, Costs)>> = LazyLock::new(|| {
        let machines = STAND_INS.into_iter().filter_map(|name| Machine::named(name).ok());
        STAND_INS.into_iter().zip(machines.map(|machine| machine.costs)).collect()
    });
    COSTS.iter().find_map(|(machine, costs)| {
        let cost_of_name =
            costs.known().find(|(known, _)| *known == name).map(|(_, cost)| cost.clone());
        let cost = cost_of_name.or_else(|| rate_named(costs, name).map(quantity))?;
        let ns = ns_each(&cost, costs)?;
        let Interval { low, high, .. } = Interval::within(cost.value, STAND_IN_WITHIN);
        let source =
            format!("not known; assumed as for {machine}, within a factor of {STAND_IN_WITHIN}");
        Some((Quantity { source, assumed: true, range: Some([low, high]), ..cost }, ns))
    })
}

/// Sums the terms of a kind, or all; `None` if one has no bounds. The middle is the sum of the
/// terms' nanoseconds if all are known: they are rounded separately.
pub(super) fn total(
    causes: &BTreeMap<Cause, CauseTime>,
    kind: Option<TimeKind>,
) -> Option<Interval> {
    let Interval { low, mid, high } = Interval::sum(by_cost(causes, kind)?.into_values()).rounded();
    let known = terms(causes, kind).try_fold(0_u64, |sum, term| Some(sum.saturating_add(term.ns?)));
    let mid = known.map_or(mid, float);
    Some(Interval { low: low.min(mid), mid, high: high.max(mid) })
}

fn terms(
    causes: &BTreeMap<Cause, CauseTime>,
    kind: Option<TimeKind>,
) -> impl Iterator<Item = &Term> {
    let all =
        causes.iter().flat_map(|(&cause, time)| time.terms.iter().map(move |term| (cause, term)));
    all.filter(move |(cause, term)| kind.is_none_or(|kind| TimeKind::of(*cause, term) == kind))
        .map(|(_, term)| term)
}

fn by_cost(
    causes: &BTreeMap<Cause, CauseTime>,
    kind: Option<TimeKind>,
) -> Option<BTreeMap<&str, Interval>> {
    let mut all: BTreeMap<&str, Interval> = BTreeMap::new();
    for term in terms(causes, kind) {
        let part = term.bounds?;
        // B5
        let name = if term.is_anchored { SLOPE } else { &term.cost };
        let sum = all.entry(name).or_default();
        *sum = Interval {
            low: sum.low + part.low,
            mid: sum.mid + part.mid,
            high: sum.high + part.high,
        };
    }
    Some(all)
}

impl Estimate {
    /// Returns the difference from an estimate for the same machine, in nanoseconds.
    #[must_use]
    pub fn change(&self, reference: &Self) -> Option<Interval> {
        self.change_of(reference, None)
    }

    /// Returns the same for one kind of time, or for all.
    #[must_use]
    pub fn change_of(&self, reference: &Self, kind: Option<TimeKind>) -> Option<Interval> {
        let (now, before) = (by_cost(&self.causes, kind)?, by_cost(&reference.causes, kind)?);
        let names = now.keys().chain(before.keys().filter(|name| !now.contains_key(*name)));
        let parts = names.map(|name| {
            let of = |all: &BTreeMap<&str, Interval>| all.get(name).copied().unwrap_or_default();
            let (now, before) = (of(&now), of(&before));
            let like = if now.mid > 0.0 { now } else { before };
            let difference = now.mid - before.mid;
            if like.mid > 0.0 { like.times(difference / like.mid) } else { Interval::default() }
        });
        Some(Interval::sum(parts))
    }

    /// Sets the difference from an estimate for the same machine, as a share of its run time.
    pub fn compare_run(&mut self, reference: &Self) {
        self.run_change = self.run_change_from(reference);
    }

    /// Widens the bounds of a change by the machine's errors (B4). `floor` is
    /// [`FLOOR_PERCENT`] of the run, in the change's unit.
    #[must_use]
    pub fn widened(&self, change: Interval, floor: f64, kind: Option<TimeKind>) -> Interval {
        let Some(errors) = &self.errors else { return change };
        let is_anchored = self.anchor.as_ref().is_some_and(|anchor| !anchor.is_counted());
        let error = match kind {
            None | Some(TimeKind::Waiting) => {
                errors.anchored_total.filter(|_| is_anchored).unwrap_or(errors.total)
            }
            Some(TimeKind::User) => {
                errors.anchored_user.filter(|_| is_anchored).unwrap_or(errors.user)
            }
            Some(TimeKind::System) => errors.system,
        };
        TimeErrors::widen(change, floor, error)
    }

    /// Returns the difference from an estimate for the same machine, in percent of its run time;
    /// `None` if unknown. A run cannot save more than its time: if the estimate says so, a cost is
    /// wrong for this program, and the change is -100%.
    #[must_use]
    pub fn run_change_from(&self, reference: &Self) -> Option<Interval> {
        let base = reference.run_time().filter(|base| base.low > 0.0)?;
        let change = self.change(reference)?;
        let share = self.widened(change.over(base).times(100.0), FLOOR_PERCENT, None);
        let saved = (-change.low).max(0.0);
        let most = match reference.run.source {
            super::BaseSource::Estimated => saved / (reference.run.ns.low + saved),
            _ => 1.0,
        };
        let (low, mid) = (share.low.max(-100.0 * most), share.mid.max(-100.0));
        Some(Interval { low: low.min(mid), mid, high: share.high.max(mid) }.rounded_to(PARTS))
    }

    fn reads(&self) -> Interval {
        let terms = self.causes.get(&Cause::Read).map_or(&[][..], |time| &time.terms);
        Interval::sum(terms.iter().filter_map(|term| term.bounds))
    }

    /// Returns the program's run time in nanoseconds. Adds memory management to an estimated base,
    /// and waits for reads to CPU time, because those bases do not include them.
    #[must_use]
    pub fn run_time(&self) -> Option<Interval> {
        match self.run.source {
            super::BaseSource::Estimated => Some(Interval::sum([self.run.ns, self.total?])),
            super::BaseSource::Cpu => Some(Interval::sum([self.run.ns, self.reads()])),
            super::BaseSource::NotKnown => None,
            super::BaseSource::Measured | super::BaseSource::Given => Some(self.run.ns),
        }
    }
}

#[cfg(test)]
mod tests;
