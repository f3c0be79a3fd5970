//! Which files of a trace an option means.
//!
//! A pattern with a `/` is matched with the whole path, one without it with the last part; `*`
//! stands for any characters, `?` for one.
//!
//! Owns the pattern. Does not own what happens to the files.

use std::fmt;

/// A name or path in which `*` and `?` stand for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(String);

impl Pattern {
    /// The pattern `text`; none without a character.
    pub(super) fn new(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    /// Whether the file at `path` is meant.
    pub(super) fn fits(&self, path: &str) -> bool {
        let subject = if self.0.contains('/') { path } else { name_of(path) };
        fits(self.0.as_bytes(), subject.as_bytes())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The last part of a path.
pub(super) fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Greedy matching with one point of return: the last `*`. Its cost is bounded by the product of
/// the lengths.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[n] => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                (p, n) = (at + 1, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}
