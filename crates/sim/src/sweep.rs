//! Sweeps: many traces under many kernels on many machines.
//!
//! A *cell* is one trace under one kernel on one machine with its settings. It can be written down
//! ([`Recipe`]) so that another host replays it without the user's files, and it has an identity
//! ([`CellId`]) made of everything that decides its outcome, so that a cell which was counted once is
//! known again.
//!
//! Reading order: [`recipe`] (a cell written down), [`id`]. Which cells are asked for is a
//! [`Request`](crate::replay::Request).
//!
//! Owns what a cell is. Does not own where results are kept or which host replays what
//! (`report::sweep`).
//!
//! Invariants:
//! - S1: two cells with one identity have one outcome, name for name and number for number.
//! - S2: the identity depends on contents, never on the place of a file: an edited kernel file
//!   under the same name is another kernel, a moved trace is the same trace.

pub mod id;
pub mod recipe;

pub use id::CellId;
pub use recipe::{Named, Recipe, RecipeError, Setting, Stamp};
