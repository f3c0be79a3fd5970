//! Settings that are applied at every boot: by systemd-tmpfiles, and by udev when a disk appears.

use std::path::PathBuf;

use super::{Body, FileLine, FilePiece, FilePlace, PersistError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lasting {
    pub name: String,
    /// The file below `/sys`, on the system that boots.
    pub path: PathBuf,
    pub value: String,
}

/// Returns the files that make `settings` at boot.
///
/// # Errors
/// A value that is not a word or number.
pub fn of_settings(settings: &[Lasting]) -> Result<Vec<FilePiece>, PersistError> {
    let (mut at_boot, mut of_disks) = (Vec::new(), Vec::new());
    for Lasting { name, path, value } in settings {
        check(name, value)?;
        if let Some(disk) = name.strip_prefix("readahead.") {
            of_disks.push(rule(disk, value));
        } else {
            let key = format!("w {} - - - - ", path.display());
            at_boot.push(FileLine { key, rest: value.clone() });
        }
    }
    let files = [(FilePlace::Tmpfiles, at_boot), (FilePlace::Udev, of_disks)];
    let files = files.into_iter().filter(|(_, lines)| !lines.is_empty());
    Ok(files
        .map(|(place, lines)| FilePiece {
            place,
            body: Body::Lines { section: "", replaced: Vec::new(), lines },
        })
        .collect())
}

/// udev rules use a disk's own name: `cciss/c0d0` for `cciss!c0d0` in sysfs.
fn rule(disk: &str, value: &str) -> FileLine {
    let kernel = disk.replace('!', "/");
    FileLine {
        key: format!(r#"ACTION=="add|change", SUBSYSTEM=="block", KERNEL=="{kernel}", "#),
        rest: format!(r#"ATTR{{queue/read_ahead_kb}}="{value}""#),
    }
}

/// Accepts the kernel's words, such as `defer+madvise`, and numbers. They need no quotes.
fn check(name: &str, value: &str) -> Result<(), PersistError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-".contains(&byte);
    if !value.is_empty() && value.bytes().all(is_plain) {
        return Ok(());
    }
    let (name, value) = (name.to_owned(), value.to_owned());
    Err(PersistError::Value { name, value, expected: "a word or a number".to_owned() })
}
