//! `folio collapse`: puts the memory of a running process into PMD folios.
//!
//! ```text
//!   smaps, pagemap -> areas of a kind -> blocks that the kernel takes -> process_madvise(MADV_COLLAPSE)
//! ```
//!
//! [`crate::census::block`] chooses the blocks, as for `folio maps`. The kernel copies a block's
//! pages into one folio; contents and addresses do not change. It returns an error number for each
//! block that it does not collapse (`docs/behaviour` H.5.1). Linux up to 7.1 refuses text on ext4
//! and XFS. The remedy is to restart the program with [`crate::run`].
//!
//! Invariants:
//! - P1: blocks without a resident page are not collapsed: that would only allocate memory, or swap
//!   in everything.
//! - P2: a pidfd refers to the process, so a reused PID cannot be mistaken for it.
//! - P3: collapse uses at most the memory still available on the machine and in the process's
//!   cgroups.

mod block;
mod plan;
mod room;

pub use plan::Left;
pub use room::{Available, Forecast};

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use self::plan::{AreaPlan, is_used, kind_of, plan};
use self::room::{Area, Block};
pub use crate::census::block::Backing as CollapseKind;
use crate::census::block::BlockPlace;
use crate::census::process::{Process, Touched};
use crate::census::{self, Census};
use crate::geometry::Geometry;
use crate::proc::Task;
use crate::proc::maps::Vma;
use crate::proc::smaps::Smap;
use crate::system::{Entries, Live};

const NR_BLOCKS_BLIND: usize = 64;

#[derive(Clone, Debug)]
pub struct CollapseRequest {
    pub pid: u32,
    pub kinds: Vec<CollapseKind>,
    /// Whether the user named the kinds. A kind that the kernel cannot collapse is then a refusal.
    pub is_named: bool,
    pub min_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collapsed {
    pub nr_areas: u64,
    pub nr_blocks: u64,
    pub before_bytes: u64,
    pub after_bytes: u64,
    pub refused: BTreeMap<i32, u64>,
    /// Resident or swapped bytes that were not tried, by reason.
    pub left: BTreeMap<Left, u64>,
    /// Whether some of these bytes were requested.
    pub is_some_missed: bool,
}

impl Collapsed {
    #[must_use]
    pub fn is_whole(&self, kind: CollapseKind) -> bool {
        // For memory, EINVAL means a block without a page: there was nothing to collapse.
        let is_empty = |errno: &i32| kind != CollapseKind::File && *errno == libc::EINVAL;
        self.refused.keys().all(is_empty) && !self.is_some_missed
    }

    fn add(&mut self, area: &AreaPlan, block_bytes: u64) {
        let nr = area.tried.len() as u64 + area.nr_large;
        self.nr_areas += u64::from(nr > 0);
        self.nr_blocks += nr;
        for (&left, &bytes) in &area.left {
            self.leave(left, bytes, block_bytes);
        }
    }

    fn leave(&mut self, left: Left, bytes: u64, block_bytes: u64) {
        *self.left.entry(left).or_default() += bytes;
        self.is_some_missed |= left.is_missed(bytes, block_bytes);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollapseOutcome {
    pub kinds: BTreeMap<CollapseKind, Collapsed>,
    /// Resident bytes of the process before and after. Collapse fills holes with memory.
    pub resident_bytes: (u64, u64),
    /// The same as Pss: a page with N mappings counts 1/N in each, so a file that a process maps
    /// three times counts once.
    pub shared_out_bytes: (u64, u64),
    /// Bytes in PMD folios, each block once, however often the process maps it.
    pub once_bytes: (u64, u64),
    /// Bytes that the process has pinned, which stay unchanged.
    pub pinned_bytes: u64,
    /// Private memory that was shared with other processes and was copied.
    pub unshared_bytes: u64,
    pub elapsed: Duration,
    pub block_bytes: u64,
    /// The memory estimate from before the work.
    pub forecast: Forecast,
}

#[derive(Debug, thiserror::Error)]
pub enum CollapseError {
    #[error("there is no process {0}; ps -e lists all processes")]
    NoProcess(u32),
    #[error("process {pid} cannot be {what}: {}", not_allowed(command))]
    NotAllowed { pid: u32, what: &'static str, command: String },
    #[error(
        "this kernel cannot collapse the memory of another process: that needs Linux 6.1 or \
             later"
    )]
    OldKernel,
    #[error("process {pid}: cannot {action}: {source}")]
    Call { pid: u32, action: &'static str, source: io::Error },
}

/// Collapses the memory that `request` names. `begin` receives the memory estimate first. `as_root`
/// is the command line that would work for another user's process.
///
/// # Errors
/// Failures before anything is collapsed. The kernel's refusals per block are in the outcome.
pub fn run(
    request: &CollapseRequest,
    as_root: &str,
    begin: &mut dyn FnMut(&Forecast),
) -> Result<CollapseOutcome, CollapseError> {
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
    let pages = pages(pid);
    let mut outcome = CollapseOutcome {
        block_bytes: Geometry::running().pmd_bytes(),
        pinned_bytes: Task::of(&Live, pid).held().pinned.bytes,
        ..CollapseOutcome::default()
    };
    let mountinfo = Task::of(&Live, pid).mounts().unwrap_or_default();
    let known = |vma: &Vma| pages.as_ref().and_then(|process| process.touched(&vma.range));
    let entries = Task::of(&Live, pid).pagemap().ok();
    let mut blocks = Vec::new();
    for smap in &before {
        let kind = kind_of(&smap.vma, &mountinfo).filter(|kind| request.kinds.contains(kind));
        let runs = known(&smap.vma).map(|touched| &touched.pmd);
        let Some(kind) = kind.filter(|_| is_used(smap, runs.is_some())) else { continue };
        let area = plan(smap, kind, request.min_bytes, Geometry::running(), runs);
        let result = outcome.kinds.entry(kind).or_default();
        result.add(&area, outcome.block_bytes);
        // The kernel refuses file blocks that are large already.
        if runs.is_none() && area.nr_large >= area.tried.len() as u64 {
            continue;
        }
        let tried = match &entries {
            Some(entries) if runs.is_none() => read_again(&**entries, smap, area.tried),
            _ => Ok(area.tried),
        };
        blocks.extend(tried.map_err(failed("read its pages"))?);
    }
    let available = || room::available(&Live, &Task::of(&Live, pid));
    let (blocks, left, forecast) = room::choose(blocks, available());
    begin(&forecast);
    outcome.forecast = forecast;
    let rest = collapse_all(&process, &blocks, &available, &mut outcome);
    let rest = rest.map_err(|errno| match errno {
        libc::EPERM => not_allowed("changed"),
        libc::ENOSYS => CollapseError::OldKernel,
        _ => CollapseError::NoProcess(pid),
    })?;
    for block in rest.iter().chain(&left) {
        let result = outcome.kinds.entry(block.kind).or_default();
        result.leave(Left::NoMemory, block.resident_bytes, outcome.block_bytes);
    }
    compare(&mut outcome, pid, [&before, &read()?], pages.as_ref());
    outcome.elapsed = started.elapsed();
    Ok(outcome)
}

fn compare(
    outcome: &mut CollapseOutcome,
    pid: u32,
    [before, after]: [&[Smap]; 2],
    pages: Option<&Process>,
) {
    outcome.resident_bytes = (resident(before), resident(after));
    outcome.shared_out_bytes = (proportional(before), proportional(after));
    outcome.once_bytes = (
        once(before, pages, outcome.block_bytes),
        once(after, self::pages(pid).as_ref(), outcome.block_bytes),
    );
    if outcome.kinds.contains_key(&CollapseKind::Anon) {
        outcome.unshared_bytes = shared(before).saturating_sub(shared(after));
    }
    for (&kind, result) in &mut outcome.kinds {
        (result.before_bytes, result.after_bytes) = (huge(before, kind), huge(after, kind));
    }
}

fn read_again(entries: &dyn Entries, smap: &Smap, tried: Vec<Block>) -> io::Result<Vec<Block>> {
    let Some(&Block { address: first_address, kind, .. }) = tried.first() else {
        return Ok(tried);
    };
    let geometry = Geometry::running();
    let sizes = [geometry.page_bytes, geometry.pmd_bytes()];
    let nr_blocks = tried.len() as u64;
    let shared_bytes = if kind == CollapseKind::Anon { smap.shared_bytes } else { 0 };
    let resident_bytes = smap.rss_bytes;
    let area = Area { kind, first_address, nr_blocks, resident_bytes, shared_bytes };
    room::read_again(entries, &area, tried, sizes)
}

/// Collapses `blocks` as long as memory is available. Returns the remaining blocks, or the error
/// that ended the work.
fn collapse_all<'b>(
    process: &OwnedFd,
    blocks: &'b [Block],
    available: &dyn Fn() -> Available,
    outcome: &mut CollapseOutcome,
) -> Result<&'b [Block], i32> {
    for (nr, block) in blocks.iter().enumerate() {
        // Other processes allocate memory meanwhile.
        if nr > 0 && nr % NR_BLOCKS_BLIND == 0 {
            let next = blocks[nr..].iter().take(NR_BLOCKS_BLIND);
            if available().bytes < next.map(|block| block.takes_bytes).sum() {
                return Ok(&blocks[nr..]);
            }
        }
        match block::collapse(process, block.address, outcome.block_bytes) {
            Ok(()) => {}
            Err(errno @ (libc::EPERM | libc::ENOSYS | libc::ESRCH)) => return Err(errno),
            Err(errno) => {
                let result = outcome.kinds.entry(block.kind).or_default();
                *result.refused.entry(errno).or_insert(0) += 1;
            }
        }
    }
    Ok(&[])
}

/// Reads the process with its pages. Returns `None` if this user cannot see them; then each block
/// is tried.
fn pages(pid: u32) -> Option<Process> {
    let Census { mut processes, .. } = census::take(&Live, &[pid]).ok()?;
    processes.pop()
}

fn proportional(areas: &[Smap]) -> u64 {
    areas.iter().map(|smap| smap.pss_bytes).sum()
}

/// Returns the bytes that PMD entries map, each block of a file once. Without the blocks it uses
/// smaps.
fn once(areas: &[Smap], pages: Option<&Process>, block_bytes: u64) -> u64 {
    let Some(process) = pages else { return areas.iter().map(Smap::pmd_bytes).sum() };
    let mut files = BTreeSet::new();
    let mut bytes = 0;
    for mapping in &process.mappings {
        let Some(Touched { pmd: runs, .. }) = &mapping.touched else { continue };
        let place = BlockPlace::of(&mapping.vma);
        for run in runs.iter().filter(|run| run.facts.is_large(runs.nr_pages())) {
            let blocks = run.first..run.first + run.nr;
            match place {
                Some(place) => {
                    files.extend(blocks.map(|at| place.block(runs.order, at, block_bytes)));
                }
                None => bytes += run.nr * block_bytes,
            }
        }
    }
    bytes + files.len() as u64 * block_bytes
}

fn resident(areas: &[Smap]) -> u64 {
    areas.iter().map(|smap| smap.rss_bytes).sum()
}

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

fn not_allowed(command: &str) -> String {
    if rustix::process::geteuid().is_root() {
        "the kernel refused although folio runs as root: CAP_SYS_PTRACE and CAP_SYS_NICE are \
         needed, and a container or security module can withhold them"
            .to_owned()
    } else {
        format!("this needs root; run\n  {command}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::census::block::Obstacle;

    const M2: u64 = 2 << 20;

    #[test]
    fn stacks_of_threads_do_not_make_the_answer_no_and_a_forbidden_block_does() {
        let mut result = Collapsed { nr_areas: 1, ..Collapsed::default() };
        for _ in 0..1000 {
            result.leave(Left::Block(Obstacle::NoHugeAdvice), 8 << 10, M2);
        }
        assert!(result.is_whole(CollapseKind::Anon), "{result:?}");
        assert_eq!(result.left[&Left::Block(Obstacle::NoHugeAdvice)], 8000 << 10);
        result.leave(Left::Block(Obstacle::NoHugeAdvice), M2, M2);
        assert!(!result.is_whole(CollapseKind::Anon), "{result:?}");
    }
}
