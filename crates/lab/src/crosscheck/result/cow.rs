//! Random programs with a few processes, on the kernel and in the model: groups, repeats, verdicts.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::crosscheck::Recording;
use crate::crosscheck::processes::{ProcessProgram, ProgramRow, Programs};
use crate::crosscheck::record::cow::CowRun;
use crate::crosscheck::record::{CrosscheckError, SettingChange};
use largefolio_results::{ExportError, figures};
use largefolio_sim::kernel::Kernel;
use serde::Serialize;

use super::keep::keep_text;
use crate::Error;
use largefolio_results::Remark;

/// Programs per run of the probe. A signal loses one run, and a recording has to fit into memory.
pub const GROUP: usize = 100;
/// Runs of a program that differs. Differences that no rule explains, such as migrated or reclaimed
/// pages, do not recur.
const NR_RUNS: usize = 3;
/// Maximum number of attempts of a run, because another process may change a setting during it.
const NR_TRIES: usize = 3;
/// Pause before a new attempt: settings often change only for a moment.
const PATIENCE: Duration = Duration::from_secs(1);
const NR_SHOWN: usize = 12;

#[derive(Debug, Default, Serialize)]
pub struct CowResult {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    kernel: String,
    rules: String,
    rules_note: Option<String>,
    nr_programs: usize,
    nr_equal: usize,
    /// Programs that first differed and then agreed, as they differed, with the events that the
    /// kernel counted meanwhile.
    repeated_equal: Vec<ProgramRow>,
    /// Programs that were disturbed by a changed setting in every attempt.
    nr_not_judged: usize,
    changes: Vec<Disturbed>,
    nr_steps: usize,
    nr_pages: u64,
    nr_areas: u64,
    nr_new_frames: u64,
    different: Vec<ProgramRow>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Disturbed {
    #[serde(flatten)]
    change: SettingChange,
    /// Programs that were repeated because of it, and those that could not be judged.
    nr_repeated: usize,
    nr_not_judged: usize,
}

/// Groups neighbouring programs with the same folio sizes and the same hugetlb pool, at most
/// [`GROUP`] each.
pub fn groups(programs: &[ProcessProgram]) -> impl Iterator<Item = &[ProcessProgram]> {
    let are_alike =
        |a: &ProcessProgram, b: &ProcessProgram| a.sizes_kib == b.sizes_kib && a.huge == b.huge;
    programs.chunk_by(are_alike).flat_map(|same| same.chunks(GROUP))
}

pub type Record<'a> = &'a dyn Fn(&str, &ProcessProgram) -> Result<CowRun, CrosscheckError>;

pub struct CowCheck<'a> {
    record: Record<'a>,
    kernel: Option<Kernel>,
    keep: Option<PathBuf>,
    patience: Duration,
}

impl<'a> CowCheck<'a> {
    #[must_use]
    pub fn new(record: Record<'a>, kernel: Option<Kernel>, keep: Option<PathBuf>) -> Self {
        Self { record, kernel, keep, patience: PATIENCE }
    }

    /// Runs `programs`, a group from [`groups`], and adds the results to `report`.
    ///
    /// # Errors
    /// If something cannot be recorded, parsed, replayed or kept.
    pub fn group(&self, programs: &[ProcessProgram], report: &mut CowResult) -> Result<(), Error> {
        let Some((mut run, text)) = self.undisturbed(programs, report)? else {
            report.nr_not_judged += programs.len();
            return Ok(());
        };
        if let (Some(keep), Some(first)) = (&self.keep, programs.first()) {
            keep_text(keep, &format!("programs_{}", first.seed), &text)?;
        }
        for (verdict, program) in run.iter_mut().zip(programs) {
            let mut earlier = None;
            for _ in 1..NR_RUNS {
                if verdict.is_equal() {
                    break;
                }
                let again = self.undisturbed(std::slice::from_ref(program), report)?;
                let Some(again) = again.and_then(|(mut run, _)| run.pop()) else { break };
                earlier = Some(std::mem::replace(verdict, again));
            }
            report.take(verdict.clone(), earlier);
        }
        Ok(())
    }

    /// Runs the programs until no setting changes meanwhile; `None` if that never happens.
    fn undisturbed(
        &self,
        programs: &[ProcessProgram],
        report: &mut CowResult,
    ) -> Result<Option<(Vec<ProgramRow>, String)>, Error> {
        for nr in 1..=NR_TRIES {
            let (run, text, changes) = self.once(programs, report)?;
            if changes.is_empty() {
                return Ok(Some((run, text)));
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

    fn once(&self, programs: &[ProcessProgram], report: &mut CowResult) -> Result<Ran, Error> {
        let text: String = programs.iter().map(ProcessProgram::to_string).collect();
        let Some(first) = programs.first() else { return Ok(Ran::default()) };
        let CowRun { text, changes } = (self.record)(&text, first)?;
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

type Ran = (Vec<ProgramRow>, String, Vec<SettingChange>);

impl CowResult {
    #[must_use]
    pub fn new(kernel: String, nr_programs: usize, command_line: Vec<String>) -> Self {
        Self {
            schema_version: 1,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line,
            kernel,
            nr_programs,
            ..Self::default()
        }
    }

    fn take(&mut self, verdict: ProgramRow, earlier: Option<ProgramRow>) {
        self.nr_steps += verdict.nr_steps;
        self.nr_pages += verdict.nr_pages;
        self.nr_areas += verdict.nr_areas;
        self.nr_new_frames += verdict.nr_new_frames;
        match earlier {
            _ if !verdict.is_equal() => self.different.push(verdict),
            Some(earlier) => self.repeated_equal.push(earlier),
            None => self.nr_equal += 1,
        }
    }

    fn disturbed(&mut self, new: Disturbed) {
        match self.changes.iter_mut().find(|known| known.change == new.change) {
            Some(known) => {
                known.nr_repeated += new.nr_repeated;
                known.nr_not_judged += new.nr_not_judged;
            }
            None => self.changes.push(new),
        }
    }

    fn nr_agree(&self) -> usize {
        self.nr_equal + self.repeated_equal.len()
    }

    #[must_use]
    pub fn nr_different(&self) -> usize {
        self.different.len()
    }

    #[must_use]
    pub fn is_nothing_judged(&self) -> bool {
        self.nr_agree() == 0 && self.nr_not_judged > 0
    }

    #[must_use]
    pub fn remarks(&self) -> Option<Remark> {
        Remark::of_rules(self.rules_note.as_deref())
    }

    #[must_use]
    pub fn text(&self) -> String {
        text(self).trim_end().to_owned() + "\n"
    }

    /// # Errors
    /// Never in practice: the result is names and numbers.
    pub fn json(&self) -> Result<String, ExportError> {
        Ok(largefolio_results::json::pretty(self)?)
    }
}

fn text(report: &CowResult) -> String {
    let programs = figures::counted(report.nr_programs as u64, "program");
    let verdict = match report.different.len() {
        0 if report.nr_not_judged > 0 => format!(
            "kernel and model agree in {} of {programs}; the others were not compared",
            report.nr_agree()
        ),
        0 => format!("kernel and model agree in all {programs}"),
        nr => format!("kernel and model differ in {nr} of {programs}"),
    };
    let mut lines = vec![
        verdict,
        String::new(),
        format!("kernel {}, rules {}", report.kernel, report.rules),
        format!(
            "{programs}, {} steps, {} mapped pages and smaps of {} areas compared, {} new frames",
            report.nr_steps, report.nr_pages, report.nr_areas, report.nr_new_frames
        ),
    ];
    for Disturbed { change, nr_repeated, nr_not_judged } in &report.changes {
        let counts = [(*nr_repeated, "repeated"), (*nr_not_judged, "not judged")];
        let counts = counts.iter().filter(|(nr, _)| *nr > 0);
        let counts: Vec<String> =
            counts.map(|(nr, what)| format!("{nr} programs {what}")).collect();
        lines.push(format!(
            "another program changed a setting during the run ({change}): {}",
            counts.join(", ")
        ));
    }
    let nr_repeated = report.repeated_equal.len();
    if nr_repeated > 0 {
        lines.push(format!("{nr_repeated} differed at first, but agreed when repeated"));
    }
    lines.extend(report.different.iter().take(NR_SHOWN).map(|verdict| format!("\n{verdict}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests;
