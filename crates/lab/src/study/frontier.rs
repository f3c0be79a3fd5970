//! The gain and cost of kernels over many programs.
//!
//! ```text
//!   each trace under each line           ─► change of every count against the first line
//!   mean over the programs               ─► a point per line: its cost, its gain
//!   no other point is better in both     ─► the line is on the frontier
//! ```
//!
//! Owns the frontier in a study file. `cell` runs it, `finding` compares it.

mod finding;
mod load;

use super::count::Count;
use super::parts::Input;
use largefolio_sim::replay::CellSpec;

pub use finding::{ChangeFinding, FrontierCount, FrontierFinding, FrontierLine};
pub(super) use load::FrontierFile;

#[derive(Clone, Debug)]
pub struct Frontier {
    pub title: String,
    pub(super) programs: Vec<Input>,
    /// Each line's name and specification; the first line is the reference.
    pub(super) lines: Vec<(String, CellSpec)>,
    /// The first count is the gain, the others are the costs; less is better.
    pub counts: Vec<Count>,
}

impl Frontier {
    pub(super) fn cells(&self, nr: usize) -> impl Iterator<Item = (String, &Input, &CellSpec)> {
        self.programs.iter().enumerate().flat_map(move |(program_nr, program)| {
            self.lines.iter().enumerate().map(move |(line_nr, (_, spec))| {
                (cell_name(nr, line_nr, program_nr), program, spec)
            })
        })
    }

    pub(super) fn specs_mut(&mut self) -> impl Iterator<Item = &mut CellSpec> {
        self.lines.iter_mut().map(|(_, spec)| spec)
    }
}

fn cell_name(nr: usize, line_nr: usize, program_nr: usize) -> String {
    format!("frontiers.{nr}.{line_nr}.{program_nr}")
}
