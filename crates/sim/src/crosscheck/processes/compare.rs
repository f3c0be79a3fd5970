//! What the kernel has after a step, held against what the model has.
//!
//! Page frame numbers themselves are not compared: a freed frame may be handed out again at once,
//! or not. What is compared of them is
//! - whether a page that was present before and after a step kept its frame, and
//! - which pages of which processes are the same page.

use std::collections::BTreeMap;
use std::fmt;

use largefolio_mm::memory::MemoryError;
use serde::Serialize;

use super::program::{NR_SLOTS, Op, Program, Step};
use super::recording::{Answer, Header, Recording, Run};
use super::replay::Replay;
use super::world::{Page, PageState, World};
use crate::kernel::{Kernel, KernelError};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    /// Whether the step was allowed.
    Answer,
    /// Whether a page is mapped, and to what: zero page, folio, page of the file.
    Presence,
    /// Order of the folio, and which page of it.
    Folio,
    /// The exclusive bit.
    Exclusive,
    /// Whether a PMD entry maps it.
    Pmd,
    /// Same or new frame.
    Frame,
    /// What the page holds.
    Content,
    /// How much of the program's own file is cached.
    Cached,
    /// Which pages are one page.
    Sharing,
    /// The model broke its own invariants.
    Invariant,
}

/// Pages of one process in which kernel and model differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// In what.
    pub aspect: Aspect,
    /// Process.
    pub slot: usize,
    /// Page of the window.
    pub page: u64,
    /// What the kernel shows.
    pub kernel: String,
    /// What the model shows.
    pub model: String,
    /// The model's folio behind the page before the step.
    pub before: String,
}

/// The outcome for one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Its seed.
    pub seed: u64,
    /// Sizes enabled, in KiB.
    pub sizes_kib: Vec<u64>,
    /// Steps compared.
    pub nr_steps: usize,
    /// Pages compared over all steps.
    pub nr_pages: u64,
    /// Pages that got a new frame.
    pub nr_new_frames: u64,
    /// Events of the machine that disturbed the program.
    pub disturbances: Vec<String>,
    /// Text of the step that differs.
    pub step: Option<String>,
    /// What differs after that step; nothing after it is compared.
    pub differences: Vec<Difference>,
}

impl Verdict {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.step.as_deref().unwrap_or("-");
        write!(
            f,
            "program {} ({:?} KiB) step {}: {step}",
            self.seed, self.sizes_kib, self.nr_steps
        )?;
        for event in &self.disturbances {
            write!(f, " [{event}]")?;
        }
        for d in self.differences.iter().take(6) {
            let Difference { aspect, slot, page, kernel, model, before } = d;
            write!(f, "\n  {aspect:?} of {slot}:{page}: kernel {kernel}, model {model}")?;
            if !before.is_empty() {
                write!(f, "\n    before: {before}")?;
            }
        }
        if self.differences.len() > 6 {
            write!(f, "\n  and {} more", self.differences.len() - 6)?;
        }
        Ok(())
    }
}

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// No rules for a kernel so old, or a release that is no version.
    #[error("no rules for kernel {0:?}: the oldest known is 6.1; name the rules with --kernel")]
    UnknownKernel(String),
    /// The rules could not be loaded.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The model could not be set up.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// The rules for the kernel that made `recording`: the newest known version that is not newer.
///
/// # Errors
/// When there are none.
pub fn kernel_of(recording: &Recording) -> Result<Kernel, CheckError> {
    let header = &recording.header;
    match Kernel::of_release(&header.release, header.page_bytes) {
        Some(kernel) => Ok(kernel?),
        None => Err(CheckError::UnknownKernel(header.release.clone())),
    }
}

/// Replays one program of a recording with this header and compares after each step, up to the
/// first difference.
///
/// # Errors
/// When the model cannot be set up.
pub fn check(run: &Run, kernel: &Kernel, header: &Header) -> Result<Verdict, CheckError> {
    let Program { seed, nr_pages, sizes_kib, .. } = &run.program;
    let mut verdict = Verdict {
        seed: *seed,
        sizes_kib: sizes_kib.clone(),
        nr_steps: 0,
        nr_pages: 0,
        nr_new_frames: 0,
        disturbances: run.disturbances.clone(),
        step: None,
        differences: Vec::new(),
    };
    let mut replay = Replay::new(&run.program, kernel, header)?;
    let mut nr_cached = 0;
    let mut kernel_world = World::new(*nr_pages);
    let mut model_world = World::new(*nr_pages);
    for (step, answer) in run.program.steps.iter().zip(&run.answers) {
        let (kernel, model) = (kernel_world.clone(), World::new(0));
        let mut pair = Pair { kernel, model, hides_pmds: header.hides_pmds };
        answer.apply(&mut pair.kernel);
        nr_cached = answer.nr_cached.unwrap_or(nr_cached);
        let before: Vec<_> = folios_before(&replay, answer);
        let answered = replay.step(step).err();
        pair.model = replay.world();
        let mut found = Vec::new();
        compare_answers(answer, answered, step, &mut found);
        let model = replay.nr_cached();
        if model.is_some_and(|model| model != nr_cached) {
            let text = |nr: u64| format!("{nr} pages");
            let model = text(model.unwrap_or(0));
            found.push(difference(Aspect::Cached, (step.slot, 0), text(nr_cached), model));
        }
        verdict.nr_pages += pair.compare(&mut found);
        verdict.nr_new_frames += pair.compare_frames((&kernel_world, &model_world), &mut found);
        // The model's own invariants cost more than the step: they are held at the end.
        let is_last = verdict.nr_steps + 1 == run.program.steps.len();
        if let Some(violation) = is_last.then(|| replay.validate().err()).flatten() {
            let model = format!("{violation:?}");
            found.push(difference(Aspect::Invariant, (step.slot, 0), String::new(), model));
        }
        verdict.nr_steps += 1;
        if !found.is_empty() {
            for d in &mut found {
                let known = before.iter().find(|(at, _)| *at == (d.slot, d.page));
                d.before = known.map_or_else(String::new, |(_, text)| text.clone());
            }
            verdict.step = Some(step.to_string());
            verdict.differences = found;
            break;
        }
        kernel_world = pair.kernel;
        model_world = pair.model;
    }
    Ok(verdict)
}

/// The model's folios behind the first pages that the step changes.
fn folios_before(replay: &Replay, answer: &Answer) -> Vec<((usize, u64), String)> {
    let changed = answer.changes.iter().take(8);
    let folio = |(slot, page)| Some(((slot, page), replay.folio_of(slot, page)?));
    changed.filter_map(|change| folio((change.slot, change.range.first))).collect()
}

fn difference(
    aspect: Aspect,
    (slot, page): (usize, u64),
    kernel: String,
    model: String,
) -> Difference {
    Difference { aspect, slot, page, kernel, model, before: String::new() }
}

/// Whether the step was allowed; of a collapse also the error number, which says why not.
fn compare_answers(answer: &Answer, model: Option<u32>, step: &Step, found: &mut Vec<Difference>) {
    let is_equal = match step.op {
        Op::Collapse(_) => answer.error == model,
        _ => answer.error.is_some() == model.is_some(),
    };
    if !is_equal {
        let text = |error: Option<u32>| error.map_or("done".to_owned(), |nr| format!("error {nr}"));
        found.push(difference(Aspect::Answer, (step.slot, 0), text(answer.error), text(model)));
    }
}

/// Kernel and model after the same step.
struct Pair {
    kernel: World,
    model: World,
    hides_pmds: bool,
}

impl Pair {
    /// Every page of every process.
    fn pages(&self) -> impl Iterator<Item = ((usize, u64), PageState, PageState)> {
        (0..NR_SLOTS).flat_map(move |slot| {
            let pages = self.kernel.slots[slot].iter().zip(&self.model.slots[slot]);
            (0..).zip(pages).map(move |(page, (kernel, model))| ((slot, page), *kernel, *model))
        })
    }

    /// Compares what is mapped; how many pages are.
    fn compare(&self, found: &mut Vec<Difference>) -> u64 {
        let mut nr_present = 0;
        // Names of one folio on either side.
        let mut to_model = BTreeMap::new();
        let mut to_kernel = BTreeMap::new();
        for (at, kernel, model) in self.pages() {
            nr_present += u64::from(kernel.page != Page::Absent);
            let mut differ = |aspect, kernel: String, model: String| {
                found.push(difference(aspect, at, kernel, model));
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
            if kernel.is_pmd != model.is_pmd && !self.hides_pmds {
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
            let known = *to_model.entry(theirs).or_insert(ours);
            let back = *to_kernel.entry(ours).or_insert(theirs);
            if (known, back) != (ours, theirs) {
                let text = |label: u64, known| format!("folio {label} (known as {known})");
                differ(Aspect::Sharing, text(theirs, back), text(ours, known));
            }
        }
        nr_present
    }

    /// Compares which pages kept their frame; how many did not.
    fn compare_frames(&self, before: (&World, &World), found: &mut Vec<Difference>) -> u64 {
        let mut nr_new = 0;
        for ((slot, page), kernel, model) in self.pages() {
            let was = |world: &World| world.slots[slot][page as usize].page;
            let (Some(kernel), Some(model)) =
                (is_same(was(before.0), kernel.page), is_same(was(before.1), model.page))
            else {
                continue;
            };
            nr_new += u64::from(!kernel);
            if kernel != model {
                let text = |is| if is { "same frame" } else { "new frame" }.to_owned();
                found.push(difference(Aspect::Frame, (slot, page), text(kernel), text(model)));
            }
        }
        nr_new
    }
}

/// Whether a page kept its frame; `None` where it was or is none of a folio.
fn is_same(before: Page, after: Page) -> Option<bool> {
    label(before).zip(label(after))?;
    let frame = |page| match page {
        Page::Folio { label, index, .. } => (label, index),
        _ => (0, 0),
    };
    Some(frame(before) == frame(after))
}

fn kind(state: PageState) -> &'static str {
    match state.page {
        Page::Absent => "absent",
        Page::Zero => "zero page",
        Page::HugeZero { .. } => "huge zero folio",
        Page::Folio { .. } if state.is_file => "page of the file",
        Page::Folio { .. } => "anonymous page",
    }
}

/// Order of the folio, and which page of it.
fn place(page: Page) -> (u8, u32) {
    match page {
        Page::Folio { order, index, .. } => (order, index),
        Page::HugeZero { index } => (0, index),
        Page::Absent | Page::Zero => (0, 0),
    }
}

fn label(page: Page) -> Option<u64> {
    match page {
        Page::Folio { label, .. } => Some(label),
        _ => None,
    }
}
