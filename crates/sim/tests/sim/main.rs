//! The model compared with real kernels, against the worked examples of docs/behaviour, and whole
//! replays of traces: one binary, so that it is linked once.

mod golden;
mod policies;
mod recordings;
mod replays;
