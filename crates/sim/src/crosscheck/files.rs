//! Recordings of files: what touches, reads, writes and advice do to the page cache.
//!
//! A probe or a real program acts step by step; after each step stands what the kernel told through
//! tracepoints, and at the end what page maps show.

mod aside;
mod body;
mod compare;
mod parse;
mod replay;
mod step;
mod timing;

pub use body::FileSteps;
