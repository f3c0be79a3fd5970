//! Compares the model with the worked examples of docs/behaviour, and replays
//! whole traces. One binary, so that it is linked only once.

mod golden;
mod policies;
mod replays;
