//! What a plan must know about the running kernel.
//!
//! Owns the seam: plans are made from [`Facts`], so that every refusal is tested without root.

use std::fs;
use std::path::{Path, PathBuf};

use super::mount::Detached;
use super::workloads::Filesystem;
use crate::environment::{Host, find_in_path};
use crate::proc::thp;
use crate::system::Live;

/// Where administrators' tools are when `PATH` does not say.
const SBIN: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Fault-around of every kernel whose setting nobody changed.
pub(super) const DEFAULT_AROUND_BYTES: u64 = 65536;

/// The global setting of transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thp {
    /// For every mapping.
    Always,
    /// For mappings that ask.
    Madvise,
    /// For none.
    Never,
    /// The kernel was built without.
    Absent,
}

/// The running machine, as far as a plan depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Effective user 0.
    pub is_root: bool,
    /// `uname -r`.
    pub release: String,
    /// Base page in bytes.
    pub page_bytes: u64,
    /// The global THP setting.
    pub thp: Thp,
    /// Fault-around window in bytes; `None` where the kernel does not tell (debugfs, lockdown).
    pub fault_around_bytes: Option<u64>,
    /// Formatters that were found, by filesystem.
    pub formatters: Vec<(Filesystem, PathBuf)>,
}

impl Facts {
    /// Asks the running machine.
    #[must_use]
    pub fn of_host() -> Self {
        let thp = match thp::chosen(&Live, &thp::setting("enabled")).as_deref() {
            Some("always") => Thp::Always,
            Some("madvise") => Thp::Madvise,
            Some(_) => Thp::Never,
            None => Thp::Absent,
        };
        let formatters = Filesystem::LIVE
            .into_iter()
            .filter_map(|one| Some((one, tool(formatter(one).0)?)))
            .collect();
        Self {
            is_root: rustix::process::geteuid().is_root(),
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            page_bytes: rustix::param::page_size() as u64,
            thp,
            fault_around_bytes: fault_around_bytes(),
            formatters,
        }
    }

    /// Name of this kernel's recordings: `live_6.18_amd64`, `live_7.2_arm64_16k`.
    #[must_use]
    pub fn variant(&self) -> String {
        let version: Vec<&str> = self.release.split(['.', '-', '+']).take(2).collect();
        let arch = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
        let page = match self.page_bytes >> 10 {
            4 => String::new(),
            kib => format!("_{kib}k"),
        };
        format!("live_{}_{arch}{page}", version.join("."))
    }

    /// Path of the tool that makes `filesystem`.
    #[must_use]
    pub fn formatter(&self, filesystem: Filesystem) -> Option<&Path> {
        let found = self.formatters.iter().find(|(known, _)| *known == filesystem);
        found.map(|(_, path)| path.as_path())
    }
}

/// The tool that makes a filesystem, its package, and its arguments.
pub(super) const fn formatter(
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

/// Why there is no such filesystem, with the remedy.
pub(super) fn missing(filesystem: Filesystem) -> String {
    let (tool, package, _) = formatter(filesystem);
    format!("{tool} for {filesystem} was not found; install it: apt-get install {package}")
}

/// Asks debugfs, mounted or not.
pub(super) fn fault_around_bytes() -> Option<u64> {
    let debugfs = Detached::new("debugfs", None).ok()?;
    let text = fs::read_to_string(debugfs.path().join("fault_around_bytes")).ok()?;
    text.trim().parse().ok()
}

fn tool(name: &str) -> Option<PathBuf> {
    let in_sbin = || SBIN.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
    find_in_path(&Host, name.as_ref()).or_else(in_sbin)
}
