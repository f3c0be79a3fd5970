//! The time of one page fault, from what the memory manager counted during it.
//!
//! Same terms and costs as an estimate of a whole run, except that another machine's costs replace
//! missing ones.

use std::collections::{BTreeMap, BTreeSet};

use super::terms::Sum;
use super::{Cause, Events, Term, Walks, bounds};
use crate::interval::Interval;
use crate::machine::Costs;

/// The causes of a fault's time. The TLB miss before it is the program's own time.
const CAUSES: [Cause; 6] =
    [Cause::Fault, Cause::Map, Cause::Clear, Cause::Copy, Cause::Read, Cause::Swap];

/// A machine's costs with the costs of memory pressure, which few machine files have.
#[derive(Clone, Debug)]
pub struct FaultCosts(Costs);

/// The estimated time of a fault.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPrice {
    pub ns: Interval,
    /// Nanoseconds by what took them: a [`Cause`], `reclaim` or `compaction`.
    pub parts: BTreeMap<&'static str, f64>,
    /// Costs of another machine that were used, by name.
    pub stand_ins: BTreeSet<String>,
}

impl FaultCosts {
    #[must_use]
    pub fn new(costs: &Costs) -> Self {
        let mut costs = costs.clone();
        let pressure = [
            ("reclaim_folio", &mut costs.reclaim_folio),
            ("reclaim_page", &mut costs.reclaim_page),
            ("reclaim_scan", &mut costs.reclaim_scan),
            ("compact_scan", &mut costs.compact_scan),
            ("compact_move", &mut costs.compact_move),
        ];
        for (name, cost) in pressure {
            if cost.is_none() {
                *cost = bounds::stand_in(name).map(|(cost, _)| cost);
            }
        }
        Self(costs)
    }

    /// Returns the time of a fault; `None` if neither this machine nor a stand-in has a cost.
    #[must_use]
    pub fn price(&self, events: &Events) -> Option<FaultPrice> {
        let mut sum = Sum::new(&self.0);
        for cause in CAUSES {
            sum.add(cause, events, Walks::Native);
        }
        let estimate = sum.finish(Walks::Native);
        let mut parts = BTreeMap::new();
        for (cause, time) in &estimate.causes {
            for term in &time.terms {
                *parts.entry(part_of(*cause, term)).or_default() += term.bounds?.mid;
            }
        }
        let assumed =
            estimate.constants.iter().filter(|(_, cost)| cost.source.starts_with("not known"));
        let stand_ins = assumed.map(|(name, _)| name).chain(estimate.stand_ins.keys()).cloned();
        Some(FaultPrice { ns: estimate.total?, parts, stand_ins: stand_ins.collect() })
    }
}

fn part_of(cause: Cause, term: &Term) -> &'static str {
    match term.cost.strip_prefix("costs.") {
        Some("reclaim_folio" | "reclaim_page" | "reclaim_scan") => "reclaim",
        Some("compact_scan" | "compact_move") => "compaction",
        _ => cause.name(),
    }
}
