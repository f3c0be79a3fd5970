//! Huge folios of a file against its writers: `nr_thps` and `i_writecount` (docs/behaviour H.3,
//! Linux 5.4 .. 7.0).
//!
//! Answers to: `filemap_nr_thps_inc`, `get_write_access`, `deny_write_access`,
//! `inode_is_open_for_write`.
//!
//! A file of a filesystem without large folios cannot be written while a huge folio holds its
//! pages. Package managers write to libraries, so their writers are not refused like those of a
//! running program (H.2.1). Instead an open for writing drops the file's huge folios, and no new
//! ones are made while there is a writer.
//!
//! Owns both counts and the order in which they are changed and read. Does not own the folios: the
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
//! # Why no huge folio and writer stay together
//!
//! This is store buffering, Dekker's pattern: each side writes its own count and reads the other's.
//!
//! - G1: one of the two fences comes first in the single order of all full fences. If O2 does, C3
//!   reads a count that contains O1: the collapser is refused. If C2 does, O3 reads a count that
//!   contains C1: the opener drops. Both may see each other, which only costs a cache. It cannot
//!   happen that neither does. Without a full fence it can: a store may wait in its processor's
//!   buffer while the load behind it is answered, and acquire and release do not forbid that.
//! - G2: an opener told to drop may come before the huge folio does. It takes the locks of the
//!   folios it drops, and the collapser holds them from before C1 until the huge folio is in the
//!   cache: the opener waits and then finds it.
//! - G3: `nr_thps` counts from before a huge folio enters the cache until after it has left
//!   ([`Gate::remove_thp`], under its lock). So 0 means none, also to a second opener whose
//!   predecessor is still dropping.
//! - G4: a writer that closes reopens the gate. The counts order nothing else: what the writer made
//!   dirty is found under the folio locks, where every collapse looks for it.
//! - G5: deny-write holders (a running program, H.1.4) and writers exclude each other on one count,
//!   in one read-modify-write; there is nothing to race.
//!
//! # Example
//!
//! ```
//! use largefolio_mm::mapping::gate::{Gate, MustDrop, OpenForWrite};
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

use crate::rmap::owners::atomics::{Atomics, CountCell, Native};

/// The full fence between writing one count and reading the other.
pub trait FullFence {
    /// The fence of one side.
    fn full_fence(side: Side);
}

/// Who passes a full fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The opener, between its count and its look at the folios (O2).
    Open,
    /// The collapser, between its count and its look at the writers (C2).
    Collapse,
}

impl FullFence for Native {
    fn full_fence(_: Side) {
        std::sync::atomic::fence(SeqCst);
    }
}

/// Whether who opened a file for write drops its page cache (H.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MustDrop {
    /// It may hold huge folios.
    Yes,
    /// It holds none, and gets none while the file is open for writing.
    No,
}

/// The file cannot be opened for writing: a process runs it (`ETXTBSY`, H.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("text file busy: a process is running the file")]
pub struct TextBusy;

/// The file is open for writing: it cannot be run, and gets no huge folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file is open for writing")]
pub struct OpenForWrite;

/// `nr_thps` and `i_writecount` of one file: a type to share between threads.
pub struct Gate<A: Atomics = Native> {
    /// Huge folios in the cache or about to enter it, never negative. A mapping with large folios
    /// does not count its own here (H.3.1): this stays 0.
    nr_thps: A::Count,
    /// Writers where positive, deny-write holders where negative (H.1.4).
    writecount: A::Count,
}

impl<A: Atomics + FullFence> Gate<A> {
    /// A file that nobody has open, without huge folios.
    #[must_use]
    pub fn new() -> Self {
        Self::with(0, 0)
    }

    /// Adds a writer; whether it must drop the page cache before it goes on.
    ///
    /// # Errors
    /// When somebody denies writes; nothing has changed.
    pub fn open_for_write(&self) -> Result<MustDrop, TextBusy> {
        change(&self.writecount, |count| count >= 0, 1).map_err(|_| TextBusy)?;
        A::full_fence(Side::Open);
        Ok(if self.nr_thps() > 0 { MustDrop::Yes } else { MustDrop::No })
    }

    /// Counts a huge folio that is about to enter the cache; the caller holds the locks of the
    /// folios it replaces until it has.
    ///
    /// # Errors
    /// When the file is open for writing; nothing has changed.
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
    fn with(nr_thps: i32, writecount: i32) -> Self {
        Self { nr_thps: A::Count::new(nr_thps), writecount: A::Count::new(writecount) }
    }

    /// Takes a writer away.
    ///
    /// # Panics
    /// When there is none.
    pub fn close_write(&self) {
        let was = self.writecount.fetch_add(-1);
        assert!(was > 0, "a file without writers is closed by one: i_writecount was {was}");
    }

    /// Adds a deny-write holder: a process that runs the file.
    ///
    /// # Errors
    /// When the file is open for writing; nothing has changed.
    pub fn deny_write(&self) -> Result<(), OpenForWrite> {
        change(&self.writecount, |count| count <= 0, -1).map_err(|_| OpenForWrite)
    }

    /// Takes a deny-write holder away.
    ///
    /// # Panics
    /// When there is none.
    pub fn allow_write(&self) {
        let was = self.writecount.fetch_add(1);
        assert!(was < 0, "writes that nobody denies are allowed: i_writecount was {was}");
    }

    /// Takes away a huge folio that has left the cache, or that did not enter it.
    ///
    /// # Panics
    /// When none is counted.
    pub fn remove_thp(&self) {
        let was = self.nr_thps.fetch_add(-1);
        assert!(was > 0, "a huge folio that is not counted goes: nr_thps was {was}");
    }

    /// Whether writers have the file open (`inode_is_open_for_write`, H.1.4).
    #[must_use]
    pub fn is_open_for_write(&self) -> bool {
        self.writecount() > 0
    }

    /// `i_writecount`: writers where positive, deny-write holders where negative.
    #[must_use]
    pub fn writecount(&self) -> i32 {
        self.writecount.load(Relaxed)
    }

    /// Huge folios that the file has, or is about to have.
    #[must_use]
    pub fn nr_thps(&self) -> u32 {
        self.nr_thps.load(Relaxed).unsigned_abs()
    }
}

/// Adds `by` to a count that `may_change`, in one read-modify-write; else the count.
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

/// Both counts at the moment, read one after the other.
impl<A: Atomics> Clone for Gate<A> {
    fn clone(&self) -> Self {
        Self::with(self.nr_thps.load(Relaxed), self.writecount())
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
