//! `folio study`: published tables beside ours.

mod live;
mod page;
mod text;

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use largefolio_linux::signals::Stop;
use largefolio_report::cells::Cells;
use largefolio_report::json;
use largefolio_sim::replay::{Budget, FACTOR_MAX};
use largefolio_sim::study::{
    self, Closeness, Finding, Folders, How, Measurements, RowFinding, Study, StudyError,
};
use largefolio_trace::shown;
use serde::Serialize;

use super::page_file::{self, PageArgs, PageFile};
use super::values::{Form, FormArgs};
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::running;

/// Version of the JSON's layout.
const SCHEMA_VERSION: u32 = 1;
/// 128 + SIGINT, as a shell reports it.
const INTERRUPTED: u8 = 130;
/// Where traces are, seen from the program: `target/release/folio`, an installed `bin/folio`.
const TRACES_BESIDE: [&str; 2] = ["../../traces", "../share/largefolio/traces"];

/// Print what the patch series published beside what is found here
///
/// Each row has a published number or pair, ours, how far apart the changes are, how close that is,
/// and how ours was obtained: counted in the model, estimated with the costs of a machine file,
/// measured on this kernel (--live), or quoted from a document. No row's published number enters
/// the model; what else of the published work a machine file holds stands with each study. A match
/// that rests on assumed constants is called a coincidence.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio study                       all of them, within a minute
  folio study exec-order owners
  folio study --list
  folio study clear --live          measures on this kernel what the model cannot time; needs root
  folio study --file mine.toml --json
  folio study --report studies.html

Exit status: 0 if every row goes the way it is known to go, 1 if one does not, 2 error.")]
pub(crate) struct StudyArgs {
    /// Studies [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// A study of your own (studies/*.toml are the examples)
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Directory of the recorded traces [default: traces here or beside the program]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Measure on this kernel the rows that are quoted otherwise
    #[arg(long)]
    live: bool,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 7, requires = "live",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Let each trace cause N times the work and the memory that a trace may cause
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=FACTOR_MAX))]
    max_work: u64,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    page: PageArgs,
    /// List the studies, and end
    #[arg(long)]
    list: bool,
}

/// What is to be done.
pub(crate) struct StudyPlan {
    studies: Vec<Study>,
    traces: PathBuf,
    /// Rounds, where rows are measured.
    rounds: Option<usize>,
    form: Form,
    page: Option<PageFile>,
    is_list: bool,
    command_line: Vec<String>,
}

impl StudyArgs {
    /// Reads the studies and finds the traces.
    pub(crate) fn plan(&self, command_line: Vec<String>) -> Result<StudyPlan> {
        let mut studies = Vec::new();
        for name in &self.names {
            studies.push(Study::named(name)?);
        }
        for path in &self.file {
            studies.push(Study::from_path(path)?);
        }
        if studies.is_empty() {
            studies = study::names().map(Study::named).collect::<Result<_, _>>()?;
        }
        for study in &mut studies {
            study.set_budget(Budget::times(self.max_work));
        }
        let rounds = self.live.then_some(usize::try_from(self.rounds)?);
        let traces = self.traces.clone().unwrap_or_else(|| find_traces(&studies));
        Ok(StudyPlan {
            studies,
            traces,
            rounds,
            form: self.form.form(),
            page: self.page.clone().file(self.file.iter().map(PathBuf::as_path))?,
            is_list: self.list,
            command_line,
        })
    }
}

/// `traces` here or beside the program, whichever holds some of the traces; here where none does.
fn find_traces(studies: &[Study]) -> PathBuf {
    let here = PathBuf::from("traces");
    let exe = std::env::current_exe().unwrap_or_default();
    let beside = TRACES_BESIDE.iter().filter_map(|path| Some(exe.parent()?.join(path)));
    let mut all = std::iter::once(here.clone()).chain(beside);
    let names = studies.iter().flat_map(Study::traces);
    let files: Vec<String> = names.map(|name| format!("{name}.folio")).collect();
    all.find(|path| files.iter().any(|file| path.join(file).is_file())).unwrap_or(here)
}

/// The result, with what is needed to understand it.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    version: &'static str,
    command: &'a [String],
    kernel: String,
    /// Rows of each study.
    summary: Vec<Summary>,
    studies: &'a [Finding],
}

/// How many rows of a study are how close.
#[derive(Serialize)]
struct Summary {
    study: String,
    nr_rows: usize,
    nr_within_10_percent: usize,
    nr_within_factor_2: usize,
    nr_same_direction: usize,
    /// Single numbers more than a factor of 2 apart.
    nr_apart: usize,
    nr_other_direction: usize,
    /// One side has no number.
    nr_not_compared: usize,
    /// Of the first two, estimates that rest on assumed constants.
    nr_coincidences: usize,
}

impl Summary {
    fn of(finding: &Finding) -> Self {
        let rows = || finding.tables.iter().flat_map(|table| &table.rows);
        let nr = |found| rows().filter(|row| row.closeness == found).count();
        Self {
            study: finding.study.clone(),
            nr_rows: rows().count(),
            nr_within_10_percent: nr(Some(Closeness::Close)),
            nr_within_factor_2: nr(Some(Closeness::Factor)),
            nr_same_direction: nr(Some(Closeness::Direction)),
            nr_apart: nr(Some(Closeness::Apart)),
            nr_other_direction: nr(Some(Closeness::Other)),
            nr_not_compared: nr(None),
            nr_coincidences: rows().filter(|row| row.coincidence).count(),
        }
    }
}

impl StudyPlan {
    /// Runs the studies and prints them.
    pub(crate) fn run(&self, console: &mut Console) -> Result<Exit> {
        if self.is_list {
            console.deliver(self.listed().as_bytes(), None)?;
            return Ok(Exit::Done);
        }
        self.warn_of_missing_traces();
        let Some(findings) = self.findings()? else { return Ok(Exit::Program(INTERRUPTED)) };
        let text = match self.form {
            Form::Text => text::shown(&findings),
            Form::Csv => csv(&findings)?,
            Form::Json => {
                let report = self.report(&findings);
                json::pretty(&report).context("writing JSON")?
            }
        };
        let page = match &self.page {
            Some(file) => Some((file, page::of(&self.report(&findings))?)),
            None => None,
        };
        page_file::deliver(console, text.as_bytes(), page)?;
        let mut is_as_known = true;
        for finding in &findings {
            for (table, row) in finding.surprises() {
                is_as_known = false;
                let known = row.disagrees.as_ref().map_or("should agree", |_| "should disagree");
                console::warn(&format!(
                    "{}: {}: {}: {known}, does not",
                    finding.study, table.title, row.what
                ));
            }
        }
        Ok(if is_as_known { Exit::Done } else { Exit::No })
    }

    /// `None` after Ctrl-C.
    fn findings(&self) -> Result<Option<Vec<Finding>>> {
        let measured = match self.rounds {
            Some(rounds) => live::measure(&self.studies, rounds)?,
            None => Measurements::new(),
        };
        let scratch = tempfile::tempdir().context("a directory for generated traces")?;
        let line = console::status();
        // Until the directory is gone again.
        let stop = Stop::watch().context("watching for signals")?;
        let folders = Folders { traces: &self.traces, scratch: scratch.path() };
        let values = study::run(&self.studies, folders, &mut |name, nr_rows| {
            line.set_message(format!("{name}, {nr_rows} rows"));
            match stop.asked_by() {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        });
        line.finish_and_clear();
        drop(scratch);
        drop(stop);
        let values = match values {
            Err(StudyError::Stopped) => return Ok(None),
            values => values?,
        };
        let of = |study| Finding::new(study, &values, &measured);
        Ok(Some(self.studies.iter().map(of).collect()))
    }

    fn listed(&self) -> String {
        let mut text = String::new();
        for study in &self.studies {
            let _ = writeln!(text, "{:16} {}  [{}]", study.name, study.title, study.source);
        }
        text
    }

    fn warn_of_missing_traces(&self) {
        let mut names: Vec<&str> = self.studies.iter().flat_map(Study::traces).collect();
        names.sort_unstable();
        names.dedup();
        let is_missing = |name: &&str| !self.traces.join(format!("{name}.folio")).exists();
        let missing: Vec<&str> = names.into_iter().filter(is_missing).collect();
        if !missing.is_empty() {
            console::warn(&format!(
                "{} has no {}: rows that need them stay empty. `make traces` records them, \
                 --traces DIR says where they are",
                shown(&self.traces),
                missing.join(", ")
            ));
        }
    }

    fn report<'a>(&'a self, studies: &'a [Finding]) -> Report<'a> {
        Report {
            schema: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            command: &self.command_line,
            kernel: running::release(),
            summary: studies.iter().map(Summary::of).collect(),
            studies,
        }
    }
}

/// One row a row.
fn csv(findings: &[Finding]) -> Result<String> {
    let mut csv = Cells::text();
    csv.record([
        "study",
        "table",
        "what",
        "published_before",
        "published_after",
        "published_change",
        "unit",
        "ours_before",
        "ours_after",
        "ours_change",
        "ours_unit",
        "measure",
        "distance",
        "closeness",
        "coincidence",
        "how",
        "of",
        "note",
    ])?;
    for finding in findings {
        for table in &finding.tables {
            for row in &table.rows {
                csv.record(record(&finding.study, &table.title, row))?;
            }
        }
    }
    Ok(csv.into_text()?)
}

fn record(study: &str, table: &str, row: &RowFinding) -> Vec<String> {
    let number = |number: Option<f64>| number.map(|n| n.to_string()).unwrap_or_default();
    let pair = |pair: Option<study::Pair>| {
        let pair = pair.unwrap_or_default();
        [pair.before, pair.after, pair.change].map(number)
    };
    let mut record = vec![study.to_owned(), table.to_owned(), row.what.clone()];
    record.extend(pair(row.published));
    record.push(row.unit.clone());
    record.extend(pair(row.ours));
    record.push(row.ours_unit.clone());
    record.push(if row.measure == study::Change::Points { "points" } else { "percent" }.to_owned());
    record.push(number(row.distance));
    record.push(row.closeness.map(|found| found.words().to_lowercase()).unwrap_or_default());
    record.push(row.coincidence.to_string());
    record.push(row.how.word());
    record.push(match &row.how {
        How::Counted { of } | How::Estimated { of, .. } => of.clone(),
        How::Measured(measured) => format!("{}, {}", measured.cpu, measured.kernel),
        How::Quoted(quoted) => format!("{}, {}, n = {}", quoted.cpu, quoted.kernel, quoted.n),
        How::None { why } => why.clone(),
    });
    record.push(row.disagrees.clone().or_else(|| row.reason.clone()).unwrap_or_default());
    record
}

/// The processor as `path`, a cpuinfo, names it.
fn of_cpuinfo(path: &Path) -> Option<String> {
    let info = std::fs::read_to_string(path).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
