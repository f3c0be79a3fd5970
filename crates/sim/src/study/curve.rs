//! A program below limits of memory: what a kernel does at each limit, a line for each kernel.
//!
//! ```text
//!   without a limit, the first kernel ─► most memory in use = 100%
//!   limits = ["10%", .. "200%"]       ─► a control group with that much, for each line
//!   beside = "lru=lists"              ─► the same lines once more, with that edit
//!   more work than THRASHING         ─► ended: how often it would have gone round tells nothing
//! ```
//!
//! Owns what a study file says of it. Running is `cell`, the comparison `finding`.

mod finding;
mod load;

use super::count::Count;
use super::parts::Input;
use crate::replay::{Budget, CellSpec, Cgroup};

pub use finding::{CountFinding, CurveFinding, LimitFinding, LineFinding, Series};
pub(super) use load::CurveFile;

/// Parts of the work that a replay may take otherwise, for one below a limit: whatever the trace, and
/// for each of its rows.
const THRASHING: (u64, u64) = (8, 64);

/// Lines and limits under one title.
#[derive(Clone, Debug)]
pub struct Curve {
    /// What the program is.
    pub title: String,
    /// Where its trace comes from.
    pub(super) input: Input,
    /// Limits in percent of the most memory that the first line has in use without one, rising.
    pub limits: Vec<u32>,
    /// The first is what the others are compared with.
    pub lines: Vec<Line>,
    /// What the lines that stand beside are.
    pub beside: Option<String>,
    /// What is counted at each limit.
    pub counts: Vec<Count>,
}

/// A kernel at every limit.
#[derive(Clone, Debug)]
pub struct Line {
    /// What sets it apart.
    pub name: String,
    /// Without a limit.
    pub(super) spec: CellSpec,
    /// With the edit beside.
    pub(super) beside: Option<CellSpec>,
}

/// Which of a line's two kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Own,
    Beside,
}

impl Line {
    fn spec(&self, kind: Kind) -> Option<&CellSpec> {
        match kind {
            Kind::Own => Some(&self.spec),
            Kind::Beside => self.beside.as_ref(),
        }
    }
}

impl Curve {
    /// The cell without a limit: its name and what is run.
    pub(super) fn whole(&self, nr: usize) -> (String, CellSpec) {
        let mut spec = self.lines[0].spec.clone();
        spec.cgroups = vec![Cgroup::for_all(spec.ram_bytes)];
        (format!("curves.{nr}"), spec)
    }

    /// The cells below limits, where 100% are `bytes`.
    pub(super) fn limited(&self, nr: usize, bytes: u64) -> Vec<(String, CellSpec)> {
        let mut cells = Vec::new();
        for (line_nr, line) in self.lines.iter().enumerate() {
            for kind in [Kind::Own, Kind::Beside] {
                let Some(spec) = line.spec(kind) else { continue };
                for &percent in &self.limits {
                    let mut spec = spec.clone();
                    spec.cgroups = vec![Cgroup::for_all(limit(bytes, percent))];
                    let Budget { steps, steps_per_row, .. } = spec.budget;
                    spec.budget.steps = steps / THRASHING.0;
                    spec.budget.steps_per_row = steps_per_row / THRASHING.1;
                    cells.push((cell_name(nr, line_nr, kind, percent), spec));
                }
            }
        }
        cells
    }

    /// Every specification in it.
    pub(super) fn specs_mut(&mut self) -> impl Iterator<Item = &mut CellSpec> {
        self.lines
            .iter_mut()
            .flat_map(|line| std::iter::once(&mut line.spec).chain(&mut line.beside))
    }
}

/// A share of `bytes`; never nothing.
fn limit(bytes: u64, percent: u32) -> u64 {
    (bytes.saturating_mul(percent.into()) / 100).max(1)
}

/// Name of a cell among those of the study.
fn cell_name(nr: usize, line_nr: usize, kind: Kind, percent: u32) -> String {
    let kind = if kind == Kind::Own { "own" } else { "beside" };
    format!("curves.{nr}.{line_nr}.{kind}.{percent}")
}
