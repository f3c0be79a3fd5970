//! RET stubs: one return instruction per page, called in order and at random (series 000, 002,
//! 003).
//!
//! Apart from address translation, a call costs little. This isolates the effect of large folios on
//! a program's text. Reading order: [`Backing`], [`Stubs`], `call` (the timed loops), `file`,
//! `mapping`.
//!
//! ```text
//!   page 0     page 1     page 2              cold    fresh mapping, one call a page in order
//!   |..C3.....|......C3..|.C3......|          random  all mapped, calls of pages drawn at random
//! ```
//!
//! Invariants:
//! - I1: only stubs that [`Stubs`] wrote are executed.
//! - I2: files have no name, so nothing is left when the process ends.

pub(crate) mod call;
pub(crate) mod file;
pub(crate) mod mapping;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use largefolio_trace::shown;
use rustix::mm::{Advice, ProtFlags};

use mapping::{Mapping, Source};

use crate::geometry::{page_bytes, pmd_bytes};
use crate::proc::host;
use crate::setting::thp::size_name;
use crate::shell::compact_memory;
use crate::system::Live;

pub use file::default_dir;

/// hugetlb page size. One TLB entry (a PMD or a contpte block) maps it on every machine.
const HUGETLB_BYTES: usize = 2 << 20;

#[derive(Debug, thiserror::Error)]
pub enum StubsError {
    #[error(
        "cannot create a file in {dir}: {source}; choose another directory with --dir",
        dir = shown(.dir)
    )]
    Directory { dir: PathBuf, source: io::Error },
    #[error(
        "files there may not be executed (mounted noexec); choose another directory with --dir"
    )]
    NoExec,
    #[error("stubs exist only for x86-64 and arm64; this machine is neither")]
    Architecture,
    #[error(
        "{needed} pages of 2 MiB are needed, but the pool has only {free} that are free and not \
         reserved; to add them: echo $((`cat {pool}` + {needed})) > {pool}",
        pool = pool()
    )]
    NotReserved { needed: usize, free: usize },
    #[error(
        "MADV_COLLAPSE creates only folios of {}, and the region is smaller; choose a larger one \
         with --region",
        size_name(*.block_bytes as u64)
    )]
    NoBlock { block_bytes: usize },
    #[error(
        "MADV_COLLAPSE found no free block of {}: memory is fragmented or scarce; `{}` compacts it",
        size_name(*.block_bytes as u64),
        compact_memory()
    )]
    Fragmented { block_bytes: usize },
    #[error("{call} failed: {source}")]
    Call { call: &'static str, source: io::Error },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A disk file's page cache, in base pages.
    CacheBase,
    /// The same in large folios: `MADV_HUGEPAGE` before the first touch.
    CacheLarge,
    Memfd,
    /// The same, collapsed into folios of 2 MiB.
    MemfdCollapsed,
    /// A memfd on reserved 2 MiB pages.
    Hugetlb,
}

impl Backing {
    pub const ALL: [Self; 5] =
        [Self::CacheBase, Self::CacheLarge, Self::Memfd, Self::MemfdCollapsed, Self::Hugetlb];

    #[must_use]
    pub fn name(self) -> &'static str {
        let page = page_bytes() >> 10;
        match self {
            Self::CacheBase if page == 16 => "file-16K",
            Self::CacheBase if page == 64 => "file-64K",
            Self::CacheBase => "file-4K",
            Self::CacheLarge => "file-large",
            Self::Memfd if page == 16 => "memfd-16K",
            Self::Memfd if page == 64 => "memfd-64K",
            Self::Memfd => "memfd-4K",
            Self::MemfdCollapsed => "memfd-collapse",
            Self::Hugetlb => "hugetlb",
        }
    }

    #[must_use]
    pub const fn is_on_disk(self) -> bool {
        matches!(self, Self::CacheBase | Self::CacheLarge)
    }
}

/// Page cache before a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    Warm,
    Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One per page, each on a different cache line: translation dominates.
    OnePerPage,
    /// One per cache line: the same lines, calls and predictions on a 64th of the pages. This
    /// measures the program's own time.
    Packed,
}

impl Layout {
    fn stride(self) -> usize {
        match self {
            Self::OnePerPage => page_bytes(),
            Self::Packed => call::LINE_BYTES,
        }
    }

    fn offset(self, nr: usize) -> usize {
        match self {
            Self::OnePerPage => nr * page_bytes() + call::line_of(nr, page_bytes()),
            Self::Packed => nr * call::LINE_BYTES,
        }
    }
}

#[derive(Debug)]
pub struct Stubs {
    backing: Backing,
    layout: Layout,
    file: File,
    len_bytes: usize,
    mapping: Option<Mapping>,
}

impl Stubs {
    /// Makes stubs in `len_bytes`, a multiple of 2 MiB, all mapped. A file on disk is made in
    /// `dir`.
    ///
    /// # Errors
    /// A directory without executable files, too few reserved pages, or a failed call.
    pub fn new(backing: Backing, len_bytes: usize, dir: &Path) -> Result<Self, StubsError> {
        Self::with_layout(backing, Layout::OnePerPage, len_bytes, dir)
    }

    /// As [`Stubs::new`], with the stubs placed by `layout`.
    ///
    /// # Errors
    /// As [`Stubs::new`].
    pub fn with_layout(
        backing: Backing,
        layout: Layout,
        len_bytes: usize,
        dir: &Path,
    ) -> Result<Self, StubsError> {
        if call::RET.is_empty() {
            return Err(StubsError::Architecture);
        }
        let block_bytes = pmd_bytes();
        if backing == Backing::MemfdCollapsed && len_bytes < block_bytes {
            return Err(StubsError::NoBlock { block_bytes });
        }
        let file = new_file(backing, len_bytes, dir)?;
        let mut stubs = Self { backing, layout, file, len_bytes, mapping: None };
        stubs.write()?;
        stubs.refill()?;
        Ok(stubs)
    }

    fn write(&mut self) -> Result<(), StubsError> {
        let layout = self.layout;
        let mut fill = |at: usize, bytes: &mut [u8]| {
            bytes.fill(0);
            let (first, nr) = (at / layout.stride(), bytes.len() / layout.stride());
            for stub in first..first + nr {
                let from = layout.offset(stub) - at;
                bytes[from..from + call::RET.len()].copy_from_slice(call::RET);
            }
        };
        if self.backing != Backing::Hugetlb {
            return file::write(&mut self.file, self.len_bytes, &mut fill);
        }
        // A hugetlb file can only be written through a mapping.
        rustix::fs::ftruncate(&self.file, self.len_bytes as u64)
            .map_err(|error| file::failed("ftruncate", error))?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let mapping = Mapping::new(Source::Shared(&self.file), self.len_bytes, prot)?;
        for nr in 0..self.nr_stubs() {
            for (by, &byte) in call::RET.iter().enumerate() {
                let at = self.layout.offset(nr) + by;
                // SAFETY: inside the mapping made above.
                unsafe { mapping.at().wrapping_add(at).write_volatile(byte) };
            }
        }
        Ok(())
    }

    fn refill(&mut self) -> Result<(), StubsError> {
        self.mapping = None;
        if self.backing.is_on_disk() {
            file::drop_cache(&self.file)?;
        }
        if self.backing == Backing::CacheBase {
            file::read_in_base_pages(&mut self.file)?;
        }
        let mapping = self.map()?;
        mapping.load_each(page_bytes());
        if self.backing == Backing::MemfdCollapsed {
            mapping.collapse()?;
            mapping.load_each(page_bytes());
        }
        self.mapping = Some(mapping);
        Ok(())
    }

    fn map(&self) -> Result<Mapping, StubsError> {
        let prot = ProtFlags::READ | ProtFlags::EXEC;
        let source = match self.backing {
            Backing::Hugetlb => Source::Shared(&self.file),
            _ => Source::Private(&self.file),
        };
        let mapping = Mapping::new(source, self.len_bytes, prot)?;
        if self.backing == Backing::CacheLarge {
            mapping.advise(Advice::LinuxHugepage)?;
        }
        Ok(mapping)
    }

    /// Maps the file again and times one call of each stub in order, including faults.
    ///
    /// # Errors
    /// A failed system call.
    pub fn sweep(&mut self, cache: Cache) -> Result<Duration, StubsError> {
        self.mapping = None;
        if cache == Cache::Dropped && self.backing.is_on_disk() {
            file::drop_cache(&self.file)?;
        }
        let mapping = self.map()?;
        let list: Vec<usize> = (0..self.nr_stubs()).map(|nr| self.address(&mapping, nr)).collect();
        // SAFETY: I1: `write` put a stub at each of these places of the file.
        let taken = unsafe { call::call_all(&list, 1) };
        self.mapping = Some(mapping);
        if cache == Cache::Dropped {
            // The next phase needs the file's original backing.
            self.refill()?;
        }
        Ok(taken)
    }

    /// Times `nr_calls` calls of random stubs, after one call of each in order.
    #[must_use]
    pub fn random(&self, nr_calls: usize, seed: u64) -> Duration {
        let Some(mapping) = &self.mapping else { return Duration::ZERO };
        let sweep: Vec<usize> = (0..self.nr_stubs()).map(|nr| self.address(mapping, nr)).collect();
        let draws = call::draws(nr_calls, self.nr_stubs(), seed);
        let list: Vec<usize> = draws.map(|nr| sweep[nr]).collect();
        // SAFETY: I1: `write` put a stub at each of these places of the file.
        unsafe { call::call_all(&sweep, 1) };
        // SAFETY: as above.
        unsafe { call::call_all(&list, 1) }
    }

    /// Times `nr_passes` passes over the first `nr_stubs` stubs in one random order, after one
    /// untimed pass.
    #[must_use]
    pub fn cycle(&self, nr_stubs: usize, nr_passes: usize, seed: u64) -> Duration {
        let Some(mapping) = &self.mapping else { return Duration::ZERO };
        let order = call::shuffled(nr_stubs.min(self.nr_stubs()), seed);
        let list: Vec<usize> = order.into_iter().map(|nr| self.address(mapping, nr)).collect();
        // SAFETY: I1: `write` put a stub at each of these places of the file.
        unsafe { call::call_all(&list, 1) };
        // SAFETY: as above.
        unsafe { call::call_all(&list, nr_passes) }
    }

    #[must_use]
    pub(crate) fn nr_stubs(&self) -> usize {
        self.len_bytes / self.layout.stride()
    }

    fn address(&self, mapping: &Mapping, nr: usize) -> usize {
        mapping.at() as usize + self.layout.offset(nr)
    }

    #[must_use]
    pub fn pmd_mapped_bytes(&self) -> u64 {
        match (&self.mapping, self.backing) {
            // smaps counts them elsewhere, but only PMD entries can map them.
            (Some(_), Backing::Hugetlb) if pmd_bytes() == HUGETLB_BYTES => self.len_bytes as u64,
            (Some(mapping), _) => mapping.pmd_mapped_bytes(),
            (None, _) => 0,
        }
    }
}

fn pool() -> String {
    host::hugetlb(HUGETLB_BYTES as u64 >> 10, "nr_hugepages").display().to_string()
}

fn new_file(backing: Backing, len_bytes: usize, dir: &Path) -> Result<File, StubsError> {
    match backing {
        Backing::CacheBase | Backing::CacheLarge => file::on_disk(dir),
        Backing::Memfd | Backing::MemfdCollapsed => file::in_memory(false),
        Backing::Hugetlb => {
            let free = host::nr_free_hugetlb(&Live, HUGETLB_BYTES as u64 >> 10);
            let (needed, free) =
                (len_bytes.div_ceil(HUGETLB_BYTES), usize::try_from(free).unwrap_or(usize::MAX));
            if needed > free {
                return Err(StubsError::NotReserved { needed, free });
            }
            file::in_memory(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 8 << 20;

    #[test]
    fn every_backing_is_called_in_both_phases() {
        let dir = default_dir();
        for backing in Backing::ALL {
            let mut stubs = match Stubs::new(backing, LEN, &dir) {
                Ok(stubs) => stubs,
                Err(
                    error @ (StubsError::NotReserved { .. }
                    | StubsError::NoBlock { .. }
                    | StubsError::Architecture),
                ) => {
                    largefolio_testkit::skipped!("{}: {error}", backing.name());
                    continue;
                }
                Err(error) => panic!("{}: {error}", backing.name()),
            };
            assert_eq!(stubs.nr_stubs(), LEN / page_bytes());
            // A page cache has no folios of 32M or 512M for a file of 8M.
            let is_large =
                !matches!(backing, Backing::CacheBase | Backing::Memfd) && pmd_bytes() <= LEN;
            for cache in [Cache::Warm, Cache::Dropped, Cache::Warm] {
                assert!(stubs.sweep(cache).unwrap() > Duration::ZERO, "{}", backing.name());
                // Allows for the last 2 MiB: a folio at the end of a file is not a PMD folio.
                let is_mapped = stubs.pmd_mapped_bytes() >= 6 << 20;
                assert_eq!(is_mapped, is_large, "{} {cache:?}", backing.name());
            }
            assert!(stubs.random(1000, 1) > Duration::ZERO);
            assert!(stubs.cycle(64, 2, 1) > Duration::ZERO);
        }
    }

    #[test]
    fn packed_stubs_stand_on_every_line() {
        let backing = if pmd_bytes() <= LEN { Backing::MemfdCollapsed } else { Backing::Memfd };
        let stubs = Stubs::with_layout(backing, Layout::Packed, LEN, &default_dir()).unwrap();
        assert_eq!(stubs.nr_stubs(), LEN / 64);
        assert!(stubs.random(1000, 1) > Duration::ZERO);
    }

    #[test]
    fn a_directory_that_is_none_is_named_with_the_remedy() {
        let error = Stubs::new(Backing::CacheBase, LEN, Path::new("/proc/self/fd")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/proc/self/fd") && text.contains("--dir"), "{text}");
    }

    #[test]
    fn pages_that_are_not_reserved_are_refused() {
        let error = new_file(Backing::Hugetlb, 1 << 50, Path::new("/")).unwrap_err();
        assert!(error.to_string().contains("nr_hugepages"), "{error}");
    }
}
