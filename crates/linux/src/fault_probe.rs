//! A probe on `handle_mm_fault`, for kernels whose page fault events lack addresses.
//!
//! Owns one tracefs event, named after this process, and the meaning of its flags. All tracing
//! instances can see it, but only ours enables it.
//!
//! Invariant F1: dropping the value removes the event. If this process was killed, the next process
//! that creates a probe removes it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::mount::Detached;
use crate::proc::Task;
use crate::system::Live;

pub const HANDLE_MM_FAULT: &str = "handle_mm_fault";
/// Bits of a fault's error code in x86-64 events: a store, an instruction fetch.
pub const STORE: u64 = 2;
pub const FETCH: u64 = 16;
/// A bit of this probe: the fault was tried under the VMA lock and can be repeated.
pub const LOCKED: u64 = 1 << 32;

/// Prefix of the group's name. The PID follows.
const PREFIX: &str = "folio_";
/// Registers of the second and third argument: the fault's address and flags.
const ARGUMENTS: &str = if cfg!(target_arch = "x86_64") {
    "address=%si:x64 flags=%dx:x32"
} else {
    "address=%x1:x64 flags=%x2:x32"
};

#[derive(Debug)]
pub struct FaultProbe {
    /// Outlives the instance, which must be gone before the event can be removed.
    tracefs: Detached,
    event: String,
}

impl FaultProbe {
    pub fn new() -> io::Result<Self> {
        let tracefs = Detached::new("tracefs", None)?;
        let list = list(&tracefs);
        remove_stale(&list);
        let event = format!("{PREFIX}{}/{HANDLE_MM_FAULT}", std::process::id());
        append(&list, &format!("p:{event} {HANDLE_MM_FAULT} {ARGUMENTS}"))?;
        Ok(Self { tracefs, event })
    }

    #[must_use]
    pub fn event(&self) -> String {
        self.event.clone()
    }
}

impl Drop for FaultProbe {
    fn drop(&mut self) {
        // Refused only while an instance has it enabled, and ours is gone.
        let _ = append(&list(&self.tracefs), &format!("-:{}", self.event));
    }
}

/// Returns the error code for a call with these flags (`enum fault_flag`). Returns `None` if the
/// call was not for a fault (populating, `ptrace`), or repeats one that waited for a page.
#[must_use]
pub fn code(flags: u64) -> Option<u64> {
    const WRITE: u64 = 1;
    const TRIED: u64 = 1 << 5;
    const INSTRUCTION: u64 = 1 << 8;
    const INTERRUPTIBLE: u64 = 1 << 9;
    const VMA_LOCK: u64 = 1 << 12;
    let has = |flag: u64, code: u64| if flags & flag == 0 { 0 } else { code };
    let is_fault = flags & INTERRUPTIBLE != 0 && flags & TRIED == 0;
    is_fault.then(|| has(WRITE, STORE) | has(INSTRUCTION, FETCH) | has(VMA_LOCK, LOCKED))
}

fn list(tracefs: &Detached) -> PathBuf {
    tracefs.path().join("kprobe_events")
}

fn append(list: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(list)?.write_all(format!("{line}\n").as_bytes())
}

fn remove_stale(list: &Path) {
    let text = fs::read_to_string(list).unwrap_or_default();
    for event in text.lines().filter_map(of_ours) {
        let pid =
            event.strip_prefix(PREFIX).and_then(|rest| rest.split('/').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Task::of(&Live, pid).exists()) {
            let _ = append(list, &format!("-:{event}"));
        }
    }
}

fn of_ours(line: &str) -> Option<&str> {
    let (event, _) = line.strip_prefix("p:")?.split_once(' ')?;
    let (group, name) = event.strip_prefix(PREFIX)?.split_once('/')?;
    let is_ours = name == HANDLE_MM_FAULT && group.bytes().all(|byte| byte.is_ascii_digit());
    is_ours.then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_of_our_own_are_removed() {
        let of =
            |name: &str| of_ours(&format!("p:{name} handle_mm_fault address=%x1:x64")).is_some();
        assert!(of("folio_17/handle_mm_fault"));
        assert!(!of("kprobes/handle_mm_fault") && !of("folio_17/other"));
        assert!(!of("folio_x/handle_mm_fault") && of_ours("r:folio_1/handle_mm_fault x").is_none());
    }
}
