#![forbid(unsafe_code)]
//! Naive models that the tests hold the real types against, and a browser that opens pages.

pub mod browser;
pub mod buddy;
pub mod lru;
pub mod page_tree;
pub mod pgtable;
pub mod rmap;
pub mod skeleton;
pub mod tlb;
pub mod walk;
