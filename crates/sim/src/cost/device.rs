//! The storage device: one queue with a rate, a latency, and a minimum interval between reads.
//!
//! ```text
//!   asked      starts           moved         done
//!     |  queue   |   bytes/rate   |  latency   |
//!     *----------#################*~~~~~~~~~~~~*        the next one starts where # ends
//! ```
//!
//! A short read occupies the device for the interval instead: a device that serves k reads
//! concurrently starts the next one after 1/k of the latency. Times are whole nanoseconds, so the
//! results are the same on every host.

use crate::machine::Costs;

use super::price::{bytes_per_s, ns_each, ns_of};

const PS_PER_NS: u128 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time from the end of the transfer to the program.
    pub latency_ns: u64,
    pub bytes_per_s: u64,
    /// Minimum time between the starts of two reads; 0 = only transfers separate them.
    pub interval_ns: u64,
    pub reference_ps: u64,
}

impl Timing {
    #[must_use]
    pub fn new(costs: &Costs) -> Option<Self> {
        let ns = |cost: &Option<_>| ns_each(cost.as_ref()?, costs);
        Some(Self {
            latency_ns: ns_of(1, ns(&costs.storage_latency)?),
            bytes_per_s: bytes_per_s(costs.storage_rate.as_ref()?),
            interval_ns: match &costs.storage_interval {
                None => 0,
                interval => ns_of(1, ns(interval)?),
            },
            reference_ps: ns_of(1_000, ns(&costs.reference)?),
        })
    }

    #[must_use]
    pub fn of_references(&self, references: u64) -> u64 {
        saturated(u128::from(references) * u128::from(self.reference_ps) / PS_PER_NS)
    }

    #[must_use]
    pub fn of_bytes(&self, bytes: u64) -> u64 {
        saturated((u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(self.bytes_per_s)))
    }
}

fn saturated(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub queue_ns: u64,
    pub done_ns: u64,
}

/// The queue.
///
/// ```
/// use largefolio_sim::cost::{Device, Timing};
///
/// // 100 us, 1 GB/s: two reads of 64 KB asked for at once.
/// let (latency_ns, bytes_per_s) = (100_000, 1_000_000_000);
/// let timing = Timing { latency_ns, bytes_per_s, interval_ns: 0, reference_ps: 300 };
/// let mut device = Device::new(timing);
/// let (first, second) = (device.read(0, 64_000), device.read(0, 64_000));
/// assert_eq!((first.queue_ns, first.done_ns), (0, 164_000));
/// assert_eq!((second.queue_ns, second.done_ns), (64_000, 228_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    timing: Timing,
    free_ns: u64,
}

impl Device {
    #[must_use]
    pub const fn new(timing: Timing) -> Self {
        Self { timing, free_ns: 0 }
    }

    pub fn read(&mut self, now_ns: u64, bytes: u64) -> Read {
        let starts_ns = self.free_ns.max(now_ns);
        let moved_ns = self.timing.of_bytes(bytes);
        self.free_ns = starts_ns.saturating_add(moved_ns.max(self.timing.interval_ns));
        Read {
            queue_ns: starts_ns - now_ns,
            done_ns: starts_ns.saturating_add(moved_ns).saturating_add(self.timing.latency_ns),
        }
    }

    #[must_use]
    pub const fn timing(&self) -> &Timing {
        &self.timing
    }
}
