#![warn(missing_docs, clippy::missing_errors_doc)]
//! Clears and copies memory in extents: the fastest safe way for the size, the CPU and the memory's
//! next use, in the kernel's orders for a folio.
//!
//! Reading order: [`primitive`](Primitive), [`tuning`](Tuning), [`calibrate`], [`clear_extent`] and
//! [`copy_extent`], [`plan`], [`clear_folio`] and [`copy_folio`], [`gaps`].
//!
//! Unsafe code is limited to `primitive` and the raw forms for mapped memory.

pub mod calibrate;
mod error;
mod extent;
mod folio;
pub mod gaps;
pub mod plan;
mod primitive;
mod tuning;

pub use error::RangeError;
pub use extent::{clear_extent, clear_extent_raw, copy_extent, copy_extent_raw};
pub use folio::{FolioError, clear_folio, copy_folio};
pub use primitive::{Clearer, Copier, Primitive};
pub use tuning::{Choices, Residency, Rung, Tuning, TuningError};
