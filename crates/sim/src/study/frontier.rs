//! What kernels gain over many programs, and what they pay for it.
//!
//! ```text
//!   each trace under each line           ─► change of every count against the first line
//!   mean over the programs               ─► a point for each line: what it pays, what it gains
//!   no other point is better in both     ─► the line is on the frontier
//! ```
//!
//! Owns what a study file says of it. Running is `cell`, the comparison `finding`.

mod finding;
mod load;

use super::count::Count;
use super::parts::Input;
use crate::replay::CellSpec;

pub use finding::{ChangeFinding, FrontierCount, FrontierFinding, FrontierLine};
pub(super) use load::FrontierFile;

/// Lines and programs under one title.
#[derive(Clone, Debug)]
pub struct Frontier {
    /// What is compared.
    pub title: String,
    /// Every line runs all of them.
    pub(super) programs: Vec<Input>,
    /// The name of each and what is run; the first is what the others are compared with.
    pub(super) lines: Vec<(String, CellSpec)>,
    /// The first is what is to be gained, the others are paid with; less is better.
    pub counts: Vec<Count>,
}

impl Frontier {
    /// The cells: name, program and what is run.
    pub(super) fn cells(&self, nr: usize) -> impl Iterator<Item = (String, &Input, &CellSpec)> {
        self.programs.iter().enumerate().flat_map(move |(program_nr, program)| {
            self.lines.iter().enumerate().map(move |(line_nr, (_, spec))| {
                (cell_name(nr, line_nr, program_nr), program, spec)
            })
        })
    }

    /// Every specification in it.
    pub(super) fn specs_mut(&mut self) -> impl Iterator<Item = &mut CellSpec> {
        self.lines.iter_mut().map(|(_, spec)| spec)
    }
}

/// Name of a cell among those of the study.
fn cell_name(nr: usize, line_nr: usize, program_nr: usize) -> String {
    format!("frontiers.{nr}.{line_nr}.{program_nr}")
}
