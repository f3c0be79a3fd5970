//! The verdict in sentences, with which the table and the page begin.

use std::collections::BTreeMap;

use largefolio_sim::cost::BaseSource;
use largefolio_sim::interval::Interval;
use largefolio_sim::replay::Outcome;

use super::{Answer, Causes, Column, Finding, Goal, is_none};
use crate::figures::{self, points, size};
use crate::predict::labels::{self, Labels};
use crate::predict::sums::{LARGE_BYTES, large_share, memory_bytes};
use crate::predict::{Absent, PredictResult};

const NR_NAMED: usize = 3;

pub(crate) fn describe(report: &PredictResult) -> Vec<Vec<String>> {
    let nr_answers = report.verdict.answers.len();
    let of = |answer: &Answer| {
        let writer = SentenceWriter::new(report, answer);
        let place = if nr_answers > 1 { writer.place(answer) } else { String::new() };
        let mut sentences = vec![format!("{place}{}", writer.headline(answer))];
        sentences.extend(writer.others(answer));
        sentences.extend(writer.causes(answer));
        sentences
    };
    let absent = [unfit(report), not_replayed(report)].into_iter().flatten();
    absent.map(|sentence| vec![sentence]).chain(report.verdict.answers.iter().map(of)).collect()
}

pub(crate) fn not_replayed(report: &PredictResult) -> Option<String> {
    let names = absent_names(report, &report.not_replayed);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let nr_all = names.len() + report.rows.len() + report.unfit.len();
    (!names.is_empty()).then(|| {
        format!(
            "--within ended the replay before {} of {nr_all} columns were complete ({}): the \
             answer considers only the others.",
            names.len(),
            figures::printable(&listed(&names))
        )
    })
}

/// Names cells without a row, as distinctly as the rows.
fn absent_names(report: &PredictResult, absent: &[Absent]) -> Vec<String> {
    let as_row = |absent: &Absent| Outcome {
        kernel: absent.kernel.clone(),
        machine: absent.machine.clone(),
        page_bytes: absent.page_bytes,
        memory_bytes: absent.memory_bytes,
        linked: absent.linked.clone(),
        seed: absent.seed,
        ..Outcome::default()
    };
    let rows: Vec<Outcome> = absent.iter().map(as_row).collect();
    let mut names = Labels::names(rows.iter().chain(&report.rows));
    names.truncate(rows.len());
    names
}

pub(crate) fn unfit(report: &PredictResult) -> Option<String> {
    let (first, others) = report.unfit.split_first()?;
    let names = absent_names(report, &report.unfit);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let memory = figures::bytes(first.memory_bytes);
    let is_same = others.iter().all(|other| other.memory_bytes == first.memory_bytes);
    let memory = if is_same { memory } else { "its memory".to_owned() };
    let room = match first.cgroups.as_slice() {
        [] => format!("{memory} (--memory)"),
        groups => format!("its control group (--cgroup {}) or {memory}", groups.join(", ")),
    };
    let nothing = if report.rows.is_empty() { " There is nothing to compare." } else { "" };
    let listed = figures::printable(&listed(&names));
    Some(format!(
        "The program does not fit in memory with {listed}: it needs more than {room}.{nothing}"
    ))
}

/// Returns options that show more: for a terminal, not for a page.
pub(crate) fn hints(report: &PredictResult) -> Vec<&'static str> {
    let of = |answer: &Answer| match &answer.causes {
        Some(causes) if causes.rules.is_empty() => Some("--why shows the share of every rule."),
        Some(_) => None,
        None => SentenceWriter::new(report, answer).not_searched(answer),
    };
    let mut hints: Vec<_> = report.verdict.answers.iter().filter_map(of).collect();
    hints.dedup();
    hints
}

struct SentenceWriter<'a> {
    report: &'a PredictResult,
    goal: Goal,
    names: BTreeMap<usize, String>,
}

impl<'a> SentenceWriter<'a> {
    fn new(report: &'a PredictResult, answer: &Answer) -> Self {
        let columns = answer.columns.iter().map(|column| column.row);
        let rows: Vec<usize> = std::iter::once(answer.reference).chain(columns).collect();
        let names = Labels::names(rows.iter().map(|&row| &report.rows[row]));
        Self { report, goal: report.verdict.goal, names: rows.into_iter().zip(names).collect() }
    }

    fn name(&self, row: usize) -> &str {
        self.names.get(&row).map_or("", String::as_str)
    }

    /// `On altra with 16 GiB of memory: `.
    fn place(&self, answer: &Answer) -> String {
        let rows = &self.report.rows;
        let row = &rows[answer.reference];
        if self.goal.spans_machines() {
            return format!("With {} of memory: ", figures::bytes(row.memory_bytes));
        }
        let memory = if rows.iter().any(|other| other.memory_bytes != row.memory_bytes) {
            format!(" with {} of memory", figures::bytes(row.memory_bytes))
        } else {
            String::new()
        };
        format!("On {}{memory}: ", labels::machine(&row.machine))
    }

    fn headline(&self, answer: &Answer) -> String {
        let reference = self.name(answer.reference);
        match answer.finding {
            Finding::OneColumn => self.alone(answer),
            Finding::Better => self.better(answer),
            Finding::FirstIsBest => {
                let none = if self.has_none(answer.reference) { "it has none; " } else { "" };
                let goal = self.goal.name();
                format!("{reference} is best for {goal}: {none}{}.", self.list(answer))
            }
            Finding::Same => self.same(answer),
            Finding::NotCertain => {
                let mut changes = answer.columns.iter().filter_map(|column| column.change);
                let is_any = changes.any(|change| self.goal.is_certain(change));
                let what = if is_any {
                    "Which is best is not certain"
                } else {
                    "No difference is certain"
                };
                format!("{what}: {} than with {reference}.", self.list(answer))
            }
            Finding::NotKnown => {
                let goal = self.goal.name();
                let counts = match self.goal {
                    Goal::Time => " --goal faults and --goal memory compare counts.",
                    Goal::Memory | Goal::Faults => "",
                };
                format!("Which is best for {goal} is not known: {}.{counts}", self.lacking(answer))
            }
        }
    }

    fn better(&self, answer: &Answer) -> String {
        let (best, reference) = (self.name(answer.best), self.name(answer.reference));
        let column = answer.columns.iter().find(|column| column.row == answer.best);
        let change = column.and_then(|column| column.change).unwrap_or_default();
        let less = self.amount(change);
        match self.goal {
            Goal::Time => {
                format!("{best} is best for time: a run takes {less} than with {reference}.")
            }
            Goal::Memory | Goal::Faults => format!(
                "{best} is best for {}: {}, {less} than with {reference} ({}).",
                self.goal.name(),
                self.value(answer.best),
                self.value(answer.reference)
            ),
        }
    }

    /// `2.1% less (3.4% to 0.8% less)`, `5.2% fewer`.
    fn amount(&self, change: Interval) -> String {
        let word = |value: f64| match (self.goal, value < 0.0) {
            (Goal::Faults, true) => "fewer",
            (_, true) => "less",
            (_, false) => "more",
        };
        let percent = |value: f64| format!("{}%", points(value).trim_start_matches(['+', '-']));
        let Interval { low, mid, high } = change;
        let middle = format!("{} {}", percent(mid), word(mid));
        if low.total_cmp(&high).is_eq() {
            return middle;
        }
        if !self.goal.is_certain(change) {
            return format!("{middle} ({}% to {}%)", points(low), points(high));
        }
        let (near, far) = if mid < 0.0 { (high, low) } else { (low, high) };
        if far <= -100.0 {
            return format!("{middle} ({} or more)", percent(near));
        }
        format!("{middle} ({} to {})", percent(near), percent(far))
    }

    /// Lists the columns of `answer` that differ, each with its change, or with its count if the
    /// reference has 0. Columns with the same change are listed together.
    fn list(&self, answer: &Answer) -> String {
        let mut amounts: Vec<(String, Vec<&str>)> = Vec::new();
        let is_first_best = answer.finding == Finding::FirstIsBest;
        for column in &answer.columns {
            let amount = match column.change {
                Some(change) if is_first_best && is_none(change) => continue,
                Some(change) => self.amount(change),
                None if self.goal == Goal::Time => continue,
                None => self.value(column.row),
            };
            let name = self.name(column.row);
            match amounts.iter_mut().find(|(other, _)| *other == amount) {
                Some((_, names)) => names.push(name),
                None => amounts.push((amount, vec![name])),
            }
        }
        let nr_more = amounts.len().saturating_sub(NR_NAMED);
        let with =
            |(amount, names): (String, Vec<&str>)| format!("{amount} with {}", listed(&names));
        let mut changes: Vec<String> = amounts.into_iter().take(NR_NAMED).map(with).collect();
        if nr_more > 0 {
            changes.push(format!("and {nr_more} more"));
        }
        let run = if self.goal == Goal::Time { "a run takes " } else { "" };
        format!("{run}{}", changes.join(", "))
    }

    fn others(&self, answer: &Answer) -> Option<String> {
        if !matches!(answer.finding, Finding::Better | Finding::FirstIsBest) {
            return None;
        }
        let of = |is: &dyn Fn(&Interval) -> bool| -> Vec<&str> {
            let others = answer.columns.iter().filter(|column| column.row != answer.best);
            let fits = |column: &&Column| column.change_from_best.as_ref().is_some_and(is);
            others.filter(fits).map(|column| self.name(column.row)).collect()
        };
        let same = of(&|change| is_none(*change));
        let near = of(&|change| !is_none(*change) && !self.goal.is_certain(*change));
        let mut clauses = Vec::new();
        if !same.is_empty() {
            let verb = if same.len() == 1 { "is" } else { "are" };
            clauses.push(format!("{} {verb} as good", listed(&same)));
        }
        if !near.is_empty() {
            let verb = if near.len() == 1 { "is" } else { "are" };
            clauses.push(format!("{} {verb} not certainly worse", listed(&near)));
        }
        (!clauses.is_empty()).then(|| format!("{}.", clauses.join("; ")))
    }

    fn causes(&self, answer: &Answer) -> Vec<String> {
        let Some(causes) = &answer.causes else { return Vec::new() };
        if causes.is_the_name() {
            return Vec::new();
        }
        if causes.rules.is_empty() {
            return vec!["No single rule accounts for much of the difference.".to_owned()];
        }
        let unit = match self.goal {
            Goal::Time => "of a run",
            Goal::Memory => "of the memory",
            Goal::Faults => "of the faults",
        };
        let mut shares: Vec<String> = causes
            .rules
            .iter()
            .enumerate()
            .map(|(nr, cause)| {
                let unit = if nr == 0 { format!(" {unit}") } else { String::new() };
                let name = figures::printable(&cause.switch.with_origin());
                format!("{name} {}%{unit}", points(cause.points))
            })
            .collect();
        if causes.others.abs() >= others_from(causes) {
            shares.push(format!("all other rules {}%", points(causes.others)));
        }
        let name = self.name(causes.row);
        vec![format!("What makes the difference to {name}: {}.", shares.join(", "))]
    }

    fn not_searched(&self, answer: &Answer) -> Option<&'static str> {
        let kernel = |row: usize| &self.report.rows[row].kernel;
        let machine = |row: usize| &self.report.rows[row].machine;
        let is_same = |row: usize| machine(row) == machine(answer.reference);
        let is_requested = self.report.why.is_some();
        let is_other =
            |row| kernel(row) != kernel(answer.reference) && is_same(row) && !is_requested;
        answer.explained_row().filter(|row| is_other(*row))?;
        Some("--why shows which rules make the difference.")
    }

    /// Describes a single column: its value for the goal, or for time, which folios back the
    /// program.
    fn alone(&self, answer: &Answer) -> String {
        let (row, name) = (&self.report.rows[answer.reference], self.name(answer.reference));
        match self.goal {
            Goal::Time => format!(
                "With {name}, {} of the mapped text and {} of the private memory are in folios of {} \
                 and larger.",
                large_share(&row.folios.text),
                large_share(&row.folios.anon),
                size(LARGE_BYTES)
            ),
            Goal::Memory => format!(
                "With {name}, memory use is {}: private memory at its peak, and the page cache \
                 with shared memory.",
                self.value(answer.reference)
            ),
            Goal::Faults => format!(
                "With {name}, there are {}, {} of them major.",
                figures::counted(row.faults.total, "fault"),
                figures::count(row.faults.major)
            ),
        }
    }

    fn same(&self, answer: &Answer) -> String {
        let others = answer.columns.iter().map(|column| column.row);
        let names: Vec<&str> =
            std::iter::once(answer.reference).chain(others).map(|row| self.name(row)).collect();
        let what = match self.goal {
            Goal::Time => "take the same time".to_owned(),
            Goal::Memory => format!("use the same memory, {}", self.value(answer.reference)),
            Goal::Faults => {
                format!("have the same number of faults, {}", self.value(answer.reference))
            }
        };
        format!("{} {what}.", listed(&names))
    }

    fn has_none(&self, row: usize) -> bool {
        self.goal != Goal::Time && self.goal.value(&self.report.rows[row]) == Some(0.0)
    }

    fn value(&self, row: usize) -> String {
        let row = &self.report.rows[row];
        match self.goal {
            Goal::Time => String::new(),
            Goal::Memory => figures::bytes(memory_bytes(row)),
            Goal::Faults => figures::count(row.faults.total),
        }
    }

    /// Names required costs that no other machine's cost can replace.
    fn lacking(&self, answer: &Answer) -> String {
        let row = &self.report.rows[answer.reference];
        if self.goal == Goal::Time && row.estimate.run.source == BaseSource::NotKnown {
            return "the trace has only page faults and no run time (--runtime sets one)"
                .to_owned();
        }
        let not_known = row.estimate.not_known.iter().map(String::as_str);
        let names: Vec<&str> = not_known.take(NR_NAMED).collect();
        match names.as_slice() {
            [] => "the reference has a value of 0 for some seeds".to_owned(),
            names => format!("{} has no {}", row.machine, listed(names)),
        }
    }
}

/// The smallest effect of the other rules worth a mention: a tenth of the named rules' effect.
fn others_from(causes: &Causes) -> f64 {
    causes.rules.iter().map(|cause| cause.points.abs()).sum::<f64>() / 10.0
}

/// `a`, `a and b`, `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
