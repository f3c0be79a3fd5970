//! `folio collapse`: PMD folios for the memory of a running process.
//!
//! ```text
//!   /proc/PID/smaps -> areas of a kind -> whole PMD blocks -> process_madvise(MADV_COLLAPSE), one each
//! ```
//!
//! Owns the choice of blocks ([`blocks_of`], which `folio maps` asks too) and the results.
//! The kernel copies the pages of a block into one folio; content and addresses stay. It returns an
//! error number for each block that it leaves alone (`docs/behaviour` H.5.1); the numbers are counted.
//! Text of ext4 and XFS is refused up to 7.1: what helps there is to start the program anew, with
//! [`crate::run`].
//!
//! Invariants:
//! - P1: areas without a resident page are left alone: collapse would only give them memory.
//! - P2: the process is held by a pidfd: a reused process number is not mistaken for it.

mod block;
mod plan;

pub use plan::{CollapseKind, Left, blocks_of};

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use self::plan::kind_of;
use crate::geometry::Geometry;
use crate::proc::Task;
use crate::proc::smaps::Smap;
use crate::system::Live;

/// What is to be collapsed.
#[derive(Clone, Debug)]
pub struct Request {
    /// The process.
    pub pid: u32,
    /// Kinds of memory.
    pub kinds: Vec<CollapseKind>,
    /// Whether they were asked for by name: then what the kernel cannot do of them is a refusal.
    pub is_named: bool,
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
    /// Blocks that the kernel left alone, by error number.
    pub refused: BTreeMap<i32, u64>,
    /// Resident bytes of areas that were not tried, by reason.
    pub left: BTreeMap<Left, u64>,
    /// Whether one of these areas was wanted all the same.
    pub is_some_missed: bool,
}

impl Collapsed {
    /// Whether every block that was wanted is in a PMD folio.
    #[must_use]
    pub fn is_whole(&self, kind: CollapseKind) -> bool {
        // EINVAL of memory is a block without a page: there was nothing to collapse.
        let is_empty = |errno: &i32| kind != CollapseKind::File && *errno == libc::EINVAL;
        self.refused.keys().all(is_empty) && !self.is_some_missed
    }

    fn leave(&mut self, left: Left, resident_bytes: u64, block_bytes: u64) {
        *self.left.entry(left).or_default() += resident_bytes;
        self.is_some_missed |= left.is_missed(resident_bytes, block_bytes);
    }
}

/// What became of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// By kind.
    pub kinds: BTreeMap<CollapseKind, Collapsed>,
    /// Resident bytes of the process before and after: holes become memory.
    pub resident_bytes: (u64, u64),
    /// Private memory that other processes had too, and that was copied.
    pub unshared_bytes: u64,
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
    #[error("process {pid} cannot be {what}: {}", not_allowed(command))]
    NotAllowed {
        /// The process.
        pid: u32,
        /// What was tried.
        what: &'static str,
        /// The command line.
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
    let read = || match Task::of(&Live, pid).advice() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(not_allowed("examined"))
        }
        result => result.map_err(failed("read its areas")),
    };
    let before = read()?;
    let mut outcome =
        Outcome { block_bytes: Geometry::running().pmd_bytes(), ..Outcome::default() };
    let mountinfo = Task::of(&Live, pid).mounts().unwrap_or_default();
    for smap in &before {
        let vma = &smap.vma;
        let kind = kind_of(vma, &mountinfo).filter(|kind| request.kinds.contains(kind));
        let Some(kind) = kind else { continue };
        if smap.rss_bytes == 0 {
            continue;
        }
        let told = outcome.kinds.entry(kind).or_default();
        let blocks = match blocks_of(smap, kind, request.min_bytes, outcome.block_bytes) {
            Ok(blocks) => blocks,
            Err(left) => {
                told.leave(left, smap.rss_bytes, outcome.block_bytes);
                continue;
            }
        };
        told.nr_areas += 1;
        told.nr_blocks += blocks.len() as u64;
        let nr_large = smap.pmd_bytes() / outcome.block_bytes;
        let nr_small = (blocks.len() as u64).saturating_sub(nr_large);
        // Nothing is left to do; of files the kernel refuses that.
        if nr_small == 0 {
            continue;
        }
        let mut refused = BTreeMap::new();
        for at in blocks {
            match block::collapse(&process, at, outcome.block_bytes) {
                Ok(()) => {}
                Err(libc::EPERM) => return Err(not_allowed("changed")),
                Err(libc::ENOSYS) => return Err(CollapseError::OldKernel),
                Err(libc::ESRCH) => return Err(CollapseError::NoProcess(pid)),
                Err(errno) => *refused.entry(errno).or_insert(0) += 1,
            }
        }
        for (errno, nr) in refused {
            *told.refused.entry(errno).or_default() += nr.min(nr_small);
        }
    }
    let after = read()?;
    outcome.resident_bytes = (resident(&before), resident(&after));
    if outcome.kinds.contains_key(&CollapseKind::Anon) {
        outcome.unshared_bytes = shared(&before).saturating_sub(shared(&after));
    }
    for (&kind, told) in &mut outcome.kinds {
        (told.before_bytes, told.after_bytes) = (huge(&before, kind), huge(&after, kind));
    }
    outcome.elapsed = started.elapsed();
    Ok(outcome)
}

fn resident(areas: &[Smap]) -> u64 {
    areas.iter().map(|smap| smap.rss_bytes).sum()
}

/// Private memory that other processes have too.
fn shared(areas: &[Smap]) -> u64 {
    areas.iter().filter(|smap| smap.vma.inode == 0).map(|smap| smap.shared_bytes).sum()
}

fn huge(areas: &[Smap], kind: CollapseKind) -> u64 {
    let of = |smap: &Smap| match kind {
        CollapseKind::Anon => smap.anon_pmd_bytes,
        CollapseKind::Shmem => smap.shmem_pmd_bytes,
        CollapseKind::File => smap.file_pmd_bytes,
    };
    areas.iter().map(of).sum()
}

/// What to do where the kernel says EPERM.
fn not_allowed(command: &str) -> String {
    if rustix::process::geteuid().is_root() {
        "the kernel refuses even root, which needs CAP_SYS_PTRACE and CAP_SYS_NICE here; a \
         container or a security module may withhold them"
            .to_owned()
    } else {
        format!("this needs root; run\n  {command}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M2: u64 = 2 << 20;

    #[test]
    fn stacks_of_threads_do_not_make_the_answer_no_and_a_forbidden_block_does() {
        let mut told = Collapsed { nr_areas: 1, ..Collapsed::default() };
        for _ in 0..1000 {
            told.leave(Left::Forbidden, 8 << 10, M2);
        }
        assert!(told.is_whole(CollapseKind::Anon), "{told:?}");
        assert_eq!(told.left[&Left::Forbidden], 8000 << 10);
        told.leave(Left::Forbidden, M2, M2);
        assert!(!told.is_whole(CollapseKind::Anon), "{told:?}");
    }
}
