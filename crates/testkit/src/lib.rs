#![forbid(unsafe_code)]
//! For tests: naive models of the real types, a browser that opens pages, files that nobody should
//! read, names that change under a reader, and how much is tried.

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

pub use lane::{cases, is_whole};
pub use skip::say_skipped;
