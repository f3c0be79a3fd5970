//! `folio collapse`: PMD folios for the memory of a running process.
//!
//! ```text
//!   /proc/PID/smaps -> areas of a kind -> whole PMD blocks -> process_madvise(MADV_COLLAPSE), one each
//! ```
//!
//! Owns the choice of blocks and the results. The kernel copies the pages of a block into one
//! folio; content and addresses stay. It returns an error number for each block that it leaves
//! alone (`docs/behaviour` H.5.1); the numbers are counted. Text of ext4 and XFS is refused up to
//! 7.1: what helps there is to start the program anew, with [`crate::run`].
//!
//! Invariants:
//! - P1: areas without a resident page are left alone: collapse would only give them memory.
//! - P2: the process is held by a pidfd: a reused process number is not mistaken for it.

mod block;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::proc::maps::Vma;
use crate::proc::smaps::Smap;
use crate::proc::{Task, thp};
use crate::system::Live;

/// What kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CollapseKind {
    /// Private memory without a file.
    Anon,
    /// memfd, tmpfs, shared anonymous memory.
    Shmem,
    /// Files with a page cache: text, libraries.
    File,
}

impl CollapseKind {
    /// A word for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Anon => "anon",
            Self::Shmem => "shmem",
            Self::File => "file",
        }
    }
}

/// What is to be collapsed.
#[derive(Clone, Debug)]
pub struct Request {
    /// The process.
    pub pid: u32,
    /// Kinds of memory.
    pub kinds: Vec<CollapseKind>,
    /// Areas with fewer bytes are left alone.
    pub min_bytes: u64,
}

/// What became of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collapsed {
    /// Areas with at least one block and one resident page.
    pub nr_areas: u64,
    /// Blocks of them.
    pub nr_blocks: u64,
    /// Bytes mapped by PMD entries before.
    pub before_bytes: u64,
    /// Bytes mapped by PMD entries afterwards.
    pub after_bytes: u64,
    /// Blocks left alone, by error number.
    pub refused: BTreeMap<i32, u64>,
}

/// What became of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// By kind.
    pub kinds: BTreeMap<CollapseKind, Collapsed>,
    /// Resident bytes of the process before and after: holes become memory.
    pub resident_bytes: (u64, u64),
    /// What it took.
    pub elapsed: Duration,
    /// Bytes of a block.
    pub block_bytes: u64,
}

/// Why nothing could be done.
#[derive(Debug, thiserror::Error)]
pub enum CollapseError {
    /// No such process.
    #[error("there is no process {0}; ps -e lists processes")]
    NoProcess(u32),
    /// Neither ours, nor are we root.
    #[error("process {pid} cannot be {what}: this needs root; run\n  sudo {command}")]
    NotAllowed {
        /// The process.
        pid: u32,
        /// What was tried.
        what: &'static str,
        /// What works.
        command: String,
    },
    /// `process_madvise` without `MADV_COLLAPSE`.
    #[error(
        "this kernel cannot collapse the memory of another process: that needs Linux 6.1 or \
             later"
    )]
    OldKernel,
    /// A system call failed.
    #[error("process {pid}: cannot {action}: {source}")]
    Call {
        /// The process.
        pid: u32,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Collapses what `request` names. `as_root` is the command line that would work for another's process.
///
/// # Errors
/// Before anything is collapsed; what the kernel refuses block by block is in the outcome.
pub fn run(request: &Request, as_root: &str) -> Result<Outcome, CollapseError> {
    let started = Instant::now();
    let pid = request.pid;
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let number = number.ok_or(CollapseError::NoProcess(pid))?;
    let failed = |action: &'static str| {
        move |source: io::Error| match source.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => CollapseError::NoProcess(pid),
            _ => CollapseError::Call { pid, action, source },
        }
    };
    let not_allowed = |what| CollapseError::NotAllowed { pid, what, command: as_root.to_owned() };
    let process =
        pidfd_open(number, PidfdFlags::empty()).map_err(|error| failed("open it")(error.into()))?;
    let read = || match Task::of(&Live, pid).smaps() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(not_allowed("examined"))
        }
        result => result.map_err(failed("read its areas")),
    };
    let before = read()?;
    let mut outcome = Outcome { block_bytes: thp::pmd_bytes(&Live), ..Outcome::default() };
    for smap in &before {
        let vma = &smap.vma;
        let Some(kind) = kind_of(vma).filter(|kind| request.kinds.contains(kind)) else { continue };
        let blocks = blocks(vma, kind, outcome.block_bytes);
        if blocks.is_empty() || smap.rss_bytes == 0 || vma.len_bytes() < request.min_bytes {
            continue;
        }
        let told = outcome.kinds.entry(kind).or_default();
        told.nr_areas += 1;
        told.nr_blocks += blocks.len() as u64;
        for at in blocks {
            match block::collapse(&process, at, outcome.block_bytes) {
                Ok(()) => {}
                Err(libc::EPERM) => return Err(not_allowed("changed")),
                Err(libc::ENOSYS) => return Err(CollapseError::OldKernel),
                Err(libc::ESRCH) => return Err(CollapseError::NoProcess(pid)),
                Err(errno) => *told.refused.entry(errno).or_default() += 1,
            }
        }
    }
    let after = read()?;
    outcome.resident_bytes = (resident(&before), resident(&after));
    for (&kind, told) in &mut outcome.kinds {
        (told.before_bytes, told.after_bytes) = (huge(&before, kind), huge(&after, kind));
    }
    outcome.elapsed = started.elapsed();
    Ok(outcome)
}

fn resident(areas: &[Smap]) -> u64 {
    areas.iter().map(|smap| smap.rss_bytes).sum()
}

fn huge(areas: &[Smap], kind: CollapseKind) -> u64 {
    let of = |smap: &Smap| match kind {
        CollapseKind::Anon => smap.anon_pmd_bytes,
        CollapseKind::Shmem => smap.shmem_pmd_bytes,
        CollapseKind::File => smap.file_pmd_bytes,
    };
    areas.iter().map(of).sum()
}

/// The kind of an area; `None` for those of the kernel and of devices.
fn kind_of(vma: &Vma) -> Option<CollapseKind> {
    let name = vma.path.to_string_lossy();
    let name = &*name;
    if ["[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]"].contains(&name)
        || name.starts_with("/anon_hugepage")
    {
        return None;
    }
    if vma.inode == 0 {
        return Some(CollapseKind::Anon);
    }
    let is_shared_memory =
        ["/memfd:", "/dev/zero", "/SYSV"].iter().any(|start| name.starts_with(start));
    if is_shared_memory || is_on_tmpfs(&vma.path) {
        return Some(CollapseKind::Shmem);
    }
    (name.starts_with('/') && !name.starts_with("/dev/")).then_some(CollapseKind::File)
}

fn is_on_tmpfs(path: &Path) -> bool {
    // A deleted file has no name to ask for; its folder still tells.
    let known = [Some(path), path.parent()].into_iter().flatten().find(|path| path.exists());
    known
        .and_then(|path| {
            fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()
        })
        .and_then(|file| crate::filesystem::of(file).ok())
        .is_some_and(|ground| ground.name == "tmpfs")
}

/// Addresses of the whole blocks of an area. Those of files begin where the offset does.
fn blocks(vma: &Vma, kind: CollapseKind, block_bytes: u64) -> Vec<u64> {
    let is_alike = kind == CollapseKind::Anon || vma.is_congruent(block_bytes);
    let Some(first) = vma.range.start.checked_next_multiple_of(block_bytes).filter(|_| is_alike)
    else {
        return Vec::new();
    };
    let nr = vma.range.end.saturating_sub(first) / block_bytes;
    (0..nr).map(|nr| first + nr * block_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const M2: u64 = 2 << 20;

    fn vma(start: u64, end: u64, pos: u64, name: &str) -> Vma {
        let inode = u64::from(name.starts_with('/'));
        Vma { range: start..end, pos, inode, path: name.into(), ..Vma::default() }
    }

    #[test]
    fn blocks_lie_inside_the_area_and_agree_with_the_offset() {
        let anon = vma(M2 - 4096, 3 * M2 + 4096, 0, "");
        assert_eq!(blocks(&anon, CollapseKind::Anon, M2), [M2, 2 * M2]);
        let file = vma(M2 + 4096, 4 * M2, 4096, "/x");
        assert_eq!(blocks(&file, CollapseKind::File, M2), [2 * M2, 3 * M2]);
        assert!(blocks(&vma(M2 + 4096, 4 * M2, 0, "/x"), CollapseKind::File, M2).is_empty());
        assert!(blocks(&vma(M2 + 4096, 2 * M2, 0, ""), CollapseKind::Anon, M2).is_empty());
        assert!(blocks(&vma(u64::MAX - 4095, u64::MAX, 0, ""), CollapseKind::Anon, M2).is_empty());
    }

    #[test]
    fn kinds_are_told_by_name() {
        let kind = |name: &str| kind_of(&vma(0, M2, 0, name));
        assert_eq!(kind(""), Some(CollapseKind::Anon));
        assert_eq!(kind("[heap]"), Some(CollapseKind::Anon));
        assert_eq!(kind("[vdso]"), None);
        assert_eq!(kind("/memfd:x (deleted)"), Some(CollapseKind::Shmem));
        assert_eq!(kind("/dev/zero (deleted)"), Some(CollapseKind::Shmem));
        assert_eq!(kind("/dev/dri/card0"), None);
        assert_eq!(kind("/proc/version"), Some(CollapseKind::File));
    }
}
