//! Recordings of other tools.
//!
//! Owns the parsers, which are pure (a line in, a value out). Does not start the tools.

pub mod lackey;
