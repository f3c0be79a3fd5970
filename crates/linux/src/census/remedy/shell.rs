//! Names as a shell takes them.

use std::path::Path;

/// A path that can be pasted.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=,".contains(c);
    if text.chars().all(is_plain) {
        return text.into_owned();
    }
    if text.chars().any(char::is_control) {
        return format!("{text:?}");
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_can_be_pasted() {
        let of = |path: &str| quoted(Path::new(path));
        assert_eq!(of("/usr/lib/libc.so.6"), "/usr/lib/libc.so.6");
        assert_eq!(of("/a b's"), "'/a b'\\''s'");
        assert_eq!(of("/a\nb"), "\"/a\\nb\"");
    }
}
