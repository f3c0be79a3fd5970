//! Recordings made by other tools.
//!
//! Owns the parsers, which are pure functions from a line to a value. Does not start the tools.

pub mod lackey;
