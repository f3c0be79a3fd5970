//! The virtual clock of a cell: what khugepaged wakes by.
//!
//! A trace has no times, and a model none of its own. So references are the clock: each takes
//! [`NS_PER_REFERENCE`] unless a cell says otherwise. System calls, faults and I/O take no time, and
//! neither does khugepaged, which runs on a processor of its own.
//!
//! A trace is shorter than the run it stands for. What khugepaged does by the hour it must do by
//! the second there: shorten its sleep (`khugepaged-scan-sleep`), or make references longer.

/// Nanoseconds of a reference: J.4 counts 1.046 to 1.064 thousand million instruction fetches a
/// second on one core.
pub const NS_PER_REFERENCE: u64 = 1;

/// References as time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    now_ns: u64,
    /// When khugepaged wakes; never, where references take no time.
    wake_ns: u64,
    ns_per_reference: u64,
}

impl Clock {
    /// Time 0, at which khugepaged starts.
    pub(super) const fn new(ns_per_reference: u64) -> Self {
        let wake_ns = if ns_per_reference == 0 { u64::MAX } else { 0 };
        Self { now_ns: 0, wake_ns, ns_per_reference }
    }

    /// Lets `count` references pass; the time, if khugepaged wakes by then.
    #[inline]
    pub(super) const fn advance(&mut self, count: u64) -> Option<u64> {
        let passed = count.saturating_mul(self.ns_per_reference);
        self.now_ns = self.now_ns.saturating_add(passed);
        if self.now_ns >= self.wake_ns { Some(self.now_ns) } else { None }
    }

    /// khugepaged sleeps until `wake_ns`.
    pub(super) fn sleep_until(&mut self, wake_ns: u64) {
        self.wake_ns = wake_ns.max(self.now_ns.saturating_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_wake_khugepaged() {
        let mut clock = Clock::new(3);
        assert_eq!(clock.advance(1), Some(3));
        clock.sleep_until(10);
        assert_eq!(clock.advance(2), None);
        assert_eq!(clock.advance(1), Some(12));
        clock.sleep_until(u64::MAX);
        assert_eq!(clock.advance(u64::MAX), Some(u64::MAX));
    }

    #[test]
    fn references_that_take_no_time_wake_nobody() {
        let mut clock = Clock::new(0);
        assert_eq!(clock.advance(u64::MAX), None);
    }
}
