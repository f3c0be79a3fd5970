//! A program below memory limits: one line per kernel, one point per limit.
//!
//! ```text
//!   without a limit, the first kernel ─► most memory in use = 100%
//!   limits = ["10%", .. "200%"]       ─► a cgroup with that limit, for each line
//!   beside = "lru=lists"              ─► the same lines again, with that edit
//!   more work than THRASHING         ─► ended: the work beyond that means nothing
//! ```
//!
//! Owns the curve in a study file. `cell` runs it, `finding` compares it.

mod finding;
mod load;

use super::count::Count;
use super::parts::Input;
use largefolio_sim::replay::{Budget, CellSpec, Cgroup};

pub use finding::{CountFinding, CurveFinding, LimitFinding, LineFinding, Series};
pub(super) use load::CurveFile;

/// Divisors of the replay's work budget below a limit: for the whole trace, and per row.
const THRASHING: (u64, u64) = (8, 64);

#[derive(Clone, Debug)]
pub struct Curve {
    pub title: String,
    pub(super) input: Input,
    /// Rising, in percent of the first line's peak memory without a limit.
    pub limits: Vec<u32>,
    /// The first line is the reference.
    pub lines: Vec<CurveLine>,
    /// Description of the second set of lines.
    pub beside: Option<String>,
    pub counts: Vec<Count>,
}

#[derive(Clone, Debug)]
pub struct CurveLine {
    pub name: String,
    pub(super) spec: CellSpec,
    /// With the `beside` edit.
    pub(super) beside: Option<CellSpec>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    Own,
    Beside,
}

impl CurveLine {
    fn spec(&self, kind: LineKind) -> Option<&CellSpec> {
        match kind {
            LineKind::Own => Some(&self.spec),
            LineKind::Beside => self.beside.as_ref(),
        }
    }
}

impl Curve {
    pub(super) fn whole(&self, nr: usize) -> (String, CellSpec) {
        let mut spec = self.lines[0].spec.clone();
        spec.cgroups = vec![Cgroup::for_all(spec.ram_bytes)];
        (format!("curves.{nr}"), spec)
    }

    /// Returns the cells below limits; 100% is `bytes`.
    pub(super) fn limited(&self, nr: usize, bytes: u64) -> Vec<(String, CellSpec)> {
        let mut cells = Vec::new();
        for (line_nr, line) in self.lines.iter().enumerate() {
            for kind in [LineKind::Own, LineKind::Beside] {
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

    pub(super) fn specs_mut(&mut self) -> impl Iterator<Item = &mut CellSpec> {
        self.lines
            .iter_mut()
            .flat_map(|line| std::iter::once(&mut line.spec).chain(&mut line.beside))
    }
}

/// Returns a share of `bytes`, at least 1.
fn limit(bytes: u64, percent: u32) -> u64 {
    (bytes.saturating_mul(percent.into()) / 100).max(1)
}

fn cell_name(nr: usize, line_nr: usize, kind: LineKind, percent: u32) -> String {
    let kind = if kind == LineKind::Own { "own" } else { "beside" };
    format!("curves.{nr}.{line_nr}.{kind}.{percent}")
}
