//! Recordings of the order in which a kernel zeroes new folios (docs/behaviour D.4).
//!
//! Each entry is a folio of which one page faulted, with the kernel's steps: pages zeroed together,
//! and points at which another task may run. The model's are those of [`ClearRules::plan`].
//!
//! [`ClearRules::plan`]: largefolio_mm::rules::clear::ClearRules::plan
//!
//! Invariant C1: entries are not expanded in memory, because a gigantic folio has 262,144 steps.

use std::iter;

use largefolio_bulk::plan::Step;
use largefolio_mm::units::Order;
use largefolio_sim::kernel::Kernel;

use super::difference::{Aspect, Location};
use super::error::CheckError;
use super::recording::{Recording, RecordingBody, RecordingHeader};
use super::text::{Pairs, Parsed, number_to, unknown};
use super::verdict::Verdict;

#[derive(Clone, Debug, Default)]
pub struct Clears {
    pub folios: Vec<ClearedFolio>,
    /// The recorder reached the end.
    pub is_complete: bool,
}

/// A new folio.
#[derive(Clone, Debug)]
pub struct ClearedFolio {
    pub order: Order,
    /// The page that faulted; below the number of pages.
    pub fault_page: u64,
    pub runs: Vec<ClearRun>,
}

/// Some of the kernel's steps in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearRun {
    /// Another task may run.
    Point,
    /// `times` units of `nr` pages each, in ascending order from `first`.
    Units {
        first: u64,
        nr: u64,
        times: u64,
        /// A point before each.
        has_points: bool,
    },
}

/// A step in either representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cleared {
    Reschedule,
    Pages { first: u64, nr: u64 },
}

impl RecordingBody for Clears {
    type Position = ();

    fn begin(&mut self, _: &RecordingHeader, _: &Pairs<'_>) -> Parsed<()> {
        Ok(())
    }

    fn line(&mut self, (): &mut (), _: &RecordingHeader, fields: &[&str]) -> Parsed<()> {
        match *fields {
            [">", nr_pages, fault_page] => {
                let nr_pages = number_to(1 << Order::LIMIT, nr_pages)?;
                if !nr_pages.is_power_of_two() {
                    return Err(format!("a folio cannot have {nr_pages} pages"));
                }
                let fault_page = number_to(nr_pages - 1, fault_page)?;
                let order = Order::floor_of(nr_pages);
                self.folios.push(ClearedFolio { order, fault_page, runs: Vec::new() });
                Ok(())
            }
            ["end"] => {
                self.is_complete = true;
                Ok(())
            }
            _ => {
                let folio = self.folios.last_mut().ok_or("a line before the first folio")?;
                folio.runs.push(ClearRun::of(fields, folio.order)?);
                Ok(())
            }
        }
    }
}

impl ClearRun {
    fn of(fields: &[&str], order: Order) -> Parsed<Self> {
        let nr_pages = order.nr_pages();
        let (kind, first, nr, times) = match *fields {
            ["r"] => return Ok(Self::Point),
            [kind @ ("u" | "p"), first, nr] => (kind, first, nr, "1"),
            [kind @ ("u" | "p"), first, nr, times] => {
                let times = times.strip_prefix('x').ok_or("the repetition lacks its x")?;
                (kind, first, nr, times)
            }
            _ => return unknown(fields),
        };
        let number = |word| number_to(nr_pages, word);
        let (first, nr, times) = (number(first)?, number(nr)?, number(times)?);
        Ok(Self::Units { first, nr, times, has_points: kind == "p" })
    }

    fn steps(self) -> Box<dyn Iterator<Item = Cleared>> {
        match self {
            Self::Point => Box::new(iter::once(Cleared::Reschedule)),
            Self::Units { first, nr, times, has_points } => {
                Box::new((0..times).flat_map(move |k| {
                    let point = has_points.then_some(Cleared::Reschedule);
                    point.into_iter().chain([Cleared::Pages { first: first + k * nr, nr }])
                }))
            }
        }
    }
}

impl From<Step> for Cleared {
    fn from(step: Step) -> Self {
        match step {
            Step::Reschedule => Self::Reschedule,
            Step::Unit(unit) => Self::Pages { first: unit.first, nr: unit.nr },
        }
    }
}

impl Recording<Clears> {
    /// Compares each folio's steps with those of `kernel`, or of the recorded kernel's rules, up to
    /// the first difference.
    ///
    /// # Errors
    /// No rules are known for it. A difference is not an error.
    pub fn check(&self, kernel: Option<&Kernel>) -> Result<Verdict, CheckError> {
        let kernel = self.rules(kernel)?;
        let mut verdict = Verdict::new(self.name.clone(), &kernel);
        let (rules, arch) = (&kernel.rules, self.header.arch);
        for (step, folio) in self.body.folios.iter().enumerate() {
            let plan = rules.clear.plan(arch, rules.page, folio.order, folio.fault_page);
            let mut model = plan.steps().map(Cleared::from);
            let mut recorded = folio.runs.iter().flat_map(|run| run.steps());
            verdict.nr_steps += 1;
            loop {
                let (kernel, model) = (recorded.next(), model.next());
                verdict.count(Aspect::Clearing, u64::from(kernel.is_some()));
                if kernel != model {
                    let place = folio.location(step);
                    verdict.differ(Aspect::Clearing, place, shown(kernel), shown(model));
                    return Ok(verdict);
                }
                if kernel.is_none() {
                    break;
                }
            }
        }
        Ok(verdict)
    }
}

impl ClearedFolio {
    fn location(&self, step: usize) -> Location {
        let action = format!("{} pages, fault in {}", self.order.nr_pages(), self.fault_page);
        Location::Step { step, action, state_before: None }
    }
}

fn shown(step: Option<Cleared>) -> String {
    match step {
        None => "the end".to_owned(),
        Some(Cleared::Reschedule) => "a reschedule point".to_owned(),
        Some(Cleared::Pages { first, nr }) => format!("pages {first}..{}", first + nr),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MERGED: &str = "# clear page=4096 arch=x86-64 release=7.0.13\n> 512 255\n\
                          u 258 254\nu 0 253\nu 253 5\nend\n";

    fn check(text: &str, kernel: &str) -> Verdict {
        let kernel = Kernel::parse(kernel).unwrap();
        Recording::<Clears>::parse("here", text).unwrap().check(Some(&kernel)).unwrap()
    }

    #[test]
    fn steps_are_those_of_the_plan() {
        let verdict = check(MERGED, "7.0+page=4K");
        assert_eq!((verdict.differences.len(), verdict.nr_compared(Aspect::Clearing)), (0, 3));
        let first = &check(MERGED, "6.18+page=4K").differences[0];
        assert_eq!((&*first.kernel, &*first.model), ("pages 258..512", "pages 511..512"));
        let points = MERGED.replace("u ", "p ");
        assert!(check(&points, "7.0+page=4K+preemption=voluntary").is_equal());
        let first = &check(&points, "7.0+page=4K").differences[0];
        assert_eq!(first.kernel, "a reschedule point");
    }

    #[test]
    fn a_missing_or_additional_step_differs() {
        let less = MERGED.replace("u 253 5\n", "");
        assert_eq!(check(&less, "7.0+page=4K").differences[0].kernel, "the end");
        let more = MERGED.replace("end\n", "r\nend\n");
        assert_eq!(check(&more, "7.0+page=4K").differences[0].model, "the end");
    }

    #[test]
    fn repeated_units_ascend() {
        let text = "# clear page=4096 arch=x86-64 release=6.12.1\n> 4 3\nu 0 1 x2\nu 2 1\nu 3 1\n";
        assert!(check(text, "6.12+page=4K+preemption=full").is_equal());
    }

    #[test]
    fn malformed_lines_are_refused() {
        for line in ["> 3 0", "> 4 4", "u 5 1", "u 0 1 2", "u 0", "q", "> 2097152 0"] {
            let text = format!("# clear page=4096\n> 4 0\n{line}\n");
            assert!(Recording::<Clears>::parse("here", &text).is_err(), "{line}");
        }
        assert!(Recording::<Clears>::parse("here", "# clear page=4096\nr\n").is_err());
    }
}
