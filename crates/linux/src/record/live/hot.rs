//! `--hot`: pages that are written again and again.
//!
//! Owns when the kernel is asked for them, and what that costs. A store to a page that is mapped for
//! writing causes no fault, so a live recording does not see it. At intervals this module has the
//! kernel forget which pages of a process were written (soft-dirty, `clear_refs`): it takes the right
//! to write from the entries, and the next store to each is a fault, which is told like any other one,
//! in its order. A PMD entry is one entry: of a huge page one store is told in each interval.
//!
//! Invariant H1: nothing is to be put back. A program that writes gets its right again by the fault.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::geometry::page_bytes;
use crate::proc::{PROC, Task};
use crate::record::error::RecordError;
use crate::record::outcome::HotPages;
use crate::system::entry::SOFT_DIRTY;
use crate::system::{Live, System};

/// What makes the kernel forget which pages were written.
const FORGET_WRITES: &str = "4";

/// The state of the sampling.
#[derive(Debug)]
pub(super) struct Hot {
    every: Duration,
    last: Instant,
    cost: HotPages,
}

impl Hot {
    /// Asks the kernel each time that `every` has passed.
    ///
    /// # Errors
    /// [`RecordError::NoSoftDirty`] if it does not know which pages were written.
    pub(super) fn new(every: Duration) -> Result<Self, RecordError> {
        if !has_soft_dirty(&Live) {
            return Err(RecordError::NoSoftDirty);
        }
        Ok(Self { every, last: Instant::now(), cost: HotPages::default() })
    }

    /// Asks for the pages of these processes, if it is time.
    pub(super) fn ask(&mut self, pids: impl Iterator<Item = u32>) {
        if self.last.elapsed() < self.every {
            return;
        }
        let began = Instant::now();
        for pid in pids {
            // It may have ended.
            let _ =
                fs::write(Path::new(PROC).join(pid.to_string()).join("clear_refs"), FORGET_WRITES);
        }
        self.last = Instant::now();
        self.cost.nr_rounds += 1;
        self.cost.time += self.last - began;
    }

    /// What it cost; `nr_faults` is how many stores to protected entries were told.
    pub(super) fn cost(&self, nr_faults: u64) -> HotPages {
        HotPages { nr_faults, ..self.cost }
    }
}

/// Whether a page that was just written counts as written.
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
