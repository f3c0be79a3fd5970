//! Sizes as people write them.

/// `64K`, `2M`, `1G` or plain bytes; `None` for anything else or what does not fit 63 bits.
///
/// ```
/// use largefolio_sim::size::parse_bytes;
/// assert_eq!(parse_bytes("64K"), Some(65536));
/// assert_eq!(parse_bytes("2m"), Some(2 << 20));
/// assert_eq!(parse_bytes("-1"), None);
/// ```
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.strip_suffix("iB").unwrap_or(text);
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|&bytes| bytes < 1 << 63)
}
