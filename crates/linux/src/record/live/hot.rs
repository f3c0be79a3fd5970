//! `--hot`: finds pages that are written again and again.
//!
//! Owns the interval and the cost. A store to a page mapped writable does not fault, so a live
//! recording misses it. At intervals this module clears the soft-dirty bits of a process
//! (`clear_refs`). The kernel then write-protects the entries, and the next store to each one
//! faults and is recorded like any other fault, in order. A PMD entry is a single entry, so a huge
//! page reports one store per interval.
//!
//! Invariant H1: nothing has to be restored. The fault makes the page writable again.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::geometry::page_bytes;
use crate::proc::{PROC, Task};
use crate::record::error::RecordError;
use crate::record::outcome::HotPages;
use crate::system::entry::SOFT_DIRTY;
use crate::system::{Live, System};

/// Clears the soft-dirty bits.
const FORGET_WRITES: &str = "4";

#[derive(Debug)]
pub(super) struct Hot {
    every: Duration,
    last: Instant,
    cost: HotPages,
}

impl Hot {
    /// Clears the bits each time `every` has passed.
    ///
    /// # Errors
    /// [`RecordError::NoSoftDirty`] if the kernel has no soft-dirty bits.
    pub(super) fn new(every: Duration) -> Result<Self, RecordError> {
        if !has_soft_dirty(&Live) {
            return Err(RecordError::NoSoftDirty);
        }
        Ok(Self { every, last: Instant::now(), cost: HotPages::default() })
    }

    pub(super) fn request(&mut self, pids: impl Iterator<Item = u32>) {
        if self.last.elapsed() < self.every {
            return;
        }
        let began = Instant::now();
        for pid in pids {
            // The process may have exited.
            let _ =
                fs::write(Path::new(PROC).join(pid.to_string()).join("clear_refs"), FORGET_WRITES);
        }
        self.last = Instant::now();
        self.cost.nr_rounds += 1;
        self.cost.time += self.last - began;
    }

    /// Returns the cost; `nr_faults` counts the stores to protected entries.
    pub(super) fn cost(&self, nr_faults: u64) -> HotPages {
        HotPages { nr_faults, ..self.cost }
    }
}

/// Tests whether a newly written page becomes soft-dirty.
fn has_soft_dirty(system: &dyn System) -> bool {
    let mut page = vec![0_u8; 2 * page_bytes()];
    std::hint::black_box(page.as_mut_slice()).fill(1);
    let address = page.as_ptr().addr() as u64;
    let mut entry = [0];
    let read = Task::own(system)
        .pagemap()
        .and_then(|pagemap| pagemap.read(address / page_bytes() as u64, &mut entry));
    read.is_ok_and(|nr| nr == 1) && entry[0] & SOFT_DIRTY != 0
}
