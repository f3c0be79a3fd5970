//! Makes foreign names (of files, programs, mappings) safe to print.
//!
//! A file can be called `\x1b]0;..`, which would control the terminal. Every such name in an error,
//! a warning or a table goes through this module. JSON contains the original name, escaped.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A name that is printed with `?` for every [unprintable](is_printable) character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown<'a>(Cow<'a, str>);

/// Wraps `name`, a path or a text, for printing in a line.
///
/// ```
/// use largefolio_trace::shown;
/// use std::path::Path;
/// assert_eq!(shown(Path::new("/tmp/plain.folio")).to_string(), "/tmp/plain.folio");
/// assert_eq!(shown("\x1b[31mred\u{9b}0m\n").to_string(), "?[31mred?0m?");
/// ```
pub fn shown<T: AsRef<OsStr> + ?Sized>(name: &T) -> Shown<'_> {
    Shown(name.as_ref().to_string_lossy())
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &*self.0;
        while let Some(at) = rest.find(|c| !is_printable(c)) {
            f.write_str(&rest[..at])?;
            f.write_str("?")?;
            let skipped = rest[at..].chars().next().map_or(1, char::len_utf8);
            rest = &rest[at + skipped..];
        }
        f.write_str(rest)
    }
}

/// Returns `text` with `?` for every character that is [not printable](is_printable).
///
/// ```
/// assert_eq!(largefolio_trace::shown::printable("/a\x1b[2Jb"), "/a?[2Jb");
/// ```
#[must_use]
pub fn printable(text: &str) -> String {
    shown(text).to_string()
}

/// Maximum length of a library's message, which quotes a foreign file.
const NR_CHARS_BRIEF: usize = 200;

/// Like [`printable`], but cuts long text. For a library's messages about foreign files.
///
/// ```
/// use largefolio_trace::shown::brief;
/// assert_eq!(brief("unknown field `a\nfolio: all is well`"), "unknown field `a?folio: all is well`");
/// assert_eq!(brief(&"a".repeat(1 << 20)).len(), 202);
/// ```
#[must_use]
pub fn brief(text: &str) -> String {
    match text.char_indices().nth(NR_CHARS_BRIEF) {
        Some((at, _)) => format!("{}..", shown(&text[..at])),
        None => printable(text),
    }
}

/// Returns a path as unique text: unchanged if it is UTF-8, else with `\\xHH` for each invalid
/// byte. Use it in results, where different paths must stay different.
///
/// ```
/// use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path};
/// let path = Path::new(OsStr::from_bytes(b"a\xff.folio"));
/// assert_eq!(largefolio_trace::shown::spelled(path), "a\\xff.folio");
/// ```
#[must_use]
pub fn spelled(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a String never fails.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Returns whether a character is safe in a terminal line: not a control character (C0, DEL, C1), a
/// line separator, or a change of writing direction.
#[must_use]
pub fn is_printable(c: char) -> bool {
    let separates = matches!(c, '\u{2028}' | '\u{2029}');
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !(c.is_control() || separates || turns)
}
