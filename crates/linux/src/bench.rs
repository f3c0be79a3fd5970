//! The series' micro-benchmarks on the running kernel.
//!
//! Each operation sets itself up, times its measured part and cleans up. [`crate::measure`]
//! interleaves them. Reading order: [`anon`] (anonymous memory by folio size: first touch, fork,
//! munmap, copy-on-write), [`anon_cow`] (copy-on-write by several processes), [`fault`] (demand
//! faults), [`clear`] (clearing and copying in user space), [`stubs`] (calls of one instruction per
//! page).

pub mod anon;
pub mod anon_cow;
pub mod clear;
pub mod fault;
pub mod stubs;
