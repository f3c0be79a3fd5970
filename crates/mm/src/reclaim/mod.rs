//! Memory pressure.
pub mod lru;
