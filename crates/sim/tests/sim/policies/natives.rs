//! Policies in Rust: their inputs, and the effect of answers that the kernel cannot follow.

use std::collections::BTreeSet;
use std::sync::Arc;

use largefolio_mm::policy::{
    Answer, Context, Point, Policy, PolicyError, Window, admit, area, victim,
};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::policy::{KernelPolicy, Source};
use largefolio_sim::replay::{CacheState, CellSpec, replay};
use largefolio_sim::sweep::Recipe;
use largefolio_testkit::is_in_sample;
use largefolio_trace::generate::{Advice, RetStubs, Snapshots, SweepOrder, Workload};

use super::{cell, counted, replayed, root};

/// A policy in Rust: the initial state of each cell, or the reason it cannot start.
#[derive(Debug)]
struct Native<P>(&'static str, Result<P, &'static str>);

impl<P: Policy + Clone + Sync + 'static> Source for Native<P> {
    fn name(&self) -> &str {
        self.0
    }

    fn digest(&self) -> Option<&str> {
        None
    }

    fn object(&self) -> Option<&[u8]> {
        None
    }

    fn start(&self) -> Result<Box<dyn Policy>, String> {
        let policy = self.1.as_ref().map_err(|why| (*why).to_owned())?;
        Ok(Box::new(policy.clone()))
    }
}

#[derive(Clone, Debug)]
struct Fails(u64);

impl Policy for Fails {
    fn handles(&self, _: Point) -> bool {
        true
    }

    fn answer(&mut self, point: Point, _: &Context) -> Result<Answer, PolicyError> {
        self.0 -= 1;
        if self.0 > 0 {
            return Ok(Answer::Own);
        }
        Err(PolicyError { point, message: "it gave up".to_owned() })
    }
}

#[test]
fn a_policy_that_fails_ends_the_replay_and_cannot_be_written_down() {
    let plain = cell("7.2", "altra");
    let fails = |policy| {
        let kernel = plain.kernel.with_policy(KernelPolicy(Arc::new(Native("fails", policy))));
        let spec = CellSpec { kernel, ..plain.clone() };
        let message =
            replay(&root().join("traces/demo.folio"), std::slice::from_ref(&spec), &mut |_| {});
        (message.unwrap_err().to_string(), Recipe::of(&spec).unwrap_err().to_string())
    };
    let (message, unwritten) = fails(Ok(Fails(5)));
    assert!(message.contains("7.2+policy=fails on altra: the policy failed at"), "{message}");
    assert!(message.contains("it gave up"), "{message}");
    assert!(unwritten.contains("cannot be serialized"), "{unwritten}");
    assert!(fails(Err("not today")).0.contains("cannot start: not today"));
}

#[derive(Clone, Debug)]
struct Keeps;

impl Policy for Keeps {
    fn handles(&self, point: Point) -> bool {
        point == Point::Victim
    }

    fn answer(&mut self, _: Point, context: &Context) -> Result<Answer, PolicyError> {
        let is_text = context.area_flags & area::EXEC != 0;
        Ok(if is_text { Answer::Value(victim::KEEP) } else { Answer::Own })
    }
}

/// No policy makes an operation fail: before memory runs out, reclaim takes the kept folios.
#[test]
fn a_policy_that_keeps_text_does_not_run_out_of_memory() {
    let keeps = KernelPolicy(Arc::new(Native("keeps", Ok(Keeps))));
    let spec = |(kernel, limit): (&str, &str)| {
        let plain = cell(kernel, "altra");
        let kernel = plain.kernel.with_policy(keeps.clone());
        let (cgroups, filesystem) = (vec![limit.parse().unwrap()], Some("xfs".to_owned()));
        CellSpec { kernel, cgroups, filesystem, ..plain }
    };
    let below = [("6.16", "6M"), ("6.16", "10M"), ("6.18", "6M"), ("6.18", "8M"), ("7.2", "8M")];
    for outcome in replayed("make.folio", &below.map(spec)) {
        let answers = outcome.policy.as_ref().unwrap().points["victim"];
        assert!(answers.honoured > 1000 && answers.refused > 0, "{}: {answers:?}", outcome.kernel);
    }
}

#[derive(Clone, Debug)]
struct AnswersVictims(u64);

impl Policy for AnswersVictims {
    fn handles(&self, point: Point) -> bool {
        point == Point::Victim
    }

    fn answer(&mut self, _: Point, _: &Context) -> Result<Answer, PolicyError> {
        Ok(Answer::Value(self.0))
    }
}

/// Each folio is kept for one round, then evicted: a request does not scan everything for each
/// batch.
#[test]
fn a_policy_that_keeps_everything_gets_one_round_and_fails_nothing() {
    let keeps = KernelPolicy(Arc::new(Native("keeps-all", Ok(AnswersVictims(victim::KEEP)))));
    let spec = |(kernel, limit): (&str, &str)| {
        let plain = cell(kernel, "altra");
        let kernel = plain.kernel.with_policy(keeps.clone());
        let (cgroups, filesystem) = (vec![limit.parse().unwrap()], Some("xfs".to_owned()));
        CellSpec { kernel, cgroups, filesystem, ..plain }
    };
    let below = [("6.16", "6M"), ("6.16", "24M"), ("7.2", "6M")];
    for outcome in replayed("make.folio", &below.map(spec)) {
        let answers = outcome.policy.as_ref().unwrap().points["victim"];
        let (kept, taken) = (answers.honoured, answers.refused);
        // The cgroup's pages, in addition to the evicted ones.
        let nr_pages = 24 << 20 >> 12;
        assert!(kept > 100 && kept < 2 * taken + nr_pages, "{}: {answers:?}", outcome.kernel);
    }
}

#[derive(Clone, Debug)]
struct SeesGroup;

impl Policy for SeesGroup {
    fn handles(&self, point: Point) -> bool {
        point == Point::Victim
    }

    fn answer(&mut self, point: Point, context: &Context) -> Result<Answer, PolicyError> {
        let Context { group_max, group_pages, .. } = *context;
        if group_max == 24 << 20 >> 12 && (1..=group_max).contains(&group_pages) {
            return Ok(Answer::Own);
        }
        let message =
            format!("{group_pages} of {group_max}, in an area from {:#x}", context.area_start);
        Err(PolicyError { point, message })
    }
}

#[test]
fn a_victim_has_the_limit_of_its_group() {
    let sees = KernelPolicy(Arc::new(Native("sees", Ok(SeesGroup))));
    let plain = cell("6.16", "altra");
    let kernel = plain.kernel.with_policy(sees);
    let spec = CellSpec { kernel, cgroups: vec!["24M".parse().unwrap()], ..plain };
    let [outcome] = replayed("make.folio", &[spec]).try_into().unwrap();
    assert!(outcome.policy.unwrap().points["victim"].asked > 100);
}

#[test]
fn what_was_to_go_and_stays_is_refused() {
    let evicts = KernelPolicy(Arc::new(Native("evicts", Ok(AnswersVictims(victim::EVICT)))));
    let spec = |swap_bytes| {
        let plain = cell("7.2+lru=lists", "altra");
        let kernel = plain.kernel.with_policy(evicts.clone());
        CellSpec { kernel, cgroups: vec!["6M".parse().unwrap()], swap_bytes, ..plain }
    };
    let outcomes = replayed("make.folio", &[spec(64 << 10), spec(1 << 30)]);
    let [tight, roomy] = [0, 1].map(|at: usize| outcomes[at].policy.as_ref().unwrap());
    let (tight, roomy) = (tight.points["victim"], roomy.points["victim"]);
    assert!(tight.refused > roomy.refused && roomy.honoured > 100, "{tight:?} {roomy:?}");
}

#[derive(Clone, Debug)]
struct ReadsPairs;

impl Policy for ReadsPairs {
    fn handles(&self, point: Point) -> bool {
        point == Point::Window
    }

    fn answer(&mut self, _: Point, context: &Context) -> Result<Answer, PolicyError> {
        let start = context.index / 2 * 2;
        Ok(match context.cause {
            0 => Answer::Window(Window { start, nr_pages: 2, nr_ahead: 0, order: 1 }),
            _ => Answer::Own,
        })
    }
}

/// Up to 6.16 a window of fewer than four pages cannot have large folios.
#[test]
fn an_order_that_so_short_a_window_cannot_have_is_refused() {
    let pairs = KernelPolicy(Arc::new(Native("pairs", Ok(ReadsPairs))));
    let spec = |kernel| {
        let plain = cell(kernel, "altra");
        let kernel = plain.kernel.with_policy(pairs.clone());
        CellSpec { kernel, filesystem: Some("xfs".to_owned()), ..plain }
    };
    let outcomes = replayed("demo.folio", &["6.16", "6.17"].map(spec));
    let [short, taken] = [0, 1].map(|at: usize| outcomes[at].policy.as_ref().unwrap());
    let (short, taken) = (short.points["window"], taken.points["window"]);
    assert!(short.honoured == 0 && short.refused > 20, "{short:?}");
    assert!(taken.honoured > 20 && taken.refused == 0, "{taken:?}");
}

/// Points that ignore answers, or at which the policy cannot repeat the kernel's own choice.
const EVENTS: [&str; 5] = ["added", "accessed", "removed", "interval", "evict"];

#[derive(Clone, Debug)]
struct Echoes;

impl Policy for Echoes {
    fn handles(&self, _: Point) -> bool {
        true
    }

    fn answer(&mut self, point: Point, context: &Context) -> Result<Answer, PolicyError> {
        let Context { own_start, own_pages, own_ahead, own_order, own, orders, .. } = *context;
        let (start, nr_pages, nr_ahead, order) = (own_start, own_pages, own_ahead, own_order);
        Ok(match point {
            Point::AnonOrder | Point::Collapse | Point::SwapinOrder | Point::ShmemOrder => {
                Answer::Value(orders)
            }
            Point::Admit => Answer::Value(admit::CACHE),
            Point::Window if own_pages == 0 => Answer::Value(0),
            Point::Window => Answer::Window(Window { start, nr_pages, nr_ahead, order }),
            Point::Around | Point::Write | Point::Victim => Answer::Value(own),
            _ => Answer::Own,
        })
    }
}

/// A policy that repeats the kernel's own answers changes nothing, under any kernel (the gate tries
/// one in ten) and any advice.
#[test]
fn the_kernels_own_answers_change_nothing_when_a_policy_gives_them() {
    let echoes = KernelPolicy(Arc::new(Native("echoes", Ok(Echoes))));
    let dir = tempfile::tempdir().unwrap();
    let mut traces = vec![root().join("traces/demo.folio")];
    for (name, order, advice) in [
        ("sequential", SweepOrder::Sequential, Advice::Sequential),
        ("shuffled", SweepOrder::Random, Advice::Sequential),
        ("huge", SweepOrder::Random, Advice::HugePage),
        ("random", SweepOrder::Random, Advice::Random),
        ("plain", SweepOrder::Sequential, Advice::None),
    ] {
        traces.push(dir.path().join(format!("{name}.folio")));
        let nr_pages = 2_000;
        let stubs = RetStubs { nr_pages, order, advice, nr_calls: 10, ..RetStubs::default() };
        stubs.write(traces.last().unwrap()).unwrap();
    }
    traces.push(dir.path().join("fork.folio"));
    let forks = Snapshots { anon_bytes: 4 << 20, nr_snapshots: 1, ..Snapshots::default() };
    forks.write(traces.last().unwrap()).unwrap();
    let settings = "thp=always+anon-64K=always+anon-16K=always";
    let mut used_points = BTreeSet::new();
    // 7.3 asks at every point.
    let is_tried = |name: &&str| *name == "7.3" || is_in_sample(name);
    let names: Vec<&str> = Kernel::names().filter(is_tried).collect();
    let mut specs = Vec::new();
    for (name, is_tight) in names.iter().flat_map(|name| [(name, false), (name, true)]) {
        let with_sizes = Kernel::parse(&format!("{name}+{settings}"));
        let kernel = with_sizes.unwrap_or_else(|_| Kernel::parse(name).unwrap());
        let mut plain = cell("7.2", "altra");
        plain.kernel = kernel;
        plain.filesystem = Some("xfs".to_owned());
        if is_tight {
            plain.cgroups = vec!["9M".parse().unwrap()];
            plain.cache = CacheState::Warm;
        }
        let kernel = plain.kernel.with_policy(echoes.clone());
        specs.extend([plain.clone(), CellSpec { kernel, ..plain }]);
    }
    for trace in &traces {
        let (_, outcomes) = replay(trace, &specs, &mut |_| {}).unwrap();
        let pairs = outcomes.as_chunks::<2>().0;
        for ([plain, echoed], spec) in pairs.iter().zip(specs.iter().step_by(2)) {
            let of = format!("{} {:?} {}", plain.kernel, spec.cache, trace.display());
            assert_eq!(counted(plain), counted(echoed), "{of}");
            let points = &echoed.policy.as_ref().unwrap().points;
            for (point, answers) in points.iter().filter(|(point, _)| !EVENTS.contains(point)) {
                // Dirty folios stay, whatever the policy wants.
                let nr_stayed = if *point == "victim" { answers.refused } else { 0 };
                assert_eq!(answers.asked, answers.honoured + nr_stayed, "{of}: {points:?}");
            }
            used_points.extend(points.keys().copied());
        }
    }
    let unused: Vec<_> = Point::ALL
        .map(Point::name)
        .into_iter()
        .filter(|name| !used_points.contains(name))
        .collect();
    assert_eq!(unused, ["swapin_order", "shmem_order"], "no trace here swaps or shares memory");
}
