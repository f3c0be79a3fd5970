//! Clearing and copying memory in extents: the fastest safe way for the size, the CPU and what
//! happens to the memory next, and the kernel's orders of going through a folio.
//!
//! Reading order: [`primitive`](Primitive) (what the CPU can do), [`tuning`](Tuning) (which of it
//! is best), [`calibrate`] (measured), [`clear_extent`] and [`copy_extent`] (the choice carried
//! out), [`plan`] (the kernel's orders, without bytes), [`clear_folio`] and [`copy_folio`] (a plan
//! carried out), [`gaps`] (how long others wait).
//!
//! The floor below the memory manager. Unsafe code is in `primitive`, where instructions meet
//! memory, and in the raw forms for mapped memory; everything else is built on slices.

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
