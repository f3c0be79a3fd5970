//! How long page faults take, and the parts of the longest.
//!
//! Kept only if [`super::CellSpec::has_fault_times`] asks for it. A fault's work is the difference
//! of the memory manager's counters, plus its waits for reads. Faults with the same work take the
//! same time, so each kind of work is priced once, at the end.
//!
//! `Differs`: kswapd and kcompactd run within the fault that wakes them. Their work is left out.
//! Faults that a system call takes for the program are left out too.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use largefolio_mm::rules::Rules;
use largefolio_mm::rules::reclaim::SwapDevice;
use largefolio_trace::Meta;
use serde::Serialize;

use crate::cost::{Events, FaultCosts, FaultPrice, Mark, ReadEvents, SwapEvents, float, whole_ns};
use crate::interval::Interval;
use crate::machine::Costs;
use crate::replay::observers::detail::AreaKind;
use crate::replay::observers::programs::ProgramNr;
use crate::replay::observers::regions::{Place, path, place_of};
use crate::replay::program::space::AddressSpace;

/// Faults of further kinds are counted without a time. Only waits have so many values.
const NR_KINDS_MAX: usize = 1 << 16;
/// Waits are kept to this many binary digits: 1.6%.
const WAIT_DIGITS: u32 = 6;

/// Nanoseconds by what took them: a cause's name, `reclaim` or `compaction`.
pub type FaultParts = BTreeMap<&'static str, u64>;

/// The times of a cell's page faults.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FaultTimes {
    /// Page faults, and references that waited for a page in flight.
    pub faults: u64,
    /// Faults without a time: no machine has one of their costs, or they are of too many kinds.
    pub without_time: u64,
    pub total_ns: u64,
    /// Half of the faults take at most this.
    pub p50_ns: Interval,
    pub p99_ns: Interval,
    pub p999_ns: Interval,
    pub max_ns: Interval,
    /// Faults by time, rounded up to a power of two of nanoseconds.
    pub histogram: BTreeMap<u64, u64>,
    /// Nanoseconds of all faults, by what took them.
    pub parts: FaultParts,
    /// The same for the slowest hundredth.
    pub slowest: FaultParts,
    /// The kinds of faults that took the most time each, longest first.
    pub longest: Vec<LongFault>,
    /// Costs that are another machine's.
    pub stand_ins: BTreeSet<String>,
}

/// One kind of fault, and where the first of them was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LongFault {
    pub faults: u64,
    pub ns: Interval,
    pub parts: FaultParts,
    /// References before the first one.
    pub references: u64,
    /// Number of its program, as in `processes.programs`.
    pub program: ProgramNr,
    /// Its recorded address.
    pub address: u64,
    pub kind: AreaKind,
    /// The mapped file; empty for private memory.
    pub path: String,
}

const NR_LONGEST: usize = 16;

/// The counters before a fault.
pub(crate) struct FaultStart {
    pub(crate) mark: Mark,
    pub(crate) reads: ReadEvents,
}

/// Faults with the same work: how many, and where the first one was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    nr: u64,
    references: u64,
    program: ProgramNr,
    address: u64,
    place: Place,
}

#[derive(Debug, Default)]
pub(crate) struct FaultWork {
    kinds: HashMap<Events, Seen>,
    nr_others: u64,
}

impl FaultWork {
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn count(&mut self, events: Events, seen: Seen) {
        if let Some(known) = self.kinds.get_mut(&events) {
            known.nr += 1;
        } else if self.kinds.len() < NR_KINDS_MAX {
            self.kinds.insert(events, seen);
        } else {
            self.nr_others += 1;
        }
    }

    pub(crate) fn finish(&self, costs: &Costs, meta: &Meta) -> FaultTimes {
        let costs = FaultCosts::new(costs);
        let priced =
            self.kinds.iter().filter_map(|(events, seen)| Some((costs.price(events)?, *seen)));
        let mut priced: Vec<(FaultPrice, Seen)> = priced.collect();
        // The order of a hash map is arbitrary, that of a result is not.
        priced.sort_by(|(price, seen), (other_price, other)| {
            let by_time = price.ns.mid.total_cmp(&other_price.ns.mid);
            by_time.then_with(|| {
                (seen.references, seen.address).cmp(&(other.references, other.address))
            })
        });
        let times = FaultTimes::of(&priced);
        let nr_all: u64 = self.nr_others + self.kinds.values().map(|seen| seen.nr).sum::<u64>();
        let longest = priced.iter().rev().take(NR_LONGEST);
        FaultTimes {
            faults: nr_all,
            without_time: nr_all - times.faults,
            longest: longest.map(|(price, seen)| seen.long_fault(price, meta)).collect(),
            ..times
        }
    }
}

impl Seen {
    pub(crate) fn at(
        (program, space): (ProgramNr, &AddressSpace),
        address: u64,
        references: u64,
    ) -> Self {
        Self { nr: 1, references, program, address, place: place_of(space, address) }
    }

    fn long_fault(self, price: &FaultPrice, meta: &Meta) -> LongFault {
        let Self { nr, references, program, address, place: (kind, file) } = self;
        LongFault {
            faults: nr,
            ns: price.ns.rounded(),
            parts: whole(&price.parts),
            references,
            program,
            address,
            kind,
            path: path(meta, file),
        }
    }
}

impl FaultTimes {
    /// Returns the distribution of times, which are in ascending order.
    fn of(priced: &[(FaultPrice, Seen)]) -> Self {
        let faults: u64 = priced.iter().map(|(_, seen)| seen.nr).sum();
        let mut times = Self { faults, ..Self::default() };
        let mut nr_before = 0;
        let (mut parts, mut slowest) = (BTreeMap::new(), BTreeMap::new());
        let ranks = [rank(faults, 500), rank(faults, 990), rank(faults, 999), faults];
        for (price, seen) in priced {
            let nr_after = nr_before + seen.nr;
            let quantiles =
                [&mut times.p50_ns, &mut times.p99_ns, &mut times.p999_ns, &mut times.max_ns];
            for (quantile, rank) in quantiles.into_iter().zip(ranks) {
                if (nr_before + 1..=nr_after).contains(&rank) {
                    *quantile = price.ns.rounded();
                }
            }
            // At least one fault is among the slowest.
            let nr_fast = ranks[1].min(faults - 1);
            let nr_slow = nr_after - nr_after.min(nr_before.max(nr_fast));
            for (&part, ns) in &price.parts {
                *parts.entry(part).or_default() += ns * float(seen.nr);
                *slowest.entry(part).or_default() += ns * float(nr_slow);
            }
            *times.histogram.entry(bucket(price.ns.mid)).or_default() += seen.nr;
            times.stand_ins.extend(price.stand_ins.iter().cloned());
            nr_before = nr_after;
        }
        times.parts = whole(&parts);
        times.slowest = whole(&slowest);
        times.total_ns = times.parts.values().sum();
        times
    }
}

/// Returns the nearest rank of a quantile in thousandths.
const fn rank(nr: u64, thousandths: u64) -> u64 {
    nr.saturating_mul(thousandths).div_ceil(1_000)
}

fn whole(parts: &BTreeMap<&'static str, f64>) -> FaultParts {
    parts.iter().map(|(&part, &ns)| (part, whole_ns(ns))).collect()
}

fn bucket(ns: f64) -> u64 {
    whole_ns(ns).checked_next_power_of_two().unwrap_or(u64::MAX)
}

impl FaultStart {
    /// Returns the work since the start; `None` if there was none.
    pub(crate) fn work_until(
        &self,
        now: &Mark,
        reads: &ReadEvents,
        rules: &Rules,
    ) -> Option<Events> {
        let read = waits(reads, &self.reads);
        let has_faulted = now.counters.pgfault > self.mark.counters.pgfault;
        if !has_faulted && read == ReadEvents::default() {
            return None;
        }
        let page_bytes = rules.page.bytes();
        let events = now.since(&self.mark, page_bytes);
        let is_on_disk = rules.reclaim.swap_device == SwapDevice::Disk;
        let by_daemons = moved_by_daemons(now) - moved_by_daemons(&self.mark);
        let copied = less(events.copied, by_daemons * page_bytes);
        Some(Events { read, copied, swap: SwapEvents { is_on_disk, ..events.swap }, ..events })
    }
}

const fn moved_by_daemons(mark: &Mark) -> u64 {
    mark.counters.reclaim.pgmigrate_success - mark.counters.reclaim.compact_stall_moved
}

/// Takes `bytes` away, from the smallest units first: compaction mostly moves small folios.
fn less(mut copied: BTreeMap<u64, u64>, mut bytes: u64) -> BTreeMap<u64, u64> {
    for copied in copied.values_mut() {
        let taken = bytes.min(*copied);
        *copied -= taken;
        bytes -= taken;
    }
    copied.retain(|_, bytes| *bytes > 0);
    copied
}

/// Returns the waits since `before`, the default without any. Reads ahead do not wait.
fn waits(now: &ReadEvents, before: &ReadEvents) -> ReadEvents {
    let since = |now: Option<u64>, before: Option<u64>| Some(rounded(now?.saturating_sub(before?)));
    let [late_ns, queue_ns] =
        [since(now.late_ns, before.late_ns), since(now.queue_ns, before.queue_ns)];
    let sync_requests = now.sync_requests - before.sync_requests;
    if sync_requests == 0 && late_ns.unwrap_or(0) == 0 && queue_ns.unwrap_or(0) == 0 {
        return ReadEvents::default();
    }
    ReadEvents {
        sync_requests,
        sync_bytes: now.sync_bytes - before.sync_bytes,
        async_requests: 0,
        async_bytes: 0,
        late_waits: None,
        queue_ns,
        late_ns,
    }
}

const fn rounded(ns: u64) -> u64 {
    let digits = u64::BITS - ns.leading_zeros();
    if digits <= WAIT_DIGITS { ns } else { ns >> (digits - WAIT_DIGITS) << (digits - WAIT_DIGITS) }
}
