//! Sizes as people write them.

pub use largefolio_mm::units::parse_bytes;

/// Most physical memory: the model keeps nine bytes of state a page, and a larger zone may not be
/// had from the host.
pub const MEMORY_GIB_MAX: u64 = 1 << 12;

/// Physical memory: `512M`, `16G`.
///
/// # Errors
/// What is expected, where `text` is no size or more than a model can have.
pub fn memory(text: &str) -> Result<u64, String> {
    parse_bytes(text).filter(|&bytes| bytes <= MEMORY_GIB_MAX << 30).ok_or_else(|| {
        format!("expected bytes, such as 512M or 16G, and at most {MEMORY_GIB_MAX}G")
    })
}

/// Swap space: none, or as much as there can be memory.
///
/// # Errors
/// As [`memory`].
pub fn swap(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { memory(text) }
}
