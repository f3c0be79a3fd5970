//! Recordings of files: the effect of touches, reads, writes and advice on the page cache.
//!
//! A probe or a real program acts step by step. The recording lists the tracepoint events of each
//! step and, at the end, the page maps.

mod body;
mod compare;
mod not_compared;
mod parse;
mod replay;
mod step;
mod timing;

pub use body::FileSteps;
