#![forbid(unsafe_code)]
//! Machines, kernels and the replay of a trace through the memory manager.

pub mod bench;
pub mod cost;
pub mod datafile;
pub mod explain;
pub mod fit;
pub mod gaps;
pub mod interval;
pub mod kernel;
pub mod machine;
pub mod metrics;
pub mod names;
pub mod policy;
pub mod replay;
pub mod size;
pub mod sweep;
pub mod tlb;
pub mod why;
