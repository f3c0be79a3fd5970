//! Finds the blocks of a file that the page cache holds in PMD folios.
//!
//! A block is a naturally aligned PMD range of the file. It is mapped here at an equally aligned
//! address and one of its pages is touched. The kernel maps a PMD folio whole and shows it in
//! `smaps`. Needs no root.
//!
//! ```text
//!   file       | block 0 | block 1 | block 2 |
//!   addresses  | block 0 |  (gap)  | block 1 |  (gap)  | ..      gaps keep one vma a block
//! ```
//!
//! Invariants:
//! - R1: nothing is read from storage: only blocks that are completely cached are touched.
//! - R2: no mapping outlives its value, so ours never prevent eviction.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::ptr;

use rustix::fs::Access;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::geometry::Geometry;
use crate::proc::Task;
use crate::system::Live;

/// Blocks examined per step. A process can have 65,530 vmas, and gaps cost only addresses.
const NR_BLOCKS_AT_ONCE: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    Absent,
    Small,
    Huge,
    /// The kernel does not report it: the file is neither ours nor writable for us.
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Cached<'f> {
    file: &'f File,
    file_bytes: u64,
    pub(crate) pmd_bytes: u64,
    pub(crate) is_reported: bool,
    /// Whether the whole range was filled. Examining it then reads nothing, reported or not.
    pub(crate) is_filled: bool,
}

impl<'f> Cached<'f> {
    pub(crate) fn new(file: &'f File, path: &Path) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let euid = rustix::process::geteuid();
        let is_owner = euid.is_root() || euid.as_raw() == metadata.uid();
        let is_reported = is_owner || rustix::fs::access(path, Access::WRITE_OK).is_ok();
        Ok(Self {
            file,
            file_bytes: metadata.len(),
            pmd_bytes: Geometry::running().pmd_bytes(),
            is_reported,
            is_filled: false,
        })
    }

    /// Returns the number of whole blocks in the file. The last, shorter one is never in a PMD
    /// folio.
    pub(crate) fn nr_whole(&self) -> u64 {
        self.file_bytes / self.pmd_bytes
    }

    pub(crate) fn blocks(&self, wanted: Range<u64>) -> io::Result<Vec<BlockState>> {
        let mut states = Vec::new();
        let end = wanted.end.min(self.nr_whole());
        let mut at = wanted.start;
        while at < end {
            let next = end.min(at + NR_BLOCKS_AT_ONCE);
            states.extend(self.blocks_at_once(at..next)?);
            at = next;
        }
        Ok(states)
    }

    fn blocks_at_once(&self, wanted: Range<u64>) -> io::Result<Vec<BlockState>> {
        if !self.is_reported && !self.is_filled {
            return Ok(wanted.map(|_| BlockState::Unknown).collect());
        }
        let nr = usize::try_from(wanted.end - wanted.start).map_err(io::Error::other)?;
        let pmd = usize::try_from(self.pmd_bytes).map_err(io::Error::other)?;
        let area = Area::reserve(nr.saturating_mul(2 * pmd), pmd)?;
        let mut states = Vec::with_capacity(nr);
        for (nr, block) in wanted.enumerate() {
            let at = nr * 2 * pmd;
            area.map(self.file, at, block * self.pmd_bytes, pmd)?;
            let cached = area.resident(at, pmd)?;
            let is_whole = cached.iter().all(|&is_cached| is_cached);
            if is_whole {
                area.populate(at, rustix::param::page_size())?;
            }
            let is_absent = !cached.contains(&true);
            states.push(if is_absent { BlockState::Absent } else { BlockState::Small });
        }
        for smap in Task::own(&Live).smaps()? {
            let is_huge = smap.file_pmd_bytes >= self.pmd_bytes;
            if let Some(at) = area.offset_of(smap.vma.range.start).filter(|_| is_huge) {
                states[at / (2 * pmd)] = BlockState::Huge;
            }
        }
        Ok(states)
    }

    pub(crate) fn is_cached(&self, range: Range<u64>) -> io::Result<Option<bool>> {
        if !self.is_reported || range.is_empty() {
            return Ok(None);
        }
        let len = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        let area = Area::reserve(len, rustix::param::page_size())?;
        area.map(self.file, 0, range.start, len)?;
        Ok(Some(area.resident(0, len)?.contains(&true)))
    }

    /// Reads the absent part of a range that starts at a block, in the largest folios possible.
    pub(crate) fn fill(&self, range: Range<u64>) -> io::Result<()> {
        let len = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        let pmd = usize::try_from(self.pmd_bytes).map_err(io::Error::other)?;
        let area = Area::reserve(len, pmd)?;
        area.map(self.file, 0, range.start, len)?;
        area.advise(0, len, Advice::LinuxHugepage)?;
        area.populate(0, len)
    }
}

struct Area {
    mapped: *mut u8,
    mapped_bytes: usize,
    at: *mut u8,
    len_bytes: usize,
}

impl Area {
    fn reserve(len_bytes: usize, align: usize) -> io::Result<Self> {
        let mapped_bytes = len_bytes.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no memory in use.
        let mapped =
            unsafe { mmap_anonymous(ptr::null_mut(), mapped_bytes, ProtFlags::empty(), flags) }?;
        let mapped = mapped.cast::<u8>();
        let at = mapped.wrapping_add(mapped.align_offset(align));
        Ok(Self { mapped, mapped_bytes, at, len_bytes })
    }

    fn map(&self, file: &File, at: usize, pos: u64, len: usize) -> io::Result<()> {
        self.check(at, len)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let to = self.at.wrapping_add(at).cast();
        // SAFETY: replaces a part of our own reservation; nothing refers to it.
        unsafe { mmap(to, len, ProtFlags::READ, flags, file, pos) }?;
        Ok(())
    }

    fn advise(&self, at: usize, len: usize, advice: Advice) -> io::Result<()> {
        self.check(at, len)?;
        // SAFETY: this advice does not change contents, and the range is inside our own mapping.
        Ok(unsafe { madvise(self.at.wrapping_add(at).cast(), len, advice) }?)
    }

    fn populate(&self, at: usize, len: usize) -> io::Result<()> {
        self.advise(at, len, Advice::LinuxPopulateRead)
    }

    fn resident(&self, at: usize, len: usize) -> io::Result<Vec<bool>> {
        self.check(at, len)?;
        let mut cached = vec![0_u8; len.div_ceil(rustix::param::page_size())];
        let from = self.at.wrapping_add(at).cast();
        // SAFETY: the kernel writes one byte for each page of the range, which is our own mapping.
        let result = unsafe { libc::mincore(from, len, cached.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(cached.iter().map(|byte| byte & 1 != 0).collect())
    }

    fn offset_of(&self, address: u64) -> Option<usize> {
        let offset = usize::try_from(address).ok()?.checked_sub(self.at.addr())?;
        (offset < self.len_bytes).then_some(offset)
    }

    fn check(&self, at: usize, len: usize) -> io::Result<()> {
        let is_inside = at.checked_add(len).is_some_and(|end| end <= self.len_bytes);
        if is_inside { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: unmaps the mapping made by `reserve`; nothing refers to it.
        let _ = unsafe { munmap(self.mapped.cast(), self.mapped_bytes) };
    }
}
