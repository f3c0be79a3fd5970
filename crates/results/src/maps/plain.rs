//! Names in the form in which they are shown: a path that is not valid text is shown with its odd
//! bytes replaced.

use std::path::Path;

use largefolio_linux::census::maps::Vma;
use largefolio_report::figures::printable;

/// A path in exports.
pub(super) fn plain(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// What a mapping is of, for people.
pub(super) fn what(vma: &Vma) -> String {
    what_of(&plain(&vma.path), vma.is_deleted)
}

/// What a mapping of the file `path` is of.
pub(super) fn what_of(path: &str, is_deleted: bool) -> String {
    let name = printable(path);
    match (name.is_empty(), is_deleted) {
        (true, _) => "[anonymous]".to_owned(),
        (false, true) => format!("{name} (deleted)"),
        (false, false) => name,
    }
}

/// Text cut in the middle to `nr_chars`, unless these are too few: of a path both ends say most.
#[must_use]
pub fn shortened(text: &str, nr_chars: usize) -> String {
    let nr = text.chars().count();
    if nr <= nr_chars || nr_chars < 5 {
        return text.to_owned();
    }
    let tail = (nr_chars - 2) * 2 / 3;
    let head: String = text.chars().take(nr_chars - 2 - tail).collect();
    let tail: String = text.chars().skip(nr - tail).collect();
    format!("{head}..{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_path_stay() {
        assert_eq!(shortened("/usr/lib/x86_64-linux-gnu/libc.so.6", 20), "/usr/l..nu/libc.so.6");
        assert_eq!(shortened("/bin/true", 20), "/bin/true");
    }
}
