//! How much of each mapping is used: accessed bits, cleared and read again after a while.
//!
//! ```text
//!   clear_refs (1)  ->  wait  ->  smaps: Referenced
//! ```
//!
//! The processor sets the bit of a page-table entry at the first access. Its entry for the page in a
//! TLB does not, so a page that stays in the TLB for the whole time is missed. A PMD entry has one
//! bit for all of its pages. The kernel also counts a page that another process read or mapped.
//!
//! Invariants:
//! - H1: no page is brought in, and no memory of a process is read.
//! - H2: work is bounded: processes with more than [`RESIDENT_BYTES_MAX`] together are refused
//!   before anything is cleared.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::proc::{PROC, Task};
use crate::signals::Stop;
use crate::system::{Live, System as _};

/// The kernel walks all entries twice and holds the process's `mmap_lock` meanwhile: 10 to 20 ms per
/// GiB of base pages.
pub const RESIDENT_BYTES_MAX: u64 = 64 << 30;
/// Clears the accessed bits of all pages (Documentation/filesystems/proc.rst).
const FORGET_USE: &str = "1";
/// A signal just before a sleep is noticed after this delay.
const SLICE: Duration = Duration::from_millis(50);

/// A process and its mappings with resident memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotProcess {
    pub pid: u32,
    pub name: String,
    pub mappings: Vec<Used>,
    /// From the clearing of its bits to their reading.
    pub watched: Duration,
    /// How long clearing took.
    pub clearing: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    pub range: Range<u64>,
    pub resident_bytes: u64,
    pub used_bytes: u64,
}

/// Why a process is not in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    Ended,
    /// A kernel thread or a zombie.
    NoMemory,
    Refused,
}

#[derive(Debug, Default)]
pub struct Hot {
    pub processes: Vec<HotProcess>,
    pub left_out: Vec<(u32, String, LeftOut)>,
}

#[derive(Debug, thiserror::Error)]
pub enum HotError {
    #[error(
        "the processes have more than 64 GiB resident, and the kernel needs up to 20 ms per GiB \
         during which they cannot map memory; select fewer"
    )]
    TooMuch,
    #[error("cannot watch for Ctrl-C: {0}")]
    Signals(io::Error),
}

/// Watches the processes for `time`, or until Ctrl-C.
///
/// # Errors
/// If they have too much memory. A process that cannot be watched is left out.
pub fn watch(pids: &[u32], time: Duration) -> Result<Hot, HotError> {
    let resident = |pid: &u32| Task::of(&Live, *pid).nr_resident_pages().unwrap_or(0);
    let nr_resident = pids.iter().map(resident).fold(0, u64::saturating_add);
    if nr_resident.saturating_mul(Live.page_bytes()) > RESIDENT_BYTES_MAX {
        return Err(HotError::TooMuch);
    }
    let stop = Stop::watch().map_err(HotError::Signals)?;
    let mut hot = Hot::default();
    let mut cleared = Vec::new();
    for &pid in pids {
        let (name, start) = (Task::of(&Live, pid).comm(), start_ticks(pid));
        let began = Instant::now();
        match forget_use(pid) {
            Ok(()) => cleared.push(Cleared {
                pid,
                name,
                start_ticks: start,
                clearing: began.elapsed(),
                since: Instant::now(),
            }),
            Err(why) => hot.left_out.push((pid, name, why)),
        }
    }
    let started = Instant::now();
    while started.elapsed() < time && stop.asked_by().is_none() {
        std::thread::sleep(time.saturating_sub(started.elapsed()).min(SLICE));
    }
    for Cleared { pid, name, start_ticks, clearing, since } in cleared {
        let watched = since.elapsed();
        match used(pid, start_ticks) {
            Ok(mappings) => {
                hot.processes.push(HotProcess { pid, name, mappings, watched, clearing });
            }
            Err(why) => hot.left_out.push((pid, name, why)),
        }
    }
    Ok(hot)
}

/// A process after its accessed bits were cleared.
struct Cleared {
    pid: u32,
    name: String,
    start_ticks: Option<u64>,
    clearing: Duration,
    since: Instant,
}

fn start_ticks(pid: u32) -> Option<u64> {
    Task::of(&Live, pid).memory_state().map(|state| state.start_ticks())
}

fn forget_use(pid: u32) -> Result<(), LeftOut> {
    let task = Task::of(&Live, pid);
    let is_alive = task.stat().ok_or(LeftOut::Ended)?.is_alive();
    if !is_alive || task.nr_resident_pages().is_ok_and(|nr| nr == 0) {
        return Err(LeftOut::NoMemory);
    }
    let path = Path::new(PROC).join(pid.to_string()).join("clear_refs");
    fs::write(path, FORGET_USE).map_err(|error| why(&error))
}

/// Reads the mappings with resident memory of the process that started at `start`.
fn used(pid: u32, start: Option<u64>) -> Result<Vec<Used>, LeftOut> {
    let smaps = Task::of(&Live, pid).smaps().map_err(|error| why(&error))?;
    // Afterwards: if it is the same process now, it was the same before.
    if smaps.is_empty() || start.is_none() || start_ticks(pid) != start {
        return Err(LeftOut::Ended);
    }
    let resident = smaps.into_iter().filter(|smap| smap.rss_bytes > 0);
    let used = resident.map(|smap| Used {
        range: smap.vma.range,
        resident_bytes: smap.rss_bytes,
        used_bytes: smap.referenced_bytes.min(smap.rss_bytes),
    });
    Ok(used.collect())
}

fn why(error: &io::Error) -> LeftOut {
    match error.kind() {
        io::ErrorKind::PermissionDenied => LeftOut::Refused,
        _ => LeftOut::Ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_process_with_the_same_pid_is_another() {
        let pid = std::process::id();
        let start = start_ticks(pid);
        assert!(!used(pid, start).unwrap().is_empty());
        for other in [start.map(|ticks| ticks + 1), None] {
            assert_eq!(used(pid, other), Err(LeftOut::Ended));
        }
    }
}
