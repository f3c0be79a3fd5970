//! Numbers and fields in the kernel's text files, without allocation or a path to a panic.

/// Returns the bytes before `end` and moves `rest` past it, `None` if `end` does not occur.
#[must_use]
pub fn field<'a>(rest: &mut &'a [u8], end: u8) -> Option<&'a [u8]> {
    let at = rest.iter().position(|byte| *byte == end)?;
    let (field, after) = (rest.get(..at)?, rest.get(at + 1..)?);
    *rest = after;
    Some(field)
}

/// Parses an unsigned number in lower-case digits. Any other character makes it `None`.
#[must_use]
pub fn number<const BASE: u64>(digits: &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for &digit in digits {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        let digit = Some(u64::from(digit)).filter(|digit| *digit < BASE)?;
        value = value.checked_mul(BASE)?.checked_add(digit)?;
    }
    (!digits.is_empty()).then_some(value)
}

/// Returns whether `word` is one of the words in `text`, which spaces separate.
pub(crate) fn has_word(text: &[u8], word: &[u8]) -> bool {
    text.split(u8::is_ascii_whitespace).any(|each| each == word)
}
