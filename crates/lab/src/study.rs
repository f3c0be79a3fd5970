//! Studies compare published tables with this model's numbers. A study is a data file.
//!
//! Owns the study file (TOML), its checks, the built-in studies, their runs and the comparison.
//! Does not own the counting ([`largefolio_sim::replay`], [`largefolio_sim::cost`],
//! [`largefolio_sim::bench`]) or printing. The caller measures on the running kernel and passes the
//! results in.
//!
//! ```text
//!   studies/*.toml ─► Study ─► cells: replay of a trace | a generated workload | the model alone
//!                       │      benches: measured by the caller, or quoted from a document
//!                       └────► rows: published before, after | ours before, after
//!                                    change, change, distance, closeness
//!                curves: cells below limits | lines over limits, and where each is worse
//!                frontiers: lines over programs | each line's gain and cost, and the losers
//! ```
//!
//! Reading order: [`file`](Study) (the study's contents), `load` (reading and checking), [`Metric`]
//! (a number of a cell), [`cell`](Values) and `model` (running), [`Closeness`], [`Score`] (which
//! rows count), [`finding`](Finding) (the comparison), [`Curve`] (a program below limits),
//! [`Frontier`] (kernels over many programs), [`result`] (text, JSON and CSV).
//!
//! Invariants:
//! - I1: only the comparison reads `published`. If a row's inputs contain a published number of its
//!   own series, the study says so (`inputs-of-series`, or a machine file that cites the study's
//!   section), and the row does not count.
//! - I2: a row that moves in a different direction from the published one, or is apart from it,
//!   must give a reason in `disagrees`. A row with `disagrees` must disagree.
//!   [`Finding::surprises`] lists violations.
//! - I3: without new measurements, the same inputs produce the same findings.

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
pub mod result;
mod sample;
mod score;
mod unit;

#[cfg(test)]
mod tests;

pub use basis::Basis;
pub use builtin::names;
pub use cell::{CellEnd, Folders, Progress, Values, run};
pub use closeness::{Closeness, ValuePair};
pub use count::Count;
pub use curve::{CountFinding, Curve, CurveFinding, CurveLine, LimitFinding, LineFinding, Series};
pub use error::{Mistake, StudyError};
pub use file::{Bench, BenchWork, Change, InKernel, Quoted, Row, Source, Study, Subject, Table};
pub use finding::{Derivation, Finding, Measured, Measurements, RowFinding, TableFinding};
pub use frontier::{ChangeFinding, Frontier, FrontierCount, FrontierFinding, FrontierLine};
pub use metric::Metric;
pub use parts::{Generated, Input};
pub use score::Score;
