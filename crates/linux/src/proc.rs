//! The only reader of `/proc` and `/sys`.
//!
//! ```text
//!   /proc/PID/  Task   maps -> Vma, smaps -> Smap, comm, status, children, pagemap   task maps smaps
//!                      stat -> Stat, the tree of a process                           stat
//!               fd     descriptors of a process and their files                      fd
//!               pinned   pinned pages, and their addresses                          pinned
//!   /proc       host   release, processor, memory, this boot                        host
//!               counters   events since boot, waits for memory (PSI)                counters
//!   /sys        thp, block, cgroup, kernel, largefolio: paths of settings and limits
//!   a setting   Choice always [madvise] never                                       choice
//! ```
//!
//! Owns names and formats. Does not own access: every text comes from a [`System`], so tests use a
//! directory of text files. Does not write: [`crate::setting`] and [`crate::tune`] change settings.
//!
//! Invariants:
//! - F1: nothing in a text is trusted. Any user can choose names of files, processes and memory. A
//!   line that is not understood is skipped, and a number that does not fit is ignored.
//! - F2: reading is bounded (S2 in [`crate::system`]), and the parsed result is larger by at most a
//!   constant factor.

pub mod block;
pub mod cgroup;
pub(crate) mod choice;
pub mod counters;
pub mod fd;
pub mod host;
pub(crate) mod kernel;
pub(crate) mod largefolio;
pub mod maps;
pub mod pinned;
pub mod smaps;
pub mod stat;
mod task;
pub mod thp;

pub use host::{Processor, load};

use std::io;
use std::path::Path;

pub use stat::TaskFaults;
pub use task::Held;
pub use task::Task;

use crate::system::{Entries, System, ids};

pub(crate) const PROC: &str = "/proc";
/// Where the allowed CPUs are shown: for this process and for its group.
pub(crate) const OF_CPUS: [&str; 2] = ["/proc/self", "/sys/fs/cgroup"];
const VIRTUAL: [&str; 3] = [PROC, "/sys", "/dev"];

pub(crate) fn pids(system: &dyn System) -> io::Result<Vec<u32>> {
    Ok(ids(&system.names(Path::new(PROC))?))
}

/// Returns the CPU time of a process, including threads that ended; `None` if it has ended.
pub(crate) fn cpu_clock_ns(pid: u32) -> Option<u64> {
    // A process's clock id: the inverted pid, with the clock type (2: CPU time) in the low bits.
    let clock = (!libc::pid_t::try_from(pid).ok()?).checked_mul(8)? | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`, which outlives the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let ns = time.tv_sec.checked_mul(1_000_000_000)?.checked_add(time.tv_nsec)?;
    u64::try_from(ns).ok().filter(|_| result == 0)
}

/// Opens the flags of all pages; refused without `CAP_SYS_ADMIN`.
pub(crate) fn kpageflags(system: &dyn System) -> io::Result<Box<dyn Entries>> {
    system.entries(Path::new("/proc/kpageflags"))
}

/// Whether the kernel generates this file.
#[must_use]
pub fn is_virtual(path: &Path) -> bool {
    VIRTUAL.iter().any(|root| path.starts_with(root))
}

fn value<'t>(text: &'t [u8], key: &str) -> Option<&'t str> {
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
        let is_key = name.trim_ascii() == key.as_bytes();
        is_key.then(|| std::str::from_utf8(&value[1..]).ok().map(str::trim))?
    })
}

/// Parses `8 kB` to bytes.
fn bytes_of_kib(value: &str) -> Option<u64> {
    value.strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1 << 10)
}

pub(crate) fn number(system: &dyn System, path: &Path) -> Option<u64> {
    let text = system.text(path).ok()?;
    std::str::from_utf8(&text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
