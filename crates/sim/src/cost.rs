//! Estimated time by cause: counted events times a machine's costs.
//!
//! Only this module combines counts with floating point, and no decision depends on the result. A
//! policy can see whole nanoseconds of stalls, of which each cost is rounded before it counts.
//! Does not own the counts ([`crate::replay`]) or the numbers ([`crate::machine`]).
//!
//! ```text
//!   estimate = sum over causes     fault  map  fork  unmap  clear  copy  read  swap  tlb  walk
//!   cause    = sum over its terms
//!   term     = counted events x one cost of the machine file, rounded to whole nanoseconds
//! ```
//!
//! Invariants:
//! - I1: a term has no other factors, except for walks: the cost of one kind of walk is the sum
//!   over the lines it reads, times the share that the program waits for. `docs/design/machines.md`
//!   lists every term, and the coarser cost used if a machine file lacks a finer one.
//! - I2: a term with events but an unknown cost has no time, and neither do its cause and the
//!   total. [`Estimate::not_known`] names the cost. It never counts as 0.
//! - I3: the total is the sum of the terms, to the nanosecond.
//!
//! Not included: the program's own instructions, cache misses, system calls.

mod anchor;
mod bounds;
mod count;
mod device;
mod fault;
mod latency;
mod price;
mod run;
mod stalls;
mod terms;
mod walks;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use largefolio_mm::counters::mapcounts::MapcountUpdates;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;
use crate::machine::{Costs, Machine, TimeErrors, Unit};
use crate::tlb::WalkCounters;

pub use anchor::{Anchor, MeasuredChange};
pub use count::Mark;
pub use count::by_unit;
pub use device::{Device, Read, Timing};
pub use fault::{FaultCosts, FaultPrice};
pub use latency::{Latency, SizeLatency};
pub use price::ns_each;
pub(crate) use price::{float, whole_ns};
pub use run::{BaseSource, BaseTime, cpi_of};
pub(crate) use stalls::stall_costs;
pub use terms::digits;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Walks {
    #[default]
    Native,
    Nested,
}

impl Walks {
    /// Returns the walks on `machine`. A virtual machine always has nested walks.
    #[must_use]
    pub const fn on(self, machine: &Machine) -> Self {
        if machine.tlb.walker.is_virtual { Self::Nested } else { self }
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Nested => "nested",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Fault,
    Map,
    Fork,
    Unmap,
    Clear,
    Copy,
    /// Waits for file reads.
    Read,
    Swap,
    /// Level-2 TLB hits, in addition to a level-1 hit's cost.
    Tlb,
    Walk,
}

impl Cause {
    pub const ALL: [Self; 10] = [
        Self::Fault,
        Self::Map,
        Self::Fork,
        Self::Unmap,
        Self::Clear,
        Self::Copy,
        Self::Read,
        Self::Swap,
        Self::Tlb,
        Self::Walk,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Map => "map",
            Self::Fork => "fork",
            Self::Unmap => "unmap",
            Self::Clear => "clear",
            Self::Copy => "copy",
            Self::Read => "read",
            Self::Swap => "swap",
            Self::Tlb => "tlb",
            Self::Walk => "walk",
        }
    }
}

/// Where a time shows in the resource usage of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeKind {
    /// Address translation, while the program computes.
    User,
    /// The kernel's work.
    System,
    /// For storage: in neither.
    Waiting,
}

impl TimeKind {
    /// Returns the kind of a term: its cause's, unless it is a cost of storage.
    fn of(cause: Cause, term: &Term) -> Self {
        match cause {
            Cause::Tlb | Cause::Walk => Self::User,
            Cause::Read => Self::Waiting,
            Cause::Swap if term.cost.starts_with("costs.storage_") => Self::Waiting,
            _ => Self::System,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Events {
    pub faults: u64,
    /// Faults that also mapped the cached pages around them.
    pub faults_around: u64,
    pub folios_allocated: u64,
    /// PMD folios of anonymous memory allocated by faults.
    pub pmds_allocated: u64,
    pub pressure: PressureEvents,
    pub entries_mapped: u64,
    pub batches_mapped: u64,
    pub entries_forked: u64,
    pub pmds_forked: u64,
    pub batches_forked: u64,
    /// Batches of large folios among `batches_forked`; `large_unmapped` is the same for unmapping.
    pub large_forked: u64,
    pub batches_unmapped: u64,
    pub large_unmapped: u64,
    pub ptes_unmapped: u64,
    pub pmds_unmapped: u64,
    pub folios_freed: u64,
    pub pages_freed: u64,
    pub mapcounts_mapped: MapcountUpdates,
    pub mapcounts_forked: MapcountUpdates,
    pub mapcounts_unmapped: MapcountUpdates,
    /// Bytes zeroed, by the unit's length in bytes; `copied` has the same key.
    pub cleared: BTreeMap<u64, u64>,
    pub copied: BTreeMap<u64, u64>,
    pub read: ReadEvents,
    pub swap: SwapEvents,
    /// Level-2 hits that the program waits for, and those that overlap with its work.
    pub l2_hits: [u64; 2],
    pub walks: WalkCounters,
    /// Whether chained walks are known. Otherwise any data walk may be chained.
    pub has_links: bool,
}

/// What allocations did themselves to get memory, without the kernel's daemons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PressureEvents {
    pub folios_evicted: u64,
    pub pages_reclaimed: u64,
    /// Pages that reclaim examined and kept.
    pub pages_kept: u64,
    /// Pages that compaction examined.
    pub pages_scanned: u64,
    pub pages_moved: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SwapEvents {
    /// Whether swap is on a disk; otherwise it is in memory (zram). zswap is in memory.
    pub is_on_disk: bool,
    pub pages_in: u64,
    pub waits: u64,
    /// Pages written by direct reclaim, not by background reclaim.
    pub pages_out: u64,
    /// Pages that zswap decompressed for a fault.
    pub pooled_in: u64,
    /// Pages that zswap compressed for direct reclaim.
    pub pooled_out: u64,
    pub page_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct ReadEvents {
    /// Reads that the program waited for from the start.
    pub sync_requests: u64,
    pub sync_bytes: u64,
    pub async_requests: u64,
    pub async_bytes: u64,
    /// Waits for incomplete readahead; absent if the machine file has no storage.
    pub late_waits: Option<u64>,
    /// Nanoseconds that synchronous reads waited for earlier ones (simulated).
    pub queue_ns: Option<u64>,
    /// Nanoseconds that the program waited for readahead (simulated).
    pub late_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Term {
    pub cost: String,
    pub of: String,
    pub events: u64,
    /// Time of all events; absent if the cost is unknown.
    pub ns: Option<u64>,
    /// Time with bounds. Uses another machine's cost if unknown; absent if no machine has one.
    #[serde(skip)]
    pub bounds: Option<Interval>,
    /// Whether a program's slope replaces the errors of costs.
    #[serde(skip)]
    pub is_anchored: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CauseTime {
    pub ns: Option<u64>,
    /// Difference from the reference row; absent if either is unknown.
    pub difference_ns: Option<i64>,
    pub terms: Vec<Term>,
}

impl CauseTime {
    fn of(terms: Vec<Term>) -> Self {
        let ns = terms.iter().try_fold(0_u64, |sum, term| Some(sum.saturating_add(term.ns?)));
        Self { ns, difference_ns: None, terms }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Constant {
    pub value: f64,
    pub unit: Unit,
    /// The document or the measurement, or the reason for an assumption.
    pub source: String,
    pub assumed: bool,
    pub low: f64,
    pub high: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    pub walks: Walks,
    /// The sum; absent if a cost is unknown.
    pub total_ns: Option<u64>,
    pub known_ns: u64,
    /// Difference from the reference row's total; absent if either is unknown.
    pub difference_ns: Option<i64>,
    pub causes: BTreeMap<Cause, CauseTime>,
    pub not_known: BTreeSet<String>,
    pub constants: BTreeMap<String, Constant>,
    /// Costs of another machine, with bounds, used in place of missing ones.
    pub stand_ins: BTreeMap<String, Constant>,
    /// The sum with its bounds in nanoseconds; absent if a missing cost has no stand-in.
    pub total: Option<Interval>,
    /// The parts of the sum by [`TimeKind`].
    pub user: Option<Interval>,
    pub system: Option<Interval>,
    pub waiting: Option<Interval>,
    pub run: BaseTime,
    /// Difference from the reference row of the same machine, in percent of its run time.
    pub run_change: Option<Interval>,
    /// The machine's errors, which the bounds of changes contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<TimeErrors>,
    /// The program's measured slope, which its user time contains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchor>,
}

impl Estimate {
    /// Computes the time of `events` on a machine with these `costs`.
    ///
    /// ```
    /// use largefolio_sim::cost::{Cause, Estimate, Events, Walks};
    /// use largefolio_sim::machine::{Costs, Quantity, Unit};
    ///
    /// let fault = Quantity {
    ///     value: 0.9,
    ///     unit: Unit::Us,
    ///     source: "measured".to_owned(),
    ///     assumed: false,
    ///     range: None,
    /// };
    /// let costs = Costs { fault: Some(fault), ..Costs::default() };
    /// let events = Events { faults: 1_000, l2_hits: [7, 0], ..Events::default() };
    /// let estimate = Estimate::new(&events, &costs, Walks::Native);
    /// assert_eq!(estimate.causes[&Cause::Fault].ns, Some(900_000));
    /// assert_eq!(estimate.causes[&Cause::Tlb].ns, None);
    /// assert_eq!((estimate.total_ns, estimate.known_ns), (None, 900_000));
    /// assert!(estimate.not_known.contains("costs.l2_hit"));
    /// ```
    #[must_use]
    pub fn new(events: &Events, costs: &Costs, walks: Walks) -> Self {
        let mut sum = terms::Sum::new(costs);
        for cause in Cause::ALL {
            sum.add(cause, events, walks);
        }
        sum.finish(walks)
    }

    /// Sets the causes and their sums.
    fn summed(mut self, causes: BTreeMap<Cause, CauseTime>) -> Self {
        let terms = causes.values().flat_map(|time| &time.terms);
        self.known_ns = terms.filter_map(|term| term.ns).fold(0, u64::saturating_add);
        let is_known = causes.values().all(|time| time.ns.is_some());
        self.total_ns = is_known.then_some(self.known_ns);
        self.total = bounds::total(&causes, None);
        self.user = bounds::total(&causes, Some(TimeKind::User));
        self.system = bounds::total(&causes, Some(TimeKind::System));
        self.waiting = bounds::total(&causes, Some(TimeKind::Waiting));
        self.causes = causes;
        self
    }

    pub fn compare(&mut self, reference: &Self) {
        self.difference_ns = difference(self.total_ns, reference.total_ns);
        for (cause, time) in &mut self.causes {
            let before = reference.causes.get(cause).and_then(|time| time.ns);
            time.difference_ns = difference(time.ns, before);
        }
    }

    pub fn assumed(&self) -> impl Iterator<Item = (&str, &Constant)> {
        let all = self.constants.iter().map(|(name, constant)| (name.as_str(), constant));
        all.filter(|(_, constant)| constant.assumed)
    }
}

fn difference(now: Option<u64>, before: Option<u64>) -> Option<i64> {
    let difference = i128::from(now?) - i128::from(before?);
    i64::try_from(difference).ok()
}
