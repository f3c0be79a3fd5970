//! Estimated time by cause: counted events times the costs of a machine.
//!
//! Owns the sum. Does not own the counts ([`crate::replay`]) or the numbers ([`crate::machine`]).
//! This is the only place where counts meet floating point, and no decision depends on it.
//!
//! ```text
//!   estimate = sum over causes     fault  map  fork  unmap  clear  copy  read  swap  tlb  walk
//!   cause    = sum over its terms
//!   term     = counted events x one cost of the machine file, rounded to whole nanoseconds
//! ```
//!
//! Invariants:
//! - I1: there is no factor beside those two, but for walks: what walks of one kind cost is the sum
//!   over the lines they read, times the share of it that is waited for. `docs/design/machines.md`
//!   lists every term, and which coarser cost takes the place of a finer one that a machine file does
//!   not have.
//! - I2: a term with events whose cost is not known has no time; neither has its cause nor the
//!   total, and [`Estimate::not_known`] names the cost. It is never counted as 0.
//! - I3: the total is the sum of the terms, to the nanosecond.
//!
//! Left out, because nothing is counted for them: the program's own instructions, cache misses,
//! system calls.

mod bounds;
mod count;
mod device;
mod latency;
mod price;
mod run;
mod terms;
mod walks;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use largefolio_mm::counters::mapcounts::MapcountUpdates;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;
use crate::machine::{Costs, Machine, Unit};
use crate::tlb::WalkCounters;

pub use count::Mark;
pub(crate) use count::by_unit;
pub use device::{Device, Read, Timing};
pub use latency::{Latency, SizeLatency};
pub use price::ns_each;
pub use run::{BaseSource, BaseTime};
pub use terms::digits;

/// Whether the machine translates for itself or for a virtual machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Walks {
    /// Native: one page table is walked.
    #[default]
    Native,
    /// Two-dimensional walks, as in a virtual machine.
    Nested,
}

impl Walks {
    /// These walks on a machine: a virtual one has no others than nested ones.
    #[must_use]
    pub const fn on(self, machine: &Machine) -> Self {
        if machine.tlb.walker.is_virtual { Self::Nested } else { self }
    }

    /// Name in exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Nested => "nested",
        }
    }
}

/// What time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Page faults: entry, handler, return.
    Fault,
    /// Entries set by faults.
    Map,
    /// Entries copied by fork.
    Fork,
    /// PTEs and PMD entries taken away.
    Unmap,
    /// Bytes zeroed.
    Clear,
    /// Bytes copied.
    Copy,
    /// Waiting for reads of files.
    Read,
    /// Pages written to swap space while the program waits, and read from there.
    Swap,
    /// Level-2 TLB hits, beyond the cost of a level-1 hit.
    Tlb,
    /// Walks of the page table after a level-2 miss.
    Walk,
}

impl Cause {
    /// Every cause, in the order of the sum.
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

    /// Name in exports.
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

/// What was counted, as far as it costs time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Faults of every kind.
    pub faults: u64,
    /// Of these, faults that mapped the cached pages around them.
    pub faults_around: u64,
    /// Folios allocated: by faults, and for the page cache.
    pub folios_allocated: u64,
    /// PTEs and PMD entries set by faults.
    pub entries_mapped: u64,
    /// Batches in which faults set PTEs.
    pub batches_mapped: u64,
    /// PTEs and PMD entries copied by fork.
    pub entries_forked: u64,
    /// Of these, PMD entries.
    pub pmds_forked: u64,
    /// Batches in which fork copied the PTEs.
    pub batches_forked: u64,
    /// Of these, batches of large folios.
    pub large_forked: u64,
    /// Batches of PTEs taken away.
    pub batches_unmapped: u64,
    /// Of these, batches of large folios.
    pub large_unmapped: u64,
    /// PTEs that were taken away.
    pub ptes_unmapped: u64,
    /// PMD entries taken away.
    pub pmds_unmapped: u64,
    /// Folios freed with their last entry.
    pub folios_freed: u64,
    /// Their pages.
    pub pages_freed: u64,
    /// Updates of map counts by faults.
    pub mapcounts_mapped: MapcountUpdates,
    /// Updates of map counts by fork.
    pub mapcounts_forked: MapcountUpdates,
    /// Updates of map counts by entries taken away.
    pub mapcounts_unmapped: MapcountUpdates,
    /// Bytes zeroed, by the bytes of the unit they were zeroed in.
    pub cleared: BTreeMap<u64, u64>,
    /// Bytes copied, by the bytes of the unit.
    pub copied: BTreeMap<u64, u64>,
    /// Reads of files: requests and waits.
    pub read: ReadEvents,
    /// Swap space: what was written and read.
    pub swap: SwapEvents,
    /// Level-2 TLB hits, beyond the cost of a level-1 hit.
    pub l2_hits: u64,
    /// Walks, by what they wait for, and the lines that they read.
    pub walks: WalkCounters,
    /// Whether it is known which walks are chained: else any walk of data may be.
    pub has_links: bool,
}

/// Swap space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapEvents {
    /// Whether it is on a disk, else in memory (zram).
    pub is_on_disk: bool,
    /// Pages that came back.
    pub pages_in: u64,
    /// Reads that the program waited for.
    pub waits: u64,
    /// Pages written by who waits for memory: not those of background reclaim.
    pub pages_out: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
}

/// Reading files, in order of the program: who waited for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReadEvents {
    /// Reads the program waited for from the moment they were asked for.
    pub sync_requests: u64,
    /// Bytes of these reads.
    pub sync_bytes: u64,
    /// Reads ahead of the program.
    pub async_requests: u64,
    /// Bytes of these reads.
    pub async_bytes: u64,
    /// Times the program met a read ahead that was not complete; absent where the machine file
    /// does not know its storage.
    pub late_waits: Option<u64>,
    /// Nanoseconds for which reads that were waited for stood behind earlier ones (simulated).
    pub queue_ns: Option<u64>,
    /// Nanoseconds waited for reads ahead (simulated).
    pub late_ns: Option<u64>,
}

/// One product of the sum.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Term {
    /// Name of the cost in the machine file, such as `costs.fault`.
    pub cost: String,
    /// Plural of what was counted, such as `faults`.
    pub of: String,
    /// How many of them.
    pub events: u64,
    /// Time of all of them; absent where the cost is not known.
    pub ns: Option<u64>,
    /// The same with bounds; if the cost is not known, that of another machine. Absent where nothing
    /// stands in for it.
    #[serde(skip)]
    pub bounds: Option<Interval>,
}

/// Terms of one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CauseTime {
    /// The sum; absent where a term has none.
    pub ns: Option<u64>,
    /// Difference from the reference row; absent where either is not known.
    pub difference_ns: Option<i64>,
    /// The terms, those without events left out.
    pub terms: Vec<Term>,
}

/// A constant that the estimate used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Constant {
    /// Value in `unit`.
    pub value: f64,
    /// Unit of `value`, as the machine file has it.
    pub unit: Unit,
    /// The document or the measurement, or the reason for an assumption.
    pub source: String,
    /// Whether it is assumed.
    pub assumed: bool,
    /// The smallest that it may be.
    pub low: f64,
    /// The largest that it may be.
    pub high: f64,
}

/// Estimated time by cause, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// Which walks the estimate assumes.
    pub walks: Walks,
    /// The sum; absent where a cost is not known.
    pub total_ns: Option<u64>,
    /// The sum of the terms whose cost is known.
    pub known_ns: u64,
    /// Difference of the totals from the reference row; absent where either is not known.
    pub difference_ns: Option<i64>,
    /// Terms of each cause.
    pub causes: BTreeMap<Cause, CauseTime>,
    /// Costs that were needed and are not known, by their name in the machine file.
    pub not_known: BTreeSet<String>,
    /// Constants that were used, by their name in the machine file.
    pub constants: BTreeMap<String, Constant>,
    /// Costs of another machine that stand in, within bounds, for those that are not known.
    pub stand_ins: BTreeMap<String, Constant>,
    /// The sum with its bounds, in ns; absent where nothing stands in for a cost.
    pub total: Option<Interval>,
    /// How long the program runs: what a difference is a share of.
    pub run: BaseTime,
    /// The difference from the reference row of the same machine, in per cent of its run; absent for
    /// that row, and where nothing stands in for a cost.
    pub run_change: Option<Interval>,
}

impl Estimate {
    /// The time of `events` on a machine with these `costs`.
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
    /// let events = Events { faults: 1_000, l2_hits: 7, ..Events::default() };
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

    /// Notes the difference from the estimate of the reference row.
    pub fn compare(&mut self, reference: &Self) {
        self.difference_ns = difference(self.total_ns, reference.total_ns);
        for (cause, time) in &mut self.causes {
            let before = reference.causes.get(cause).and_then(|time| time.ns);
            time.difference_ns = difference(time.ns, before);
        }
    }

    /// The constants that are assumed.
    pub fn assumed(&self) -> impl Iterator<Item = (&str, &Constant)> {
        let all = self.constants.iter().map(|(name, constant)| (name.as_str(), constant));
        all.filter(|(_, constant)| constant.assumed)
    }
}

fn difference(now: Option<u64>, before: Option<u64>) -> Option<i64> {
    let difference = i128::from(now?) - i128::from(before?);
    i64::try_from(difference).ok()
}
