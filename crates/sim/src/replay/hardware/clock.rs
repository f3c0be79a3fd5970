//! A cell's virtual clock, which wakes khugepaged, kcompactd, and a policy that wants intervals.
//!
//! A trace has no times, so references are the clock: each takes [`NS_PER_REFERENCE`] unless the
//! cell sets a different value. System calls, faults, I/O and the two daemons take no time. A trace
//! is shorter than the run that it represents, so khugepaged must do hours of work in seconds. To
//! allow that, shorten its sleep (`khugepaged-scan-sleep`) or make references longer.

/// J.4 counts 1.046 to 1.064 billion instruction fetches per second on one core.
pub const NS_PER_REFERENCE: u64 = 1;

/// About 600 years.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeper {
    Khugepaged,
    /// Checks fragmentation (docs/behaviour I.11).
    Kcompactd,
    /// Looks at each cgroup (`folio/interval`).
    Policy,
}

/// Measures time in references.
///
/// Each daemon wakes at most once per row, so no row can make a replay endless.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    now_ns: u64,
    /// Wake time of each daemon; [`NEVER`] if references take no time or the time would overflow.
    wake_ns: [u64; 3],
    next_ns: u64,
    ns_per_reference: u64,
}

impl Clock {
    pub(crate) const fn new(ns_per_reference: u64) -> Self {
        let wake_ns = if ns_per_reference == 0 { NEVER } else { 0 };
        Self { now_ns: 0, wake_ns: [wake_ns, NEVER, NEVER], next_ns: wake_ns, ns_per_reference }
    }

    /// Lets `count` references pass. Returns whether a daemon is due.
    #[inline]
    pub(crate) const fn advance(&mut self, count: u64) -> bool {
        let passed = count.saturating_mul(self.ns_per_reference);
        self.now_ns = self.now_ns.saturating_add(passed);
        self.now_ns >= self.next_ns && self.next_ns != NEVER
    }

    /// Returns the exclusive limit on the references that may pass before a daemon wakes.
    #[inline]
    pub(crate) const fn limit(&self) -> u64 {
        if self.next_ns == NEVER {
            return u64::MAX;
        }
        let left_ns = self.next_ns.saturating_sub(self.now_ns);
        match self.ns_per_reference {
            // At 0 no daemon ever wakes. At 1, the usual case, no division is needed.
            0 | 1 => left_ns,
            ns => left_ns.div_ceil(ns),
        }
    }

    pub(crate) const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(crate) const fn is_due(&self, who: Sleeper) -> bool {
        let wake_ns = self.wake_ns[who as usize];
        wake_ns != NEVER && self.now_ns >= wake_ns
    }

    /// Sets the daemon's next wake time. It never wakes if references take no time.
    pub(crate) fn sleep(&mut self, who: Sleeper, sleep_ns: u64) {
        if self.ns_per_reference > 0 {
            self.wake_ns[who as usize] = self.now_ns.saturating_add(sleep_ns);
            let [one, two, three] = self.wake_ns;
            self.next_ns = one.min(two).min(three);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KHUGEPAGED: Sleeper = Sleeper::Khugepaged;

    #[test]
    fn references_wake_khugepaged() {
        let mut clock = Clock::new(3);
        assert!(clock.advance(1));
        clock.sleep(KHUGEPAGED, 7);
        assert!(!clock.advance(2));
        assert!(clock.advance(1), "10 ns have passed");
        clock.sleep(KHUGEPAGED, u64::MAX);
        assert!(!clock.advance(u64::MAX), "time has ended");
    }

    #[test]
    fn as_many_references_as_the_limit_wake_khugepaged() {
        for ns in [1, 3, 10] {
            for sleep_ns in [0, 1, 2, 3, 29, 30, 31] {
                let mut clock = Clock::new(ns);
                clock.sleep(KHUGEPAGED, sleep_ns);
                let limit = clock.limit();
                assert!(limit == 0 || !Clock::advance(&mut clock.clone(), limit - 1));
                assert!(clock.advance(limit), "{ns} {sleep_ns}");
            }
        }
        assert_eq!(Clock::new(0).limit(), u64::MAX);
    }

    #[test]
    fn two_sleep_each_for_itself() {
        let mut clock = Clock::new(1);
        clock.sleep(KHUGEPAGED, 10);
        clock.sleep(Sleeper::Kcompactd, 4);
        assert_eq!(clock.limit(), 4);
        assert!(clock.advance(4));
        assert!(clock.is_due(Sleeper::Kcompactd) && !clock.is_due(KHUGEPAGED));
        clock.sleep(Sleeper::Kcompactd, 100);
        assert_eq!(clock.limit(), 6);
        assert!(clock.advance(6));
        assert!(clock.is_due(KHUGEPAGED) && !clock.is_due(Sleeper::Kcompactd));
    }

    #[test]
    fn references_that_take_no_time_wake_nobody() {
        let mut clock = Clock::new(0);
        clock.sleep(Sleeper::Kcompactd, 1);
        assert!(!clock.advance(u64::MAX));
    }
}
