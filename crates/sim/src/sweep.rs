//! Sweeps: many traces under many kernels on many machines.
//!
//! A *cell* is one trace under one kernel on one machine with its settings. As a [`Recipe`], it can
//! be replayed on another host without the user's files. Its identity ([`CellId`]) covers
//! everything that determines its outcome, so no cell needs a second replay.
//!
//! Reading order: [`recipe`], [`id`]. A [`ReplayRequest`](crate::replay::ReplayRequest) selects the
//! cells.
//!
//! Owns cells. `report::sweep` stores results and assigns cells to hosts.
//!
//! Invariants:
//! - S1: two cells with the same identity have the same outcome, name for name and number for
//!   number.
//! - S2: the identity depends on contents, never on a file's path: an edited kernel file with the
//!   same name is a different kernel, and a moved trace is the same trace.

pub mod id;
pub mod recipe;

pub use id::CellId;
pub use recipe::{Named, Recipe, RecipeError, Setting, Stamp};
