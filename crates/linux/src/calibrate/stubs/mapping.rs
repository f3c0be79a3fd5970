//! A mapping aligned to a PMD entry, and the part of it that PMD entries map.

use std::collections::BTreeSet;
use std::fs::File;
use std::ptr;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::StubsError;
use super::file::failed;
use crate::calibrate::count;
use crate::geometry::{page_bytes, pmd_bytes};
use crate::proc::Task;
use crate::proc::host::COMPACT_MEMORY;
use crate::proc::smaps::Smap;
use crate::system::Live;
use crate::system::entry::{PFN_MASK, PRESENT};

/// How often a collapse is tried, with a compaction of all memory between two tries.
const NR_COLLAPSES: u32 = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    Anonymous,
    /// A file from its start, privately. Stores copy.
    Private(&'a File),
    /// A file from its start, shared.
    Shared(&'a File),
}

#[derive(Debug)]
pub(crate) struct Mapping {
    at: *mut u8,
    len_bytes: usize,
    reserved: (*mut u8, usize),
}

impl Mapping {
    pub(crate) fn new(
        source: Source<'_>,
        len_bytes: usize,
        prot: ProtFlags,
    ) -> Result<Self, StubsError> {
        let whole = len_bytes + pmd_bytes();
        let none = ProtFlags::empty();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no memory in use.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), whole, none, flags) }
            .map_err(|error| failed("mmap", error))?
            .cast::<u8>();
        let at = base.wrapping_add(base.align_offset(pmd_bytes()));
        let mapping = Self { at, len_bytes, reserved: (base, whole) };
        mapping.map(source, prot)?;
        Ok(mapping)
    }

    fn map(&self, source: Source<'_>, prot: ProtFlags) -> Result<(), StubsError> {
        let (at, len) = (self.at.cast(), self.len_bytes);
        let (file, flags) = match source {
            Source::Anonymous => (None, MapFlags::PRIVATE),
            Source::Private(file) => (Some(file), MapFlags::PRIVATE),
            Source::Shared(file) => (Some(file), MapFlags::SHARED),
        };
        let flags = flags | MapFlags::FIXED;
        let mapped = match file {
            // SAFETY: replaces a part of the address space that `new` reserved.
            None => unsafe { mmap_anonymous(at, len, prot, flags) },
            // SAFETY: as above.
            Some(file) => unsafe { mmap(at, len, prot, flags, file, 0) },
        };
        match mapped {
            Err(rustix::io::Errno::PERM) if prot.contains(ProtFlags::EXEC) => {
                Err(StubsError::NoExec)
            }
            mapped => mapped.map(drop).map_err(|error| failed("mmap", error)),
        }
    }

    pub(crate) fn advise(&self, advice: Advice) -> Result<(), StubsError> {
        // SAFETY: the range is this value's mapping, and the advices used do not change contents.
        unsafe { madvise(self.at.cast(), self.len_bytes, advice) }
            .map_err(|error| failed("madvise", error))
    }

    /// Collapses it into PMD folios. If no free block is large enough, asks the kernel to compact
    /// memory and tries again.
    pub(crate) fn collapse(&self) -> Result<(), StubsError> {
        let len = self.len_bytes / pmd_bytes() * pmd_bytes();
        for _ in 0..NR_COLLAPSES {
            // SAFETY: the advice does not change contents, and the range is this value's mapping.
            let result = unsafe { libc::madvise(self.at.cast(), len, libc::MADV_COLLAPSE) };
            if result == 0 {
                return Ok(());
            }
            let error = std::io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::ENOMEM) {
                return Err(failed("MADV_COLLAPSE", error));
            }
            if std::fs::write(COMPACT_MEMORY, "1").is_err() {
                break;
            }
        }
        Err(StubsError::Fragmented { block_bytes: pmd_bytes() })
    }

    pub(crate) const fn at(&self) -> *mut u8 {
        self.at
    }

    pub(crate) const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    pub(crate) fn load_each(&self, step_bytes: usize) {
        for offset in (0..self.len_bytes).step_by(step_bytes) {
            // SAFETY: inside the readable mapping.
            unsafe { self.at.wrapping_add(offset).read_volatile() };
        }
    }

    pub(crate) fn store_each(&self, step_bytes: usize, byte: u8) {
        for offset in (0..self.len_bytes).step_by(step_bytes) {
            // SAFETY: inside the writable mapping, which nothing else refers to.
            unsafe { self.at.wrapping_add(offset).write_volatile(byte) };
        }
    }

    /// Counts the groups of `1 << shift` aligned page frames that hold its pages, per page. `None`
    /// if the kernel hides page frames, as it does from programs without `CAP_SYS_ADMIN`.
    pub(crate) fn groups_per_page(&self, shift: u32) -> Option<f64> {
        let first = self.at.addr() as u64 / page_bytes() as u64;
        let mut entries = vec![0; self.len_bytes / page_bytes()];
        let nr = Task::own(&Live).pagemap().ok()?.read(first, &mut entries).ok()?;
        let present = entries.iter().take(nr).filter(|&&entry| entry & PRESENT != 0);
        let frames: Vec<u64> = present.map(|entry| entry & PFN_MASK).collect();
        let groups: BTreeSet<u64> = frames.iter().map(|frame| frame >> shift).collect();
        let is_known = frames.iter().any(|&frame| frame != 0);
        is_known.then(|| count(groups.len()) / count(frames.len()))
    }

    pub(crate) fn pmd_mapped_bytes(&self) -> u64 {
        let first = self.at.addr() as u64;
        let range = first..first + self.len_bytes as u64;
        let smaps = Task::own(&Live).smaps().unwrap_or_default();
        let inside = smaps.iter().filter(|smap| range.contains(&smap.vma.range.start));
        inside.map(Smap::pmd_bytes).sum()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let (base, len) = self.reserved;
        // SAFETY: unmaps the mapping made by `new`; nothing refers to it.
        let _ = unsafe { munmap(base.cast(), len) };
    }
}
