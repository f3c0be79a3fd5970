//! Results as JSON; `folio schema` prints the schemas.

use std::fmt::Write as _;

use largefolio_trace::shown::is_printable;
use serde::Serialize;

/// Formats `value` as indented JSON with a final newline. The output cannot control a terminal:
/// characters that JSON allows in strings but that are not printable (DEL, C1, bidirectional
/// controls) become `\\u00XX`, which means the same to every reader.
///
/// ```
/// use largefolio_results::json::pretty;
/// assert_eq!(pretty(&"a\u{9b}2J\u{1b}")?, "\"a\\u009b2J\\u001b\"\n");
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
/// If JSON cannot represent a value.
pub fn pretty<T: Serialize + ?Sized>(value: &T) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    let is_to_escape = |c: char| c != '\n' && !is_printable(c);
    if !text.contains(is_to_escape) {
        return Ok(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_to_escape(c) {
            // All these characters are below U+FFFF. Writing to a String cannot fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    Ok(escaped)
}
