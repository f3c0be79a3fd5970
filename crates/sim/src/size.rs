//! Sizes such as `16G`.

use largefolio_mm::rules::sizes::size_name;
pub use largefolio_mm::units::parse_bytes;

/// Maximum physical memory. The model keeps nine bytes of state per page, and the host may refuse a
/// larger zone.
pub const MEMORY_GIB_MAX: u64 = 1 << 12;

/// Least physical memory: nothing runs in less.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Parses physical memory: `512M`, `16G`, `1T`.
///
/// # Errors
/// Describes the expected form, if `text` is not a size or is outside the model's limits.
pub fn memory(text: &str) -> Result<u64, String> {
    let bytes = limit(text)?;
    if bytes < MEMORY_BYTES_MIN {
        return Err(format!("expected at least 1M, such as 512M or 16G; {text} is {bytes} bytes"));
    }
    Ok(bytes)
}

/// Parses a limit: any size up to the most memory.
///
/// # Errors
/// Describes the expected form, if `text` is not a size or is above the model's limit.
pub fn limit(text: &str) -> Result<u64, String> {
    parse_bytes(text).filter(|&bytes| bytes <= MEMORY_GIB_MAX << 30).ok_or_else(|| {
        let most = size_name(MEMORY_GIB_MAX << 30);
        format!("expected bytes, such as 512M or 16G, and at most {most}")
    })
}

/// Parses swap space: zero, or a valid memory size.
///
/// # Errors
/// As [`memory`].
pub fn swap(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { limit(text) }
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
        assert_eq!([swap("2T"), swap("64K")], [Ok(2 << 40), Ok(64 << 10)]);
        let message = memory("64").unwrap_err();
        assert_eq!(message, "expected at least 1M, such as 512M or 16G; 64 is 64 bytes");
        for wrong in ["5T", "4097G", "1P", "T"] {
            let message = memory(wrong).unwrap_err();
            assert_eq!(message, "expected bytes, such as 512M or 16G, and at most 4T", "{wrong}");
        }
    }
}
