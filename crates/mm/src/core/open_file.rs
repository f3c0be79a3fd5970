//! An open file and its readahead state (docs/behaviour A.1.1).
//!
//! Corresponds to: `file_ra_state_init`.
//!
//! Owns the state's counters. Does not choose windows (`readahead`).

use crate::units::{MappingId, Order};

/// Limit of the miss counter: ten times the threshold (docs/behaviour 0.4).
const MISS_LIMIT: u32 = 1000;
/// Above this many misses, mapped readahead stops (docs/behaviour 0.4, `MMAP_LOTSAMISS`).
const MISS_THRESHOLD: u32 = 100;

/// An open file, with its own readahead state (B.7.1).
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    /// The file.
    pub mapping: MappingId,
    /// Readahead state, shared by all users of this open file.
    pub state: RaState,
    /// `POSIX_FADV_RANDOM`: every read is forced (A.1.4).
    pub is_random: bool,
    /// Initial order for read-around, if mapping the file set one (K.1.4).
    pub start_order: Option<Order>,
    /// Whether it counts as a writer of the file ([`crate::writers`]).
    pub is_writer: bool,
    /// Descriptors. A mapping keeps the open file alive without one.
    pub nr_descriptors: u32,
}

/// An open file's readahead state. All sizes are in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RaState {
    /// First index of the last window.
    pub start: u64,
    /// Pages in the last window; 0 = no window yet.
    pub size: u64,
    /// Pages in its tail. A read of the tail's first page starts the next window.
    pub async_size: u64,
    /// Largest window; 0 = readahead is off.
    pub ra_pages: u64,
    /// Order of the last window \[6.17+\].
    pub order: Order,
    mmap_miss: u32,
    /// End of the last read call in bytes; `None` before the first.
    pub prev_pos: Option<u64>,
}

impl RaState {
    /// The state of a newly opened file.
    #[must_use]
    pub fn new(ra_pages: u64) -> Self {
        Self { ra_pages, ..Self::default() }
    }

    /// Miss counter: cold faults minus hits, `0 ..= 1000`.
    #[must_use]
    pub fn mmap_miss(&self) -> u32 {
        self.mmap_miss
    }

    /// Counts a cold mapped fault. Returns whether readahead is still worthwhile (docs/behaviour
    /// B.4.1 step 5, L.4: the comparison is strict and follows the increment).
    pub fn count_miss(&mut self) -> MissGate {
        self.mmap_miss = (self.mmap_miss + 1).min(MISS_LIMIT);
        if self.mmap_miss > MISS_THRESHOLD { MissGate::Closed } else { MissGate::Open }
    }

    /// Subtracts `nr_hits` misses; stops at 0.
    pub fn credit(&mut self, nr_hits: u64) {
        let nr_hits = u32::try_from(nr_hits).unwrap_or(MISS_LIMIT);
        self.mmap_miss = self.mmap_miss.saturating_sub(nr_hits);
    }

    /// Index that triggers the next window: `start + size - async_size`.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.mark_of(self.start)
    }

    /// Like [`RaState::mark`], for a window that begins at `start`: forced and exec windows are not
    /// recorded in the state (B.4.6).
    #[must_use]
    pub fn mark_of(&self, start: u64) -> u64 {
        (start + self.size).wrapping_sub(self.async_size)
    }
}

/// Whether the miss counter still allows readahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissGate {
    /// Readahead is still worthwhile.
    Open,
    /// Too many misses: read only the needed page.
    Closed,
}
