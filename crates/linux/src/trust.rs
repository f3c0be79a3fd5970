//! Checks which users could have put a file in its place, and whether it runs with other
//! privileges.
//!
//! ```text
//!   /  opt  x  lib  largefolio  file          the path as given, and the path with links resolved
//!   `--------------'     |       `-- owned by a trusted user, not world-writable
//!          |             `-- owned by a trusted user, not world-writable even if sticky
//!          `-- the same, or sticky: any user can add names there, but not replace others
//! ```
//!
//! Invariant:
//! - T1: a file passes only if no one but its `owners` and members of its groups could have put it,
//!   or a link to it, in its place. In a sticky directory, any user could do so with a link to some
//!   file that root owns.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// World-writable.
const OPEN: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// `S_ISUID | S_ISGID`.
const SET_ID: u32 = 0o6000;

/// Returns the reason if a user outside of `owners` could have placed `path`.
pub(crate) fn distrust(path: &Path, owners: &[u32]) -> Option<String> {
    let Ok(real) = path.canonicalize() else { return Some("it does not exist".to_owned()) };
    let is_open = |metadata: &Metadata| metadata.mode() & OPEN != 0;
    let file = check(&real, owners, is_open);
    let ways = [path, &real].into_iter().filter_map(Path::parent);
    file.or_else(|| {
        let mut dirs = ways.flat_map(|parent| parent.ancestors().enumerate());
        dirs.find_map(|(nr, dir)| {
            let is_excused = |metadata: &Metadata| nr > 0 && metadata.mode() & STICKY != 0;
            check(dir, owners, |metadata| is_open(metadata) && !is_excused(metadata))
        })
    })
}

fn check(path: &Path, owners: &[u32], is_open: impl Fn(&Metadata) -> bool) -> Option<String> {
    let shown = largefolio_trace::shown(path);
    match path.metadata() {
        Err(error) => Some(format!("{shown}: {error}")),
        Ok(metadata) if is_open(&metadata) => Some(format!("everyone can write to {shown}")),
        Ok(metadata) if !owners.contains(&metadata.uid()) => {
            Some(format!("{shown} belongs to user {}", metadata.uid()))
        }
        Ok(_) => None,
    }
}

pub(crate) fn is_set_id(metadata: &Metadata) -> bool {
    metadata.mode() & SET_ID != 0
}

pub(crate) fn has_capabilities(path: &Path) -> bool {
    rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).is_ok()
}

/// Returns the owners of `path` and of the directories above it, who could have replaced the file.
pub(crate) fn owners(path: &Path) -> Vec<u32> {
    path.ancestors().filter_map(|above| Some(above.metadata().ok()?.uid())).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn own() -> Vec<u32> {
        vec![0, rustix::process::geteuid().as_raw()]
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn every_directory_on_the_way_counts() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("above/dir");
        fs::create_dir_all(&inner).unwrap();
        let file = inner.join("file");
        fs::write(&file, "").unwrap();
        set(&file, 0o644);
        let warning = |owners: &[u32]| distrust(&file, owners).unwrap_or_default();
        assert_eq!(warning(&own()), "");
        for open in [&inner, &folder.path().join("above")] {
            set(open, 0o777);
            assert_eq!(warning(&own()), format!("everyone can write to {}", open.display()));
            set(open, 0o755);
        }
        set(&file, 0o646);
        assert_eq!(warning(&own()), format!("everyone can write to {}", file.display()));
        set(&file, 0o644);
        assert!(warning(&[12345]).contains("belongs to user "));
        assert_eq!(warning(&owners(&file)), "");
        assert!(distrust(&inner.join("none"), &own()).is_some());
    }

    #[test]
    fn a_sticky_directory_may_be_above_and_not_around() {
        let folder = tempfile::tempdir().unwrap();
        let sticky = folder.path().join("sticky");
        fs::create_dir_all(sticky.join("dir")).unwrap();
        fs::write(sticky.join("dir/file"), "").unwrap();
        fs::write(sticky.join("file"), "").unwrap();
        set(&sticky, 0o1777);
        assert_eq!(distrust(&sticky.join("dir/file"), &own()), None);
        let warning = distrust(&sticky.join("file"), &own()).unwrap();
        assert_eq!(warning, format!("everyone can write to {}", sticky.display()));
    }

    #[test]
    fn a_link_is_looked_at_from_both_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (open, closed) = (folder.path().join("open"), folder.path().join("closed"));
        for dir in [&open, &closed] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("file"), "").unwrap();
        }
        symlink(closed.join("file"), open.join("link")).unwrap();
        symlink(open.join("file"), closed.join("link")).unwrap();
        set(&open, 0o777);
        let warning = Some(format!("everyone can write to {}", open.display()));
        assert_eq!(distrust(&open.join("link"), &own()), warning);
        assert_eq!(distrust(&closed.join("link"), &own()), warning);
        assert_eq!(distrust(&closed.join("file"), &own()), None);
    }
}
