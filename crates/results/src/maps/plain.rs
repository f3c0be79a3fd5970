//! Names for display: bytes of a path that are not UTF-8 are replaced.

use std::path::Path;

use crate::figures::printable;
use largefolio_linux::census::maps::Vma;

pub(super) fn plain(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

pub(super) fn what(vma: &Vma) -> String {
    what_of(&plain(&vma.path), vma.is_deleted)
}

pub(crate) fn what_in(process: &str, vma: &Vma) -> String {
    match (process, what(vma)) {
        ("postgres", name) if name == SHARED => format!("{name} (shared_buffers)"),
        (_, name) => name,
    }
}

/// Memory of `mmap(MAP_SHARED | MAP_ANONYMOUS)`, which the kernel calls `/dev/zero (deleted)`.
const SHARED: &str = "shared memory";

pub(super) fn what_of(path: &str, is_deleted: bool) -> String {
    let name = printable(path);
    match (name.is_empty(), is_deleted) {
        (true, _) => "[anonymous]".to_owned(),
        (false, true) if name == "/dev/zero" => SHARED.to_owned(),
        (false, true) if name.starts_with("/SYSV") => {
            format!("{SHARED} (System V, key {})", name.trim_start_matches("/SYSV"))
        }
        (false, true) => format!("{name} (deleted)"),
        (false, false) => name,
    }
}

/// Cuts text in the middle to `nr_chars`, unless that is too few: both ends of a path say most.
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
    fn shared_memory_has_its_familiar_name() {
        assert_eq!(what_of("/dev/zero", true), "shared memory");
        assert_eq!(what_of("/SYSV0052e2c1", true), "shared memory (System V, key 0052e2c1)");
        assert_eq!(what_of("/dev/zero", false), "/dev/zero");
        let vma = Vma { path: "/dev/zero".into(), is_deleted: true, inode: 1, ..Vma::default() };
        assert_eq!(what_in("postgres", &vma), "shared memory (shared_buffers)");
        assert_eq!(what_in("nginx", &vma), "shared memory");
    }

    #[test]
    fn shortened_paths_keep_both_ends() {
        assert_eq!(shortened("/usr/lib/x86_64-linux-gnu/libc.so.6", 20), "/usr/l..nu/libc.so.6");
        assert_eq!(shortened("/bin/true", 20), "/bin/true");
    }
}
