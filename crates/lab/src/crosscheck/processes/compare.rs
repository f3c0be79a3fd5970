//! Compares the kernel's state after a step with the model's.
//!
//! Page frame numbers are not compared, because a freed page may or may not be reused immediately.
//! Two facts derived from them are:
//! - whether a page that was present before and after a step kept its pfn, and
//! - which pages of which processes are the same physical page.

use std::collections::BTreeMap;

use largefolio_mm::rules::reclaim::FreedSlots;
use largefolio_mm::rules::zswap::ZswapLoad;
use rayon::prelude::*;

use super::limit::SwapNumbers;
use super::program::{FileKind, ProcessOp, ProcessStep};
use super::range::NR_SLOTS;
use super::replay::ProgramReplay;
use super::run::{ProgramRun, Programs, StepResult};
use super::shmem::CachedFolio;
use super::statistics::{AllAreas, AreaNumbers, MachineKib, Recorded};
use super::world::{MappedPage, PageState, PoolState, World};
use super::zswap::ZswapNumbers;
use crate::crosscheck::difference::{Aspect, Location};
use crate::crosscheck::error::CheckError;
use crate::crosscheck::recording::Recording;
use crate::crosscheck::verdict::Verdict;
use largefolio_sim::kernel::Kernel;

impl Recording<Programs> {
    /// Replays each program under `kernel`, or under the recorded kernel's rules. Compares after
    /// each step, up to the first difference.
    ///
    /// # Errors
    /// There are no rules for it, or the model cannot be set up. A difference is not an error.
    pub fn check(&self, kernel: Option<&Kernel>) -> Result<Vec<Verdict>, CheckError> {
        let kernel = self.rules(kernel)?;
        let one = |run| Ok(ProgramComparison::new(self, &kernel, run)?.run());
        self.body.runs.par_iter().map(one).collect()
    }
}

/// Error of a call that may succeed later.
const EAGAIN: u32 = 11;

struct ProgramComparison<'a> {
    run: &'a ProgramRun,
    replay: ProgramReplay,
    verdict: Verdict,
    pair: Worlds,
    /// Cached pages of the program's own file, from the kernel.
    nr_cached: u64,
    /// Cached pages in PMD-sized folios, if the kernel reports them.
    nr_huge: Option<u64>,
    /// Cached folios of the own file, if it is in memory, from the kernel.
    folios: Vec<CachedFolio>,
    swap: SwapNumbers,
    /// `None` on a machine without zswap.
    zswap: Option<ZswapNumbers>,
    hides_pooled: bool,
    /// Freed slots count as used until their batch is released.
    hides_freed: bool,
    hides_pmds: bool,
    recorded: Recorded,
    areas: AllAreas,
}

impl<'a> ProgramComparison<'a> {
    fn new(
        recording: &Recording<Programs>,
        kernel: &Kernel,
        run: &'a ProgramRun,
    ) -> Result<Self, CheckError> {
        let program = &run.program;
        let mut world = World::new(program.nr_pages);
        world.pool = program.huge.map(|huge| PoolState {
            nr_free: huge.nr_pages(),
            nr_reserved: huge.nr_lost,
            nr_surplus: 0,
        });
        let name = format!("{} program {}", recording.name, program.seed);
        Ok(Self {
            run,
            replay: ProgramReplay::new(program, kernel, recording)?,
            verdict: Verdict::new(name, kernel),
            pair: Worlds { kernel: world.clone(), model: world },
            nr_cached: 0,
            nr_huge: None,
            folios: Vec::new(),
            swap: SwapNumbers::default(),
            zswap: recording.body.zswap.map(|_| ZswapNumbers::default()),
            hides_pooled: kernel.rules.zswap.load == ZswapLoad::Kept,
            hides_freed: kernel.rules.reclaim.freed_slots == FreedSlots::Batched,
            hides_pmds: recording.body.hides_pmds,
            recorded: recording.body.recorded,
            areas: AllAreas::default(),
        })
    }

    fn run(mut self) -> Verdict {
        let steps = &self.run.program.steps;
        for (step, result) in steps.iter().zip(&self.run.results) {
            if self.is_spent_on_others(result) {
                break;
            }
            let before = self.folios_before(result);
            let nr_cached = self.replay.nr_cached();
            let model_error = self.replay.step(step).err();
            let reads = nr_cached.is_some() && self.replay.nr_cached() > nr_cached;
            let is_met =
                reads && has_met_read(result) || has_met_flush(result, nr_cached.is_some());
            self.step(step, result, model_error);
            self.verdict.nr_steps += 1;
            let is_shrunk = self.replay.is_pool_shrunk() && self.swap.nr_out > 0;
            let is_timed = is_met || reads && self.is_fault_around(step) || is_shrunk;
            if !self.verdict.is_equal() && is_timed {
                // Timing decided the step, because a read or a write was in flight. Stop comparing.
                self.verdict.differences.clear();
                self.verdict.nr_in_flight += 1;
                break;
            }
            // Checking the model's own invariants costs more than a step, so only check them at the
            // end.
            if self.verdict.nr_steps == steps.len() {
                self.invariants(step);
            }
            if !self.verdict.is_equal() {
                self.add_folios_before(&before);
                break;
            }
        }
        self.verdict
    }

    fn step(&mut self, step: &ProcessStep, result: &StepResult, model_error: Option<u32>) {
        let mut kernel = self.pair.kernel.clone();
        result.apply(&mut kernel);
        let model = self.replay.world();
        let before = std::mem::replace(&mut self.pair, Worlds { kernel, model });
        self.compare_results(step, result, model_error);
        self.faults(step, result, model_error);
        self.cached(step, result);
        self.cached_folios(step, result);
        self.pool(step);
        self.scanned(step, result);
        self.swapped(step, result);
        self.zswapped(step, result);
        let compared = ComparedPages {
            hides_pmds: self.hides_pmds,
            has_nodes: self.run.program.nodes.is_some(),
        };
        self.pair.compare(compared, &mut self.verdict);
        // A page that was swapped out and in may have its old pfn again.
        if self.swap.nr_in == 0 {
            self.pair.compare_frames(&before, &mut self.verdict);
        }
        if self.recorded.has_processes {
            self.pair.compare_mapcounts(&mut self.verdict);
            result.apply_areas(&mut self.areas);
            self.areas();
        }
        if self.recorded.has_machine {
            self.machine(result);
        }
    }

    fn faults(&mut self, step: &ProcessStep, result: &StepResult, model_error: Option<u32>) {
        let Some(kernel) = result.nr_faults.filter(|_| model_error.is_none()) else { return };
        let model = self.replay.nr_faults();
        self.verdict.count(Aspect::NrFaults, kernel);
        if kernel != model {
            let text = |nr: u64| format!("{nr} faults");
            let at = Location::page(step.slot, 0);
            self.verdict.differ(Aspect::NrFaults, at, text(kernel), text(model));
        }
    }

    fn areas(&mut self) {
        let program = &self.run.program;
        let has = |is: fn(ProcessOp) -> bool| program.steps.iter().any(|step| is(step.op));
        let spreads = has(|op| matches!(op, ProcessOp::Free(_)))
            && has(|op| matches!(op, ProcessOp::Protect(..)));
        // The kernel writes a file on a disk back at times of its own.
        let is_on_disk = program.own_file.is_some_and(|own| own.kind == FileKind::Disk);
        let tells_dirty = !spreads && !is_on_disk;
        for (slot, areas) in self.areas.iter().enumerate() {
            for area in areas {
                let Some(model) = self.replay.smaps(slot, area.pages) else { break };
                let model = AreaNumbers::of_model(&model, &area.numbers);
                let pair = [area.numbers, model];
                let [kernel, model] =
                    if tells_dirty { pair } else { pair.map(AreaNumbers::without_dirty) };
                self.verdict.count(Aspect::Smaps, 1);
                if model != kernel {
                    let at = Location::page(slot, area.pages.first);
                    let (kernel, model) = (kernel.to_string(), model.to_string());
                    self.verdict.differ(Aspect::Smaps, at, kernel, model);
                }
            }
        }
    }

    fn machine(&mut self, result: &StepResult) {
        let (Some(before), Some(after)) = (self.run.machine_before, result.machine) else {
            return;
        };
        // For a `MADV_FREE` step, the probe collapses a range of its own.
        if self.run.program.steps.iter().any(|step| matches!(step.op, ProcessOp::Free(_))) {
            return;
        }
        let (kernel, model): (MachineKib, _) = (after.since(before), self.replay.machine());
        self.verdict.count(Aspect::Machine, 1);
        if kernel != model {
            let (at, kernel, model) = (Location::page(0, 0), kernel.to_string(), model.to_string());
            self.verdict.differ(Aspect::Machine, at, kernel, model);
        }
    }

    /// Compares whether the step was allowed; for a collapse also the error number, which is its
    /// reason.
    fn compare_results(&mut self, step: &ProcessStep, result: &StepResult, model: Option<u32>) {
        let kernel = result.error;
        let is_equal = match step.op {
            ProcessOp::Collapse(_) | ProcessOp::CollapseTo(..) => kernel == model,
            _ => kernel.is_some() == model.is_some(),
        };
        if !is_equal {
            let text = |error: Option<u32>| match error {
                Some(nr) => format!("error {nr}"),
                None => "done".to_owned(),
            };
            let at = Location::page(step.slot, 0);
            self.verdict.differ(Aspect::Answer, at, text(kernel), text(model));
        }
    }

    fn cached(&mut self, step: &ProcessStep, result: &StepResult) {
        self.nr_cached = result.nr_cached.unwrap_or(self.nr_cached);
        self.nr_huge = result.nr_huge.or(self.nr_huge);
        let Some((nr_cached, nr_huge)) = self.replay.nr_cached() else { return };
        let kernel = (self.nr_cached, self.nr_huge);
        let model = (nr_cached, kernel.1.map(|_| nr_huge));
        if model != kernel {
            let text = |(nr, huge): (u64, Option<u64>)| {
                let huge =
                    huge.map_or_else(String::new, |nr| format!(", {nr} in PMD-sized folios"));
                format!("{nr} pages{huge}")
            };
            let at = Location::page(step.slot, 0);
            self.verdict.differ(Aspect::Cached, at, text(kernel), text(model));
        }
    }

    fn cached_folios(&mut self, step: &ProcessStep, result: &StepResult) {
        if !self.run.program.sets_shmem() {
            return;
        }
        if let Some(folios) = &result.folios {
            self.folios.clone_from(folios);
        }
        let model = self.replay.cached_folios();
        self.verdict.count(Aspect::Cached, self.folios.len() as u64);
        if model != self.folios {
            let (kernel, model) = (CachedFolio::text(&self.folios), CachedFolio::text(&model));
            self.verdict.differ(Aspect::Cached, Location::page(step.slot, 0), kernel, model);
        }
    }

    fn pool(&mut self, step: &ProcessStep) {
        let (Some(kernel), Some(model)) = (self.pair.kernel.pool, self.pair.model.pool) else {
            return;
        };
        self.verdict.count(Aspect::Pool, 1);
        if kernel != model {
            let text = |pool: PoolState| {
                let PoolState { nr_free, nr_reserved, nr_surplus } = pool;
                let reserved = nr_reserved.cast_signed();
                format!("{nr_free} free, {reserved} reserved, {nr_surplus} surplus")
            };
            let at = Location::page(step.slot, 0);
            self.verdict.differ(Aspect::Pool, at, text(kernel), text(model));
        }
    }

    /// Returns whether khugepaged spent part of its scan budget on other processes. Nothing from
    /// here on is compared.
    fn is_spent_on_others(&self, result: &StepResult) -> bool {
        let is_limited = self.run.program.khugepaged.is_some_and(|limits| limits.pages > 0);
        is_limited && result.scan.is_of_others
    }

    /// Returns whether the only differences are pages that fault-around mapped: the step's reads
    /// completed sooner or later than in the model (docs/design/fidelity.md, "In flight").
    fn is_fault_around(&self, step: &ProcessStep) -> bool {
        let follows =
            |aspect| matches!(aspect, Aspect::Presence | Aspect::Smaps | Aspect::Mapcount);
        matches!(step.op, ProcessOp::Read(_))
            && self.verdict.differences.iter().all(|one| follows(one.aspect))
    }

    fn scanned(&mut self, step: &ProcessStep, result: &StepResult) {
        let Some(model) = self.replay.take_scan() else { return };
        let (at, kernel) = (Location::page(step.slot, 0), &result.scan);
        self.verdict.compare(Aspect::Scan, &at, &kernel.visits, &model.visits);
        let recorded = (kernel.nr_passes, kernel.nr_collapsed);
        let expected = (model.nr_passes, model.nr_collapsed.filter(|_| recorded.1.is_some()));
        if recorded != expected {
            let text = |(passes, made): (u64, Option<u64>)| {
                let made = made.map_or_else(String::new, |nr| format!(", {nr} blocks collapsed"));
                format!("{passes} passes{made}")
            };
            self.verdict.differ(Aspect::Scan, at, text(recorded), text(expected));
        }
    }

    fn swapped(&mut self, step: &ProcessStep, result: &StepResult) {
        let Some(model) = self.replay.swap_numbers() else { return };
        let kernel = result.swap.unwrap_or(self.swap.still());
        self.swap = kernel;
        self.verdict.count(Aspect::Swap, kernel.nr_in + kernel.nr_out);
        // If freed slots are released in batches, the count depends on other programs.
        let model =
            if self.hides_freed { SwapNumbers { nr_used: kernel.nr_used, ..model } } else { model };
        if kernel != model {
            let at = Location::page(step.slot, 0);
            self.verdict.differ(Aspect::Swap, at, kernel.to_string(), model.to_string());
        }
    }

    fn zswapped(&mut self, step: &ProcessStep, result: &StepResult) {
        let Some(before) = self.zswap else { return };
        let kernel = result.zswap.unwrap_or(before.still());
        self.zswap = Some(kernel);
        let model = self.replay.zswap_numbers();
        self.verdict.count(Aspect::Zswap, kernel.nr_in + kernel.nr_out + kernel.nr_back);
        // Up to 6.1, the pages of freed slots stay in the pool until the slots' batch is released.
        let nr_stored = if self.hides_pooled { kernel.nr_stored } else { model.nr_stored };
        let model = ZswapNumbers { nr_stored, ..model };
        if kernel != model {
            let at = Location::page(step.slot, 0);
            self.verdict.differ(Aspect::Zswap, at, kernel.to_string(), model.to_string());
        }
    }

    fn invariants(&mut self, step: &ProcessStep) {
        if let Err(violation) = self.replay.validate() {
            let (at, model) = (Location::page(step.slot, 0), format!("{violation:?}"));
            self.verdict.differ(Aspect::Invariant, at, String::new(), model);
        }
    }

    fn folios_before(&self, result: &StepResult) -> BTreeMap<(usize, u64), String> {
        let changed = result.changes.iter().take(NR_TOLD);
        let folio = |slot, page| Some(((slot, page), self.replay.folio_of(slot, page)?));
        changed.filter_map(|change| folio(change.slot, change.pages.first)).collect()
    }

    fn add_folios_before(&mut self, before: &BTreeMap<(usize, u64), String>) {
        for difference in &mut self.verdict.differences {
            if let Location::Page { slot, page, folio_before } = &mut difference.place {
                *folio_before = before.get(&(*slot, *page)).cloned().unwrap_or_default();
            }
        }
    }
}

/// Returns whether a collapse found a locked page, which may be one whose read it has just started.
fn has_met_read(result: &StepResult) -> bool {
    let is_locked = |visit: &String| visit.ends_with(" f page_lock");
    result.error == Some(EAGAIN) || result.scan.visits.iter().any(is_locked)
}

/// Returns whether khugepaged started writeback of a file on disk and then scanned other ranges:
/// their pages may be clean by then.
fn has_met_flush(result: &StepResult, is_on_disk: bool) -> bool {
    let begins =
        |visit: &String| visit.ends_with(" f fail") || visit.ends_with("dirty_or_writeback");
    let visits = &result.scan.visits;
    let first = visits.iter().position(begins);
    is_on_disk && first.is_some_and(|first| first + 1 < visits.len())
}

/// Number of changes per step for which the previous folio is reported.
const NR_TOLD: usize = 8;

/// The facts about pages that a recording has.
#[derive(Clone, Copy)]
struct ComparedPages {
    hides_pmds: bool,
    has_nodes: bool,
}

struct Worlds {
    kernel: World,
    model: World,
}

impl Worlds {
    fn pages(&self) -> impl Iterator<Item = ((usize, u64), PageState, PageState)> {
        (0..NR_SLOTS).flat_map(move |slot| {
            let pages = self.kernel.slots[slot].iter().zip(&self.model.slots[slot]);
            (0..).zip(pages).map(move |(page, (kernel, model))| ((slot, page), *kernel, *model))
        })
    }

    fn compare(
        &self,
        ComparedPages { hides_pmds, has_nodes }: ComparedPages,
        verdict: &mut Verdict,
    ) {
        // Maps each side's folio label to the other's.
        let mut to_model = BTreeMap::new();
        let mut to_kernel = BTreeMap::new();
        for (at, kernel, model) in self.pages() {
            verdict.count(Aspect::Presence, u64::from(kernel.page != MappedPage::Absent));
            let mut differ = |aspect, kernel: String, model: String| {
                verdict.differ(aspect, Location::page(at.0, at.1), kernel, model);
            };
            if kind(kernel) != kind(model) {
                differ(Aspect::Presence, kind(kernel).to_owned(), kind(model).to_owned());
                continue;
            }
            if place(kernel.page) != place(model.page) {
                let text = |(order, index)| format!("order {order} page {index}");
                differ(Aspect::Folio, text(place(kernel.page)), text(place(model.page)));
            }
            if kernel.is_exclusive != model.is_exclusive {
                let text = |is| if is { "exclusive" } else { "not exclusive" }.to_owned();
                differ(Aspect::Exclusive, text(kernel.is_exclusive), text(model.is_exclusive));
            }
            if kernel.node != model.node && has_nodes {
                let text = |node: u8| format!("node {node}");
                differ(Aspect::Node, text(kernel.node), text(model.node));
            }
            if kernel.is_pmd != model.is_pmd && !hides_pmds {
                let text = |is| if is { "PMD" } else { "PTE" }.to_owned();
                differ(Aspect::Pmd, text(kernel.is_pmd), text(model.is_pmd));
            }
            let (Some(ours), Some(theirs)) = (label(model.page), label(kernel.page)) else {
                continue;
            };
            if let (Some(kernel), Some(model)) = (kernel.sum, model.sum)
                && kernel != model
            {
                differ(Aspect::Content, kernel.to_string(), model.to_string());
            }
            let mappings = (self.kernel.counts.get(&theirs), self.model.counts.get(&ours));
            if let (Some(kernel), Some(model)) = mappings
                && kernel != model
            {
                differ(Aspect::Mapcount, kernel.to_string(), model.to_string());
            }
            let known = *to_model.entry(theirs).or_insert(ours);
            let back = *to_kernel.entry(ours).or_insert(theirs);
            if (known, back) != (ours, theirs) {
                let text = |label: u64, known| format!("folio {label} (known as {known})");
                differ(Aspect::Sharing, text(theirs, back), text(ours, known));
            }
        }
    }

    fn compare_mapcounts(&self, verdict: &mut Verdict) {
        for ((slot, page), kernel, model) in self.pages() {
            if label(kernel.page).is_none() || label(model.page).is_none() {
                continue;
            }
            verdict.count(Aspect::Mapcount, 1);
            if kernel.mapcount != model.mapcount {
                let text = |nr: u32| format!("mapped {nr} times");
                let at = Location::page(slot, page);
                verdict.differ(Aspect::Mapcount, at, text(kernel.mapcount), text(model.mapcount));
            }
        }
    }

    fn compare_frames(&self, before: &Self, verdict: &mut Verdict) {
        for (((slot, page), kernel, model), (_, kernel_was, model_was)) in
            self.pages().zip(before.pages())
        {
            let same = |was: PageState, now: PageState| is_same(was.page, now.page);
            let (Some(kernel), Some(model)) = (same(kernel_was, kernel), same(model_was, model))
            else {
                continue;
            };
            verdict.count(Aspect::Frame, u64::from(!kernel));
            if kernel != model {
                let text = |is| if is { "same frame" } else { "new frame" }.to_owned();
                verdict.differ(
                    Aspect::Frame,
                    Location::page(slot, page),
                    text(kernel),
                    text(model),
                );
            }
        }
    }
}

/// Returns whether a page kept its pfn; `None` unless both are pages of a folio.
fn is_same(before: MappedPage, after: MappedPage) -> Option<bool> {
    label(before).zip(label(after))?;
    let frame = |page| match page {
        MappedPage::Folio { label, index, .. } => (label, index),
        _ => (0, 0),
    };
    Some(frame(before) == frame(after))
}

fn kind(state: PageState) -> &'static str {
    match state.page {
        MappedPage::Absent => "absent",
        MappedPage::Swapped => "swapped",
        MappedPage::Zero => "zero page",
        MappedPage::HugeZero { .. } => "huge zero folio",
        MappedPage::Folio { .. } if state.is_file => "page of the file",
        MappedPage::Folio { .. } => "anonymous page",
    }
}

/// Returns the folio's order and the page's index in it.
fn place(page: MappedPage) -> (u8, u32) {
    match page {
        MappedPage::Folio { order, index, .. } => (order, index),
        MappedPage::HugeZero { index } => (0, index),
        MappedPage::Absent | MappedPage::Swapped | MappedPage::Zero => (0, 0),
    }
}

fn label(page: MappedPage) -> Option<u64> {
    match page {
        MappedPage::Folio { label, .. } => Some(label),
        _ => None,
    }
}
