//! Sizes as people write them.

use largefolio_mm::rules::sizes::size_name;
pub use largefolio_mm::units::parse_bytes;

/// Most physical memory: the model keeps nine bytes of state a page, and a larger zone may not be
/// had from the host.
pub const MEMORY_GIB_MAX: u64 = 1 << 12;

/// Physical memory: `512M`, `16G`, `1T`.
///
/// # Errors
/// What is expected, where `text` is no size or more than a model can have.
pub fn memory(text: &str) -> Result<u64, String> {
    parse_bytes(text).filter(|&bytes| bytes <= MEMORY_GIB_MAX << 30).ok_or_else(|| {
        let most = size_name(MEMORY_GIB_MAX << 30);
        format!("expected bytes, such as 512M or 16G, and at most {most}")
    })
}

/// Swap space: none, or as much as there can be memory.
///
/// # Errors
/// As [`memory`].
pub fn swap(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { memory(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_at_most_what_the_message_says() {
        assert_eq!(
            [memory("1T"), memory("4T"), memory("4096G")],
            [Ok(1 << 40), Ok(1 << 42), Ok(1 << 42)]
        );
        assert_eq!(swap("2T"), Ok(2 << 40));
        for wrong in ["5T", "4097G", "1P", "T"] {
            let said = memory(wrong).unwrap_err();
            assert_eq!(said, "expected bytes, such as 512M or 16G, and at most 4T", "{wrong}");
        }
    }
}
