//! The programs in a trace with several processes: which of them take the time, and which of them
//! change.
//!
//! The first column determines order and selection, so a line shows the same program in all
//! columns.

use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::programs::{ManyProcesses, ProgramOutcome};

use super::section::{Section, SectionLine};
use crate::figures::{self, bytes, grouped, percent, printable};

const NR_SHOWN: usize = 8;

/// The measure that ranks the programs and appears in their lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Time,
    /// Faults and walks, if a cost is not known.
    Events,
}

impl By {
    fn of(rows: &[Outcome]) -> Self {
        let mut programs = rows.iter().flat_map(programs);
        if programs.all(|program| program.estimate_ns.is_some()) {
            Self::Time
        } else {
            Self::Events
        }
    }

    fn get(self, program: &ProgramOutcome) -> u64 {
        match self {
            Self::Time => program.estimate_ns.unwrap_or(0),
            Self::Events => program.faults + program.instruction_walks + program.data_walks,
        }
    }
}

fn programs(row: &Outcome) -> impl Iterator<Item = &ProgramOutcome> {
    row.processes.iter().flat_map(|processes| &processes.programs)
}

fn name(path: &str) -> String {
    printable(path.rsplit('/').next().unwrap_or(path))
}

pub(super) fn section(rows: &[Outcome]) -> Option<Section> {
    let first = rows.first()?.processes.as_ref()?;
    let by = By::of(rows);
    let mut ranked: Vec<&ProgramOutcome> = first.programs.iter().collect();
    ranked.sort_by_key(|program| std::cmp::Reverse(by.get(program)));
    let (shown, rest) = ranked.split_at(ranked.len().min(NR_SHOWN));
    let line = |label: String, paths: &[&ProgramOutcome]| {
        let of = |row: &Outcome| {
            let is_one = |program: &&ProgramOutcome| paths.iter().any(|p| p.path == program.path);
            programs(row).filter(is_one).map(|program| by.get(program)).sum::<u64>()
        };
        let values: Vec<u64> = rows.iter().map(of).collect();
        match by {
            By::Time => SectionLine::times(label, values.into_iter().map(Some).collect()),
            By::Events => SectionLine::counts(label, values),
        }
    };
    let label = |program: &ProgramOutcome| {
        format!("{} ({})", name(&program.path), nr_processes(program.nr_processes))
    };
    let mut lines: Vec<SectionLine> =
        shown.iter().map(|program| line(label(program), std::slice::from_ref(program))).collect();
    if !rest.is_empty() {
        lines.push(line(format!("{} other programs", rest.len()), rest));
    }
    let title = match by {
        By::Time => "Faults and walks by program",
        By::Events => "Number of faults and walks by program",
    };
    Some(Section::new(title, lines))
}

fn nr_processes(nr: u64) -> String {
    if nr == 1 { "1 process".to_owned() } else { format!("{} processes", grouped(nr)) }
}

pub(super) fn sentences(rows: &[Outcome]) -> Vec<String> {
    let Some(row) = rows.first() else { return Vec::new() };
    let Some(first) = &row.processes else { return Vec::new() };
    let by = By::of(rows);
    let whole: u64 = first.programs.iter().map(|program| by.get(program)).sum();
    let most = first.programs.iter().max_by_key(|program| by.get(program));
    let mut sentences = vec![who(first)];
    if let Some(most) = most.filter(|most| first.programs.len() > 1 && by.get(most) > 0) {
        let what = match by {
            By::Time => "the time spent on faults and walks",
            By::Events => "the faults and walks",
        };
        let share = percent(by.get(most), whole);
        sentences.push(format!("{} accounts for {share} of {what}.", name(&most.path)));
    }
    let memory = &first.memory;
    let peaks =
        rows.iter().skip(1).filter_map(|row| Some(row.processes.as_ref()?.memory.peak_bytes));
    let others: Vec<String> = peaks.map(bytes).collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!(" (other columns: {})", others.join(", "))
    };
    sentences.push(format!(
        "Page cache and private memory together peak at {}{others}, after {} references.",
        bytes(memory.peak_bytes),
        figures::count(memory.peak_references),
    ));
    sentences
}

fn who(processes: &ManyProcesses) -> String {
    let nr_programs = processes.programs.len();
    let programs =
        if nr_programs == 1 { "1 program".into() } else { format!("{nr_programs} programs") };
    format!(
        "The trace contains {} of {programs}, with at most {} alive at the same time.",
        nr_processes(processes.nr_started),
        grouped(processes.nr_alive_max)
    )
}
