//! The tools that make filesystems.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::CrosscheckError;
use super::workloads::Filesystem;
use largefolio_linux::environment::{Host, find_in_path};

/// Administrators' tools are here if `PATH` lacks them.
const SBIN: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

const fn formatter(
    filesystem: Filesystem,
) -> (&'static str, &'static str, &'static [&'static str]) {
    match filesystem {
        Filesystem::Xfs => ("mkfs.xfs", "xfsprogs", &["-q", "-f"]),
        Filesystem::Btrfs => ("mkfs.btrfs", "btrfs-progs", &["-q", "-f"]),
        Filesystem::Ext4 => ("mkfs.ext4", "e2fsprogs", &["-q", "-F", "-b", "4096"]),
        Filesystem::Ext4Encrypt | Filesystem::Ext4Slow => {
            ("mkfs.ext4", "e2fsprogs", &["-q", "-F", "-b", "4096", "-O", "encrypt"])
        }
    }
}

pub(super) fn make(
    filesystem: Filesystem,
    device: &Path,
    tool: &Path,
) -> Result<(), CrosscheckError> {
    let (name, _, arguments) = formatter(filesystem);
    let output = Command::new(tool)
        .args(arguments)
        .arg(device)
        .stdin(Stdio::null())
        .output()
        .map_err(CrosscheckError::file(tool))?;
    if output.status.success() {
        return Ok(());
    }
    let command = format!("{name} {} {}", arguments.join(" "), device.display());
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(CrosscheckError::Tool { command, stderr })
}

pub(super) fn missing(filesystem: Filesystem) -> String {
    let (tool, package, _) = formatter(filesystem);
    format!("{tool} for {filesystem} was not found; install it: apt-get install {package}")
}

pub(super) fn installed(filesystem: Filesystem) -> Option<PathBuf> {
    let (name, ..) = formatter(filesystem);
    let in_sbin = || SBIN.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
    find_in_path(&Host, name.as_ref()).or_else(in_sbin)
}
