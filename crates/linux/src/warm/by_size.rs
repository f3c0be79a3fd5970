//! Fills files whose large folios are not mapped by PMD entries, and counts their folios by size.
//!
//! With 16K and 64K pages this applies to every file: contpte blocks of 2M are worthwhile.
//! `MADV_HUGEPAGE` (`docs/behaviour` B.4.5, B.4.6) brings in folios whose size is limited by the
//! filesystem's largest size and the file's end. With 16K pages they are 32M up to Linux 7.1 and 2M
//! since 7.2. With 64K pages a PMD folio exceeds the page cache's maximum up to 7.1, so there are
//! none. Since 7.2 they are 2M.
//!
//! With 4K pages this applies to a file shorter than a PMD folio. The kernel cuts the readahead of
//! advised memory at the end of the file: 1.9 MiB of libc come in folios of 1M, 512K, 256K, 64K and
//! the rest. No PMD entry maps them, and on x86-64 most libraries are loaded at any multiple of 4K,
//! so no contpte block fits either. Still, a fault maps more pages at a time, and unmapping works
//! per folio. Measured on Zen 4, Linux 6.18, n = 7: first touch of 768 KiB takes 39 us [34 .. 40]
//! in base pages and 10 [9 .. 16] in folios of 512K and 256K, and munmap takes 30 [26 .. 34] and 6
//! [4 .. 15], at any address. Calls from page to page take the same time in both cases.
//!
//! Only root can see these folio sizes.

use std::borrow::Borrow;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::fs::Advice;

use super::file::{FILL_BYTES, Part, SPARE_BYTES, Warm, WarmError, Warmed, wanted};
use super::refusal::{WarmRefusal, refused};
use super::users::Users;
use crate::census::file::cached_part;
use crate::census::folios::{MemoryKind, Size};
use crate::filesystem;
use crate::geometry::Geometry;
use crate::residency::Cached;
use crate::system::Live;

pub(super) struct BySize<'w> {
    warm: &'w Warm,
    geometry: Geometry,
    part: Range<u64>,
    pub(super) result: Warmed,
}

impl<'w> BySize<'w> {
    pub(super) fn new(warm: &'w Warm) -> Result<Self, WarmError> {
        let geometry = Geometry::running();
        let folio_bytes = geometry.contpte_bytes();
        let filesystem_of_file =
            filesystem::of(&warm.file).map_err(warm.failed("find its filesystem"))?;
        let part = if warm.is_short() { &Part::Whole } else { &warm.part };
        let blocks = wanted(part, folio_bytes, warm.file_bytes / folio_bytes);
        let possible_bytes = (blocks.end - blocks.start) * folio_bytes;
        let end = match part {
            Part::Whole => warm.file_bytes,
            Part::Bytes(_) => blocks.end * folio_bytes,
        };
        let part = blocks.start * folio_bytes..end;
        let refusal = if possible_bytes == 0 {
            Some(WarmRefusal::TooSmall { folio_bytes })
        } else if !filesystem_of_file.is_cache {
            Some(WarmRefusal::NotCached { filesystem: filesystem_of_file.name.clone() })
        } else {
            WarmRefusal::of_size(&warm.file, &part)
        };
        let result = Warmed {
            path: warm.path.clone(),
            file_bytes: warm.file_bytes,
            folio_bytes,
            filesystem: filesystem_of_file.name,
            possible_bytes,
            before_bytes: None,
            after_bytes: None,
            elapsed: Duration::ZERO,
            refusal,
        };
        let mut work = Self { warm, geometry, part, result };
        if work.result.refusal.is_none() {
            work.result.before_bytes = work.large_bytes();
            work.result.after_bytes = work.result.before_bytes;
        }
        Ok(work)
    }

    pub(super) fn check<U: Borrow<Users>>(
        &mut self,
        users: &dyn Fn() -> U,
    ) -> Result<(), WarmError> {
        if self.result.refusal.is_none() && !self.result.is_complete() {
            let pids = self.pids(users().borrow())?;
            self.result.refusal = match self.result.before_bytes {
                _ if !pids.is_empty() => Some(self.in_use(pids)),
                None => Some(self.unseen()),
                Some(_) => None,
            };
        }
        Ok(())
    }

    pub(super) fn run(&mut self) -> Result<(), WarmError> {
        let started = Instant::now();
        if self.result.refusal.is_none() && !self.result.is_complete() {
            // Dirty pages are not evicted. A file on a read-only filesystem is clean.
            let _ = rustix::fs::fdatasync(&self.warm.file);
            self.result.refusal = match self.refill() {
                Ok(refusal) => refusal,
                Err(error) => {
                    Some(refused(&error).ok_or(error).map_err(self.warm.failed("fill it"))?)
                }
            };
            self.result.after_bytes = self.large_bytes();
            if self.result.refusal.is_none() && !self.result.is_complete() {
                self.result.refusal = Some(self.remaining()?);
            }
        }
        self.result.elapsed = started.elapsed();
        Ok(())
    }

    fn refill(&self) -> io::Result<Option<WarmRefusal>> {
        let Range { start, end } = self.part;
        let need_bytes = (end - start).saturating_add(SPARE_BYTES);
        if let Some(refusal) = WarmRefusal::of_memory(need_bytes) {
            return Ok(Some(refusal));
        }
        let len = NonZeroU64::new(end - start);
        rustix::fs::fadvise(&self.warm.file, start, len, Advice::DontNeed)?;
        let cached = Cached::new(&self.warm.file, &self.warm.path)?;
        let mut at = start;
        while at < end {
            let next = end.min(at.saturating_add(FILL_BYTES));
            cached.fill(at..next)?;
            at = next;
        }
        Ok(None)
    }

    /// Returns the bytes in cached folios of at least this size, `None` without the privilege to
    /// see them.
    fn large_bytes(&self) -> Option<u64> {
        let cached = cached_part(&self.warm.path, self.part.clone()).ok()?;
        let order = self.geometry.contpte_order;
        let is_large = |kind, size| kind == MemoryKind::File && size >= Size::Order(order);
        let large = cached.sum(is_large).mapped_bytes();
        // The last folio can extend beyond the last whole block.
        Some(large.min(self.result.possible_bytes))
    }

    /// Returns why some bytes are, or may be, still in smaller folios.
    fn remaining(&self) -> Result<WarmRefusal, WarmError> {
        let pids = self.pids(&Users::read(&Live))?;
        Ok(match self.result.after_bytes {
            _ if !pids.is_empty() => self.in_use(pids),
            None => self.unseen(),
            Some(0) => WarmRefusal::NoFolios { filesystem: self.result.filesystem.clone() },
            Some(_) => WarmRefusal::of_small(&Live, self.small_bytes(), self.result.folio_bytes),
        })
    }

    fn pids(&self, users: &Users) -> Result<Vec<u32>, WarmError> {
        let metadata = self.warm.file.metadata().map_err(self.warm.failed("examine the file"))?;
        Ok(users.of(&self.warm.path, &metadata))
    }

    fn small_bytes(&self) -> u64 {
        self.result.possible_bytes.saturating_sub(self.result.after_bytes.unwrap_or(0))
    }

    fn in_use(&self, pids: Vec<u32>) -> WarmRefusal {
        WarmRefusal::InUse { bytes: self.small_bytes(), pids }
    }

    fn unseen(&self) -> WarmRefusal {
        WarmRefusal::Unseen { folio_bytes: self.result.folio_bytes }
    }
}
