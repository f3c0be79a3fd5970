//! A file shorter than a PMD folio: filled with the largest folios that fit into it.
//!
//! The kernel cuts the readahead of advised memory at the end of the file: 1.9 MiB of libc come in
//! folios of 1M, 512K, 256K, 64K and the rest. No PMD entry maps them, and most libraries are loaded
//! at any multiple of 4K, where no contpte block fits either. What they save is work: a fault maps
//! more pages at once, and unmapping counts folios. Measured on Zen 4, Linux 6.18, n = 7: first touch
//! of 768 KiB 39 us [34 .. 40] in base pages and 10 [9 .. 16] in folios of 512K and 256K, munmap 30
//! [26 .. 34] and 6 [4 .. 15], at every address; calls from page to page take the same time.
//!
//! Owns the steps for such a file. How large its folios are only root may see.

use std::borrow::Borrow;
use std::time::{Duration, Instant};

use rustix::fs::Advice;

use super::file::{Warm, WarmError, Warmed};
use super::refill::refused;
use super::refusal::WarmRefusal;
use super::users::Users;
use crate::census::file::{Empty, cached};
use crate::census::folios::{Kind, Size};
use crate::census::process::Geometry;
use crate::filesystem;
use crate::residency::Cached;
use crate::system::{Live, System as _};

/// The work on one file.
pub(super) struct Short<'w> {
    warm: &'w Warm,
    geometry: Geometry,
    pub(super) told: Warmed,
}

impl<'w> Short<'w> {
    /// Looks at the file.
    pub(super) fn new(warm: &'w Warm) -> Result<Self, WarmError> {
        let geometry = Geometry::of(Live.page_bytes());
        let folio_bytes = geometry.contpte_bytes();
        let found = filesystem::of(&warm.file).map_err(warm.failed("find its filesystem"))?;
        let possible_bytes = warm.file_bytes / folio_bytes * folio_bytes;
        let refusal = if possible_bytes == 0 {
            Some(WarmRefusal::TooSmall { folio_bytes })
        } else if !found.is_cache {
            Some(WarmRefusal::NotCached { filesystem: found.name.clone() })
        } else {
            None
        };
        let told = Warmed {
            path: warm.path.clone(),
            file_bytes: warm.file_bytes,
            folio_bytes,
            filesystem: found.name,
            possible_bytes,
            before_bytes: None,
            after_bytes: None,
            elapsed: Duration::ZERO,
            refusal,
        };
        let mut short = Self { warm, geometry, told };
        if short.told.refusal.is_none() {
            short.told.before_bytes = short.large_bytes();
            short.told.after_bytes = short.told.before_bytes;
        }
        Ok(short)
    }

    /// Says what would be in the way.
    pub(super) fn check<U: Borrow<Users>>(
        &mut self,
        users: &dyn Fn() -> U,
    ) -> Result<(), WarmError> {
        if self.told.refusal.is_none() && !self.told.is_complete() {
            let pids = self.pids(users().borrow())?;
            self.told.refusal = match self.told.before_bytes {
                _ if !pids.is_empty() => Some(self.in_use(pids)),
                None => Some(self.unseen()),
                Some(_) => None,
            };
        }
        Ok(())
    }

    /// Evicts the file and fills the cache with it; what became of it is told.
    pub(super) fn run(&mut self) -> Result<(), WarmError> {
        let started = Instant::now();
        if self.told.refusal.is_none() && !self.told.is_complete() {
            // Dirty pages are not evicted. A file on a read-only filesystem is clean.
            let _ = rustix::fs::fdatasync(&self.warm.file);
            let filled = rustix::fs::fadvise(&self.warm.file, 0, None, Advice::DontNeed)
                .map_err(std::io::Error::from)
                .and_then(|()| Cached::new(&self.warm.file, &self.warm.path))
                .and_then(|cached| cached.fill(0..self.warm.file_bytes));
            self.told.refusal = match filled {
                Ok(()) => None,
                Err(error) => {
                    Some(refused(&error).ok_or(error).map_err(self.warm.failed("fill it"))?)
                }
            };
            self.told.after_bytes = self.large_bytes();
            if self.told.refusal.is_none() && !self.told.is_complete() {
                self.told.refusal = Some(self.remaining()?);
            }
        }
        self.told.elapsed = started.elapsed();
        Ok(())
    }

    /// Bytes of the cached folios of at least the size; `None` without the right to see it.
    fn large_bytes(&self) -> Option<u64> {
        let found = cached(std::slice::from_ref(&self.warm.path), Empty::Keep).ok()?;
        let order = self.geometry.contpte_order;
        let is_large = |kind, size| kind == Kind::File && size >= Size::Order(order);
        let large = found.files.first()?.tally.sum(is_large).mapped_bytes();
        // The last folio may reach beyond the last whole block.
        Some(large.min(self.told.possible_bytes))
    }

    /// Why some of it is still in smaller folios, or may be.
    fn remaining(&self) -> Result<WarmRefusal, WarmError> {
        let pids = self.pids(&Users::read(&Live))?;
        Ok(match self.told.after_bytes {
            _ if !pids.is_empty() => self.in_use(pids),
            None => self.unseen(),
            Some(0) => WarmRefusal::NoFolios { filesystem: self.told.filesystem.clone() },
            Some(_) => WarmRefusal::Fragmented { bytes: self.small_bytes() },
        })
    }

    fn pids(&self, users: &Users) -> Result<Vec<u32>, WarmError> {
        let found = self.warm.file.metadata().map_err(self.warm.failed("examine the file"))?;
        Ok(users.of(&self.warm.path, &found))
    }

    fn small_bytes(&self) -> u64 {
        self.told.possible_bytes.saturating_sub(self.told.after_bytes.unwrap_or(0))
    }

    fn in_use(&self, pids: Vec<u32>) -> WarmRefusal {
        WarmRefusal::InUse { bytes: self.small_bytes(), pids }
    }

    fn unseen(&self) -> WarmRefusal {
        WarmRefusal::Unseen { folio_bytes: self.told.folio_bytes }
    }
}
