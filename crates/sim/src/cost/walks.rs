//! The terms of walks. The cost of a line depends on the place where it was found. The share of a
//! walk that the program waits for depends on other walks that are in progress.
//!
//! ```text
//!   walks of a kind   (walks x walk, walk_pmd + lines x walk_l2, walk_llc, walk_memory) x share of the kind
//!   overlapping       walks x walk_overlapped, if the machine has it
//!   fetches           plus walks x fetch_miss, if the machine has it
//! ```

use super::price::{float, whole_ns};
use super::terms::{Sum, full_name};
use super::{Cause, Events, Interval, Term, Walks, bounds};
use crate::machine::Quantity;
use crate::tlb::{KindCounters, Lines};

const FETCH: &str = "walk_fetch";
const FETCH_MISS: &str = "fetch_miss";

impl Sum<'_> {
    /// Adds level-2 hits. Those of fetches, and of data whose address was just loaded, delay the
    /// program; of the others, it waits for the same share as of walks beside others.
    pub(super) fn l2_hits(&mut self, events: &Events) {
        let costs = self.costs;
        let [waited, beside] = events.l2_hits;
        let whole = Part { ns: Some(1.0), bounds: Some(Interval::exact(1.0)) };
        for (nr, is_beside, of) in
            [(waited, false, "level-2 hits"), (beside, true, "overlapping level-2 hits")]
        {
            if nr == 0 {
                continue;
            }
            let time = self.part("l2_hit", costs.l2_hit.as_ref(), nr);
            let share = if is_beside {
                self.part("walk_beside", costs.walk_beside.as_ref(), 1).or_whole(!events.has_links)
            } else {
                whole
            };
            self.push(Cause::Tlb, "l2_hit", (nr, of), time.by(share));
        }
    }

    fn push(&mut self, cause: Cause, name: &str, (events, of): (u64, &str), whole: Part) {
        let (cost, ns) = (full_name(name), whole.ns.map(whole_ns));
        let (of, bounds) = (of.to_owned(), whole.bounds);
        let term = Term { cost, of, events, ns, bounds, is_anchored: false };
        self.terms.entry(cause).or_default().push(term);
    }

    pub(super) fn walks(&mut self, events: &Events, walks: Walks) {
        let (costs, counted) = (self.costs, &events.walks);
        let shares = [
            ("walk", None, &counted.chained, "walks that follow the walk for their address"),
            ("walk_beside", Some(&costs.walk_beside), &counted.overlapped, "overlapping walks"),
            ("walk_alone", Some(&costs.walk_alone), &counted.alone, "isolated walks"),
            (FETCH, Some(&costs.walk_fetch), &counted.fetch, "walks for instructions"),
        ];
        for (name, share, kind, of) in shares {
            if kind.walks == 0 {
                continue;
            }
            if name == "walk_beside" && costs.walk_overlapped.is_some() {
                self.overlapped(kind, events.has_links, walks);
                continue;
            }
            let latency = self.latency(kind, walks);
            let share = match share {
                Some(cost) => {
                    let may_be_chained = !events.has_links && name != FETCH;
                    self.part(name, cost.as_ref(), 1).or_whole(may_be_chained)
                }
                None => Part { ns: Some(1.0), bounds: Some(Interval::exact(1.0)) },
            };
            self.push(Cause::Walk, name, (kind.walks, of), latency.by(share));
            if name == FETCH && costs.fetch_miss.is_some() {
                let stalled = self.part(FETCH_MISS, costs.fetch_miss.as_ref(), kind.walks);
                let of = "fetches that need a walk";
                self.push(Cause::Walk, FETCH_MISS, (kind.walks, of), stalled);
            }
        }
    }

    /// Adds overlapping walks as a time each. If links are not known, all may be chained.
    fn overlapped(&mut self, kind: &KindCounters, has_links: bool, walks: Walks) {
        let name = "walk_overlapped";
        let mut time = self.part(name, self.costs.walk_overlapped.as_ref(), kind.walks);
        if !has_links {
            let latency = self.latency(kind, walks);
            time.bounds = time.bounds.zip(latency.bounds).map(|(bounds, chained)| Interval {
                high: bounds.high.max(chained.high),
                ..bounds
            });
        }
        self.push(Cause::Walk, name, (kind.walks, "overlapping walks"), time);
    }

    /// Returns the time of walks that do not overlap.
    fn latency(&mut self, kind: &KindCounters, walks: Walks) -> Part {
        let mut lines = kind.lines;
        if walks == Walks::Nested {
            lines += kind.host_lines;
        }
        let Lines { l2, llc, memory } = lines;
        let costs = self.costs;
        // PMD walks count with the others if they have no cost of their own.
        let nr_apart = if costs.walk_pmd.is_some() { kind.pmd_walks } else { 0 };
        let parts = [
            ("walk", &costs.walk, kind.walks - nr_apart),
            ("walk_pmd", &costs.walk_pmd, nr_apart),
            ("walk_l2", &costs.walk_l2, l2),
            ("walk_llc", &costs.walk_llc, llc),
            ("walk_memory", &costs.walk_memory, memory),
        ];
        let parts = parts.map(|(name, cost, nr)| self.part(name, cost.as_ref(), nr));
        Part {
            ns: parts.iter().map(|part| part.ns).sum(),
            bounds: parts
                .iter()
                .map(|part| part.bounds)
                .collect::<Option<Vec<_>>>()
                .map(Interval::sum),
        }
    }

    fn part(&mut self, name: &str, cost: Option<&Quantity>, nr: u64) -> Part {
        if nr == 0 {
            return Part { ns: Some(0.0), bounds: Some(Interval::default()) };
        }
        let each = self.price(name, cost);
        let bounds = match (cost, each) {
            (Some(cost), Some(ns)) => Some(bounds::of(cost, self.costs).times(ns * float(nr))),
            _ => self.stand_in(name, nr),
        };
        Part { ns: each.map(|ns| ns * float(nr)), bounds }
    }
}

/// A time with bounds, built up from parts.
#[derive(Clone, Copy)]
struct Part {
    ns: Option<f64>,
    bounds: Option<Interval>,
}

impl Part {
    /// Returns the share. If `is_open`, the upper bound is the whole time.
    fn or_whole(self, is_open: bool) -> Self {
        let whole = |share: Interval| Interval { high: share.high.max(1.0), ..share };
        Self { bounds: if is_open { self.bounds.map(whole) } else { self.bounds }, ..self }
    }

    fn by(self, share: Self) -> Self {
        let ns = self.ns.zip(share.ns).map(|(ns, share)| ns * share);
        Self { ns, bounds: self.bounds.zip(share.bounds).map(|(bounds, share)| bounds.by(share)) }
    }
}
