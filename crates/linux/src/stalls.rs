//! Traces waits for memory on the running system: by process, time and cause.
//!
//! ```text
//!   tracefs instance --> step (events) --> waits (begin, end) --> owners (processes, sums)
//!   vmstat, per-size counters, kernel threads, PSI --> around (before, after)
//! ```
//!
//! Owns the loop. Direct compaction and reclaim are seen, because the kernel has events at both
//! ends. Page faults that allocate without either, waits for swap or files, for locks, and the
//! sleep of groups above `memory.high` have no such events.
//!
//! Invariants:
//! - L1: nothing remains: the tracing instance is removed as [`crate::tracefs`] describes.
//! - L2: memory is bounded: buffers, open waits, processes and histograms have limits.
//! - L3: lost events are counted.

mod around;
mod durations;
mod owners;
mod step;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use self::around::{Snapshot, Sources};
use self::owners::Owners;
use self::step::{Events, Step};
use self::waits::Waits;
use crate::census::CensusError;
use crate::census::cgroup::{self, MemoryLimit};
use crate::census::selection::{Missing, Selection};
use crate::geometry::Geometry;
use crate::proc::{Task, thp};
use crate::signals::Stop;
use crate::system::Live;
use crate::tracefs::rings::Rings;
use crate::tracefs::{Instance, TracefsError, now_ns};

pub use self::around::{GroupPressure, KernelThread, Moved};
pub use self::durations::Durations;
pub use self::owners::{Owner, Sum, Sums};
pub use self::step::Kind;

/// Buffer per processor: about 15,000 events, emptied twenty times a second.
const BUFFER_KB: &str = "1024";
const TICK: Duration = Duration::from_millis(50);
/// A selection by name, unit or group is read again this often, for processes that start later.
const CHOICE_INTERVAL: Duration = Duration::from_secs(1);

/// The waits, and the counters that moved.
#[derive(Debug, Default)]
pub struct Stalls {
    pub elapsed: Duration,
    /// The selected processes, and kernel threads.
    pub waiters: Vec<(Owner, Sums)>,
    /// All other processes together.
    pub others: Sums,
    /// Threads that ended before their process was known, which may be a selected one.
    pub ended: Sums,
    pub moved: Vec<Moved>,
    pub threads: Vec<KernelThread>,
    /// Empty if the kernel does not measure pressure.
    pub pressures: Vec<GroupPressure>,
    /// Attempts to collapse a block, by result.
    pub collapses: BTreeMap<String, u64>,
    /// The limits of the groups in which a selected process waited.
    pub limits: Vec<MemoryLimit>,
    /// The value of `thp.defrag`.
    pub defrag: Option<String>,
    /// Orders of the folios that faults and collapses get.
    pub thp_orders: BTreeSet<u32>,
    pub nr_lost: u64,
    /// Waits that were left out because their end may be among the lost events.
    pub nr_without_end: u64,
    /// Waits that began before tracing.
    pub nr_headless: u64,
    /// Events that this kernel lacks.
    pub missing_events: Vec<&'static str>,
}

#[derive(Debug, thiserror::Error)]
pub enum StallsError {
    #[error("tracing needs root")]
    NotPermitted,
    #[error("this kernel has no tracefs, or a container hides it")]
    NoTracefs,
    #[error(
        "tracing names processes by the PIDs of the machine, but this shell has a PID namespace of \
         its own; run folio on the machine itself, or start the container with --pid=host"
    )]
    PidNamespace,
    #[error("this kernel reports neither compaction nor reclaim (CONFIG_COMPACTION, CONFIG_MEMCG)")]
    NoEvents,
    #[error("{0}")]
    Missing(#[from] Missing),
    #[error("no process {0} exists, or it has ended; pgrep NAME finds processes")]
    NoProcess(u32),
    #[error(transparent)]
    Census(#[from] CensusError),
    #[error("cannot {doing}: {source}")]
    Os { doing: &'static str, source: io::Error },
}

impl From<TracefsError> for StallsError {
    fn from(error: TracefsError) -> Self {
        match error {
            TracefsError::NotPermitted => Self::NotPermitted,
            TracefsError::Missing => Self::NoTracefs,
            TracefsError::PidNamespace => Self::PidNamespace,
            TracefsError::Instance(source) => Self::Os { doing: "make a tracing instance", source },
        }
    }
}

fn os(doing: &'static str) -> impl FnOnce(io::Error) -> StallsError {
    move |source| StallsError::Os { doing, source }
}

/// Watches for `time`, or until Ctrl-C or until the processes given by PID have ended.
///
/// # Errors
/// If nothing can be traced, or if a selected process does not exist. Both are found before the
/// watch.
pub fn watch(selection: &Selection, time: Duration) -> Result<Stalls, StallsError> {
    if !rustix::process::geteuid().is_root() {
        return Err(StallsError::NotPermitted);
    }
    let mut choice = Choice::of(selection)?;
    let stop = Stop::watch().map_err(os("watch for Ctrl-C"))?;
    let instance = Instance::new("stalls")?;
    for (name, value) in [
        ("tracing_on", "0"),
        ("trace_clock", "mono"),
        ("options/overwrite", "0"),
        ("buffer_size_kb", BUFFER_KB),
    ] {
        instance.set(name, value).map_err(os("set up tracing"))?;
    }
    let events = Events::enable(&instance);
    if !events.has_any() {
        return Err(StallsError::NoEvents);
    }
    let rings = Rings::open(&instance).map_err(os("open the trace buffers"))?;
    let mut tracing = Tracing::new(&instance, rings, events);
    let before = Snapshot::take(&Live, &Sources::find(&Live, &choice.of_groups()));
    instance.set("tracing_on", "1").map_err(os("start tracing"))?;
    let started = Instant::now();
    loop {
        let left = time.saturating_sub(started.elapsed());
        std::thread::sleep(left.min(TICK));
        tracing.round()?;
        choice.refresh(false)?;
        if left.is_zero() || stop.asked_by().is_some() || choice.is_over() {
            break;
        }
    }
    choice.refresh(true)?;
    let sources = Sources::find(&Live, &choice.of_groups());
    let elapsed = started.elapsed();
    instance.set("tracing_on", "0").map_err(os("stop tracing"))?;
    let after = Snapshot::take(&Live, &sources);
    let mut stalls = tracing.finish(&choice)?;
    stalls.elapsed = elapsed;
    stalls.moved = after.moved_since(&before);
    stalls.threads = after.threads_since(&before);
    stalls.pressures = after.pressure_since(&before);
    stalls.defrag = thp::chosen(&Live, &thp::setting("defrag"));
    stalls.thp_orders = thp::orders(&Live, Geometry::running());
    Ok(stalls)
}

/// The selected processes.
struct Choice<'a> {
    selection: &'a Selection,
    /// All that were ever selected: those that ended too.
    pids: BTreeSet<u32>,
    read: Instant,
}

impl<'a> Choice<'a> {
    fn of(selection: &'a Selection) -> Result<Self, StallsError> {
        let chosen = selection.chosen(&Live)?;
        if let Some(missing) = chosen.missing.into_iter().next() {
            return Err(missing.into());
        }
        let is_gone = |pid: &&u32| !Task::of(&Live, **pid).exists();
        if let Some(&gone) = chosen.pids.iter().find(is_gone)
            && matches!(selection, Selection::Processes(_))
        {
            return Err(StallsError::NoProcess(gone));
        }
        Ok(Self { selection, pids: chosen.pids.into_iter().collect(), read: Instant::now() })
    }

    fn refresh(&mut self, is_last: bool) -> Result<(), StallsError> {
        let is_fixed = matches!(self.selection, Selection::All | Selection::Processes(_));
        if !is_fixed && (is_last || self.read.elapsed() >= CHOICE_INTERVAL) {
            self.pids.extend(self.selection.chosen(&Live)?.pids);
            self.read = Instant::now();
        }
        Ok(())
    }

    fn has(&self, owner: &Owner) -> bool {
        match self.selection {
            Selection::All => owner.pid != std::process::id(),
            Selection::Names(names) if names.contains(&owner.name) => true,
            _ => self.pids.contains(&owner.pid),
        }
    }

    /// Whether all processes given by PID have ended.
    fn is_over(&self) -> bool {
        let is_alive = |pid: &u32| Task::of(&Live, *pid).stat().is_some_and(|stat| stat.is_alive());
        matches!(self.selection, Selection::Processes(pids) if !pids.iter().any(is_alive))
    }

    /// Returns the processes for which to read their groups: none if all are selected.
    fn of_groups(&self) -> Vec<u32> {
        let is_all = *self.selection == Selection::All;
        if is_all { Vec::new() } else { self.pids.iter().copied().collect() }
    }
}

struct Tracing<'a> {
    // The descriptors are closed before the instance is removed.
    rings: Rings,
    instance: &'a Instance,
    events: Events,
    waits: Waits,
    owners: Owners,
    collapses: BTreeMap<u64, u64>,
    held: Vec<(u64, u32, Step)>,
}

impl<'a> Tracing<'a> {
    fn new(instance: &'a Instance, rings: Rings, events: Events) -> Self {
        let (waits, owners) = (Waits::default(), Owners::default());
        Self {
            rings,
            instance,
            events,
            waits,
            owners,
            collapses: BTreeMap::new(),
            held: Vec::new(),
        }
    }

    /// Takes the events up to now, in order of time. Those of another processor that are later wait
    /// for the next round.
    fn round(&mut self) -> Result<(), StallsError> {
        let until_ns = now_ns();
        let Self { rings, events, held, .. } = self;
        let taken = rings.take(&mut |time_ns, data| {
            if let Some((tid, step)) = events.decode(data) {
                held.push((time_ns, tid, step));
            }
        });
        taken.map_err(os("read the trace buffers"))?;
        held.sort_by_key(|(time_ns, ..)| *time_ns);
        let nr_taken = held.partition_point(|(time_ns, ..)| *time_ns <= until_ns);
        let later = held.split_off(nr_taken);
        for (time_ns, tid, step) in std::mem::replace(&mut self.held, later) {
            self.take(time_ns, tid, step);
        }
        for wait in self.waits.settle(until_ns) {
            self.owners.add(&Live, &wait, &|tid| self.instance.comm_of(tid));
        }
        self.owners.end_round();
        Ok(())
    }

    fn take(&mut self, time_ns: u64, tid: u32, step: Step) {
        let Self { owners, waits, instance, .. } = self;
        let comm = |tid| instance.comm_of(tid);
        match step {
            Step::Throttled(us) => owners.throttled(&Live, (tid, us), &comm),
            Step::Wakes => owners.woke(&Live, tid, &comm),
            Step::Collapses(result) => *self.collapses.entry(result).or_default() += 1,
            _ => {
                if let Some(wait) = waits.take(tid, time_ns, step) {
                    owners.add(&Live, &wait, &comm);
                }
            }
        }
    }

    fn finish(mut self, choice: &Choice<'_>) -> Result<Stalls, StallsError> {
        self.round()?;
        let nr_headless = self.waits.nr_headless;
        let nr_lost = self.instance.nr_lost();
        let finished = self.waits.finish(now_ns(), nr_lost);
        for wait in finished.waits {
            self.owners.add(&Live, &wait, &|tid| self.instance.comm_of(tid));
        }
        let mut stalls = Stalls {
            nr_lost,
            nr_without_end: finished.nr_left_out,
            nr_headless,
            missing_events: self.events.missing,
            ..Stalls::default()
        };
        for (result, nr) in self.collapses {
            let name = self.events.results.get(&result).cloned();
            *stalls.collapses.entry(name.unwrap_or_else(|| result.to_string())).or_default() += nr;
        }
        for (owner, sums) in self.owners.sums {
            if owner.is_kernel || choice.has(&owner) {
                stalls.waiters.push((owner, sums));
            } else if owner.has_ended {
                stalls.ended.extend(&sums);
            } else {
                stalls.others.extend(&sums);
            }
        }
        stalls.waiters.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.total_ns()));
        let users = stalls.waiters.iter().filter(|(owner, _)| !owner.is_kernel);
        let pids: Vec<u32> = users.map(|(owner, _)| owner.pid).collect();
        stalls.limits = cgroup::limits(&Live, &pids);
        Ok(stalls)
    }
}
