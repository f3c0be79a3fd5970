//! One recording held against the model.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display, Formatter, Result as FmtResult};

use serde::Serialize;

use super::aside::{Asides, NotCompared};
use super::recording::{
    Action, AreaEnd, EVENT_AROUND, EVENT_ASYNC, EVENT_BASE, EVENT_HANDLER, EVENT_SYNC,
    EVENT_WINDOW, EntryLine, Recording, Run, Step, WindowLine,
};
use super::replay::{Replay, ReplayError, kernel_of};
use super::timing::{NR_WAITS_MAX, Timing};
use crate::kernel::Kernel;
use largefolio_mm::mapping::reserve::Kind;

/// Items of a list that a difference shows; the rest is counted.
const NR_SHOWN: usize = 12;
/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    /// Folios that entered the page cache after a step: index and order, in order.
    Insertions,
    /// What left the page cache because the program said so: folios after an advice, pages after the
    /// file was made shorter.
    Removals,
    /// Space reserved for the file before a write, on a filesystem that cuts writes by it.
    Reserved,
    /// Windows and base-order reads: start, size, marker, kept order.
    Windows,
    /// Calls of the two readahead entries: index, request and the whole state with the miss
    /// counter. An async call is a marker that was reached.
    Entries,
    /// Readahead state and miss counter at cold faults (self-built kernels print them).
    ColdStates,
    /// Cached pages found by the fault handler: marker and state (self-built kernels).
    HandlerHits,
    /// Passes of the fault handler; those not listed were served by fault-around or mapped.
    Handler,
    /// Runs of fault-around that found something to map: the pages looked at. A touch with neither
    /// such a run nor a pass of the handler found its page mapped.
    Around,
    /// Touches of a recorded program: each faulted in the kernel, so none may find its page mapped.
    Faults,
    /// Pages present at a marked point.
    Points,
    /// Pages present at the end.
    Mapped,
    /// Large folios behind the pages present at the end.
    Folios,
    /// KiB under PMD entries.
    PmdMapped,
    /// Major faults, over all steps.
    MajorFaults,
}

/// Something on which kernel and model differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What.
    pub aspect: Aspect,
    /// Step, from 0; the number of steps = at the end.
    pub step: usize,
    /// What the program did.
    pub action: String,
    /// Readahead state before, where there is one.
    pub state_before: Option<String>,
    /// What the kernel did.
    pub kernel: String,
    /// What the model did.
    pub model: String,
}

impl Display for Difference {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        writeln!(f, "step {} ({}): {:?} differ", self.step, self.action, self.aspect)?;
        if let Some(state) = &self.state_before {
            writeln!(f, "    state   {state}")?;
        }
        writeln!(f, "    kernel  {}", self.kernel)?;
        write!(f, "    model   {}", self.model)
    }
}

/// Result of one recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Recording.
    pub name: String,
    /// Kernel whose rules were used.
    pub rules: String,
    /// What is to be said where they are those of another version.
    pub rules_note: Option<String>,
    /// Steps replayed; replay stops at the first that differs.
    pub nr_steps: usize,
    /// Items compared.
    pub compared: BTreeMap<Aspect, u64>,
    /// Faults whose reads were complete sooner or later than the model's rule says, so that the
    /// kernel mapped more or fewer of the pages just read. Taken from the recording, one by one.
    pub nr_in_flight: u64,
    /// Touches that had to wait for a read in flight: the kernel entered its handler once more
    /// for a page that was cached. Taken from the recording, one by one.
    pub nr_waits: u64,
    /// What was left out, by reason: a recording says which calls no rule covers.
    pub not_compared: BTreeMap<String, NotCompared>,
    /// What differs, in the order of discovery.
    pub differences: Vec<Difference>,
}

impl Verdict {
    /// Whether kernel and model agree in everything compared.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }
}

/// Replays `recording` under `kernel`, or under the rules of the kernel that made it.
///
/// # Errors
/// When there are no rules for it or the model cannot be set up. A difference is not an error.
pub fn check(recording: &Recording, kernel: Option<&Kernel>) -> Result<Verdict, ReplayError> {
    let own;
    let kernel = if let Some(kernel) = kernel {
        kernel
    } else {
        own = kernel_of(recording)?;
        &own
    };
    if recording.is_empty() {
        return Err(ReplayError::NothingTraced(recording.name.clone()));
    }
    let mut timing = Timing::default();
    loop {
        let mut check = Check::new(recording, kernel, timing.clone())?;
        check.run();
        if !timing.learn(&check.found) {
            return Ok(check.verdict);
        }
    }
}

struct Check<'a> {
    recording: &'a Recording,
    replay: Replay,
    verdict: Verdict,
    asides: Asides,
    /// What would explain the differences by time alone.
    found: Timing,
    /// The kernel lacks pages at the end, for that reason.
    lacks: bool,
}

impl<'a> Check<'a> {
    fn new(recording: &'a Recording, kernel: &Kernel, timing: Timing) -> Result<Self, ReplayError> {
        let verdict = Verdict {
            name: recording.name.clone(),
            rules: kernel.name.clone(),
            rules_note: kernel.note.clone(),
            nr_waits: timing.waits.len() as u64,
            nr_in_flight: timing.nr_off_rule(),
            ..Verdict::default()
        };
        let replay = Replay::new(recording, kernel, timing)?;
        let (asides, found) = (Asides::default(), Timing::default());
        Ok(Self { recording, replay, verdict, asides, found, lacks: false })
    }

    fn run(&mut self) {
        for (nr, step) in self.recording.steps.iter().enumerate() {
            let was_cached = self.replay.may_be_in_flight(&step.action);
            let passes = self.step(nr, step);
            self.verdict.nr_steps = nr + 1;
            if self.verdict.is_equal() {
                continue;
            }
            let is_more = step.handler.len() > passes.len() && step.handler.starts_with(&passes);
            let is_wait = is_more
                && self
                    .verdict
                    .differences
                    .iter()
                    .all(|found| matches!(found.aspect, Aspect::Handler | Aspect::Around));
            if is_wait && was_cached {
                self.found.waits.insert(nr);
            }
            // A cold fault whose page was still being read when the fault was repeated: the model
            // needs no hint, the additional pass changes nothing.
            if is_wait && !was_cached && self.verdict.nr_waits < NR_WAITS_MAX as u64 {
                self.verdict.nr_waits += 1;
                self.verdict.differences.clear();
                continue;
            }
            return;
        }
        self.ends();
    }

    /// Compares one step; passes of the model's fault handler.
    fn step(&mut self, nr: usize, kernel: &Step) -> Vec<(u32, u64)> {
        let at = At {
            step: nr,
            action: described(&kernel.action),
            state_before: self.replay.state_before(&kernel.action).map(|state| {
                format!(
                    "start {} size {} async {} order {} miss {}",
                    state.start,
                    state.size,
                    state.async_size,
                    state.order,
                    state.mmap_miss()
                )
            }),
        };
        self.asides.note(&kernel.action, &mut self.verdict.not_compared);
        let file = self.replay.file_of(&kernel.action);
        let before = self.cached_before(&kernel.action);
        self.reserved(&at, kernel);
        let model = match self.replay.run(nr, kernel) {
            Ok(model) => model,
            Err(_) if self.asides.has(file) => return Vec::new(),
            Err(what) => {
                let difference = at.difference(Aspect::Insertions, "did it".to_owned(), what);
                self.verdict.differences.push(difference);
                return Vec::new();
            }
        };
        let cut = before.map(|before| self.cut(&before));
        let sides = |asides: &Asides| {
            (asides.rest(kernel, file).into_owned(), asides.rest(&model, file).into_owned())
        };
        let (theirs, ours) = sides(&self.asides);
        self.compare(&at, &theirs, &ours, cut.as_deref());
        let found = &mut self.verdict.not_compared;
        if !self.verdict.differences.is_empty() && self.asides.excuse((&theirs, &ours), file, found)
        {
            self.verdict.differences.clear();
            let (theirs, ours) = sides(&self.asides);
            self.compare(&at, &theirs, &ours, cut.as_deref());
        }
        model.handler
    }

    /// Compares what the kernel and the model did in one step; `cut` is what the model has cut off.
    fn compare(&mut self, at: &At, kernel: &Step, model: &Step, cut: Option<&[Run]>) {
        self.list(at, Aspect::Insertions, &kernel.insertions, &model.insertions);
        if let Some(cut) = cut {
            let removed = kernel.removals.iter();
            let removed = removed.map(|&(_, index, order)| (index, index + (1 << order) - 1));
            let mut theirs: Vec<Run> = removed.collect();
            theirs.sort_unstable();
            self.list(at, Aspect::Removals, &joined(theirs), cut);
        } else if kernel.action.removes() {
            self.list(at, Aspect::Removals, &kernel.removals, &model.removals);
        } else if let Err(what) = self.replay.follow_reclaim(kernel) {
            let difference = at.difference(Aspect::Insertions, "reclaimed it".to_owned(), what);
            self.verdict.differences.push(difference);
        }
        match self.recording.header.events {
            None => {
                self.list(at, Aspect::ColdStates, &kernel.cold, &model.cold);
                let hits: Vec<_> =
                    kernel.hits.iter().map(|hit| (hit.index, hit.is_marked, hit.state)).collect();
                let ours: Vec<_> =
                    model.hits.iter().map(|hit| (hit.index, hit.is_marked, hit.state)).collect();
                self.list(at, Aspect::HandlerHits, &hits, &ours);
                self.windows(at, kernel, model, EVENT_WINDOW | EVENT_BASE);
                self.list(at, Aspect::Handler, &kernel.handler, &model.handler);
            }
            Some(events) => {
                self.windows(at, kernel, model, events);
                self.entries(at, kernel, model, events);
                if events & EVENT_HANDLER != 0 && !self.recording.takes_io_in_flight() {
                    self.list(at, Aspect::Handler, &kernel.handler, &model.handler);
                    if events & EVENT_AROUND != 0 {
                        self.around(at, kernel, model);
                    }
                }
            }
        }
        if self.recording.header.program.is_some() && !self.recording.takes_io_in_flight() {
            self.list(at, Aspect::Faults, &kernel.faults(), &model.faults());
        }
        if let Action::Point(area) = kernel.action {
            let ours = self.replay.present(area);
            self.present(at, (Aspect::Points, area), &kernel.present, &ours);
        }
    }

    /// Compares runs of fault-around, and thereby whether the touched page was mapped. Where the
    /// fault had to wait for its page, nothing tells which neighbours were still being read.
    fn around(&mut self, at: &At, kernel: &Step, model: &Step) {
        let Action::Touch { index, area, .. } = kernel.action else { return };
        if self.replay.is_wait(at.step) {
            return;
        }
        self.list(at, Aspect::Around, &kernel.around, &model.around);
        let was_mapped = kernel.around.is_empty() && kernel.handler.is_empty();
        match (was_mapped, model.was_mapped) {
            (true, false) => self.explain_more(area, (index, index)),
            (false, true) => self.explain_less(area, (index, index)),
            _ => {}
        }
    }

    /// Notes the faults that left out pages of a mapping which the kernel has mapped.
    fn explain_more(&mut self, area: u32, (first, last): Run) {
        for index in first..=last {
            let Some((step, nr_requests)) = self.replay.early(area, index) else { return };
            let known = self.found.early.entry(step).or_default();
            *known = nr_requests.max(*known);
        }
    }

    /// Notes the faults that mapped pages of a mapping which the kernel has not mapped.
    fn explain_less(&mut self, area: u32, (first, last): Run) {
        for index in first..=last {
            let Some(step) = self.replay.late(area, index) else { return };
            let known = self.found.late.entry(step).or_insert(index);
            *known = index.min(*known);
        }
    }

    /// What is cached, before an action after which the model itself says what has left the cache.
    fn cached_before(&self, action: &Action) -> Option<BTreeSet<u64>> {
        matches!(action, Action::Truncate(_)).then(|| self.replay.cached_pages())
    }

    /// Compares what the earlier writes have reserved, where the model can know it.
    fn reserved(&mut self, at: &At, kernel: &Step) {
        let Some(told) = &kernel.extents else { return };
        let told = told.iter().filter(|extent| extent.kind == Kind::Reserved);
        let theirs: Vec<Run> = told.map(|extent| (extent.first, extent.end)).collect();
        // What the kernel has written back meanwhile is reserved no more.
        if let Some(ours) = self.replay.reserved().filter(|_| !theirs.is_empty()) {
            self.list(at, Aspect::Reserved, &theirs, &ours);
        }
    }

    /// What the model has cut off since.
    fn cut(&self, before: &BTreeSet<u64>) -> Vec<Run> {
        let now = self.replay.cached_pages();
        joined(before.difference(&now).map(|&index| (index, index)))
    }

    fn windows(&mut self, at: &At, kernel: &Step, model: &Step, events: u64) {
        let is_seen =
            |line: &&WindowLine| events & if line.is_base { EVENT_BASE } else { EVENT_WINDOW } != 0;
        let has_order = kernel.windows.iter().all(|line| line.is_base || line.order.is_some());
        let shown =
            |line: &WindowLine| WindowLine { order: line.order.filter(|_| has_order), ..*line };
        let theirs: Vec<_> = kernel.windows.iter().filter(is_seen).map(shown).collect();
        let ours: Vec<_> = model.windows.iter().filter(is_seen).map(shown).collect();
        self.list(at, Aspect::Windows, &theirs, &ours);
    }

    fn entries(&mut self, at: &At, kernel: &Step, model: &Step, events: u64) {
        if events & EVENT_SYNC == 0 || events & EVENT_ASYNC == 0 {
            return;
        }
        let shown = |line: &EntryLine| *line;
        let theirs: Vec<_> = kernel.entries.iter().map(shown).collect();
        let ours: Vec<_> = model.entries.iter().map(shown).collect();
        self.list(at, Aspect::Entries, &theirs, &ours);
    }

    fn list<T: PartialEq + Debug>(&mut self, at: &At, aspect: Aspect, kernel: &[T], model: &[T]) {
        *self.verdict.compared.entry(aspect).or_default() += kernel.len() as u64;
        if kernel != model {
            self.verdict.differences.push(at.difference(aspect, shown(kernel), shown(model)));
        }
    }

    /// Compares present pages. Without pauses, and on btrfs, which completes its reads page by page
    /// in a thread of its own, fault-around may have met some that were still being read.
    fn present(&mut self, at: &At, (aspect, area): (Aspect, u32), kernel: &[Run], model: &[Run]) {
        *self.verdict.compared.entry(aspect).or_default() += nr_pages(kernel);
        if kernel == model {
            return;
        }
        for run in beyond(kernel, model) {
            self.explain_more(area, run);
        }
        for run in beyond(model, kernel) {
            self.explain_less(area, run);
        }
        let header = &self.recording.header;
        let has_pauses = header.events.is_some() && header.settle_us > 0;
        let may_lack = header.filesystem == "btrfs" || !has_pauses;
        if may_lack && beyond(kernel, model).is_empty() {
            self.lacks |= aspect == Aspect::Mapped;
            return;
        }
        self.verdict.differences.push(at.difference(aspect, shown(kernel), shown(model)));
    }

    fn ends(&mut self) {
        for (&area, end) in &self.recording.ends {
            self.end(area, end);
        }
        let is_counted = self.recording.header.program.is_none();
        if let Some(kernel) = self.recording.header.nr_major.filter(|_| is_counted) {
            self.major_faults(kernel);
        }
    }

    fn major_faults(&mut self, kernel: u64) {
        let ours = self.replay.nr_major();
        // Where the handler is not traced, the model was told to wait at every hit.
        let may_be_more = self.recording.is_slow() && !self.recording.shows_handler();
        if may_be_more && kernel <= ours {
            return;
        }
        let at = At {
            step: self.recording.steps.len(),
            action: "all steps".to_owned(),
            state_before: None,
        };
        self.list(&at, Aspect::MajorFaults, &[kernel], &[ours]);
    }

    fn end(&mut self, area: u32, end: &AreaEnd) {
        let at = At {
            step: self.recording.steps.len(),
            action: format!("mapping {area} at the end"),
            state_before: None,
        };
        let ours = self.replay.present(area);
        let touched;
        let kernel = if let Some(runs) = &end.present {
            runs
        } else {
            touched = touched_pages(&self.recording.steps, area);
            &touched
        };
        self.present(&at, (Aspect::Mapped, area), kernel, &ours);
        if self.lacks {
            self.verdict.nr_in_flight += 1;
            return;
        }
        if !end.folios.is_empty() {
            let ours = self.replay.folio_runs(area);
            self.list(&at, Aspect::Folios, &end.folios, &ours);
        }
        if let Some(kib) = end.pmd_kib {
            let ours = self.replay.pmd_kib(area);
            self.list(&at, Aspect::PmdMapped, &[kib], &[ours]);
        }
    }
}

/// Where a comparison stands.
struct At {
    step: usize,
    action: String,
    state_before: Option<String>,
}

impl At {
    fn difference(&self, aspect: Aspect, kernel: String, model: String) -> Difference {
        let Self { step, action, state_before } = self;
        let (action, state_before) = (action.clone(), state_before.clone());
        Difference { aspect, step: *step, action, state_before, kernel, model }
    }
}

/// What a step did, for people.
fn described(action: &Action) -> String {
    match action {
        Action::Touch { index, area: 0, .. } => format!("touch page {index}"),
        Action::Touch { index, area, .. } => format!("touch page {index} of mapping {area}"),
        Action::Read(io) => format!("read {} bytes at {}", io.len_bytes, io.pos),
        Action::Write(io) => format!("write {} bytes at {}", io.len_bytes, io.pos),
        other => format!("{other:?}"),
    }
}

fn shown<T: Debug>(items: &[T]) -> String {
    match items.get(..NR_SHOWN) {
        Some(first) if items.len() > NR_SHOWN => {
            format!("{first:?} and {} more", items.len() - NR_SHOWN)
        }
        _ => format!("{items:?}"),
    }
}

fn nr_pages(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.1 - run.0 + 1).sum()
}

/// The parts of `runs` that no run of `of` covers; both ascend.
fn beyond(runs: &[Run], of: &[Run]) -> Vec<Run> {
    let mut parts = Vec::new();
    for &(first, last) in runs {
        let mut next = first;
        for &(from, to) in of.iter().filter(|run| run.1 >= first && run.0 <= last) {
            if next < from {
                parts.push((next, from - 1));
            }
            next = to + 1;
        }
        if next <= last {
            parts.push((next, last));
        }
    }
    parts
}

/// Exactly the pages that were touched, as runs.
fn touched_pages(steps: &[Step], of: u32) -> Vec<Run> {
    let touched: BTreeSet<u64> = steps
        .iter()
        .filter_map(|step| match step.action {
            Action::Touch { index, area, .. } if area == of => Some(index),
            _ => None,
        })
        .collect();
    joined(touched.into_iter().map(|index| (index, index)))
}

/// Ascending runs, those that touch as one.
fn joined(of: impl IntoIterator<Item = Run>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (first, last) in of {
        match runs.last_mut() {
            Some(run) if run.1 + 1 == first => run.1 = last,
            _ => runs.push((first, last)),
        }
    }
    runs
}
