//! The best settings for a program: what the model finds among those that this system takes, and the
//! commands that put them into effect.
//!
//! ```text
//!   choices.toml --this system--> choices --search--> candidates: time and memory
//!                                                     frontier, plan --> commands of folio
//! ```
//!
//! Owns which plan is chosen and the commands it consists of. Every command is one that a user can
//! type: whoever carries the plan out runs the same words.
//!
//! Invariants:
//! - A1: a plan helps for certain: all bounds of its change are below 0, and of a run by 0.05% or more.
//! - A2: nothing of a plan can be left out without losing a twentieth of what it gains.

mod choice;
mod process;
mod search;
mod words;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use largefolio_linux::census::remedy::verbs::{LiveVerbs, Verbs as _};
use largefolio_linux::geometry::Geometry;
use largefolio_linux::run::{Fallback, Placed};
use largefolio_report::Goal;
use largefolio_sim::interval::Interval;
use largefolio_sim::replay::CacheState;
use largefolio_trace::{Meta, OpenTrace};
use serde::Serialize;

pub use choice::{Choice, LeftOut, Scope};
pub use process::{ProcessAdvice, is_running};
pub use search::Candidate;

use crate::running;
use crate::{Error, Remark};

/// Version of the JSON's layout.
const SCHEMA_VERSION: u32 = 1;
/// What a simpler plan may lose of the gain.
const MAY_LOSE: f64 = 0.05;
/// Rounds that a verification needs at least.
const NR_ROUNDS: u32 = 20;
/// Smallest file that is worth a page cache of large folios, in bytes.
const TEXT_BYTES_MIN: u64 = 1 << 20;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// Recording of the program.
    pub trace: PathBuf,
    /// What the plan is to be best for.
    pub goal: Goal,
    /// By how many per cent memory may grow.
    pub memory_percent_max: f64,
    /// Page cache at the start.
    pub cache: CacheState,
    /// Physical memory.
    pub memory_bytes: u64,
    /// Whether the search may end early: candidates are then replayed some at a time.
    pub may_end: bool,
    /// The program with its arguments, if they are not as recorded.
    pub program: Vec<String>,
    /// Whether and for whom the plan lasts.
    pub lasting: Lasting,
}

/// Whether and for whom a plan lasts.
#[derive(Clone, Debug, Default)]
pub struct Lasting {
    /// Over a reboot, by files for systemd and udev.
    pub is_lasting: bool,
    /// The service that the program is: what it needs at its start is given to it.
    pub unit: Option<String>,
}

impl Lasting {
    /// `--persist` where it is to last.
    fn option(&self) -> Option<String> {
        self.is_lasting.then(|| "--persist".to_owned())
    }
}

/// A command of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What it does.
    pub what: String,
    /// The words after `folio`.
    pub words: Vec<String>,
    /// The words after `folio` that take it back; none where nothing is to be taken back.
    pub undo: Vec<String>,
    /// Whether it needs root.
    pub needs_root: bool,
}

/// What to do, and what it brings.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Number of the candidate.
    pub candidate: usize,
    /// Commands that change the system, in order.
    pub steps: Vec<Step>,
    /// Options of `folio run` to start the program with; none: it is started as before.
    pub start: Vec<String>,
    /// The words after `folio` that measure it; none where it cannot be measured so.
    pub verify: Vec<String>,
    /// Why it cannot be.
    pub not_verified: Option<String>,
    /// What the model leaves out of it.
    pub limits: Vec<String>,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    /// Path of the trace.
    pub trace: String,
    /// The program with its arguments.
    pub program: Vec<String>,
    /// The running kernel with its settings.
    pub kernel: String,
    /// The machine of the estimates.
    pub machine: String,
    /// What the plan is best for.
    #[serde(skip)]
    pub goal: Goal,
    /// Everything that could be set.
    pub choices: Vec<Choice>,
    /// What could not be set, and why.
    pub left_out: Vec<LeftOut>,
    /// What the model says of them.
    pub candidates: Vec<Candidate>,
    /// `None`: nothing helps for certain.
    pub plan: Option<Plan>,
    /// What a run takes, as the estimate has it.
    pub run: String,
    #[serde(skip)]
    remarks: Vec<Remark>,
}

impl Question {
    /// Searches; `progress` hears rows done and all rows, and says whether to continue.
    ///
    /// # Errors
    /// A trace that cannot be read or replayed, a kernel that the model does not know.
    pub fn answer(
        &self,
        command_line: Vec<String>,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Advice, Error> {
        let trace = OpenTrace::open(&self.trace)?;
        let meta = trace.meta();
        if meta.faults_only && meta.attached.is_none() && self.goal == Goal::Time {
            return Err(Error::NoTime);
        }
        let this = running::This::new();
        let kernel = this.named(running::THIS)?;
        let running::Host { machine, walks, remark } = running::machine()?;
        let Texts { files: texts, refusal } = Texts::of(meta);
        let (choices, left_out) = choice::of_system(&kernel, &choice::Program::of(meta, refusal))?;
        let search = search::Search {
            trace: &trace,
            kernel: &kernel,
            machine: &machine,
            walks,
            cache: self.cache,
            memory_bytes: self.memory_bytes,
            may_end: self.may_end,
            choices: &choices,
            texts: &texts,
        };
        let search::Found { candidates, unchanged, is_cut } = search.run(self.goal, progress)?;
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
        remarks.extend(this.remarks().iter().cloned());
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
            goal: self.goal,
            choices,
            left_out,
            candidates,
            plan,
            run: largefolio_report::figures::run_base(&unchanged.estimate),
            remarks,
        })
    }

    /// The candidate that helps most for certain; of those that help almost as much, the simplest, and
    /// the one that changes least of the system.
    fn best(&self, candidates: &[Candidate], choices: &[Choice]) -> Option<usize> {
        let gain =
            |one: &Candidate| self.change(one, candidates).filter(|it| self.goal.is_less(*it));
        let allowed = |one: &&(usize, &Candidate)| {
            one.1.memory_percent <= self.memory_percent_max && gain(one.1).is_some()
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
                let ratio = largefolio_report::figures::ratio(one.faults, all[0].faults.max(1));
                Some(Interval::exact(100.0 * (ratio - 1.0)))
            }
        }
    }
}

impl Advice {
    /// What is said beside it.
    #[must_use]
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }
}

/// Programs and libraries of the recording that are worth a page cache of large folios, the largest
/// first: those that are on disk as they were recorded, and are loaded where large entries map them.
struct Texts {
    files: Vec<String>,
    /// Why there are none.
    refusal: Option<String>,
}

impl Texts {
    fn of(meta: &Meta) -> Self {
        let is_same = |path: &Path, bytes: u64| {
            path.metadata().is_ok_and(|found| found.is_file() && found.len() == bytes)
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
                Some(Placed::Well { .. }) => files.push(file.path.clone()),
                Some(Placed::Badly(obstacle)) => {
                    let why = Fallback::Placement { file: path.to_owned(), obstacle };
                    refusal.get_or_insert_with(|| why.to_string());
                }
            }
        }
        let absent = || "no program or library of the recording is on disk as it was".to_owned();
        let refusal = files.is_empty().then(|| refusal.unwrap_or_else(absent));
        Self { files, refusal }
    }
}

/// What of `folio verify` the verdict of a plan for `goal` is about; nothing is its default, wall time.
const fn metric(goal: Goal) -> &'static [&'static str] {
    match goal {
        Goal::Time => &[],
        Goal::Memory => &["--metric", "memory"],
        Goal::Faults => &["--metric", "minor faults"],
    }
}

/// The commands of candidate `nr`, for a program and the files of its text.
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
    steps.extend(lasting.unit.as_ref().and_then(|unit| of_service(unit, &variables)));
    if chosen.iter().any(|choice| choice.warm) && !texts.is_empty() {
        steps.push(warmed(texts, lasting));
    }
    let start: Vec<String> = chosen.iter().flat_map(|choice| choice.start.clone()).collect();
    let tunes = set.iter().flat_map(|one| ["--tune", one]).map(str::to_owned);
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

/// `folio tune --set ..`; nothing where nothing is to be set.
fn tuned(set: Vec<String>, lasting: &Lasting) -> Option<Step> {
    let assignments = set.into_iter().flat_map(|one| ["--set".to_owned(), one]);
    let assignments: Vec<String> = assignments.collect();
    (!assignments.is_empty()).then(|| {
        let first = std::iter::once("tune".to_owned()).chain(assignments);
        Step {
            what: "change settings of the system".to_owned(),
            words: first.chain(["--yes".to_owned()]).chain(lasting.option()).collect(),
            undo: ["tune", "--undo"].map(str::to_owned).to_vec(),
            needs_root: true,
        }
    })
}

/// `folio tune --unit ..`; nothing where the service needs no variable.
fn of_service(unit: &str, variables: &[String]) -> Option<Step> {
    let options = variables.iter().flat_map(|one| ["--env", one]);
    let words = ["tune", "--unit", unit].into_iter().chain(options).chain(["--yes"]);
    (!variables.is_empty()).then(|| Step {
        what: format!("give {unit} its variables; they hold from its next start on"),
        words: words.map(str::to_owned).collect(),
        undo: ["tune", "--undo"].map(str::to_owned).to_vec(),
        needs_root: true,
    })
}

fn warmed(texts: &[String], lasting: &Lasting) -> Step {
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
