#![forbid(unsafe_code)]
//! The trace file of largefolio: what a program touched, in program order.

pub mod event;
pub mod meta;
