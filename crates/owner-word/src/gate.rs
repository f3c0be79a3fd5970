//! Keeps a file's huge folios and its writers apart: `nr_thps` and `i_writecount` (docs/behaviour
//! H.3, Linux 5.4 .. 7.0).
//!
//! Corresponds to: `filemap_nr_thps_inc`, `get_write_access`, `deny_write_access`,
//! `inode_is_open_for_write`.
//!
//! A filesystem without large folios cannot write to a file while a huge folio holds its pages.
//! Package managers write to libraries, so the kernel does not refuse the open as it does for a
//! running program (H.2.1). Instead, opening the file for writing drops its huge folios, and none
//! are added while there is a writer.
//!
//! Owns both counts and the order in which they are changed and read. Does not own the folios: a
//! caller that gets [`MustDrop::Yes`] drops them, under their locks.
//!
//! # Protocol
//!
//! ```text
//!   opener                                  collapser, holds the locks of the small folios
//!   ------                                  ---------
//!   i_writecount += 1            (O1)       nr_thps += 1                            (C1)
//!   full fence                   (O2)       full fence                              (C2)
//!   reads nr_thps                (O3)       reads i_writecount                      (C3)
//!     0: done                                 > 0: nr_thps -= 1, refused            (C4)
//!   > 0: unmaps and drops the file's        <= 0: the huge folio enters the cache
//!        cache, folio lock by folio lock    gives the folio locks back
//! ```
//!
//! # Why a huge folio and a writer never coexist
//!
//! This is store buffering (Dekker's pattern): each side writes its own count and reads the
//! other's.
//!
//! - G1: one of the two fences comes first in the single order of all full fences. If it is O2, C3
//!   sees O1, and the collapser is refused. If it is C2, O3 sees C1, and the opener drops. Both can
//!   happen, which only costs the cached pages; at least one always does. Without full fences,
//!   neither might happen: a store can wait in the processor's buffer while the following load
//!   completes. Acquire and release do not forbid that.
//! - G2: an opener can decide to drop before the huge folio is in the cache. It takes the locks of
//!   the folios it drops, and the collapser holds them from before C1 until the huge folio is in
//!   the cache. So the opener waits and then finds it.
//! - G3: `nr_thps` counts a huge folio from before it enters the cache until after it has left
//!   ([`Gate::remove_thp`], under its lock). So 0 proves that there is none, even for a second
//!   opener while the first is still dropping.
//! - G4: the last writer to close reopens the gate. The counts order nothing else: pages that the
//!   writer dirtied are found under the folio locks, where every collapse checks.
//! - G5: deny-write holders (a running program, H.1.4) and writers exclude each other on one count
//!   with one read-modify-write, so they cannot race.
//!
//! # Example
//!
//! ```
//! use largefolio_owner_word::gate::{Gate, MustDrop, OpenForWrite};
//! let library: Gate = Gate::new();
//! library.try_add_thp()?;
//! assert_eq!(library.open_for_write(), Ok(MustDrop::Yes));
//! library.remove_thp(); // what the writer drops
//! assert_eq!(library.try_add_thp(), Err(OpenForWrite));
//! library.close_write();
//! assert_eq!(library.try_add_thp(), Ok(()));
//! # Ok::<(), OpenForWrite>(())
//! ```

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::atomics::{Atomics, CountCell, Native};

/// The full fence between writing one count and reading the other.
pub trait FullFence {
    /// One side's fence.
    fn full_fence(side: Side);
}

/// The side of a full fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The opener: between its count and its check for huge folios (O2).
    Open,
    /// The collapser: between its count and its check for writers (C2).
    Collapse,
}

impl FullFence for Native {
    fn full_fence(_: Side) {
        std::sync::atomic::fence(SeqCst);
    }
}

/// Whether an opener for write must drop the file's page cache (H.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MustDrop {
    /// The cache may hold huge folios.
    Yes,
    /// The cache holds none, and gets none while the file is open for writing.
    No,
}

/// The file cannot be opened for writing, because a process runs it (`ETXTBSY`, H.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("text file busy: a process is running the file")]
pub struct TextBusy;

/// The file is open for writing: it cannot be run and gets no huge folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file is open for writing")]
pub struct OpenForWrite;

/// `nr_thps` and `i_writecount` of one file. Threads can share it.
pub struct Gate<A: Atomics = Native> {
    /// Huge folios in the cache or about to enter it; never negative. Stays 0 for a mapping with
    /// large folios, which does not count its own here (H.3.1).
    nr_thps: A::Count,
    /// Positive: writers; negative: deny-write holders (H.1.4).
    writecount: A::Count,
}

impl<A: Atomics + FullFence> Gate<A> {
    /// A file that is not open and has no huge folios.
    #[must_use]
    pub fn new() -> Self {
        Self { nr_thps: A::Count::new(0), writecount: A::Count::new(0) }
    }

    /// Adds a writer. Returns whether it must drop the page cache before it continues.
    ///
    /// # Errors
    /// If writes are denied. Nothing changes.
    pub fn open_for_write(&self) -> Result<MustDrop, TextBusy> {
        change(&self.writecount, |count| count >= 0, 1).map_err(|_| TextBusy)?;
        A::full_fence(Side::Open);
        Ok(if self.nr_thps() > 0 { MustDrop::Yes } else { MustDrop::No })
    }

    /// Counts a huge folio that is about to enter the cache. Until it has, the caller holds the
    /// locks of the folios it replaces.
    ///
    /// # Errors
    /// If the file is open for writing. Nothing changes.
    pub fn try_add_thp(&self) -> Result<(), OpenForWrite> {
        self.nr_thps.fetch_add(1);
        A::full_fence(Side::Collapse);
        if self.is_open_for_write() {
            self.remove_thp();
            return Err(OpenForWrite);
        }
        Ok(())
    }
}

impl<A: Atomics> Gate<A> {
    /// Removes a writer.
    ///
    /// # Panics
    /// If there is none.
    pub fn close_write(&self) {
        let was = self.writecount.fetch_add(-1);
        assert!(was > 0, "a writer closed a file that had none: i_writecount was {was}");
    }

    /// Adds a deny-write holder: a process that runs the file.
    ///
    /// # Errors
    /// If the file is open for writing. Nothing changes.
    pub fn deny_write(&self) -> Result<(), OpenForWrite> {
        change(&self.writecount, |count| count <= 0, -1).map_err(|_| OpenForWrite)
    }

    /// Removes a deny-write holder.
    ///
    /// # Panics
    /// If there is none.
    pub fn allow_write(&self) {
        let was = self.writecount.fetch_add(1);
        assert!(was < 0, "writes were allowed that had not been denied: i_writecount was {was}");
    }

    /// Uncounts a huge folio that has left the cache or did not enter it.
    ///
    /// # Panics
    /// If none is counted.
    pub fn remove_thp(&self) {
        let was = self.nr_thps.fetch_add(-1);
        assert!(was > 0, "a huge folio was removed that had not been counted: nr_thps was {was}");
    }

    /// Whether a writer has the file open (`inode_is_open_for_write`, H.1.4).
    #[must_use]
    pub fn is_open_for_write(&self) -> bool {
        self.writecount() > 0
    }

    /// `i_writecount`. Positive: writers; negative: deny-write holders.
    #[must_use]
    pub fn writecount(&self) -> i32 {
        self.writecount.load(Relaxed)
    }

    /// Huge folios in the cache, or about to enter it.
    #[must_use]
    pub fn nr_thps(&self) -> u32 {
        self.nr_thps.load(Relaxed).unsigned_abs()
    }
}

/// Adds `by` in one read-modify-write if `may_change` allows it; otherwise returns the count.
fn change(cell: &impl CountCell, may_change: impl Fn(i32) -> bool, by: i32) -> Result<(), i32> {
    let mut old = cell.load(Relaxed);
    while may_change(old) {
        match cell.compare_exchange(old, old + by) {
            Ok(_) => return Ok(()),
            Err(now) => old = now,
        }
    }
    Err(old)
}

impl<A: Atomics + FullFence> Default for Gate<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Atomics> fmt::Debug for Gate<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("nr_thps", &self.nr_thps())
            .field("writecount", &self.writecount())
            .finish()
    }
}
