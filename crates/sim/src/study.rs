//! Studies: a published table beside this model's numbers, as data.
//!
//! Owns the study file (TOML), its checks, the studies built in, the runs they ask for and the
//! comparison. Does not own how numbers are counted ([`crate::replay`], [`crate::cost`],
//! [`crate::bench`]), anything measured on the running kernel (a caller hands it in), or printing.
//!
//! ```text
//!   studies/*.toml ─► Study ─► cells: replay of a trace | a generated workload | the model alone
//!                       │      benches: measured by the caller, else quoted from a document
//!                       └────► rows: published before, after | ours before, after
//!                                    change, change, distance, how close?
//!                curves: cells below limits | lines over limits, where each is worse
//!                frontiers: lines over programs | what each gains and pays, who loses
//! ```
//!
//! Reading order: [`file`](Study) (what a study says), `load` (reading and checking), [`Metric`]
//! (which of a cell's numbers), [`cell`](Values) and `model` (running), [`Closeness`], [`Score`] (which
//! rows count), [`finding`](Finding) (the comparison), [`Curve`] (a program below limits), [`Frontier`] (kernels
//! over many programs).
//!
//! Invariants:
//! - I1: only the comparison reads `published`. If a row's inputs contain a published number of its
//!   own series all the same, it says which (`inputs-of-series`, or a machine file that cites the
//!   study's section), and it does not count.
//! - I2: a row that moves in another direction than the published one, or is apart from it, says so
//!   and why (`disagrees`), and a row that says so does disagree: [`Finding::surprises`] lists the
//!   others.
//! - I3: without a measurement handed in, the same inputs give the same findings.

mod basis;
mod builtin;
mod cell;
mod closeness;
mod count;
mod curve;
mod dimension;
mod error;
mod file;
mod finding;
mod frontier;
mod load;
mod metric;
mod model;
mod parts;
mod sample;
mod score;
mod unit;

#[cfg(test)]
mod tests;

pub use basis::Basis;
pub use builtin::names;
pub use cell::{Ended, Folders, Progress, Values, run};
pub use closeness::{Closeness, Pair};
pub use count::Count;
pub use curve::{CountFinding, Curve, CurveFinding, LimitFinding, Line, LineFinding, Series};
pub use error::{Mistake, StudyError};
pub use file::{Bench, BenchWork, Change, Quoted, Row, Source, Study, Subject, Table};
pub use finding::{Finding, How, Measured, Measurements, RowFinding, TableFinding};
pub use frontier::{ChangeFinding, Frontier, FrontierCount, FrontierFinding, FrontierLine};
pub use metric::Metric;
pub use parts::{Generated, Input};
pub use score::Score;
