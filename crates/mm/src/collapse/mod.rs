//! Collapsing small folios into one of PMD order (BEHAVIOUR.md H).
//!
//! - [`gate`]: huge folios of a file against its writers, a concurrent type.

pub mod gate;
