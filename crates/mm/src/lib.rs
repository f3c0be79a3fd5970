#![forbid(unsafe_code)]
//! The memory manager of largefolio.

pub mod units;
