//! The best settings for a program: the best plan in the model among the settings that this system
//! accepts, and the commands that apply it.
//!
//! ```text
//!   choices.toml --this system--> choices --search--> candidates: time and memory
//!                                                     frontier, plan --> commands of folio
//! ```
//!
//! Owns the choice of the plan and its commands. Users can type every command in a plan, and
//! applying the plan runs the same words.
//!
//! Invariants:
//! - A1: a plan is certain to help: all bounds of its change are below 0, and for run time below
//!   -0.05%.
//! - A2: removing any part of a plan would lose at least a twentieth of its gain.

mod choice;
mod process;
mod search;
mod sentences;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::predict::Goal;
use largefolio_linux::alignment::Placed;
use largefolio_linux::geometry::Geometry;
use largefolio_linux::remedies::verbs::{LiveVerbs, Verbs as _};
use largefolio_linux::run::Fallback;
use largefolio_linux::tune::catalog::Catalog;
use largefolio_sim::interval::Interval;
use largefolio_sim::replay::CacheState;
use largefolio_trace::{Meta, OpenTrace};
use serde::Serialize;

pub use choice::{Choice, LeftOut, Scope};
pub use process::{ProcessAdvice, is_running};
pub use search::Candidate;

use crate::running;
use crate::{Error, Remark, anchor};

const SCHEMA_VERSION: u32 = 1;
/// The share of the gain that a simpler plan may lose.
const MAY_LOSE: f64 = 0.05;
const NR_ROUNDS: u32 = 20;
/// The smallest file worth a page cache of large folios, in bytes.
const TEXT_BYTES_MIN: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Question {
    pub trace: PathBuf,
    pub goal: Goal,
    pub memory_percent_max: f64,
    pub cache: CacheState,
    pub memory_bytes: u64,
    /// A memory limit (`memory.max`) that the program must run in.
    pub limit_bytes: Option<u64>,
    /// Whether the search may end early: it then replays a few candidates at a time.
    pub may_end: bool,
    /// The program with its arguments, if it differs from the recorded one.
    pub program: Vec<String>,
    pub lasting: Lasting,
}

/// Whether a plan survives a reboot, and for which service.
#[derive(Clone, Debug, Default)]
pub struct Lasting {
    /// Whether it survives a reboot, through files for systemd and udev.
    pub is_lasting: bool,
    /// The service that runs the program; it gets the settings that the program needs at its start.
    pub unit: Option<String>,
}

impl Lasting {
    fn option(&self) -> Option<String> {
        self.is_lasting.then(|| "--persist".to_owned())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    pub what: String,
    /// Arguments of `folio`.
    pub words: Vec<String>,
    /// Arguments of `folio` that undo it; empty if there is nothing to undo.
    pub undo: Vec<String>,
    pub needs_root: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Index of the candidate.
    pub candidate: usize,
    /// Commands that change the system, in order.
    pub steps: Vec<Step>,
    pub start: Vec<String>,
    /// Arguments of `folio` that measure the plan; empty if `folio verify` cannot.
    pub verify: Vec<String>,
    /// Why `folio verify` cannot measure it.
    pub not_verified: Option<String>,
    pub limits: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    pub trace: String,
    pub program: Vec<String>,
    pub kernel: String,
    pub machine: String,
    /// The memory limit that the program must run in; absent if none was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    #[serde(skip)]
    pub goal: Goal,
    pub choices: Vec<Choice>,
    pub left_out: Vec<LeftOut>,
    pub candidates: Vec<Candidate>,
    /// `None`: nothing certainly helps.
    pub plan: Option<Plan>,
    pub run: String,
    #[serde(skip)]
    remarks: Vec<Remark>,
}

impl Question {
    /// Runs the search. `progress` receives the rows done and the total, and returns whether to
    /// continue.
    ///
    /// # Errors
    /// If the trace cannot be read or replayed, or the model does not know the kernel.
    pub fn advise(
        &self,
        command_line: Vec<String>,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Advice, Error> {
        let trace = OpenTrace::open(&self.trace)?;
        let meta = trace.meta();
        if meta.faults_only && meta.attached.is_none() && self.goal == Goal::Time {
            return Err(Error::NoTime);
        }
        let this = running::This::of_traces(std::slice::from_ref(&self.trace));
        let kernel = this.named(running::THIS)?;
        let running::Host { machine, walks, remark } = running::machine()?;
        let Texts { files: texts, refusal } = Texts::of(meta);
        let catalog = Catalog::below(Path::new("/"));
        let (choices, left_out) =
            choice::of_system(&catalog, &kernel, &choice::Program::of(meta, refusal))?;
        let (anchor, ignored) = anchor::known(&trace);
        let search = search::Search {
            trace: &trace,
            kernel: &kernel,
            machine: &machine,
            walks,
            anchor: anchor.as_ref().filter(|anchor| machine.cpu.as_ref() == Some(&anchor.cpu)),
            cache: self.cache,
            memory_bytes: self.memory_bytes,
            limit_bytes: self.limit_bytes,
            may_end: self.may_end,
            choices: &choices,
            texts: &texts,
        };
        let search::SearchResult { candidates, unchanged, is_cut } =
            search.run(self.goal, progress)?;
        let program =
            if self.program.is_empty() { meta.command.clone() } else { self.program.clone() };
        let best = self.best(&candidates, &choices);
        let plan = best.map(|nr| {
            let candidate = (nr, &candidates[nr]);
            plan(candidate, &choices, (&program, &texts), &self.lasting, self.goal)
        });
        let mut remarks: Vec<Remark> =
            Remark::of_rules(kernel.note.as_deref()).into_iter().collect();
        remarks.extend(remark);
        remarks.extend(ignored);
        remarks.extend(this.remark().cloned());
        remarks.extend(crate::predict::gaps::of_kernel(&kernel).map(Remark::Warning));
        if is_cut {
            remarks.push(Remark::Warning(format!(
                "--within ended the search after {} candidates: the plan is the best of these",
                candidates.len()
            )));
        }
        Ok(Advice {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line,
            trace: self.trace.to_string_lossy().into_owned(),
            program,
            kernel: kernel.name.clone(),
            machine: machine.name.clone(),
            limit_bytes: self.limit_bytes,
            goal: self.goal,
            choices,
            left_out,
            candidates,
            plan,
            run: crate::figures::run_base(&unchanged.estimate),
            remarks,
        })
    }

    /// Returns the candidate that certainly helps most. Among those that help almost as much, it
    /// prefers the simplest, then the one that changes least of the system.
    fn best(&self, candidates: &[Candidate], choices: &[Choice]) -> Option<usize> {
        if candidates.first().is_some_and(|plain| plain.fits == Some(false)) {
            return least_change(candidates, choices);
        }
        let gain =
            |one: &Candidate| self.change(one, candidates).filter(|it| self.goal.is_less(*it));
        let allowed = |one: &&(usize, &Candidate)| {
            one.1.memory_percent <= self.memory_percent_max
                && one.1.fits != Some(false)
                && gain(one.1).is_some()
        };
        let all: Vec<(usize, &Candidate)> = candidates.iter().enumerate().collect();
        let fitting: Vec<_> = all.iter().filter(allowed).collect();
        let mid = |one: &Candidate| gain(one).map_or(0.0, |change| change.mid);
        let best = fitting.iter().map(|(_, one)| mid(one)).fold(0.0, f64::min);
        let enough = fitting.iter().filter(|(_, one)| mid(one) <= best * (1.0 - MAY_LOSE));
        let nr_system = |one: &Candidate| {
            one.choices.iter().filter(|&&nr| choices[nr].scope == Scope::System).count()
        };
        let simplest =
            enough.min_by_key(|(_, one)| (one.choices.len(), nr_system(one), one.choices.clone()));
        simplest.map(|(nr, _)| *nr).filter(|_| best < 0.0)
    }

    fn change(&self, one: &Candidate, all: &[Candidate]) -> Option<Interval> {
        match self.goal {
            Goal::Time => one.time,
            Goal::Memory => Some(Interval::exact(one.memory_percent)),
            Goal::Faults => {
                let ratio = crate::figures::ratio(one.faults, all[0].faults.max(1));
                Some(Interval::exact(100.0 * (ratio - 1.0)))
            }
        }
    }
}

/// Returns the candidate that fits with the fewest changes, the fastest of several.
fn least_change(candidates: &[Candidate], choices: &[Choice]) -> Option<usize> {
    let fitting = candidates.iter().enumerate().filter(|(_, one)| one.fits == Some(true));
    let rank = |one: &Candidate| {
        let is_system = |&&nr: &&usize| choices[nr].scope == Scope::System;
        (one.choices.iter().filter(is_system).count(), one.choices.len())
    };
    let time = |one: &Candidate| one.time.map_or(f64::INFINITY, |time| time.mid);
    let best = fitting.min_by(|(_, one), (_, other)| {
        rank(one).cmp(&rank(other)).then(time(one).total_cmp(&time(other)))
    });
    best.map(|(nr, _)| nr)
}

impl Advice {
    #[must_use]
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }
}

/// Programs and libraries of the recording that are worth a page cache of large folios, the largest
/// first. They are unchanged on disk since the recording, and their load address allows large
/// entries.
struct Texts {
    files: Vec<String>,
    refusal: Option<String>,
}

impl Texts {
    fn of(meta: &Meta) -> Self {
        let is_same = |path: &Path, bytes: u64| {
            path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == bytes)
        };
        let mut recorded: Vec<_> = meta
            .files
            .iter()
            .filter(|file| file.size_bytes >= TEXT_BYTES_MIN)
            .filter(|file| is_same(Path::new(&file.path), file.size_bytes))
            .collect();
        recorded.sort_by_key(|file| std::cmp::Reverse(file.size_bytes));
        let block_bytes = Geometry::running().text_block_bytes();
        let verbs = LiveVerbs::default();
        let (mut files, mut refusal) = (Vec::new(), None);
        for file in recorded {
            let path = Path::new(&file.path);
            match verbs.placed(path, block_bytes) {
                None => {}
                Some(Placed::Mappable { .. }) => files.push(file.path.clone()),
                Some(Placed::Unmappable(obstacle)) => {
                    let why = Fallback::Placement { file: path.to_owned(), obstacle };
                    refusal.get_or_insert_with(|| why.to_string());
                }
            }
        }
        let absent = || {
            "every program and library in the recording has changed on disk or is \
                         gone"
                .to_owned()
        };
        let refusal = files.is_empty().then(|| refusal.unwrap_or_else(absent));
        Self { files, refusal }
    }
}

/// Returns the metric of `folio verify` for `goal`; empty means its default, wall time.
const fn metric(goal: Goal) -> &'static [&'static str] {
    match goal {
        Goal::Time => &[],
        Goal::Memory => &["--metric", "memory"],
        Goal::Faults => &["--metric", "minor faults"],
    }
}

fn plan(
    (nr, candidate): (usize, &Candidate),
    choices: &[Choice],
    (program, texts): (&[String], &[String]),
    lasting: &Lasting,
    goal: Goal,
) -> Plan {
    let chosen: Vec<&Choice> = candidate.choices.iter().map(|&one| &choices[one]).collect();
    let set: Vec<String> = chosen.iter().flat_map(|choice| choice.set.clone()).collect();
    let variables: Vec<String> = chosen.iter().filter_map(|choice| choice.env.clone()).collect();
    let is_service = lasting.unit.is_some();
    let needed = chosen.iter().filter(|_| is_service).flat_map(|choice| choice.env_set.clone());
    let mut steps = Vec::new();
    steps.extend(tuned(set.iter().cloned().chain(needed).collect(), lasting));
    let limit = chosen.iter().find_map(|choice| choice.unit_thp.as_deref());
    steps.extend(lasting.unit.as_ref().and_then(|unit| of_service(unit, &variables, limit)));
    if chosen.iter().any(|choice| choice.warm) && !texts.is_empty() {
        steps.push(warm_step(texts, lasting));
    }
    let start: Vec<String> = chosen.iter().flat_map(|choice| choice.start.clone()).collect();
    let tuned_now = chosen.iter().flat_map(|choice| &choice.tuned);
    let tunes = tuned_now.flat_map(|one| ["--tune", one]).map(str::to_owned);
    let verify = ["verify", "--runs"].map(str::to_owned).into_iter();
    let verify = verify
        .chain([NR_ROUNDS.to_string()])
        .chain(metric(goal).iter().map(|&word| word.to_owned()))
        .chain(tunes)
        .chain(start.iter().cloned())
        .chain(chosen.iter().flat_map(|choice| choice.verify.clone()))
        .chain(["--".to_owned()])
        .chain(program.iter().cloned());
    let limits = chosen.iter().filter(|choice| !choice.limits.is_empty());
    let not_verified = chosen.iter().find(|choice| !choice.not_verified.is_empty());
    Plan {
        candidate: nr,
        steps,
        verify: if not_verified.is_some() { Vec::new() } else { verify.collect() },
        not_verified: not_verified
            .map(|choice| format!("{}: {}", choice.name, choice.not_verified)),
        limits: limits.map(|choice| format!("{}: {}", choice.name, choice.limits)).collect(),
        start: if is_service { Vec::new() } else { start },
    }
}

fn tuned(set: Vec<String>, lasting: &Lasting) -> Option<Step> {
    let assignments = set.into_iter().flat_map(|one| ["--set".to_owned(), one]);
    let assignments: Vec<String> = assignments.collect();
    (!assignments.is_empty()).then(|| {
        let first = std::iter::once("tune".to_owned()).chain(assignments);
        Step {
            what: "change system settings".to_owned(),
            words: first.chain(["--yes".to_owned()]).chain(lasting.option()).collect(),
            undo: ["tune", "--undo"].map(str::to_owned).to_vec(),
            needs_root: true,
        }
    })
}

fn of_service(unit: &str, variables: &[String], limit: Option<&str>) -> Option<Step> {
    let options = variables.iter().flat_map(|one| ["--env", one]);
    let options = options.chain(limit.into_iter().flat_map(|limit| ["--thp", limit]));
    let what = if limit.is_some() { "limit the large folios of" } else { "set the variables for" };
    let words = ["tune", "--unit", unit].into_iter().chain(options).chain(["--yes"]);
    (!variables.is_empty() || limit.is_some()).then(|| Step {
        what: format!("{what} {unit}, from its next start on"),
        words: words.map(str::to_owned).collect(),
        undo: ["tune", "--undo"].map(str::to_owned).to_vec(),
        needs_root: true,
    })
}

fn warm_step(texts: &[String], lasting: &Lasting) -> Step {
    let first = std::iter::once("warm".to_owned()).chain(lasting.option());
    let undo = if lasting.is_lasting { &["tune", "--undo"][..] } else { &[] };
    Step {
        what: "fill the page cache with text in large folios".to_owned(),
        words: first.chain(texts.iter().cloned()).collect(),
        undo: undo.iter().map(|&word| word.to_owned()).collect(),
        needs_root: lasting.is_lasting,
    }
}

#[cfg(test)]
mod tests;
