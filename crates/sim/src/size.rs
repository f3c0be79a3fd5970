//! Sizes as people write them.

pub use largefolio_mm::units::parse_bytes;
