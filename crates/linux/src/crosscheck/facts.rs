//! What a plan must know about the running kernel.
//!
//! Owns the seam: plans are made from [`Facts`], so that every refusal is tested without root.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::CrosscheckError;
use super::group::{self, Limits};
use super::mkfs;
use super::workloads::Filesystem;
use crate::mount::Detached;
use crate::proc::{host, thp};
use crate::system::Live;

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
    /// Whether LRU lists are kept by generations.
    pub has_generations: bool,
    /// Memory cgroups with a limit.
    pub limits: Limits,
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
            .filter_map(|one| Some((one, mkfs::installed(one)?)))
            .collect();
        Self {
            is_root: rustix::process::geteuid().is_root(),
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            page_bytes: rustix::param::page_size() as u64,
            thp,
            fault_around_bytes: fault_around_bytes(),
            has_generations: host::has_generations(&Live),
            limits: group::limits(),
            formatters,
        }
    }

    /// Whether the model can say what a group with a limit loses on this machine.
    ///
    /// # Errors
    /// Why not, with its remedy.
    pub const fn check_limits(&self) -> Result<(), CrosscheckError> {
        match self.limits {
            Limits::Absent => Err(CrosscheckError::NoMemoryGroups),
            Limits::OfAllMemory => Err(CrosscheckError::KernelMemory),
            Limits::OfFolios => Ok(()),
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

/// The first processor that this thread may use: what is recorded runs on it alone.
pub(super) fn first_cpu() -> Result<usize, CrosscheckError> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(CrosscheckError::os("ask for the processors that may be used"))?;
    let is_allowed = |cpu: &usize| allowed.is_set(*cpu);
    Ok((0..rustix::thread::CpuSet::MAX_CPU).find(is_allowed).unwrap_or(0))
}

/// Asks debugfs, mounted or not.
pub(super) fn fault_around_bytes() -> Option<u64> {
    let debugfs = Detached::new("debugfs", None).ok()?;
    let text = fs::read_to_string(debugfs.path().join("fault_around_bytes")).ok()?;
    text.trim().parse().ok()
}
