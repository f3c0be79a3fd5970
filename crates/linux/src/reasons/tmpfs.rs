//! Finds the setting that applies to shared memory: the kernel's or a mount's.
//!
//! ```text
//!   memfd, shared anonymous memory, System V    the kernel's own mount    shmem_enabled
//!   a file on tmpfs                             its mount                 huge=
//!   both                                        shmem_enabled if it is deny or force
//! ```
//!
//! Searches this process's mounts first, so the printed command works as typed, then the mounts of
//! the mapping process, which may be in another mount namespace.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::census::settings::{Allows, ThpSettings};
use crate::proc::Task;
use crate::proc::maps::Vma;
use crate::shell::{as_root, quoted};
use crate::system::{System, mounts};

/// The kernel's own tmpfs mount gets the first anonymous device number (`shmem_init`, before the
/// root directory is mounted).
const KERNELS: (u32, u32) = (0, 1);

pub(super) enum Home {
    Kernel,
    Mount(TmpfsMount),
    /// On a tmpfs mounted neither for this process nor for the mapping process.
    Unseen,
}

pub(super) struct TmpfsMount {
    point: PathBuf,
    pub(super) huge: String,
    /// The process with this mount, if this process does not have it.
    mounted_for: Option<u32>,
}

impl TmpfsMount {
    pub(super) fn remount(&self, huge: &str) -> String {
        let enter =
            self.mounted_for.map_or_else(String::new, |pid| format!("nsenter -t {pid} -m "));
        as_root(&format!("{enter}mount -o remount,huge={huge} {}", quoted(&self.point)))
    }

    pub(super) fn cost(&self) -> String {
        let files = "it applies to all files that are written there later, but only to whole \
            blocks; with huge=always, even the smallest file would occupy a whole block";
        match self.mounted_for {
            None => files.to_owned(),
            Some(_) => format!(
                "{files}; if the mount ends with the program, as in a container, mount it with \
                 huge=within_size instead"
            ),
        }
    }
}

/// Mount tables as `/proc/PID/mountinfo` has them.
pub(super) struct MountTables {
    ours: Vec<u8>,
    theirs: BTreeMap<u32, Vec<u8>>,
}

impl MountTables {
    /// Reads this process's table.
    pub(super) fn of(system: &dyn System) -> Self {
        let ours = Task::own(system).mounts().unwrap_or_default();
        Self { ours, theirs: BTreeMap::new() }
    }

    /// Reads the table of process `pid` if this process's has no mount for `vma`.
    pub(super) fn read_for(&mut self, system: &dyn System, pid: u32, vma: &Vma) {
        if mounts::tmpfs(&self.ours, vma.device).is_none() {
            let read = || Task::of(system, pid).mounts().unwrap_or_default();
            self.theirs.entry(pid).or_insert_with(read);
        }
    }

    pub(super) fn home(&self, pid: u32, vma: &Vma) -> Home {
        let ours = mounts::tmpfs(&self.ours, vma.device).map(|mount| (mount, None));
        let theirs = || {
            let theirs = self.theirs.get(&pid)?;
            Some((mounts::tmpfs(theirs, vma.device)?, Some(pid)))
        };
        match ours.or_else(theirs) {
            Some(((point, huge), mounted_for)) => {
                Home::Mount(TmpfsMount { point, huge, mounted_for })
            }
            None if vma.is_nameless_shared() || vma.device == KERNELS => Home::Kernel,
            None => Home::Unseen,
        }
    }
}

impl Home {
    pub(super) fn allows(&self, settings: &ThpSettings<'_>, bytes: u64) -> Option<Allows> {
        match self {
            Self::Mount(mount) => settings.tmpfs(&mount.huge),
            Self::Kernel | Self::Unseen => settings.shmem(bytes).map(|set| set.allows),
        }
    }
}
