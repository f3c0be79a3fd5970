//! A recording's named objects: a directory and a zram device, removed however the process ends.
//!
//! ```text
//!   folio ---- pipe ----> keeper: makes both, prints their names, reads until the pipe ends,
//!                                 then resets and removes the device, and the directory
//! ```
//!
//! The keeper creates both, so they always have an owner. It starts before the thread gets its
//! private mounts, so it does not keep these mounts alive.
//!
//! Invariant K1: device and directory are removed when the value is dropped, or soon after this
//! process was killed. A device that stays busy for half a minute remains.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::super::error::CrosscheckError;
use largefolio_linux::helpers::{self, Own};
use largefolio_linux::proc::block;

/// `$1` makes a device and `$2` removes it, both empty without one; `$3` is the parent of the
/// directory, `$4` the folder of disks. The mounts and the program killed with folio end a little
/// later than it does.
const KEEPER: &str = r#"
trap '' INT TERM HUP PIPE
directory=$(mktemp -d "$3/largefolio-XXXXXX") || exit
mkdir "$directory/files"
[ -z "$1" ] || device=$(cat "$1")
printf '%s\n%s' "$device" "$directory"
exec >/dev/null 2>&1
cat
nr=0
until [ -z "$device" ] || echo 1 >"$4/zram$device/reset" || [ $nr -gt 300 ]; do
    nr=$((nr + 1))
    sleep 0.1
done
[ -z "$device" ] || echo "$device" >"$2"
rmdir "$directory/files" "$directory"
"#;

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) files: PathBuf,
    /// The zram device's number. The device has no size yet.
    pub(super) zram: Option<u32>,
    child: Child,
    pipe: Option<ChildStdin>,
    _own: Own,
}

impl Kept {
    pub(super) fn new(has_zram: bool) -> Result<Self, CrosscheckError> {
        let device = if has_zram { [block::ZRAM_ADD, block::ZRAM_REMOVE] } else { ["", ""] };
        let mut keeper = Command::new("/bin/sh");
        keeper
            .args(["-c", KEEPER, "folio-keeper"])
            .args(device)
            .arg(std::env::temp_dir())
            .arg(block::DISKS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        let failed = CrosscheckError::os(
            "make a directory and a device that are removed when \
                                          folio ends",
        );
        let (mut child, own) = match helpers::spawn(&mut keeper) {
            Ok(started) => started,
            Err(error) => return Err(failed(error)),
        };
        let pipe = child.stdin.take();
        let names = child.stdout.take().map_or(Ok(Vec::new()), |mut out| {
            let mut names = Vec::new();
            out.read_to_end(&mut names).map(|_| names)
        });
        let mut kept = Self { files: PathBuf::new(), zram: None, child, pipe, _own: own };
        let (device, directory) = names.and_then(|names| named(&names)).map_err(failed)?;
        kept.files = directory.join("files");
        kept.zram = device;
        if has_zram && device.is_none() {
            let add = Path::new(block::ZRAM_ADD);
            let refused = io::Error::from(io::ErrorKind::PermissionDenied);
            return Err(CrosscheckError::file(add)(refused));
        }
        Ok(kept)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.child.wait();
    }
}

fn named(text: &[u8]) -> io::Result<(Option<u32>, PathBuf)> {
    let line = text.iter().position(|byte| *byte == b'\n');
    let Some((device, directory)) = line.map(|at| (&text[..at], &text[at + 1..])) else {
        return Err(io::Error::other(
            "cannot create a directory in the directory for temporary files",
        ));
    };
    let device = std::str::from_utf8(device).ok().and_then(|digits| digits.parse().ok());
    Ok((device, PathBuf::from(OsString::from_vec(directory.to_vec()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_there_until_the_value_is_dropped() {
        let kept = Kept::new(false).unwrap();
        let files = kept.files.clone();
        assert!(files.is_dir() && kept.zram.is_none());
        drop(kept);
        assert!(!files.parent().unwrap().exists());
    }

    #[test]
    fn names_of_directories_may_have_line_breaks() {
        let (device, directory) = named(b"12\n/tmp/a\nb").unwrap();
        assert_eq!((device, directory), (Some(12), PathBuf::from("/tmp/a\nb")));
        assert_eq!(named(b"\n/tmp/a").unwrap(), (None, PathBuf::from("/tmp/a")));
        assert!(named(b"").is_err());
    }
}
