//! The advice as text and CSV.

use std::fmt::Write as _;
use std::iter;

use crate::ExportError;
use crate::cells::Cells;
use crate::figures::{self, points, printable};
use crate::predict::Goal;
use largefolio_linux::shell::{as_root, as_typed, quoted};
use largefolio_sim::interval::Interval;

use super::{Advice, Candidate, Plan, Step};
use crate::Forms;

const NR_SHOWN: usize = 10;

impl Forms for Advice {
    fn text(&self) -> String {
        let mut out = String::new();
        for line in self.title() {
            let _ = writeln!(out, "{}", printable(&line));
        }
        if let Some(sentence) = self.limit_sentence() {
            let _ = writeln!(out, "\n{sentence}");
        }
        let _ = match &self.plan {
            None if self.candidates[0].fits == Some(false) => Ok(()),
            Some(plan) => self.write_plan(plan, &mut out),
            None => writeln!(
                out,
                "\nKeep the settings as they are: none of the {} settings tried is certain to be \
                 better for {}.",
                self.candidates.len() - 1,
                self.goal.name()
            ),
        };
        let _ = self.write_table(&mut out);
        let _ = self.write_notes(&mut out);
        out
    }

    fn csv(&self) -> Result<String, ExportError> {
        let mut cells = Cells::text();
        cells.record([
            "choices",
            "run_change_low",
            "run_change_mid",
            "run_change_high",
            "memory_bytes",
            "faults",
            "is_frontier",
            "is_plan",
        ])?;
        for (nr, one) in self.candidates.iter().enumerate() {
            let bound =
                |get: fn(Interval) -> f64| one.time.map_or(String::new(), |t| get(t).to_string());
            cells.record([
                self.name(one),
                bound(|time| time.low),
                bound(|time| time.mid),
                bound(|time| time.high),
                one.memory_bytes.to_string(),
                one.faults.to_string(),
                one.is_frontier.to_string(),
                self.plan.as_ref().is_some_and(|plan| plan.candidate == nr).to_string(),
            ])?;
        }
        cells.into_text()
    }
}

impl Advice {
    fn title(&self) -> [String; 2] {
        let machine = if self.machine == "this" { "this machine" } else { &self.machine };
        [
            format!("{}: {}", self.trace, self.program.join(" ")),
            format!("kernel {}, {machine}; run time: {}", self.kernel, self.run),
        ]
    }

    /// Says whether the program fits into its limit now, and whether anything makes it fit.
    fn limit_sentence(&self) -> Option<String> {
        let limit = figures::bytes(self.limit_bytes?);
        let plain = &self.candidates[0];
        Some(match (plain.fits?, &self.plan) {
            (true, _) => format!("The program fits into {limit} as it is."),
            (false, Some(_)) => {
                format!("As it is, the program does not fit into {limit}: the kernel kills it.")
            }
            (false, None) => format!(
                "The program does not fit into {limit}, and no setting changes that; folio predict \
                 {} --fit finds the smallest limit.",
                self.trace
            ),
        })
    }

    fn name(&self, one: &Candidate) -> String {
        let names: Vec<&str> =
            one.choices.iter().map(|&choice| self.choices[choice].name.as_str()).collect();
        if names.is_empty() { "as it is".to_owned() } else { names.join(", ") }
    }

    fn write_plan(&self, plan: &Plan, out: &mut String) -> std::fmt::Result {
        let one = &self.candidates[plan.candidate];
        let time = one.time.map_or_else(
            || "the change in run time is not known".to_owned(),
            |time| format!("run time {}", figures::change_of_run(time)),
        );
        writeln!(
            out,
            "\nBest for {}: {}: {time}, memory {}%, {} faults instead of {}\n",
            self.goal.name(),
            self.name(one),
            points(one.memory_percent),
            figures::count(one.faults),
            figures::count(self.candidates[0].faults)
        )?;
        for (nr, step) in plan.steps.iter().enumerate() {
            writeln!(out, "  {}. {}\n     {}", nr + 1, step.what, step.command())?;
            if !step.undo.is_empty() {
                writeln!(out, "     to undo it: {}", shell(step.needs_root, &step.undo))?;
            }
        }
        if !plan.start.is_empty() {
            let args = [&["run".to_owned()][..], &plan.start, &["--".to_owned()], &self.program];
            let args = args.concat();
            writeln!(
                out,
                "  {}. start the program with\n     {}",
                plan.steps.len() + 1,
                shell(false, &args)
            )?;
        }
        if let Some(why) = &plan.not_verified {
            return writeln!(out, "\n  folio verify cannot prove it: {why}");
        }
        let needs_root = plan.steps.iter().any(|step| step.needs_root);
        writeln!(out, "\n  to prove it: {}", shell(needs_root, &plan.verify))
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        let mut shown: Vec<usize> = (0..self.candidates.len()).collect();
        let chosen = self.plan.as_ref().map(|plan| plan.candidate);
        let paid_for = |nr: usize| self.candidates[nr].paid_for(self.goal);
        let rank = |nr: &usize| (*nr != 0, Some(*nr) != chosen, !self.candidates[*nr].is_frontier);
        shown.sort_by(|one, other| {
            rank(one).cmp(&rank(other)).then(paid_for(*one).total_cmp(&paid_for(*other)))
        });
        let nr_more = shown.len().saturating_sub(NR_SHOWN);
        shown.truncate(NR_SHOWN);
        let names: Vec<String> = shown.iter().map(|&nr| self.name(&self.candidates[nr])).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        writeln!(out, "\n  {:width$}  {:>26}  {:>20}  {:>10}", "", "run time", "memory", "faults")?;
        for (&nr, name) in shown.iter().zip(&names) {
            let one = &self.candidates[nr];
            let mark = match (Some(nr) == chosen, one.is_frontier) {
                (true, _) => '>',
                (false, true) => '*',
                (false, false) => ' ',
            };
            let time = match one.time {
                _ if nr == 0 => String::new(),
                Some(t) => format!("{}% ({} .. {})", points(t.mid), points(t.low), points(t.high)),
                None => "not known".to_owned(),
            };
            let memory = match nr {
                0 => figures::bytes(one.memory_bytes),
                _ => format!(
                    "{} {:>6}%",
                    figures::bytes(one.memory_bytes),
                    points(one.memory_percent)
                ),
            };
            writeln!(
                out,
                "{mark} {name:width$}  {time:>26}  {memory:>20}  {:>10}",
                figures::count(one.faults)
            )?;
        }
        if nr_more > 0 {
            writeln!(out, "  {nr_more} more are in --json and --csv")?;
        }
        Ok(())
    }

    fn write_notes(&self, out: &mut String) -> std::fmt::Result {
        let gain = if self.goal == Goal::Faults { "faults" } else { "time" };
        writeln!(
            out,
            "\n- >: the plan. *: no other choice is better in both {gain} and memory. Predicted \
             by the model; nothing was measured."
        )?;
        for limit in self.plan.iter().flat_map(|plan| &plan.limits) {
            writeln!(out, "- {limit}.")?;
        }
        let is_already = |why: &str| why == "is already set";
        let missing: Vec<String> = self
            .left_out
            .iter()
            .filter(|one| !is_already(&one.why))
            .map(|one| format!("{} ({})", one.choice, one.why))
            .collect();
        if !missing.is_empty() {
            writeln!(out, "- not tried: {}.", printable(&missing.join("; ")))?;
        }
        Ok(())
    }
}

impl Step {
    #[must_use]
    pub fn command(&self) -> String {
        shell(self.needs_root, &self.words)
    }
}

fn shell(needs_root: bool, args: &[String]) -> String {
    let args = args.iter().map(quoted);
    let command = iter::once("folio".to_owned()).chain(args).collect::<Vec<_>>().join(" ");
    if needs_root { as_root(&command) } else { as_typed(&command) }
}
