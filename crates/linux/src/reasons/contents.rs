//! Reads words of a process's private memory, to identify its allocator.
//!
//! Only present pages are read, and pagemap is read in windows.

use std::io;

use crate::proc::Task;
use crate::system::{Entries, entry};

const WINDOW: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words<const NR: usize> {
    Read([u64; NR]),
    /// Nothing was written to the page.
    Empty,
    /// Reading them would bring the page in.
    Unread,
}

pub(super) struct Contents {
    pagemap: Box<dyn Entries>,
    memory: Box<dyn Entries>,
    page_bytes: u64,
    first: u64,
    window: Vec<u64>,
}

impl Contents {
    pub(super) fn of(task: &Task<'_>, page_bytes: u64) -> io::Result<Self> {
        let (pagemap, memory) = (task.pagemap()?, task.memory()?);
        Ok(Self { pagemap, memory, page_bytes, first: 0, window: Vec::new() })
    }

    /// Reads words from `address`. They must be in one page.
    pub(super) fn words<const NR: usize>(&mut self, address: u64) -> Words<NR> {
        let Some(state) = self.state(address / self.page_bytes) else { return Words::Unread };
        if state & entry::PRESENT == 0 {
            let is_swapped = state & entry::SWAPPED != 0 && state & entry::GUARD == 0;
            return if is_swapped { Words::Unread } else { Words::Empty };
        }
        let mut words = [0; NR];
        match self.memory.read(address / 8, &mut words) {
            Ok(nr) if nr == NR => Words::Read(words),
            _ => Words::Unread,
        }
    }

    fn state(&mut self, page: u64) -> Option<u64> {
        let at = |first: u64| usize::try_from(page.checked_sub(first)?).ok();
        if let Some(state) = at(self.first).and_then(|at| self.window.get(at)) {
            return Some(*state);
        }
        self.window.resize(WINDOW, 0);
        let nr = self.pagemap.read(page, &mut self.window).unwrap_or(0);
        self.window.truncate(nr);
        self.first = page;
        self.window.first().copied()
    }
}
