//! Refills the page cache of one file with PMD folios: evicts small ones and reads them again.

use std::borrow::Borrow;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::fs::Advice;

use super::by_size::BySize;
use super::file::{FILL_BYTES, Part, SPARE_BYTES, Warm, WarmError, Warmed, wanted};
use super::refusal::{WarmRefusal, refused};
use super::users::Users;
use crate::filesystem;
use crate::residency::{BlockState, Cached};
use crate::system::Live;

const NR_TRIALS: u32 = 4;

impl Warm {
    /// Reports the current state and obstacles, and changes nothing.
    ///
    /// # Errors
    /// A failed system call.
    pub fn check(&self) -> Result<Warmed, WarmError> {
        self.check_among(&|| Users::read(&Live))
    }

    /// As [`Warm::check`], for mappings of all processes that were read already or are needed
    /// again.
    ///
    /// # Errors
    /// As [`Warm::check`].
    pub fn check_among<U: Borrow<Users>>(
        &self,
        users: &dyn Fn() -> U,
    ) -> Result<Warmed, WarmError> {
        if self.is_by_size() {
            let mut work = BySize::new(self)?;
            work.check(users)?;
            return Ok(work.result);
        }
        let mut work = Refill::new(self)?;
        if work.result.refusal.is_none() && work.small_bytes() > 0 {
            let metadata = self.file.metadata().map_err(self.failed("examine the file"))?;
            let pids = users().borrow().of(&self.path, &metadata);
            let bytes = work.small_bytes();
            work.result.refusal = (!pids.is_empty()).then_some(WarmRefusal::InUse { bytes, pids });
        }
        work.result.after_bytes = work.result.before_bytes;
        Ok(work.result)
    }

    /// Refills the cache.
    ///
    /// # Errors
    /// A system call that failed for another reason than a [`WarmRefusal`]. The file is unchanged.
    pub fn run(&self) -> Result<Warmed, WarmError> {
        if self.is_by_size() {
            let mut work = BySize::new(self)?;
            work.run()?;
            return Ok(work.result);
        }
        let started = Instant::now();
        let mut work = Refill::new(self)?;
        if work.result.refusal.is_none() && work.nr_missing() > 0 {
            work.run()?;
        } else {
            work.result.after_bytes = work.result.before_bytes;
        }
        work.result.elapsed = started.elapsed();
        Ok(work.result)
    }
}

struct Refill<'w> {
    warm: &'w Warm,
    cached: Cached<'w>,
    wanted: Range<u64>,
    blocks: Vec<BlockState>,
    result: Warmed,
}

enum Trial {
    Works,
    /// It was evicted and came back small.
    Small,
    NoneLeft,
}

impl<'w> Refill<'w> {
    fn new(warm: &'w Warm) -> Result<Self, WarmError> {
        let failed = || warm.failed("examine its page cache");
        let cached = Cached::new(&warm.file, &warm.path).map_err(failed())?;
        let wanted = wanted(&warm.part, cached.pmd_bytes, cached.nr_whole());
        let filesystem_of_file =
            filesystem::of(&warm.file).map_err(warm.failed("find its filesystem"))?;
        let mut result = Warmed {
            path: warm.path.clone(),
            file_bytes: warm.file_bytes,
            folio_bytes: cached.pmd_bytes,
            possible_bytes: (wanted.end - wanted.start) * cached.pmd_bytes,
            filesystem: filesystem_of_file.name,
            before_bytes: None,
            after_bytes: None,
            elapsed: Duration::ZERO,
            refusal: None,
        };
        let folio_bytes = cached.pmd_bytes;
        result.refusal = if wanted.is_empty() {
            Some(WarmRefusal::TooSmall { folio_bytes })
        } else if !filesystem_of_file.is_cache {
            Some(WarmRefusal::NotCached { filesystem: result.filesystem.clone() })
        } else {
            let bytes = wanted.start * cached.pmd_bytes..wanted.end * cached.pmd_bytes;
            WarmRefusal::of_size(&warm.file, &bytes)
        };
        let mut run = Self { warm, cached, wanted, blocks: Vec::new(), result };
        if run.result.refusal.is_none() {
            run.blocks = run.read_states()?;
            run.result.before_bytes = run.huge_bytes();
            run.result.refusal = run.memory();
        }
        Ok(run)
    }

    fn read_states(&self) -> Result<Vec<BlockState>, WarmError> {
        self.cached.blocks(self.wanted.clone()).map_err(self.warm.failed("examine its page cache"))
    }

    fn count(&self, is_counted: impl Fn(BlockState) -> bool) -> u64 {
        self.blocks.iter().filter(|&&block| is_counted(block)).count() as u64
    }

    fn nr_missing(&self) -> u64 {
        self.count(|block| block != BlockState::Huge)
    }

    fn small_bytes(&self) -> u64 {
        self.count(|block| block == BlockState::Small) * self.cached.pmd_bytes
    }

    fn users(&self) -> io::Result<Vec<u32>> {
        Ok(Users::read(&Live).of(&self.warm.path, &self.warm.file.metadata()?))
    }

    fn huge_bytes(&self) -> Option<u64> {
        let is_unknown = self.blocks.contains(&BlockState::Unknown);
        (!is_unknown).then(|| self.count(|block| block == BlockState::Huge) * self.cached.pmd_bytes)
    }

    /// Checks the memory for absent pages. Evicted pages return in the same amount.
    fn memory(&self) -> Option<WarmRefusal> {
        let nr = self.count(|block| matches!(block, BlockState::Absent | BlockState::Unknown));
        let need_bytes = (nr * self.cached.pmd_bytes).saturating_add(SPARE_BYTES);
        WarmRefusal::of_memory(need_bytes).filter(|_| nr > 0)
    }

    fn run(&mut self) -> Result<(), WarmError> {
        let _ = rustix::fs::fdatasync(&self.warm.file);
        if !self.cached.is_reported && self.is_large_for_strangers()? {
            return Ok(());
        }
        let result = self.trial().and_then(|trial| match trial {
            Trial::Works => self.rest().map(|()| None),
            Trial::Small => Ok(Some(self.small())),
            Trial::NoneLeft => Ok(Some(self.stuck())),
        });
        let refusal = match result {
            Ok(refusal) => refusal,
            Err(error) => Some(refused(&error).ok_or(error).map_err(self.warm.failed("fill it"))?),
        };
        self.cached.is_filled = true;
        self.blocks = self.read_states()?;
        self.result.after_bytes = self.huge_bytes();
        self.result.refusal = refusal.or_else(|| self.remaining());
        Ok(())
    }

    /// Reads absent pages in large folios first, because the kernel does not report cached pages,
    /// and checks after that. Returns whether nothing is left to do.
    fn is_large_for_strangers(&mut self) -> Result<bool, WarmError> {
        let part = self.wanted.start * self.cached.pmd_bytes..self.end();
        match self.cached.fill(part) {
            // The run gets the same error and reports it.
            Err(error) if refused(&error).is_some() => return Ok(false),
            result => result.map_err(self.warm.failed("fill it"))?,
        }
        self.cached.is_filled = true;
        self.blocks = self.read_states()?;
        self.result.after_bytes = self.huge_bytes();
        Ok(self.nr_missing() == 0)
    }

    fn bytes_of(&self, block: u64) -> Range<u64> {
        let at = block * self.cached.pmd_bytes;
        at..at + self.cached.pmd_bytes
    }

    fn trial(&self) -> io::Result<Trial> {
        let mut nr_left = NR_TRIALS;
        for (block, &state) in self.wanted.clone().zip(&self.blocks) {
            let bytes = self.bytes_of(block);
            if state == BlockState::Huge || !self.evict(bytes.clone())? {
                continue;
            }
            self.cached.fill(bytes)?;
            if self.cached.blocks(block..block + 1)? == [BlockState::Huge] {
                return Ok(Trial::Works);
            }
            nr_left -= 1;
            // Tries other blocks too if this user may not see evictions.
            if self.cached.is_reported || nr_left == 0 {
                return Ok(Trial::Small);
            }
        }
        Ok(Trial::NoneLeft)
    }

    fn rest(&self) -> io::Result<()> {
        for (block, &state) in self.wanted.clone().zip(&self.blocks) {
            if state != BlockState::Huge {
                self.evict(self.bytes_of(block))?;
            }
        }
        let end = self.end();
        let last = self.wanted.end * self.cached.pmd_bytes;
        if last < end {
            self.evict(last..end)?;
        }
        let mut at = self.wanted.start * self.cached.pmd_bytes;
        while at < end {
            let next = end.min(at + FILL_BYTES);
            self.cached.fill(at..next)?;
            at = next;
        }
        Ok(())
    }

    fn end(&self) -> u64 {
        let whole = self.wanted.end * self.cached.pmd_bytes;
        match &self.warm.part {
            Part::Whole => self.warm.file_bytes,
            Part::Bytes(bytes) => bytes.end.min(self.warm.file_bytes).max(whole),
        }
    }

    /// Evicts a range. Returns whether it is gone, as far as the kernel reports it.
    fn evict(&self, range: Range<u64>) -> io::Result<bool> {
        let len = NonZeroU64::new(range.end - range.start);
        rustix::fs::fadvise(&self.warm.file, range.start, len, Advice::DontNeed)?;
        Ok(self.cached.is_cached(range)? != Some(true))
    }

    fn stuck(&self) -> WarmRefusal {
        let bytes = self.nr_missing() * self.cached.pmd_bytes;
        let pids = self.users().unwrap_or_default();
        if pids.is_empty() {
            WarmRefusal::Busy { bytes }
        } else {
            WarmRefusal::InUse { bytes, pids }
        }
    }

    fn small(&self) -> WarmRefusal {
        if !self.cached.is_reported
            && let stuck @ WarmRefusal::InUse { .. } = self.stuck()
        {
            return stuck;
        }
        let has_folios = self.blocks.contains(&BlockState::Huge);
        let filesystem = self.result.filesystem.clone();
        if has_folios {
            WarmRefusal::of_small(
                &Live,
                self.nr_missing() * self.cached.pmd_bytes,
                self.cached.pmd_bytes,
            )
        } else {
            WarmRefusal::NoFolios { filesystem }
        }
    }

    fn remaining(&self) -> Option<WarmRefusal> {
        let bytes = self.nr_missing() * self.cached.pmd_bytes;
        if bytes == 0 {
            return None;
        }
        let pids = self.users().ok()?;
        Some(if pids.is_empty() {
            WarmRefusal::of_small(&Live, bytes, self.cached.pmd_bytes)
        } else {
            WarmRefusal::InUse { bytes, pids }
        })
    }
}
