//! Facts about the running kernel that plans depend on.
//!
//! Plans use only [`Facts`], so every refusal can be tested without root.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::CrosscheckError;
use super::group::{self, Limits};
use super::mkfs;
use super::workloads::Filesystem;
use largefolio_linux::mount::Detached;
use largefolio_linux::proc::{host, thp};
use largefolio_linux::system::Live;

/// The default fault-around window of all kernels.
pub(super) const DEFAULT_AROUND_BYTES: u64 = 65536;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thp {
    Always,
    Madvise,
    Never,
    Absent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub is_root: bool,
    /// `uname -r`.
    pub release: String,
    pub page_bytes: u64,
    pub thp: Thp,
    /// The fault-around window in bytes; `None` if the kernel hides it (debugfs, lockdown).
    pub fault_around_bytes: Option<u64>,
    /// Whether multi-generational LRU is active.
    pub has_generations: bool,
    /// NUMA nodes.
    pub nr_nodes: u64,
    pub limits: Limits,
    pub formatters: Vec<(Filesystem, PathBuf)>,
}

impl Facts {
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
            nr_nodes: host::nr_nodes(&Live),
            limits: group::limits(),
            formatters,
        }
    }

    /// Checks whether the model can predict evictions from a limited group on this machine.
    ///
    /// # Errors
    /// The obstacle, with its remedy.
    pub const fn check_limits(&self) -> Result<(), CrosscheckError> {
        match self.limits {
            Limits::Absent => Err(CrosscheckError::NoMemoryGroups),
            Limits::OfAllMemory => Err(CrosscheckError::KernelMemory),
            Limits::OfFolios => Ok(()),
        }
    }

    /// Checks whether programs about nodes can run here.
    ///
    /// # Errors
    /// The machine has one node.
    pub const fn check_nodes(&self) -> Result<(), CrosscheckError> {
        if self.nr_nodes > 1 { Ok(()) } else { Err(CrosscheckError::OneNode) }
    }

    /// Returns the name of this kernel's recordings: `live_6.18_amd64`, `live_7.2_arm64_16k`.
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

    #[must_use]
    pub fn formatter(&self, filesystem: Filesystem) -> Option<&Path> {
        let formatter = self.formatters.iter().find(|(known, _)| *known == filesystem);
        formatter.map(|(_, path)| path.as_path())
    }
}

/// Returns the first CPU that this thread may use. Recorded programs run only there.
pub(super) fn first_cpu() -> Result<usize, CrosscheckError> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(CrosscheckError::os("read the set of usable processors"))?;
    let is_allowed = |cpu: &usize| allowed.is_set(*cpu);
    Ok((0..rustix::thread::CpuSet::MAX_CPU).find(is_allowed).unwrap_or(0))
}

pub(super) fn fault_around_bytes() -> Option<u64> {
    let debugfs = Detached::new("debugfs", None).ok()?;
    let text = fs::read_to_string(debugfs.path().join("fault_around_bytes")).ok()?;
    text.trim().parse().ok()
}
