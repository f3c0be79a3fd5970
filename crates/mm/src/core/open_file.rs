//! One open of a file, and its readahead state (docs/behaviour A.1.1).
//!
//! Answers to: `file_ra_state_init`.
//!
//! Owns the counts that the state keeps. Does not choose windows (`readahead`).

use crate::units::{MappingId, Order};

/// Limit of the miss counter: ten times the threshold (docs/behaviour 0.4).
const MISS_LIMIT: u32 = 1000;
/// More counted misses than this stop mapped readahead (docs/behaviour 0.4, `MMAP_LOTSAMISS`).
const MISS_THRESHOLD: u32 = 100;

/// One open of a file: it has its own readahead state (B.7.1).
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    /// File that was opened.
    pub mapping: MappingId,
    /// What its reads told readahead, shared by all that use this open.
    pub state: RaState,
    /// `POSIX_FADV_RANDOM`: every read is forced (A.1.4).
    pub is_random: bool,
    /// Order that a read-around starts with, where mapping the file set one (K.1.4).
    pub start_order: Option<Order>,
    /// Whether it is one of the file's writers ([`crate::writers`]).
    pub is_writer: bool,
    /// Descriptors; a mapping keeps the open file without one.
    pub nr_descriptors: u32,
}

/// Readahead state of one open file. All sizes in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RaState {
    /// First index of the last window.
    pub start: u64,
    /// Pages of the last window; 0 = there was none.
    pub size: u64,
    /// Pages in its tail: reaching the first of them starts the next window.
    pub async_size: u64,
    /// Largest window; 0 = readahead is off.
    pub ra_pages: u64,
    /// Order of the last window \[6.17+\].
    pub order: Order,
    /// Misses of mapped access, `0 ..= 1000`; see [`RaState::count_miss`].
    mmap_miss: u32,
    /// Byte after the last one a read call handed out, `None` before the first.
    pub prev_pos: Option<u64>,
}

impl RaState {
    /// State of a file that was just opened.
    #[must_use]
    pub fn new(ra_pages: u64) -> Self {
        Self { ra_pages, ..Self::default() }
    }

    /// The miss counter: cold faults less hits, `0 ..= 1000`.
    #[must_use]
    pub fn mmap_miss(&self) -> u32 {
        self.mmap_miss
    }

    /// Counts a cold mapped fault; whether readahead is still worth while (docs/behaviour B.4.1
    /// step 5, L.4: the gate is strict and tested after the increment).
    pub fn count_miss(&mut self) -> MissGate {
        self.mmap_miss = (self.mmap_miss + 1).min(MISS_LIMIT);
        if self.mmap_miss > MISS_THRESHOLD { MissGate::Closed } else { MissGate::Open }
    }

    /// Gives back `nr_hits` misses, not below 0.
    pub fn credit(&mut self, nr_hits: u64) {
        let nr_hits = u32::try_from(nr_hits).unwrap_or(MISS_LIMIT);
        self.mmap_miss = self.mmap_miss.saturating_sub(nr_hits);
    }

    /// Index whose reach triggers the next window: `start + size - async_size`.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.mark_of(self.start)
    }

    /// The same for a window that begins at `start` instead: forced and exec windows are issued
    /// without being recorded (B.4.6).
    #[must_use]
    pub fn mark_of(&self, start: u64) -> u64 {
        (start + self.size).wrapping_sub(self.async_size)
    }
}

/// Answer of the miss counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissGate {
    /// Readahead is still worth while.
    Open,
    /// Too many misses: read only what is needed.
    Closed,
}
