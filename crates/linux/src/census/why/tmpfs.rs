//! Which setting decides about shared memory: that of the kernel, or that of a mount.
//!
//! ```text
//!   memfd, shared anonymous memory, System V    the kernel's own mount    shmem_enabled
//!   a file on tmpfs                             its mount                 huge=
//!   both                                        shmem_enabled, where it is deny or force
//! ```
//!
//! Owns the search for the mount: among ours first, so that a command works as it stands, then among
//! those of the process, which may be in another mount namespace.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::census::settings::{Allows, ThpSettings};
use crate::proc::Task;
use crate::proc::maps::Vma;
use crate::shell::{as_root, quoted};
use crate::system::{System, mounts};

/// The kernel's own mount of tmpfs is the first thing that takes a device number for itself
/// (`shmem_init`, before the root directory is mounted).
const KERNELS: (u32, u32) = (0, 1);

/// Where shared memory is.
pub(super) enum Home {
    /// In the kernel's own mount.
    Kernel,
    /// On a mounted tmpfs.
    Mount(TmpfsMount),
    /// On a tmpfs that neither this process nor the one that maps it sees mounted.
    Unseen,
}

/// A mount of tmpfs.
pub(super) struct TmpfsMount {
    point: PathBuf,
    /// Its `huge=`.
    pub(super) huge: String,
    /// The process that sees it, where this one does not.
    seen_by: Option<u32>,
}

impl TmpfsMount {
    /// What gives it another `huge=`.
    pub(super) fn remount(&self, huge: &str) -> String {
        let enter = self.seen_by.map_or_else(String::new, |pid| format!("nsenter -t {pid} -m "));
        as_root(&format!("{enter}mount -o remount,huge={huge} {}", quoted(&self.point)))
    }

    pub(super) fn cost(&self) -> String {
        let files = "it applies to all files that are written there later, but only to whole blocks; with \
                     huge=always, even the smallest file would take a whole block";
        match self.seen_by {
            None => files.to_owned(),
            Some(_) => format!(
                "{files}; if the mount ends with the program, as in a container, mount it with \
                 huge=within_size instead"
            ),
        }
    }
}

/// What is mounted, as far as it was asked for.
#[derive(Default)]
pub(super) struct SeenMounts {
    /// What this process sees.
    ours: Option<Vec<u8>>,
    /// What others see.
    theirs: BTreeMap<u32, Vec<u8>>,
}

impl SeenMounts {
    /// Where a shared mapping of the process `pid` has its memory.
    pub(super) fn home(&mut self, system: &dyn System, pid: u32, vma: &Vma) -> Home {
        let read = |task: Task<'_>| task.mounts().unwrap_or_default();
        let ours = self.ours.get_or_insert_with(|| read(Task::own(system)));
        let found = mounts::tmpfs(ours, vma.device).map(|mount| (mount, None));
        let found = found.or_else(|| {
            let theirs = self.theirs.entry(pid).or_insert_with(|| read(Task::of(system, pid)));
            Some((mounts::tmpfs(theirs, vma.device)?, Some(pid)))
        });
        match found {
            Some(((point, huge), seen_by)) => Home::Mount(TmpfsMount { point, huge, seen_by }),
            None if vma.is_nameless_shared() || vma.device == KERNELS => Home::Kernel,
            None => Home::Unseen,
        }
    }
}

impl Home {
    /// What the setting that decides allows; `None` on kernels without such folios.
    pub(super) fn allows(&self, settings: &ThpSettings<'_>, bytes: u64) -> Option<Allows> {
        match self {
            Self::Mount(mount) => settings.tmpfs(&mount.huge),
            Self::Kernel | Self::Unseen => settings.shmem(bytes).map(|set| set.allows),
        }
    }
}
