#![forbid(unsafe_code)]
//! Placeholder.

pub mod buddy;
pub mod page_tree;
pub mod pgtable;
pub mod recording;
pub mod rmap;
pub mod tlb;
