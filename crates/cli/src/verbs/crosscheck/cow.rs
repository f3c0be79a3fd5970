//! `folio crosscheck cow` and `collapse`: random programs of a few processes on the running kernel.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use largefolio_linux::crosscheck::cow::{CowRecorder, CowRun};
use largefolio_linux::crosscheck::{Change, Facts};
use largefolio_mm::units::{Order, PageSize};
use largefolio_report::json;
use largefolio_sim::crosscheck::Recording;
use largefolio_sim::crosscheck::processes::{
    ProcessProgram, ProgramOptions, ProgramRow, Programs, Topic, generate,
};
use largefolio_sim::kernel::Kernel;
use largefolio_trace::disk::read_text;
use largefolio_trace::shown;
use serde::Serialize;

use super::RulesArgs;
use super::live::{interrupted, keep_text};
use super::select::as_root;
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::{running, values};

/// Most bytes of programs that are read: a kept program has some hundred.
const FROM_BYTES_MAX: u64 = 64 << 20;

/// Check fork and copy-on-write against the running kernel
///
/// Random programs of two to four processes - map, read, write, fork, munmap, madvise,
/// mprotect, mremap, exit - run in lock step on the kernel and in the model. After each step every
/// page is compared: present, same or new frame, order of its folio, exclusive, shared with whom,
/// PMD-mapped. Needs root. While it runs, per-size THP controls are set for each group of programs
/// and khugepaged sleeps; both are put back.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo folio crosscheck cow                            400 programs of eight sets of sizes
  sudo folio crosscheck cow --programs 10000 --seed 7
  sudo folio crosscheck cow --sizes 64K,2M --json
  sudo folio crosscheck cow --from mine.txt            programs of your own
  folio crosscheck cow --programs 10 --sizes 64K --print > mine.txt

Exit status: 0 kernel and model agree, 1 they differ, 2 error.")]
pub(super) struct CowArgs {
    #[command(flatten)]
    programs: ProgramsArgs,
}

/// Check collapse against the running kernel
///
/// Random programs of one to four processes give `MADV_COLLAPSE` for anonymous memory and for a
/// file in memory (memfd, tmpfs) that they share or copy from: with holes, pages shared after a
/// fork, read-only and lazy-free pages, partially mapped folios, pages that a pipe refers to,
/// requests that straddle or miss a block. They run in lock step on the kernel and in the model;
/// after each step the error number, every page - as `crosscheck cow` compares it - and what it
/// holds must be equal. Needs root. While it runs, per-size THP controls are set for each group of
/// programs and khugepaged sleeps; both are put back.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo folio crosscheck collapse                       400 programs of four sets of sizes
  sudo folio crosscheck collapse --programs 5000 --seed 7
  sudo folio crosscheck collapse --from mine.txt       programs of your own
  folio crosscheck collapse --programs 10 --print > mine.txt

Exit status: 0 kernel and model agree, 1 they differ, 2 error.")]
pub(super) struct CollapseArgs {
    #[command(flatten)]
    programs: ProgramsArgs,
}

/// Which programs, and under which rules.
#[derive(Args, Debug)]
struct ProgramsArgs {
    /// Programs to make
    #[arg(long, value_name = "N", default_value_t = 400)]
    programs: u64,
    /// Seed of the first program; the others follow
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folio sizes to enable; `none`: base pages only [default: several sets in turn]
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', value_parser = size)]
    sizes: Vec<u64>,
    /// Steps of each program
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=1000))]
    steps: u16,
    /// Run the programs of a file instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["programs", "seed", "sizes", "steps"])]
    from: Option<PathBuf>,
    /// Print the programs and run nothing; needs no root
    #[arg(long)]
    print: bool,
    /// Directory to keep the recordings in
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    rules: RulesArgs,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// `--sizes none`: the base page has no control, and is given by every kernel.
const NONE: u64 = 0;
/// Programs per run of the probe: what is lost to a signal, and the memory of a recording.
const GROUP: usize = 100;
/// A program that differs is run again: what is no rule's - a page that was migrated, memory that
/// was reclaimed - does not come twice.
const NR_RUNS: usize = 3;
/// A run during which somebody else changed a setting is made again, so often in all.
const NR_TRIES: usize = 3;
/// Pause before it: others change a setting for a moment.
const PATIENCE: Duration = Duration::from_secs(1);
/// Differing programs that are printed.
const NR_SHOWN: usize = 12;

/// The result.
#[derive(Debug, Default, Serialize)]
struct Report {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    kernel: String,
    rules: String,
    /// What is to be said where they are those of another version.
    rules_note: Option<String>,
    nr_programs: usize,
    /// Programs that agreed at once.
    nr_equal: usize,
    /// Programs that differed, were repeated and agree, as they differed: with the events the kernel
    /// counted meanwhile.
    repeated_equal: Vec<ProgramRow>,
    /// Programs that were run while somebody else changed a setting, each time.
    nr_not_judged: usize,
    /// Those changes.
    changes: Vec<Disturbed>,
    nr_steps: usize,
    /// Pages compared over all steps.
    nr_pages: u64,
    /// Pages that got a new frame.
    nr_new_frames: u64,
    different: Vec<ProgramRow>,
}

/// A setting that somebody else changed.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Disturbed {
    #[serde(flatten)]
    change: Change,
    /// Programs that were run meanwhile and repeated, and those that are not judged.
    nr_repeated: usize,
    nr_not_judged: usize,
}

impl CowArgs {
    /// Runs the programs and compares.
    pub(super) fn run(self, command_line: &[String], console: &mut Console) -> Result<Exit> {
        self.programs.run(Topic::Cow, command_line, console)
    }
}

impl CollapseArgs {
    /// Runs the programs and compares.
    pub(super) fn run(self, command_line: &[String], console: &mut Console) -> Result<Exit> {
        self.programs.run(Topic::Collapse, command_line, console)
    }
}

impl ProgramsArgs {
    fn run(self, topic: Topic, command_line: &[String], console: &mut Console) -> Result<Exit> {
        let facts = Facts::of_host();
        let programs = self.all_programs(topic, &facts)?;
        if self.print {
            let text: String = programs.iter().map(ProcessProgram::to_string).collect();
            console.deliver(text.as_bytes(), None)?;
            return Ok(Exit::Done);
        }
        if let Some(keep) = &self.keep {
            fs::create_dir_all(keep)
                .with_context(|| format!("cannot make {}; choose another --keep", shown(keep)))?;
        }
        let kernel = self.rules.kernel()?;
        let recorder = CowRecorder::new(&facts, &as_root(command_line))?;
        let mut report = Report {
            schema_version: 1,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line: command_line.to_vec(),
            kernel: facts.release,
            nr_programs: programs.len(),
            ..Report::default()
        };
        let record = |text: &str, sizes: &[u64]| Ok(recorder.record(text, sizes)?);
        let check = Check { record: &record, kernel, keep: self.keep, patience: PATIENCE };
        let bar = console::counter(programs.len() as u64, "checking");
        for group in groups(&programs) {
            if let Err(error) = check.group(group, &mut report) {
                bar.finish_and_clear();
                return interrupted(error);
            }
            bar.inc(group.len() as u64);
        }
        bar.finish_and_clear();
        running::tell(report.rules_note.as_deref());
        let text = if self.json { json::pretty(&report)? } else { text(&report) };
        console.deliver(format!("{}\n", text.trim_end()).as_bytes(), None)?;
        Ok(report.exit())
    }

    fn all_programs(&self, topic: Topic, facts: &Facts) -> Result<Vec<ProcessProgram>> {
        if let Some(path) = &self.from {
            let text = read_text(path, FROM_BYTES_MAX)
                .with_context(|| format!("cannot read {}", shown(path)))?;
            return Ok(ProcessProgram::all_of(&path.to_string_lossy(), &text)?);
        }
        let page = match facts.page_bytes >> 10 {
            4 => PageSize::K4,
            16 => PageSize::K16,
            _ => PageSize::K64,
        };
        let sets = self.sets(topic, page)?;
        let one = |seed: u64| {
            let set = seed / GROUP as u64 % sets.len() as u64;
            let orders = usize::try_from(set).map_or_else(|_| Vec::new(), |set| sets[set].clone());
            generate(
                seed,
                &ProgramOptions { topic, page, orders, nr_steps: usize::from(self.steps) },
            )
        };
        Ok((self.seed..self.seed.saturating_add(self.programs)).map(one).collect())
    }

    /// Sets of orders to enable.
    fn sets(&self, topic: Topic, page: PageSize) -> Result<Vec<Vec<Order>>> {
        let pmd = page.pmd_order();
        if self.sizes.is_empty() {
            let below = |first: u8| (first..pmd.get()).map(Order::new).collect::<Vec<_>>();
            let all = below(2).into_iter().chain([pmd]).collect();
            let order = Order::new;
            if topic == Topic::Collapse {
                return Ok(vec![Vec::new(), vec![pmd], vec![order(4)], all]);
            }
            return Ok(vec![
                Vec::new(),
                vec![order(2)],
                vec![order(4)],
                vec![order(3), order(5)],
                below(2),
                vec![pmd],
                vec![order(4), pmd],
                all,
            ]);
        }
        if self.sizes.contains(&NONE) && self.sizes.len() > 1 {
            bail!("--sizes none enables no size: it stands alone");
        }
        let mut orders = Vec::new();
        for &bytes in self.sizes.iter().filter(|&&bytes| bytes != page.bytes() && bytes != NONE) {
            let order = page.order_of_bytes(bytes);
            if page.bytes() << order.get() != bytes || order.get() < 2 || order > pmd {
                let (least, most) = (page.bytes() >> 8, page.bytes() << pmd.get() >> 10);
                bail!("{}K is no folio size of this kernel: {least}K to {most}K", bytes >> 10);
            }
            orders.push(order);
        }
        Ok(vec![orders])
    }
}

/// The size of a folio, or `none`.
fn size(text: &str) -> Result<u64, String> {
    if text == "none" {
        return Ok(NONE);
    }
    values::size(text).map_err(|expected| format!("{expected}; or none"))
}

/// Neighbouring programs that want the same sizes, [`GROUP`] at most.
fn groups(programs: &[ProcessProgram]) -> impl Iterator<Item = &[ProcessProgram]> {
    programs.chunk_by(|a, b| a.sizes_kib == b.sizes_kib).flat_map(|same| same.chunks(GROUP))
}

/// Runs programs with these sizes enabled.
type Record<'a> = &'a dyn Fn(&str, &[u64]) -> Result<CowRun>;

struct Check<'a> {
    record: Record<'a>,
    kernel: Option<Kernel>,
    keep: Option<PathBuf>,
    /// Pause before a run that is made again.
    patience: Duration,
}

impl Check<'_> {
    fn group(&self, programs: &[ProcessProgram], report: &mut Report) -> Result<()> {
        let Some((mut found, text)) = self.undisturbed(programs, report)? else {
            report.nr_not_judged += programs.len();
            return Ok(());
        };
        if let (Some(keep), Some(first)) = (&self.keep, programs.first()) {
            keep_text(keep, &format!("programs_{}", first.seed), &text)?;
        }
        for (verdict, program) in found.iter_mut().zip(programs) {
            let mut earlier = None;
            for _ in 1..NR_RUNS {
                if verdict.is_equal() {
                    break;
                }
                let again = self.undisturbed(std::slice::from_ref(program), report)?;
                let Some(again) = again.and_then(|(mut found, _)| found.pop()) else { break };
                earlier = Some(std::mem::replace(verdict, again));
            }
            report.take(verdict.clone(), earlier);
        }
        Ok(())
    }

    /// A run during which nobody else changed a setting; `None` where there was none.
    fn undisturbed(
        &self,
        programs: &[ProcessProgram],
        report: &mut Report,
    ) -> Result<Option<(Vec<ProgramRow>, String)>> {
        for nr in 1..=NR_TRIES {
            let (found, text, changes) = self.once(programs, report)?;
            if changes.is_empty() {
                return Ok(Some((found, text)));
            }
            let is_last = nr == NR_TRIES;
            let nr = programs.len();
            let (nr_repeated, nr_not_judged) = if is_last { (0, nr) } else { (nr, 0) };
            for change in changes {
                report.disturbed(Disturbed { change, nr_repeated, nr_not_judged });
            }
            if !is_last {
                thread::sleep(self.patience);
            }
        }
        Ok(None)
    }

    fn once(&self, programs: &[ProcessProgram], report: &mut Report) -> Result<Ran> {
        let text: String = programs.iter().map(ProcessProgram::to_string).collect();
        let sizes = programs.first().map_or(&[][..], |program| &program.sizes_kib);
        let CowRun { text, changes } = (self.record)(&text, sizes)?;
        let recording = Recording::<Programs>::parse("live", &text)?;
        let verdicts = recording.check(self.kernel.as_ref())?;
        if let Some(verdict) = verdicts.first() {
            report.rules.clone_from(&verdict.rules);
            report.rules_note.clone_from(&verdict.rules_note);
        }
        let runs = recording.body.runs.iter().zip(verdicts);
        Ok((runs.map(|(run, verdict)| ProgramRow::new(run, verdict)).collect(), text, changes))
    }
}

/// Verdicts, the recording, and settings that somebody else changed meanwhile.
type Ran = (Vec<ProgramRow>, String, Vec<Change>);

impl Report {
    fn take(&mut self, verdict: ProgramRow, earlier: Option<ProgramRow>) {
        self.nr_steps += verdict.nr_steps;
        self.nr_pages += verdict.nr_pages;
        self.nr_new_frames += verdict.nr_new_frames;
        match earlier {
            _ if !verdict.is_equal() => self.different.push(verdict),
            Some(earlier) => self.repeated_equal.push(earlier),
            None => self.nr_equal += 1,
        }
    }

    /// Adds up what is told about one change.
    fn disturbed(&mut self, new: Disturbed) {
        match self.changes.iter_mut().find(|known| known.change == new.change) {
            Some(known) => {
                known.nr_repeated += new.nr_repeated;
                known.nr_not_judged += new.nr_not_judged;
            }
            None => self.changes.push(new),
        }
    }

    /// Programs that agree, at once or when repeated.
    fn nr_agree(&self) -> usize {
        self.nr_equal + self.repeated_equal.len()
    }

    fn exit(&self) -> Exit {
        if !self.different.is_empty() {
            Exit::No
        } else if self.nr_agree() == 0 && self.nr_not_judged > 0 {
            Exit::Error
        } else {
            Exit::Done
        }
    }
}

fn text(report: &Report) -> String {
    let mut lines = vec![
        format!("kernel {}, rules {}", report.kernel, report.rules),
        format!(
            "{} programs, {} steps, {} mapped pages compared, {} new frames",
            report.nr_programs, report.nr_steps, report.nr_pages, report.nr_new_frames
        ),
    ];
    for Disturbed { change, nr_repeated, nr_not_judged } in &report.changes {
        let told = [(*nr_repeated, "repeated"), (*nr_not_judged, "not judged")];
        let told = told.iter().filter(|(nr, _)| *nr > 0);
        let told: Vec<String> = told.map(|(nr, what)| format!("{nr} programs {what}")).collect();
        lines.push(format!(
            "the setting {change} during the run, by somebody else: {}",
            told.join(", ")
        ));
    }
    let nr_repeated = report.repeated_equal.len();
    if nr_repeated > 0 {
        lines.push(format!("{nr_repeated} differed; repeated, agrees"));
    }
    lines.extend(report.different.iter().take(NR_SHOWN).map(|verdict| format!("\n{verdict}")));
    let nr = report.different.len();
    lines.push(match nr {
        0 if report.nr_not_judged > 0 => format!(
            "kernel and model agree in {} of {} programs; the others are not judged",
            report.nr_agree(),
            report.nr_programs
        ),
        0 => format!("kernel and model agree in all {} programs", report.nr_programs),
        _ => format!("\nkernel and model differ in {nr} of {} programs", report.nr_programs),
    });
    lines.join("\n")
}

#[cfg(test)]
mod tests;
