//! The terms of each cause.

use std::collections::{BTreeMap, BTreeSet};

use largefolio_mm::counters::mapcounts::MapcountUpdates;

use crate::machine::{Costs, Quantity, UnitBytes, UnitRate};

use super::bounds;
use super::price::{float, ns_each, ns_of, quantity};
use super::{
    Cause, CauseTime, Constant, Estimate, Events, Interval, PressureEvents, SwapEvents, Term, Walks,
};

#[derive(Clone, Copy)]
struct Counted<'a> {
    events: u64,
    of: &'a str,
}

const fn nr(events: u64, of: &str) -> Counted<'_> {
    Counted { events, of }
}

pub(super) struct Sum<'a> {
    pub(super) costs: &'a Costs,
    pub(super) terms: BTreeMap<Cause, Vec<Term>>,
    not_known: BTreeSet<String>,
    constants: BTreeMap<String, Constant>,
    stand_ins: BTreeMap<String, Constant>,
}

impl<'a> Sum<'a> {
    pub(super) fn new(costs: &'a Costs) -> Self {
        let (not_known, constants, stand_ins) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        Self { costs, terms: BTreeMap::new(), not_known, constants, stand_ins }
    }

    pub(super) fn add(&mut self, cause: Cause, events: &Events, walks: Walks) {
        let costs = self.costs;
        self.terms.entry(cause).or_default();
        let mut one = |name: &str, cost: &Option<Quantity>, counted: Counted<'_>| {
            self.single(cause, name, cost.as_ref(), counted);
        };
        match cause {
            Cause::Fault => {
                one("fault", &costs.fault, nr(events.faults, "faults"));
                if costs.fault_around.is_some() {
                    let faults = nr(events.faults_around, "faults that mapped cached pages");
                    one("fault_around", &costs.fault_around, faults);
                }
                if costs.folio_alloc.is_some() {
                    let folios = nr(events.folios_allocated, "folios allocated");
                    one("folio_alloc", &costs.folio_alloc, folios);
                }
                if costs.host_backing.is_some() {
                    let folios = nr(events.pmds_allocated, "PMD folios");
                    one("host_backing", &costs.host_backing, folios);
                }
                self.pressure(&events.pressure);
            }
            Cause::Map => {
                if costs.map_batch.is_some() {
                    one("map_batch", &costs.map_batch, nr(events.batches_mapped, "batches"));
                }
                one("map_entry", &costs.map_entry, nr(events.entries_mapped, "entries"));
                self.mapcounts(cause, &events.mapcounts_mapped);
            }
            Cause::Fork => {
                self.fork(events);
                self.mapcounts(cause, &events.mapcounts_forked);
            }
            Cause::Unmap => {
                self.unmap(events);
                self.mapcounts(cause, &events.mapcounts_unmapped);
            }
            Cause::Tlb => self.l2_hits(events),
            Cause::Clear => self.by_unit(cause, "clear", &costs.clear, &events.cleared),
            Cause::Copy => self.by_unit(cause, "copy", &costs.copy, &events.copied),
            Cause::Read => self.read(events),
            Cause::Swap => self.swap(&events.swap),
            Cause::Walk => self.walks(events, walks),
        }
    }

    /// Adds map counts of pages and folios, and owner words, if the machine file lists them.
    /// Otherwise the costs of entries and batches include them (docs/behaviour F.4.6).
    fn mapcounts(&mut self, cause: Cause, updates: &MapcountUpdates) {
        let costs = self.costs;
        let mut one = |name: &str, cost: &Option<Quantity>, counted: Counted<'_>| {
            if cost.is_some() {
                self.single(cause, name, cost.as_ref(), counted);
            }
        };
        one("page_mapcount", &costs.page_mapcount, nr(updates.pages, "map counts of pages"));
        one("page_mapcount", &costs.page_mapcount, nr(updates.folios, "map counts of folios"));
        one("owner_word", &costs.owner_word, nr(updates.owner_words, "owner words"));
    }

    /// Adds the work for free memory, if the machine file has its costs.
    fn pressure(&mut self, events: &PressureEvents) {
        let costs = self.costs;
        let parts = [
            ("reclaim_folio", &costs.reclaim_folio, nr(events.folios_evicted, "folios evicted")),
            ("reclaim_page", &costs.reclaim_page, nr(events.pages_reclaimed, "pages reclaimed")),
            ("reclaim_scan", &costs.reclaim_scan, nr(events.pages_kept, "pages examined and kept")),
            ("compact_scan", &costs.compact_scan, nr(events.pages_scanned, "pages examined")),
            ("compact_move", &costs.compact_move, nr(events.pages_moved, "pages moved")),
        ];
        for (name, cost, counted) in parts.into_iter().filter(|(_, cost, _)| cost.is_some()) {
            self.single(Cause::Fault, name, cost.as_ref(), counted);
        }
    }

    /// Adds fork's PTEs, batches and PMD entries; the latter as PTEs if they have no own cost.
    fn fork(&mut self, events: &Events) {
        let costs = self.costs;
        let mut one = |name: &str, cost: &Option<Quantity>, counted: Counted<'_>| {
            self.single(Cause::Fork, name, cost.as_ref(), counted);
        };
        let mut nr_batches = events.batches_forked;
        if costs.fork_large.is_some() {
            nr_batches = nr_batches.saturating_sub(events.large_forked);
            one(
                "fork_large",
                &costs.fork_large,
                nr(events.large_forked, "batches of large folios"),
            );
        }
        if costs.fork_batch.is_some() {
            one("fork_batch", &costs.fork_batch, nr(nr_batches, "batches"));
        }
        if costs.fork_pmd.is_none() {
            one("fork_entry", &costs.fork_entry, nr(events.entries_forked, "entries"));
            return;
        }
        let nr_ptes = events.entries_forked.saturating_sub(events.pmds_forked);
        one("fork_entry", &costs.fork_entry, nr(nr_ptes, "PTEs"));
        one("fork_pmd", &costs.fork_pmd, nr(events.pmds_forked, "PMD entries"));
    }

    /// Adds batches, PTEs and PMD entries. PMD entries count as batches if they have no cost of
    /// their own. Freeing is separate if the machine file lists it.
    fn unmap(&mut self, events: &Events) {
        let costs = self.costs;
        let mut one = |name: &str, cost: &Option<Quantity>, counted: Counted<'_>| {
            self.single(Cause::Unmap, name, cost.as_ref(), counted);
        };
        let mut nr_batches = events.batches_unmapped;
        if costs.unmap_large.is_some() {
            nr_batches = nr_batches.saturating_sub(events.large_unmapped);
            let batches = nr(events.large_unmapped, "batches of large folios");
            one("unmap_large", &costs.unmap_large, batches);
        }
        if costs.unmap_pmd.is_none() {
            nr_batches = nr_batches.saturating_add(events.pmds_unmapped);
        }
        one("unmap_batch", &costs.unmap_batch, nr(nr_batches, "batches"));
        one("unmap_pte", &costs.unmap_pte, nr(events.ptes_unmapped, "PTEs"));
        if costs.unmap_pmd.is_some() {
            one("unmap_pmd", &costs.unmap_pmd, nr(events.pmds_unmapped, "PMD entries"));
        }
        if costs.folio_free.is_some() {
            one("folio_free", &costs.folio_free, nr(events.folios_freed, "folios freed"));
        }
        if costs.page_free.is_some() {
            one("page_free", &costs.page_free, nr(events.pages_freed, "pages freed"));
        }
    }

    fn read(&mut self, events: &Events) {
        let (costs, read) = (self.costs, &events.read);
        let latency = costs.storage_latency.as_ref();
        let rate = costs.storage_rate.as_ref();
        let cause = Cause::Read;
        self.single(cause, "storage_latency", latency, nr(read.sync_requests, "reads waited for"));
        self.single(cause, "storage_rate", rate, nr(read.sync_bytes, "bytes waited for"));
        let parts =
            [(read.queue_ns, "ns waiting for earlier reads"), (read.late_ns, "ns for reads ahead")];
        let has_reads = read.sync_requests + read.async_requests > 0;
        for (ns, of) in parts.into_iter().filter(|_| has_reads) {
            self.name_timing();
            if ns != Some(0) {
                let cost = "the device's queue".to_owned();
                let bounds = ns.map(|ns| bounds::of_device(self.costs).times(float(ns)));
                let (of, events) = (of.to_owned(), ns.unwrap_or(0));
                let term = Term { cost, of, events, ns, bounds, is_anchored: false };
                self.terms.entry(cause).or_default().push(term);
            }
        }
    }

    /// Adds swap: compression in memory (zram, zswap), and waits for reads from a disk. Writes do not
    /// wait.
    fn swap(&mut self, swap: &SwapEvents) {
        let costs = self.costs;
        let mut one = |name: &str, cost: &Option<Quantity>, counted: Counted<'_>| {
            self.single(Cause::Swap, name, cost.as_ref(), counted);
        };
        let (mut compressed_in, mut compressed_out) = (swap.pooled_in, swap.pooled_out);
        if swap.is_on_disk {
            let bytes = swap.pages_in.saturating_mul(swap.page_bytes);
            one("storage_latency", &costs.storage_latency, nr(swap.waits, "reads from swap space"));
            one("storage_rate", &costs.storage_rate, nr(bytes, "bytes from swap space"));
        } else {
            compressed_in += swap.pages_in;
            compressed_out += swap.pages_out;
        }
        one("swap_in", &costs.swap_in, nr(compressed_in, "pages from compressed memory"));
        one("swap_out", &costs.swap_out, nr(compressed_out, "pages to compressed memory"));
    }

    fn name_timing(&mut self) {
        let costs = self.costs;
        let needed = [
            ("storage_latency", costs.storage_latency.as_ref()),
            ("storage_rate", costs.storage_rate.as_ref()),
            ("reference", costs.reference.as_ref()),
        ];
        let interval = costs.storage_interval.as_ref();
        let interval = interval.map(|cost| ("storage_interval", Some(cost)));
        for (name, cost) in needed.into_iter().chain(interval) {
            self.price(name, cost);
        }
    }

    fn single(&mut self, cause: Cause, name: &str, cost: Option<&Quantity>, counted: Counted<'_>) {
        let Counted { events, of } = counted;
        if events == 0 {
            return;
        }
        let ns_each = self.price(name, cost);
        let ns = ns_each.map(|ns_each| ns_of(events, ns_each));
        let bounds = match (cost, ns_each) {
            (Some(cost), Some(ns)) => Some(bounds::of(cost, self.costs).times(ns * float(events))),
            _ => self.stand_in(name, events),
        };
        let cost = full_name(name);
        let of = of.to_owned();
        let term = Term { cost, of, events, ns, bounds, is_anchored: false };
        self.terms.entry(cause).or_default().push(term);
    }

    /// Adds a term per rate. A unit uses the rate of the largest size up to its own. Units outside
    /// the machine file's sizes have no rate, because rates of other sizes do not apply to them.
    fn by_unit(
        &mut self,
        cause: Cause,
        name: &str,
        rates: &[UnitRate],
        bytes: &BTreeMap<u64, u64>,
    ) {
        // By the rate's size, or the unit's size if no rate applies.
        let mut by_size: BTreeMap<(u64, bool), u64> = BTreeMap::new();
        for (&unit, &bytes) in bytes {
            let rate = rate_of(rates, unit);
            let size = rate.map_or(unit, |rate| rate.size.0);
            *by_size.entry((size, rate.is_some())).or_default() += bytes;
        }
        for ((size, is_known), bytes) in by_size {
            let name = unit_name(name, rates, size);
            let cost = rate_of(rates, size).filter(|_| is_known).map(quantity);
            self.single(cause, &name, cost.as_ref(), nr(bytes, "bytes"));
        }
    }

    /// Returns the nanoseconds of one event. Records the constants used, or the missing ones.
    pub(super) fn price(&mut self, name: &str, cost: Option<&Quantity>) -> Option<f64> {
        let Some(cost) = cost else {
            self.not_known.insert(full_name(name));
            return None;
        };
        self.used(name, Some(cost));
        let ns = ns_each(cost, self.costs);
        if ns.is_none() {
            self.not_known.insert(full_name("clock"));
        }
        ns
    }

    /// Returns the time of `events` on another machine, within wide bounds, and records its use.
    pub(super) fn stand_in(&mut self, name: &str, events: u64) -> Option<Interval> {
        let (cost, ns_each) = bounds::stand_in(name)?;
        self.stand_ins.insert(full_name(name), constant(&cost));
        Some(bounds::of(&cost, &Costs::default()).times(ns_each * float(events)))
    }

    fn used(&mut self, name: &str, cost: Option<&Quantity>) {
        let Some(cost) = cost else { return };
        self.constants.insert(full_name(name), constant(cost));
        if cost.unit == crate::machine::Unit::Cycles
            && let Some(clock) = &self.costs.clock
        {
            self.constants.insert(full_name("clock"), constant(clock));
        }
    }

    pub(super) fn finish(self, walks: Walks) -> Estimate {
        let causes: BTreeMap<Cause, CauseTime> =
            self.terms.into_iter().map(|(cause, terms)| (cause, CauseTime::of(terms))).collect();
        Estimate {
            walks,
            not_known: self.not_known,
            constants: self.constants,
            stand_ins: self.stand_ins,
            ..Estimate::default()
        }
        .summed(causes)
    }
}

/// Returns the rate of the largest size up to the unit; `None` outside the sizes with a rate.
pub(super) fn rate_of(rates: &[UnitRate], unit_bytes: u64) -> Option<&UnitRate> {
    let largest = rates.last()?.size.0;
    let rate = rates.iter().rfind(|rate| rate.size.0 <= unit_bytes);
    rate.filter(|_| unit_bytes <= largest)
}

/// Returns the rate's name with the unit's size, unless the machine file has no rates.
pub(super) fn unit_name(name: &str, rates: &[UnitRate], size_bytes: u64) -> String {
    match rates {
        [] => name.to_owned(),
        _ => format!("{name} of {}", String::from(UnitBytes(size_bytes))),
    }
}

pub(super) fn full_name(name: &str) -> String {
    format!("costs.{name}")
}

pub(super) fn constant(cost: &Quantity) -> Constant {
    let Interval { low, high, .. } = cost.interval();
    let [low, high] = [low, high].map(digits);
    let Quantity { value, unit, source, assumed, .. } = cost.clone();
    Constant { value, unit, source, assumed, low, high }
}

/// Rounds to five digits. Costs and their bounds are not more precise.
#[must_use]
pub fn digits(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}
