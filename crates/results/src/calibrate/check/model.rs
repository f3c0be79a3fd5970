//! The predicted side: runs the operation in the model and prices its events with the machine file.

use largefolio_linux::calibrate::stubs::Backing;
use largefolio_linux::calibrate::{AROUND_BYTES, TimedWork};
use largefolio_sim::bench::{AnonBench, FileBench};
use largefolio_sim::cost::{Cause, Estimate};
use largefolio_sim::interval::Interval;
use largefolio_sim::replay::{CacheState, CellSpec, Outcome, replay};
use largefolio_trace::event::abi::MAP_FIXED;
use largefolio_trace::generate::{Advice, BASE, RetStubs, SweepOrder, Workload as _};
use largefolio_trace::{Event, Op, Writer};

use super::setup::{CheckRequest, Phase};
use crate::{Error, running};

pub(super) struct PredictedCost {
    /// `None`: a cost is not known.
    ns: Option<f64>,
    interval: Option<Interval>,
    by_cause: Vec<(&'static str, Option<f64>)>,
}

impl PredictedCost {
    /// Returns time, bounds and causes per part, for `nr` parts that also take `base` nanoseconds.
    pub(super) fn each(&self, nr: usize, base: f64) -> (Option<f64>, Option<Interval>, String) {
        let ns = self.ns.map(|ns| base + ns / float(nr));
        let interval = self
            .interval
            .map(|all| Interval::sum([Interval::exact(base), all.times(float(nr).recip())]));
        (ns, interval, self.causes(nr))
    }

    /// `fault 12.0 + walk 190.1`, per part.
    fn causes(&self, nr: usize) -> String {
        let text = |(name, ns): &(&str, Option<f64>)| match ns {
            Some(ns) => format!("{name} {:.2}", ns / float(nr)),
            None => format!("{name} not known"),
        };
        self.by_cause.iter().map(text).collect::<Vec<_>>().join(" + ")
    }

    fn new(estimate: &Estimate, base: Option<&Estimate>, causes: &[Cause]) -> Self {
        let of = |cause: &Cause| {
            let ns = |estimate: &Estimate| Some(float_of(estimate.causes.get(cause)?.ns?));
            match base {
                None => ns(estimate),
                Some(base) => Some(ns(estimate)? - ns(base)?),
            }
        };
        let by_cause: Vec<_> = causes.iter().map(|cause| (cause.name(), of(cause))).collect();
        let only = |estimate: &Estimate| {
            let mut estimate = estimate.clone();
            estimate.causes.retain(|cause, _| causes.contains(cause));
            estimate
        };
        let interval = only(estimate).change(&base.map_or_else(Estimate::default, only));
        let ns = by_cause.iter().try_fold(0.0, |sum, (_, ns)| Some(sum + (*ns)?));
        let by_cause = by_cause.into_iter().filter(|(_, ns)| *ns != Some(0.0)).collect();
        Self { ns, interval, by_cause }
    }
}

pub(super) fn anon(
    request: &CheckRequest,
    work: TimedWork,
    bytes: usize,
) -> Result<PredictedCost, Error> {
    let mut bench =
        AnonBench::new(&request.kernel, bytes as u64, request.extent.region_bytes as u64)?;
    if !matches!(work, TimedWork::Touch | TimedWork::Zeroes) {
        bench.store_all()?;
    }
    if matches!(work, TimedWork::Cow | TimedWork::MunmapShared) {
        bench.fork()?;
    }
    let base = bench.mark();
    match work {
        TimedWork::Touch | TimedWork::Cow => bench.store_all()?,
        TimedWork::Zeroes => bench.load_all()?,
        TimedWork::Munmap | TimedWork::MunmapShared => bench.munmap()?,
        TimedWork::ForkBeyond => {
            bench.fork()?;
        }
    }
    let events = bench.mark().since(&base, running::page().bytes());
    let estimate = Estimate::new(&events, &request.machine.costs, request.walks);
    Ok(PredictedCost::new(&estimate, None, &Cause::ALL))
}

pub(super) fn faults(request: &CheckRequest, nr_cached: usize) -> Result<PredictedCost, Error> {
    let len_bytes = request.extent.region_bytes as u64;
    let mut bench = FileBench::new(&request.kernel, len_bytes, (AROUND_BYTES / nr_cached) as u64)?;
    let base = bench.mark();
    bench.load_each(AROUND_BYTES as u64)?;
    let events = bench.mark().since(&base, running::page().bytes());
    let estimate = Estimate::new(&events, &request.machine.costs, request.walks);
    Ok(PredictedCost::new(&estimate, None, &Cause::ALL))
}

/// Predicts a phase of the stubs with two replays on a warm page cache, with and without the random
/// calls.
pub(super) fn stubs(
    request: &CheckRequest,
    backing: Backing,
    phase: Phase,
) -> Result<PredictedCost, Error> {
    let swept = outcome(request, backing, phase, 0)?.estimate;
    // Neither phase includes the process's exit.
    let causes: Vec<Cause> =
        Cause::ALL.into_iter().filter(|cause| *cause != Cause::Unmap).collect();
    match phase {
        Phase::Mapped => Ok(PredictedCost::new(&swept, None, &causes)),
        Phase::Random => {
            let called = outcome(request, backing, phase, request.extent.nr_calls)?.estimate;
            Ok(PredictedCost::new(&called, Some(&swept), &causes))
        }
    }
}

fn outcome(
    request: &CheckRequest,
    backing: Backing,
    phase: Phase,
    nr_calls: usize,
) -> Result<Outcome, Error> {
    let dir = tempfile::tempdir().map_err(Error::system("making a directory for a trace"))?;
    let path = dir.path().join("stubs.folio");
    let stubs = workload(request, backing, nr_calls);
    let mut writer = Writer::create(&path, stubs.meta())?;
    writer.push_rows(&events(&stubs, backing, phase)?)?;
    writer.finish()?;
    let spec = CellSpec {
        cache: CacheState::Warm,
        walks: request.walks,
        ns_per_reference: 0,
        ..CellSpec::new(request.kernel.clone(), request.machine.clone())
    };
    let (_, mut outcomes) = replay(&path, &[spec], &mut |_| {})?;
    outcomes.pop().ok_or_else(|| Error::request("a replay without a result"))
}

fn workload(request: &CheckRequest, backing: Backing, nr_calls: usize) -> RetStubs {
    let advice = match backing {
        // One page per read, as with FADV_RANDOM.
        Backing::CacheBase => Advice::Random,
        Backing::CacheLarge => Advice::HugePage,
        _ => Advice::None,
    };
    let is_on_disk = backing.is_on_disk();
    RetStubs {
        nr_pages: (request.extent.text_bytes >> running::page().shift()) as u64,
        stub_bytes: running::page().bytes(),
        order: SweepOrder::Sequential,
        nr_calls: nr_calls as u64,
        advice,
        filesystem: if is_on_disk { "ext4" } else { "tmpfs" }.to_owned(),
        ..RetStubs::default()
    }
}

/// Returns the events. If the pages are collapsed, that comes after the sweep, and a second sweep
/// maps them again before the calls. The previous run has already collapsed them.
fn events(stubs: &RetStubs, backing: Backing, phase: Phase) -> Result<Vec<Event>, Error> {
    let mut events = stubs.events()?;
    // The measured mapping is 2 MiB aligned, wherever the kernel would place it.
    for event in events.iter_mut().filter(|event| event.op == Op::Mmap) {
        event.flags |= MAP_FIXED;
    }
    if backing != Backing::MemfdCollapsed {
        return Ok(events);
    }
    let is_exec = |event: &Event| event.op == Op::Exec;
    let first =
        events.iter().position(is_exec).ok_or_else(|| Error::request("a trace without calls"))?;
    let end = first + usize::try_from(stubs.nr_pages).unwrap_or(usize::MAX);
    let sweep = events[first..end].to_vec();
    let len = stubs.nr_pages * stubs.stub_bytes;
    let collapse = Event { addr: BASE, len, ..Event::new(0, Op::Collapse) };
    let again = if phase == Phase::Random { sweep } else { Vec::new() };
    events.splice(end..end, std::iter::once(collapse).chain(again));
    Ok(events)
}

#[expect(clippy::cast_precision_loss, reason = "counts of the check are below 2^40")]
pub(super) const fn float(nr: usize) -> f64 {
    nr as f64
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of some seconds")]
const fn float_of(ns: u64) -> f64 {
    ns as f64
}
