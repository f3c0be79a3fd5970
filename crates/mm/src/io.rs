//! System calls on files: read, sendfile, write, fadvise, fsync, fallocate, and dropping caches.
//! Truncation and hole punch are in [`crate::split`].
//!
//! Reading order: this file, `read`, `write`, `copy`, `direct`, `writeback`, `allocate`, `advise`.

mod advise;
mod allocate;
mod copy;
mod direct;
mod read;
mod write;
mod writeback;

pub use advise::Fadvice;
pub use allocate::{Fallocate, FileSize};
pub use copy::WriteData;

use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::readahead::ReadTarget;
use crate::units::MappingId;

/// Most bytes that one read or write call moves (`MAX_RW_COUNT`: 2 GiB less a page).
const CALL_BYTES_MAX: u64 = 0x7fff_f000;

/// Where memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// No page is free.
    Machine,
    /// The cgroup is at its limit, and nothing in it can be reclaimed.
    Group,
}

impl Short {
    const fn remedy(self) -> &'static str {
        match self {
            Self::Machine => "give the model more memory",
            Self::Group => {
                "the control group is at its limit and nothing in it can be reclaimed; raise the \
                 limit, or give the model swap space"
            }
        }
    }
}

/// A read or write call found no free page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory at byte {pos} of a file: {}", .short.remedy())]
pub struct OutOfMemory {
    /// Byte position in the file.
    pub pos: u64,
    /// Where memory ran out.
    pub short: Short,
}

impl Memory {
    fn out_of_memory(&mut self, pos: u64) -> OutOfMemory {
        let short = if self.take_group_oom() { Short::Group } else { Short::Machine };
        OutOfMemory { pos, short }
    }

    pub(super) fn target(&self, file: MappingId) -> ReadTarget {
        ReadTarget { file, allowed: self.core.mapping(file).control.always, preferred: None }
    }

    pub(super) fn end_of(&self, entry: Entry, end: u64) -> u64 {
        entry.end().checked_mul(self.rules.page.bytes()).map_or(end, |next| next.min(end))
    }
}
