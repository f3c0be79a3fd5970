#![forbid(unsafe_code)]
//! Test helpers: naive models of the real types, a browser for pages, invalid files, names that
//! change while they are read, and case counts.

pub mod browser;
pub mod buddy;
mod lane;
pub mod lru;
pub mod page_tree;
pub mod parquet;
pub mod pgtable;
pub mod rmap;
pub mod skeleton;
mod skip;
pub mod swap;
pub mod tlb;
pub mod walk;

pub use lane::{cases, is_in_sample, is_whole};
pub use skip::say_skipped;
