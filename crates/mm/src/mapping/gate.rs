//! Keeps a file's huge folios and its writers apart: `nr_thps` and `i_writecount` (docs/behaviour
//! H.3, Linux 5.4 .. 7.0), for one thread.
//!
//! Corresponds to: `filemap_nr_thps_inc`, `get_write_access`, `deny_write_access`,
//! `inode_is_open_for_write`.
//!
//! A filesystem without large folios cannot write to a file while a huge folio holds its pages.
//! Package managers write to libraries, so the kernel does not refuse the open as it does for a
//! running program (H.2.1). Instead, opening the file for writing drops its huge folios, and none
//! are added while there is a writer. `largefolio-owner-word` has the two-sided protocol with its
//! fences; here each step is atomic.
//!
//! Does not own the folios: a caller that gets [`MustDrop::Yes`] drops them.

pub use largefolio_owner_word::gate::{MustDrop, OpenForWrite, TextBusy};

/// `nr_thps` and `i_writecount` of one file.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// Huge folios in the cache. Stays 0 for a mapping with large folios (H.3.1).
    nr_thps: u32,
    /// Positive: writers; negative: deny-write holders (H.1.4).
    writecount: i32,
}

impl Gate {
    /// Adds a writer. Returns whether it must drop the page cache before it continues.
    ///
    /// # Errors
    /// If writes are denied. Nothing changes.
    pub(crate) fn open_for_write(&mut self) -> Result<MustDrop, TextBusy> {
        if self.writecount < 0 {
            return Err(TextBusy);
        }
        self.writecount += 1;
        Ok(if self.nr_thps > 0 { MustDrop::Yes } else { MustDrop::No })
    }

    pub(crate) fn close_write(&mut self) {
        assert!(self.writecount > 0, "I14: a writer closes a file without writers");
        self.writecount -= 1;
    }

    /// Counts a huge folio that is about to enter the cache.
    ///
    /// # Errors
    /// If the file is open for writing. Nothing changes.
    pub(crate) fn try_add_thp(&mut self) -> Result<(), OpenForWrite> {
        if self.is_open_for_write() {
            return Err(OpenForWrite);
        }
        self.nr_thps += 1;
        Ok(())
    }

    pub(crate) fn remove_thp(&mut self) {
        assert!(self.nr_thps > 0, "I14: an uncounted huge folio leaves the cache");
        self.nr_thps -= 1;
    }

    /// Adds a deny-write holder: a process that runs the file.
    ///
    /// # Errors
    /// If the file is open for writing. Nothing changes.
    pub(crate) fn deny_write(&mut self) -> Result<(), OpenForWrite> {
        if self.is_open_for_write() {
            return Err(OpenForWrite);
        }
        self.writecount -= 1;
        Ok(())
    }

    pub(crate) fn allow_write(&mut self) {
        assert!(self.writecount < 0, "I14: a process allows writes that no process denied");
        self.writecount += 1;
    }

    /// Whether a writer has the file open (`inode_is_open_for_write`, H.1.4).
    #[must_use]
    pub const fn is_open_for_write(&self) -> bool {
        self.writecount > 0
    }

    /// `i_writecount`. Positive: writers; negative: deny-write holders.
    #[must_use]
    pub const fn writecount(&self) -> i32 {
        self.writecount
    }

    /// Huge folios in the cache.
    #[must_use]
    pub const fn nr_thps(&self) -> u32 {
        self.nr_thps
    }
}
