//! From events to waits.
//!
//! ```text
//!   tries 9   zone begins  zone ends   zone begins  zone ends      begins      ends
//!   |---------------- one compaction wait ----------------|        |- a wait -|
//! ```
//!
//! Direct compaction has no event at its end, so its wait ends with the last zone. The kernel does
//! not nest waits: a thread that compacts or reclaims does neither within that.
//!
//! Invariants:
//! - W1: a thread has at most one open wait, and an entry only while it has one.
//! - W2: the waits of a thread do not overlap, so their sum is at most the time between its first
//!   and its last event.

use std::collections::BTreeMap;

use super::step::{Kind, Step};

/// A compaction whose last zone ended this long ago is over.
const SETTLED_NS: u64 = 1_000_000_000;
/// Threads with an open wait; as many as Linux can have by default.
const NR_OPEN_MAX: usize = 1 << 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) tid: u32,
    pub(super) kind: Kind,
    /// `None`: not for an allocation, such as a write to `/proc/sys/vm/compact_memory`.
    pub(super) order: Option<u32>,
    pub(super) ns: u64,
    /// Tracing ended first, so it was longer.
    pub(super) is_cut: bool,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    kind: Kind,
    order: Option<u32>,
    since_ns: u64,
    /// The end of a compaction's last zone.
    until_ns: Option<u64>,
    /// Whether it has begun a zone or reclaim that has not ended.
    is_busy: bool,
}

impl Open {
    const fn new(kind: Kind, order: Option<u32>, since_ns: u64) -> Self {
        Self { kind, order, since_ns, until_ns: None, is_busy: true }
    }

    fn wait(&self, tid: u32, end_ns: u64, is_cut: bool) -> Wait {
        let ns = end_ns.saturating_sub(self.since_ns);
        Wait { tid, kind: self.kind, order: self.order, ns, is_cut }
    }

    /// Returns when it ended, if another event of the thread shows that it has.
    fn ended(&self) -> Option<u64> {
        self.until_ns.filter(|_| !self.is_busy)
    }
}

#[derive(Debug)]
pub(super) struct Finished {
    pub(super) waits: Vec<Wait>,
    /// Waits without an end, although events were lost.
    pub(super) nr_left_out: u64,
}

#[derive(Debug, Default)]
pub(super) struct Waits {
    open: BTreeMap<u32, Open>,
    /// Ends without a begin: those waits began before tracing, or that event was lost.
    pub(super) nr_headless: u64,
}

impl Waits {
    /// Takes an event; returns a wait that it ends.
    pub(super) fn take(&mut self, tid: u32, now_ns: u64, step: Step) -> Option<Wait> {
        match step {
            Step::Tries(order) => {
                let open = Open::new(Kind::Compaction, Some(order), now_ns);
                self.begin(tid, Open { is_busy: false, ..open })
            }
            Step::Begins(kind, order) => self.begin(tid, Open::new(kind, Some(order), now_ns)),
            Step::ZoneBegins => match self.open.get_mut(&tid) {
                Some(open) if open.kind == Kind::Compaction => {
                    open.is_busy = true;
                    None
                }
                _ => self.begin(tid, Open::new(Kind::Compaction, None, now_ns)),
            },
            Step::ZoneEnds => {
                match self.open.get_mut(&tid).filter(|open| open.kind == Kind::Compaction) {
                    Some(open) => (open.until_ns, open.is_busy) = (Some(now_ns), false),
                    None => self.nr_headless += 1,
                }
                None
            }
            Step::Ends(kind) => {
                let Some(open) = self.open.remove(&tid).filter(|open| open.kind == kind) else {
                    self.nr_headless += 1;
                    return None;
                };
                Some(open.wait(tid, now_ns, false))
            }
            Step::Throttled(_) | Step::Wakes | Step::Collapses(_) => None,
        }
    }

    /// Begins a wait; returns the compaction that it shows to have ended.
    fn begin(&mut self, tid: u32, open: Open) -> Option<Wait> {
        let earlier = self.open.remove(&tid);
        if self.open.len() < NR_OPEN_MAX {
            self.open.insert(tid, open);
        }
        let earlier = earlier?;
        Some(earlier.wait(tid, earlier.ended()?, false))
    }

    /// Returns the compactions that ended a while ago, and forgets those that had no zone.
    pub(super) fn settle(&mut self, now_ns: u64) -> Vec<Wait> {
        let is_over = |open: &Open| {
            let last_ns = open.until_ns.unwrap_or(open.since_ns);
            !open.is_busy && now_ns.saturating_sub(last_ns) >= SETTLED_NS
        };
        let over: Vec<(u32, Open)> = self.open.extract_if(.., |_, open| is_over(open)).collect();
        over.iter().filter_map(|(tid, open)| Some(open.wait(*tid, open.ended()?, false))).collect()
    }

    /// Ends everything: what still waits is cut. If events were lost, its end may be among them, so
    /// it is left out and counted.
    pub(super) fn finish(self, now_ns: u64, nr_lost: u64) -> Finished {
        let end = |(tid, open): (u32, Open)| match open.ended() {
            Some(end_ns) => Some(open.wait(tid, end_ns, false)),
            None => open.is_busy.then(|| open.wait(tid, now_ns, true)),
        };
        let waits = self.open.into_iter().filter_map(end);
        let (left_out, waits): (Vec<Wait>, Vec<Wait>) =
            waits.partition(|wait| wait.is_cut && nr_lost > 0);
        Finished { waits, nr_left_out: left_out.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(steps: &[(u64, Step)]) -> (Waits, Vec<Wait>) {
        let mut waits = Waits::default();
        let ended = steps.iter().filter_map(|(now, step)| waits.take(7, *now, *step)).collect();
        (waits, ended)
    }

    fn of(kind: Kind, order: Option<u32>, ns: u64) -> Wait {
        Wait { tid: 7, kind, order, ns, is_cut: false }
    }

    #[test]
    fn a_compaction_lasts_from_its_try_to_its_last_zone() {
        let (waits, ended) = run(&[
            (10, Step::Tries(9)),
            (11, Step::ZoneBegins),
            (20, Step::ZoneEnds),
            (21, Step::ZoneBegins),
            (40, Step::ZoneEnds),
            (90, Step::Begins(Kind::Reclaim, 9)),
            (95, Step::Ends(Kind::Reclaim)),
        ]);
        let expected = [of(Kind::Compaction, Some(9), 30), of(Kind::Reclaim, Some(9), 5)];
        assert_eq!(ended, expected);
        assert!(waits.finish(99, 0).waits.is_empty());
    }

    #[test]
    fn a_try_without_a_zone_did_not_wait() {
        let (mut waits, ended) = run(&[(10, Step::Tries(9)), (11, Step::Tries(4))]);
        assert!(ended.is_empty());
        assert!(waits.settle(20).is_empty());
        assert_eq!(waits.open.len(), 1);
        assert!(waits.settle(SETTLED_NS + 11).is_empty());
        assert!(waits.open.is_empty());
    }

    #[test]
    fn a_compaction_settles_after_a_while() {
        let steps = [(1, Step::Tries(2)), (2, Step::ZoneBegins), (6, Step::ZoneEnds)];
        let (mut waits, _) = run(&steps);
        assert!(waits.settle(7).is_empty());
        assert_eq!(waits.settle(6 + SETTLED_NS), [of(Kind::Compaction, Some(2), 5)]);
    }

    #[test]
    fn what_is_open_at_the_end_is_cut_and_an_end_alone_is_counted() {
        let steps = [(5, Step::Ends(Kind::GroupReclaim)), (6, Step::ZoneEnds)];
        let (waits, ended) = run(&steps);
        assert!(ended.is_empty());
        assert_eq!(waits.nr_headless, 2);
        let (waits, _) = run(&[(5, Step::Begins(Kind::GroupReclaim, 0))]);
        let cut = Wait { is_cut: true, ..of(Kind::GroupReclaim, Some(0), 15) };
        assert_eq!(waits.finish(20, 0).waits, [cut]);
        let (waits, _) = run(&[(5, Step::Begins(Kind::GroupReclaim, 0))]);
        let lossy = waits.finish(20, 1);
        assert_eq!((lossy.waits.len(), lossy.nr_left_out), (0, 1), "its end may be lost");
        let (waits, _) = run(&[(5, Step::Tries(3)), (6, Step::ZoneBegins), (8, Step::ZoneEnds)]);
        assert_eq!(waits.finish(20, 1).waits, [of(Kind::Compaction, Some(3), 3)]);
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let kind = prop_oneof![Just(Kind::Reclaim), Just(Kind::GroupReclaim)];
        prop_oneof![
            (0_u32..11).prop_map(Step::Tries),
            Just(Step::ZoneBegins),
            Just(Step::ZoneEnds),
            (kind.clone(), 0_u32..11).prop_map(|(kind, order)| Step::Begins(kind, order)),
            kind.prop_map(Step::Ends),
            Just(Step::Wakes),
        ]
    }

    proptest! {
        // W1 and W2, whatever was lost.
        #[test]
        fn waits_never_overlap(steps in proptest::collection::vec((0_u32..3, 0_u64..400_000_000, any_step()), 0..200)) {
            let (mut waits, mut now, mut sums) = (Waits::default(), 0, [0_u64; 3]);
            let mut add = |wait: Wait| sums[wait.tid as usize] += wait.ns;
            for (tid, later, step) in steps {
                now += later;
                waits.take(tid, now, step).into_iter().for_each(&mut add);
                waits.settle(now).into_iter().for_each(&mut add);
                prop_assert!(waits.open.len() <= 3);
            }
            waits.finish(now, 0).waits.into_iter().for_each(&mut add);
            prop_assert!(sums.iter().all(|sum| *sum <= now), "{sums:?} in {now}");
        }
    }
}
