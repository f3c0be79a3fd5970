#![forbid(unsafe_code)]
//! Placeholder.

pub mod buddy;
pub mod pgtable;
pub mod recording;
pub mod tlb;
