//! `folio advise`: finds, applies and proves the best settings for a program.
//!
//! Every step is a `folio` command, and folio runs exactly the commands that it prints.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use largefolio_linux::persist::place::ServiceName;
use largefolio_linux::shell;
use largefolio_results::advise::{Advice, Lasting, ProcessAdvice, Question, Step, is_running};
use largefolio_results::anchor::AnchorRequest;
use largefolio_results::maps::Selection;
use largefolio_results::predict::Goal;
use largefolio_results::{Form, Forms as _};
use largefolio_sim::replay::CacheState;
use largefolio_sim::size;
use largefolio_trace::{OpenTrace, shown};

use super::predict::replay;
use super::values::{self, FormArgs};
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};
use crate::work::{Work, WorkKind};

/// Find the best settings for a program, apply them, and prove that they help
///
/// Replays a recording of the program under settings that the running kernel offers - folio sizes
/// for private memory, text in large folios, readahead - separately and combined. Prints one plan:
/// its commands, the gain, how certain the gain is, the memory it costs, and how to undo it.
/// Changes nothing without --apply.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio advise cc1.folio
  folio advise -- python3 job.py                   records it first, as python3.folio
  sudo folio advise redis-server                   advice for a running process; or --unit redis
  folio advise cc1.folio --goal memory
  sudo folio advise cc1.folio --verify             runs the program 40 times, alternately
  sudo folio advise cc1.folio --verify --apply     applies what was confirmed
  sudo folio advise job.folio --unit job.service --persist --apply
  sudo folio advise --undo

--verify runs the recorded command in the current directory; to run a different one, put it after
the trace: folio advise cc1.folio --verify -- cc1 -quiet other.i.

Exit status: 0 if a plan was found (with --verify: if it was confirmed), 1 if nothing is certain to
help, 2 on error.")]
pub(crate) struct AdviseArgs {
    /// Trace from `folio record`, or running processes by PID (also lists such as 12,13) or name
    #[arg(value_name = "TRACE|PID|NAME", required_unless_present_any = ["command", "undo", "name", "unit"])]
    target: Vec<PathBuf>,
    /// Advise on running processes with this name; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with_all = ["target", "command", "undo", "unit"])]
    name: Vec<String>,
    /// What to optimise for
    #[arg(long, value_name = "time|memory|faults", default_value = "time",
        value_parser = str::parse::<Goal>)]
    goal: Goal,
    /// Allowed growth in memory use, in percent
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = percent)]
    memory_growth: f64,
    /// Start with an empty page cache [default: the page cache left behind by an earlier run]
    #[arg(long)]
    cold: bool,
    /// Memory limit (memory.max, without swap) in which the program must run: advise only what fits
    #[arg(long, value_name = "SIZE", value_parser = size::limit)]
    limit: Option<u64>,
    /// Physical memory
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = size::memory)]
    memory: u64,
    /// Stop the search after this time, such as 2m, and use the best plan found so far
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    within: Option<Duration>,
    #[command(flatten)]
    action: ActionArgs,
    /// The program runs as this systemd service; the plan uses a drop-in to change how it starts.
    /// If no program is given, folio advises on the unit's running processes
    #[arg(long, value_name = "UNIT", conflicts_with = "undo")]
    unit: Option<String>,
    #[command(flatten)]
    form: FormArgs,
    /// Program and its arguments; recorded first if no trace is given
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The options that decide what happens to the plan.
#[derive(Args, Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "options of a command line")]
struct ActionArgs {
    /// Run the program alternately with and without the plan, and report whether the plan helps
    #[arg(long, conflicts_with = "undo")]
    verify: bool,
    /// Apply the plan; with --verify, only if it is confirmed
    #[arg(long, conflicts_with = "undo")]
    apply: bool,
    /// Keep the plan across reboots and package upgrades, with files for systemd and udev
    #[arg(long, conflicts_with = "undo")]
    persist: bool,
    /// Undo the changes of --apply, and remove the files of --persist
    #[arg(long, conflicts_with_all = ["target", "command"])]
    undo: bool,
}

/// The subject of the advice.
enum Target {
    Trace(PathBuf),
    Processes(Selection),
    /// The command, which is recorded first.
    Program,
}

pub(crate) struct AdvisePlan {
    args: AdviseArgs,
    command_line: Vec<String>,
    /// The program's own name, as the user typed it.
    program: Vec<OsString>,
    execute: fn(&[OsString], &mut Console) -> Result<Exit>,
}

impl VerbArgs for AdviseArgs {
    type Plan = AdvisePlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let command_line = invocation.line();
        if (self.action.verify || self.action.apply) && self.form.form() != Form::Text {
            bail!(
                "--json and --csv only print the advice; run the commands in it yourself, or use \
                 --verify and --apply without --json and --csv"
            );
        }
        if let Some(unit) = self.unit.as_ref().filter(|_| self.action.apply) {
            ServiceName::of_service(unit, Path::new("/"))?;
        }
        let program = invocation.words.iter().take(1).cloned().collect();
        Ok(AdvisePlan { args: self, command_line, program, execute: invocation.execute })
    }
}

impl VerbPlan for AdvisePlan {
    /// Searches, prints the plan, and verifies, applies or undoes it as requested.
    fn run(self, console: &mut Console) -> Result<Exit> {
        if self.args.action.undo {
            return self.folio(&args(["tune", "--undo"]), console);
        }
        let trace = match self.target()? {
            Target::Processes(selection) => return self.advise_processes(selection, console),
            Target::Trace(trace) => trace,
            Target::Program => self.record(console)?,
        };
        let advice = self.advice(trace)?;
        console::remark(advice.remarks());
        console.deliver(advice.written(self.args.form.form())?.as_bytes(), None)?;
        let Some(plan) = &advice.plan else { return Ok(Exit::No) };
        if self.args.action.verify {
            if let Some(why) = &plan.not_verified {
                bail!(
                    "--verify: {why}; nothing was run or applied. Without --verify, --apply \
                        applies the plan without verifying it"
                );
            }
            if self.args.cold {
                console::warn(
                    "--cold plans for an empty page cache, but folio verify runs the program with \
                     its files cached, so it cannot show a gain at a cold start",
                );
            }
            let verdict = self.folio(&owned(&plan.verify), console)?;
            if !matches!(verdict, Exit::Done) {
                if self.args.action.apply {
                    console::say("folio: not confirmed: nothing was applied");
                }
                return Ok(verdict);
            }
        }
        if self.args.action.apply {
            self.apply(&plan.steps, console)?;
            if !plan.start.is_empty() {
                console::say(&format!(
                    "folio: start the program with folio run {} from now on",
                    plan.start.join(" ")
                ));
            }
        }
        Ok(Exit::Done)
    }
}

impl AdvisePlan {
    /// Runs a command of the same program.
    fn folio(&self, more: &[OsString], console: &mut Console) -> Result<Exit> {
        (self.execute)(&[&self.program[..], more].concat(), console)
    }

    /// Runs the steps until one fails, and then names those that were done.
    fn apply(&self, steps: &[Step], console: &mut Console) -> Result<()> {
        for (nr, step) in steps.iter().enumerate() {
            let ended = self.folio(&owned(&step.words), console);
            let is_done = matches!(ended, Ok(Exit::Done));
            if is_done {
                continue;
            }
            let done = match nr {
                0 => "nothing was applied".to_owned(),
                _ => format!(
                    "the earlier steps took effect; to undo them: {}",
                    shell::as_root("folio advise --undo")
                ),
            };
            let message = format!("{} failed: {done}", step.command());
            ended.context(message.clone())?;
            bail!(message);
        }
        Ok(())
    }

    fn target(&self) -> Result<Target> {
        let args = &self.args;
        match (args.target.as_slice(), &args.unit) {
            ([], _) if !args.name.is_empty() => {
                Ok(Target::Processes(Selection::Names(args.name.clone())))
            }
            ([], Some(unit)) if args.command.is_empty() => {
                Ok(Target::Processes(Selection::Unit(unit.clone())))
            }
            ([], _) => Ok(Target::Program),
            ([one], _) => one_target(one),
            (several, _) => several_targets(several),
        }
    }

    fn advise_processes(&self, selection: Selection, console: &mut Console) -> Result<Exit> {
        if self.args.action.verify || self.args.action.apply {
            bail!(
                "--verify and --apply need a recording or the program (folio advise -- CMD); for \
                 a running process, run the commands in the advice yourself"
            );
        }
        let advice = ProcessAdvice::of(selection, self.command_line.clone())?;
        console::remark(advice.remarks());
        if advice.processes.is_empty() {
            // A remark has already named the missing processes.
            return Ok(Exit::Error);
        }
        console.deliver(advice.written(self.args.form.form())?.as_bytes(), None)?;
        Ok(if advice.is_some() { Exit::Done } else { Exit::No })
    }

    fn record(&self, console: &mut Console) -> Result<PathBuf> {
        let program = self.args.command.first().map(Path::new).and_then(Path::file_name);
        let name = program.context("name the program to record: folio advise -- CMD")?;
        let trace = PathBuf::from(format!("{}.folio", name.to_string_lossy()));
        if trace.symlink_metadata().is_ok() {
            bail!(
                "{0} already exists; to get advice from it, run folio advise {0}; to record the \
                 program again, remove the file first",
                shown(&trace)
            );
        }
        let record = args(["record", "--runs", "3", "-o"])
            .into_iter()
            .chain([trace.clone().into_os_string(), "--".into()])
            .chain(self.args.command.iter().cloned());
        let ended = self.folio(&record.collect::<Vec<_>>(), console)?;
        match ended {
            Exit::Done | Exit::Program(0) => {
                measure(&trace);
                Ok(trace)
            }
            _ => bail!(
                "the program failed while it was recorded, and folio does not advise on a failed \
                 run; to use the recording anyway, run folio advise {}",
                shown(&trace)
            ),
        }
    }

    fn advice(&self, trace: PathBuf) -> Result<Advice> {
        let args = &self.args;
        let question = Question {
            trace,
            goal: args.goal,
            memory_percent_max: args.memory_growth,
            cache: if args.cold { CacheState::Cold } else { CacheState::Warm },
            memory_bytes: args.memory,
            limit_bytes: args.limit,
            may_end: args.within.is_some(),
            lasting: Lasting { is_lasting: args.action.persist, unit: args.unit.clone() },
            program: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        };
        let mut work = Work::new(WorkKind::Searching, Some(0), args.within);
        let advice = question
            .advise(self.command_line.clone(), &mut |nr_done, nr_all| work.update(nr_done, nr_all));
        work.finish();
        Ok(advice?)
    }
}

/// Measures how long the program waits for page walks, if its settings can be changed here.
fn measure(trace: &Path) {
    let measured = OpenTrace::open(trace).map_err(anyhow::Error::from).and_then(|trace| {
        let request = AnchorRequest::of_this_machine(&trace)?;
        replay::measured(&request, &trace, &mut [])
    });
    if let Err(error) = measured {
        console::say(&format!(
            "folio: how long the program waits for page walks was not measured: {error}"
        ));
    }
}

/// Interprets a single word as a trace, a process, or the trace file to write. A process takes
/// precedence over a directory or non-trace file of the same name.
fn one_target(target: &Path) -> Result<Target> {
    if OpenTrace::looks_like(target) {
        return Ok(Target::Trace(target.to_owned()));
    }
    let text = target.to_string_lossy().into_owned();
    if let Some(pids) = pids_of(&text) {
        return Ok(Target::Processes(Selection::Processes(pids)));
    }
    let is_path =
        text.contains('/') || target.extension().is_some_and(|extension| extension == "folio");
    if !is_path && (!target.exists() || is_running(&text)) {
        return Ok(Target::Processes(Selection::Names(vec![text])));
    }
    if target.exists() {
        return Ok(Target::Trace(target.to_owned()));
    }
    bail!(
        "there is no trace {0}; record the program: folio record --runs 3 -o {0} -- CMD, or let advise \
         do it: folio advise -- CMD",
        shown(target)
    );
}

/// Interprets several words as processes: either all pids or all names.
fn several_targets(targets: &[PathBuf]) -> Result<Target> {
    if let Some(trace) = targets.iter().find(|target| OpenTrace::looks_like(target)) {
        bail!("{} is a trace; name one trace and nothing else", shown(trace));
    }
    let texts: Vec<String> =
        targets.iter().map(|target| target.to_string_lossy().into_owned()).collect();
    let pids: Vec<Option<Vec<u32>>> = texts.iter().map(|text| pids_of(text)).collect();
    if pids.iter().all(Option::is_none) {
        return Ok(Target::Processes(Selection::Names(texts)));
    }
    let pids: Option<Vec<Vec<u32>>> = pids.into_iter().collect();
    match pids {
        Some(pids) => Ok(Target::Processes(Selection::Processes(pids.concat()))),
        None => bail!("name processes by PID or by name, not both"),
    }
}

/// `12` and `12,13`.
fn pids_of(text: &str) -> Option<Vec<u32>> {
    text.split(',').map(|pid| pid.parse().ok()).collect()
}

fn args<const N: usize>(args: [&str; N]) -> Vec<OsString> {
    args.map(OsString::from).to_vec()
}

fn owned(args: &[String]) -> Vec<OsString> {
    args.iter().map(OsString::from).collect()
}

fn percent(text: &str) -> Result<f64, String> {
    let parsed = text.parse::<f64>().ok().filter(|percent| (0.0..=10_000.0).contains(percent));
    parsed.ok_or_else(|| "expected a percentage such as 10".to_owned())
}
