//! Hardware counters (`perf_event_open`) of the processes that this thread starts.
//!
//! An event is absent if the CPU, the hypervisor or `kernel.perf_event_paranoid` does not allow it.
//! Every process started while a counter runs inherits it, and its counts are added when it ends.
//! The thread's own work, which is to start a process and wait, is also included.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::FromRawFd as _;

use largefolio_trace::HardwareCounters;

use super::events::{Counts, EVENTS, Event};
use crate::system::Live;

/// `perf_event_attr` up to its first published size. The kernel takes the rest as zero.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

/// `PERF_ATTR_SIZE_VER0`.
const ATTRIBUTES_BYTES: u32 = 64;
/// Flag: count processes that are started later too.
const INHERIT: u64 = 1 << 1;
/// Flag: exclude the hypervisor's work.
const EXCLUDE_HV: u64 = 1 << 6;
/// Read format: the time the counter was enabled, and the time it ran.
const TIMES: u64 = 1 | 1 << 1;
const CLOSE_ON_EXEC: u64 = 1 << 3;

struct Counter(File);

impl Counter {
    /// Starts counting. Returns `None` if the event is not available.
    fn start(kind: u32, config: u64) -> Option<Self> {
        let flags = INHERIT | EXCLUDE_HV;
        let attributes = Attributes {
            kind,
            size: ATTRIBUTES_BYTES,
            config,
            read_format: TIMES,
            flags,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads `size` bytes of the attributes, which outlive the call.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                0,
                -1,
                -1,
                CLOSE_ON_EXEC,
            )
        };
        let descriptor = i32::try_from(descriptor).ok().filter(|&descriptor| descriptor >= 0)?;
        // SAFETY: the descriptor is new and nothing else owns it.
        Some(Self(unsafe { File::from_raw_fd(descriptor) }))
    }

    fn end(mut self) -> Option<u64> {
        let mut bytes = [0; 24];
        self.0.read_exact(&mut bytes).ok()?;
        let word = |nr: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[8 * nr..8 * nr + 8]);
            u64::from_ne_bytes(eight)
        };
        scaled(word(0), word(1), word(2))
    }
}

fn scaled(count: u64, enabled: u64, running: u64) -> Option<u64> {
    let whole = u128::from(count) * u128::from(enabled);
    u64::try_from(whole.checked_div(running.into())?).ok()
}

/// The counters that add up to each quantity.
pub struct Counting(Vec<(Counts, Vec<Counter>)>);

impl Counting {
    /// Starts all counters that the CPU and the system allow; `None` without any.
    #[must_use]
    pub fn start() -> Option<Self> {
        let here = EVENTS.here(&Live);
        let of = |counts: Counts| {
            let start = |events: &[Event]| {
                let mine = events.iter().filter(|event| event.counts == counts);
                let all: Option<Vec<Counter>> =
                    mine.map(|event| Counter::start(event.kind, event.config)).collect();
                all.filter(|all| !all.is_empty())
            };
            Some((counts, start(here).or_else(|| start(&EVENTS.generic))?))
        };
        let all: Vec<_> = Counts::ALL.into_iter().filter_map(of).collect();
        (!all.is_empty()).then_some(Self(all))
    }

    #[must_use]
    pub fn end(self) -> Option<HardwareCounters> {
        let mut counters = HardwareCounters::default();
        for (counts, events) in self.0 {
            *counts.of(&mut counters) =
                events.into_iter().try_fold(0_u64, |sum, counter| sum.checked_add(counter.end()?));
        }
        (counters != HardwareCounters::default()).then_some(counters)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// `PERF_COUNT_SW_PAGE_FAULTS` exists in every kernel, so the test covers the hardware path.
    const PAGE_FAULTS: (u32, u64) = (1, 2);

    #[test]
    fn a_counter_holds_what_a_child_did() {
        let Some(before) = Counter::start(PAGE_FAULTS.0, PAGE_FAULTS.1) else {
            largefolio_testkit::skipped!(
                "perf_event_open is refused here (kernel.perf_event_paranoid)"
            );
            return;
        };
        let idle = before.end().unwrap();
        let counter = Counter::start(PAGE_FAULTS.0, PAGE_FAULTS.1).unwrap();
        assert!(Command::new("/bin/true").status().unwrap().success());
        let nr_faults = counter.end().unwrap();
        assert!(
            nr_faults > idle + 20,
            "a program takes some faults to start: {nr_faults}, idle {idle}"
        );
    }

    #[test]
    fn a_counter_that_shared_its_hardware_is_scaled() {
        assert_eq!(scaled(100, 10, 5), Some(200));
        assert_eq!(scaled(100, 10, 10), Some(100));
        assert_eq!(scaled(0, 10, 0), None);
        assert_eq!(scaled(u64::MAX, u64::MAX, 1), None);
    }

    #[test]
    fn attributes_have_the_published_size() {
        assert_eq!(size_of::<Attributes>(), ATTRIBUTES_BYTES as usize);
    }
}
