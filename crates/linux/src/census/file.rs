//! The folio sizes of files in the page cache, mapped or not.
//!
//! ```text
//!   cachestat   cached pages in a range; empty halves are skipped
//!   mmap        the range, MADV_RANDOM
//!   mincore     which pages are cached
//!   populate    map those pages; nothing is read from disk
//!   pagemap     their PFNs; munmap
//! ```
//!
//! Finds the PFNs of pages that no process maps, which is possible only by mapping them. While they
//! are mapped, the pages cannot be reclaimed. A page evicted between `mincore` and `populate` is
//! read again, without its neighbours. `MADV_RANDOM` prevents readahead, and our own open file has
//! its own readahead state. Unmapping does not mark the pages as used. The access time does not
//! change if the owner or root runs this (`O_NOATIME`).

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::ptr;

use largefolio_trace::disk::{open_quietly, other_kind};
use largefolio_trace::shown;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::folios::{Cell, Counter, MemoryKind, Tally};
use super::kpageflags::{FlagBook, PageKind};
use super::pagemap::{Extents, Reader, Span};
use crate::geometry::Geometry;
use crate::proc::{self, Task};
use crate::system::{Entries, Live};

/// A mapped window: at most 2 MiB of page tables.
const WINDOW_BYTES: u64 = 1 << 30;
/// cachestat(2), Linux 6.5. The number is the same on every architecture except alpha and mips.
const SYS_CACHESTAT: libc::c_long = 451;
const FILES_MAX: usize = 1 << 22;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot open {}: {source}", shown(path))]
    Open { path: PathBuf, source: io::Error },
    /// It is a directory, a device or another special file.
    #[error("{} is not a regular file; for a directory use --page-cache", shown(.0))]
    NotRegular(PathBuf),
    #[error("{call} failed for {}: {source}", shown(path))]
    Call { call: &'static str, path: PathBuf, source: io::Error },
    #[error("page-cache folio sizes need PFNs, which only root can read")]
    NoPfns,
}

#[derive(Clone, Debug)]
pub struct CachedFile {
    pub path: PathBuf,
    pub len_bytes: u64,
    /// Cached memory by folio size. All of it counts as aligned: alignment belongs to a mapping.
    pub tally: Tally,
}

#[derive(Debug, Default)]
pub struct CachedFiles {
    pub files: Vec<CachedFile>,
    pub failed: Vec<FileError>,
    pub nr_empty: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empty {
    Keep,
    Count,
}

/// Counts the cached folios of `paths`.
///
/// # Errors
/// [`FileError::NoPfns`] without permission to see PFNs. Errors of single files are in the result.
pub fn cached(paths: &[PathBuf], empty: Empty) -> Result<CachedFiles, FileError> {
    let geometry = Geometry::running();
    let call = |call: &'static str| {
        move |source: io::Error| match source.kind() {
            io::ErrorKind::PermissionDenied => FileError::NoPfns,
            _ => FileError::Call { call, path: proc::PROC.into(), source },
        }
    };
    let flags = proc::kpageflags(&Live).map_err(call("opening kpageflags"))?;
    let pagemap = Task::own(&Live).pagemap().map_err(call("opening pagemap"))?;
    let mut book =
        FlagBook::new(&*flags, 1 << geometry.pmd_order).map_err(call("reading kpageflags"))?;
    let mut result = CachedFiles::default();
    let mut files = Vec::new();
    let reader = ExtentReader { entries: &*pagemap, geometry };
    for path in paths {
        match reader.read_extents(path) {
            Ok((_, extents)) if !extents.hidden.is_empty() => return Err(FileError::NoPfns),
            Ok((_, extents)) if extents.list.is_empty() && empty == Empty::Count => {
                result.nr_empty += 1;
            }
            Ok((len_bytes, extents)) => {
                extents.list.iter().for_each(|extent| book.want(extent));
                files.push((path.clone(), len_bytes, extents));
            }
            Err(error) => result.failed.push(error),
        }
    }
    book.read(&*flags).map_err(call("reading kpageflags"))?;
    result.files = files
        .into_iter()
        .map(|(path, len_bytes, extents)| {
            let tally = tally(&book, &extents, geometry);
            CachedFile { path, len_bytes, tally }
        })
        .collect();
    Ok(result)
}

/// Counts the cached folios in a part of a file.
///
/// # Errors
/// See [`cached`].
pub(crate) fn cached_part(path: &Path, part: Range<u64>) -> Result<Tally, FileError> {
    let geometry = Geometry::running();
    let call = |call| move |source| FileError::Call { call, path: path.to_owned(), source };
    let [pagemap, flags] = open_live().map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => FileError::NoPfns,
        _ => call("opening pagemap and kpageflags")(source),
    })?;
    let reader = ExtentReader { entries: &*pagemap, geometry };
    let (_, extents) = reader.part(path, part)?;
    if !extents.hidden.is_empty() {
        return Err(FileError::NoPfns);
    }
    let mut book =
        FlagBook::new(&*flags, 1 << geometry.pmd_order).map_err(call("reading kpageflags"))?;
    extents.list.iter().for_each(|extent| book.want(extent));
    book.read(&*flags).map_err(call("reading kpageflags"))?;
    Ok(tally(&book, &extents, geometry))
}

/// Returns the regular files below `dir` on its filesystem. Does not follow links.
///
/// # Errors
/// If `dir` itself cannot be listed.
pub fn below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let device = fs::metadata(dir)?.dev();
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    fs::read_dir(dir)?;
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(dir) else { continue };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_file() && files.len() < FILES_MAX {
                files.push(entry.path());
            } else if kind.is_dir()
                && entry.metadata().is_ok_and(|metadata| metadata.dev() == device)
            {
                dirs.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn tally(book: &FlagBook, extents: &Extents, geometry: Geometry) -> Tally {
    let mut counter = Counter::new();
    for extent in &extents.list {
        let mut done = 0;
        while done < u64::from(extent.nr) {
            let (page, same) = book.at(extent.pfn + done, u64::from(extent.nr) - done);
            let kind = match page.backing() {
                PageKind::File => MemoryKind::File,
                PageKind::Shmem => MemoryKind::Shmem,
                PageKind::Hugetlb => MemoryKind::Hugetlb,
                PageKind::Anon | PageKind::Merged | PageKind::Zero | PageKind::Unknown => {
                    MemoryKind::Other
                }
            };
            let aligned_bytes = same * geometry.page_bytes;
            counter.cell(kind, page.order()).add(&Cell { aligned_bytes, ..Cell::default() });
            done += same;
        }
    }
    counter.take()
}

pub(super) fn open_live() -> io::Result<[Box<dyn Entries>; 2]> {
    Ok([Task::own(&Live).pagemap()?, proc::kpageflags(&Live)?])
}

pub(super) struct ExtentReader<'a> {
    pub(super) entries: &'a dyn Entries,
    pub(super) geometry: Geometry,
}

impl ExtentReader<'_> {
    pub(super) fn read_extents(&self, path: &Path) -> Result<(u64, Extents), FileError> {
        self.part(path, 0..u64::MAX)
    }

    fn part(&self, path: &Path, part: Range<u64>) -> Result<(u64, Extents), FileError> {
        let opened = |source| {
            let is_other = other_kind(&source).is_some();
            let path = path.to_owned();
            if is_other { FileError::NotRegular(path) } else { FileError::Open { path, source } }
        };
        let file = open_quietly(path).map_err(opened)?;
        let len = file.metadata().map_err(opened)?.len();
        let mut extents = Extents::new();
        let failed = |(call, source)| FileError::Call { call, path: path.to_owned(), source };
        self.range(&file, part.start..part.end.min(len), &mut extents).map_err(failed)?;
        Ok((len, extents))
    }

    /// Halves a range down to windows and skips halves without cached pages.
    fn range(&self, file: &File, range: Range<u64>, extents: &mut Extents) -> Result<(), Failed> {
        if range.is_empty() || nr_cached(file, &range).map_err(|e| ("cachestat", e))? == 0 {
            return Ok(());
        }
        let len = range.end - range.start;
        if len <= WINDOW_BYTES {
            return self.window(file, range, extents);
        }
        let middle = range.start + (len / 2).next_multiple_of(WINDOW_BYTES);
        let middle = middle.min(range.end);
        self.range(file, range.start..middle, extents)?;
        self.range(file, middle..range.end, extents)
    }

    fn window(&self, file: &File, range: Range<u64>, extents: &mut Extents) -> Result<(), Failed> {
        let page_bytes = self.geometry.page_bytes;
        let window = Window::map(file, &range).map_err(|error| ("mmap", error))?;
        let resident = window.resident(page_bytes).map_err(|error| ("mincore", error))?;
        for pages in &resident {
            // Skip pages that were evicted in the meantime and cannot be read again.
            let _ = window.populate(pages, page_bytes);
        }
        let first = window.at as u64 / page_bytes;
        for pages in resident {
            let span = Span { pages: first + pages.start..first + pages.end, vmas: 0..0 };
            let pmd_pages = 1 << self.geometry.pmd_order;
            let reader = Reader { entries: self.entries, page_bytes, pmd_pages };
            let mut read = reader.read_span(&span).map_err(|error| ("reading pagemap", error))?;
            for extent in &mut read.list {
                extent.page = extent.page - first + range.start / page_bytes;
            }
            extents.append(&read);
        }
        Ok(())
    }
}

type Failed = (&'static str, io::Error);

#[repr(C)]
#[derive(Default)]
struct CacheStat {
    nr_cache: u64,
    /// Dirty, under writeback, evicted, recently evicted.
    others: [u64; 4],
}

/// Counts a range's cached pages; before Linux 6.5, all its pages.
pub(crate) fn nr_cached(file: &File, range: &Range<u64>) -> io::Result<u64> {
    let offset_and_len = [range.start, range.end - range.start];
    let mut stat = CacheStat::default();
    // SAFETY: the call takes a descriptor, two u64 (`struct cachestat_range`) and the result, and
    // all of them outlive it.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            offset_and_len.as_ptr(),
            &raw mut stat,
            0_u32,
        )
    };
    if result == 0 {
        return Ok(stat.nr_cache);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM) => Ok(u64::MAX),
        _ => Err(error),
    }
}

struct Window {
    at: *mut u8,
    len: usize,
}

impl Window {
    fn map(file: &File, range: &Range<u64>) -> io::Result<Self> {
        let len = usize::try_from(range.end - range.start)
            .map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        // SAFETY: a new mapping at an address the kernel chooses touches no memory in use. It is
        // never read, so a shrinking file cannot raise SIGBUS.
        let at = unsafe {
            mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, range.start)
        }?;
        let window = Self { at: at.cast(), len };
        // SAFETY: the advice changes no content, and the range is the mapping made above.
        unsafe { madvise(window.at.cast(), len, Advice::Random) }?;
        Ok(window)
    }

    fn resident(&self, page_bytes: u64) -> io::Result<Vec<Range<u64>>> {
        let page = usize::try_from(page_bytes).unwrap_or(4096);
        let mut states = vec![0_u8; self.len.div_ceil(page)];
        // SAFETY: the range is this mapping, and the vector has a byte for each of its pages.
        let result = unsafe { libc::mincore(self.at.cast(), self.len, states.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (page, state) in (0..).zip(states) {
            match runs.last_mut() {
                _ if state & 1 == 0 => {}
                Some(last) if last.end == page => last.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        Ok(runs)
    }

    fn populate(&self, pages: &Range<u64>, page_bytes: u64) -> io::Result<()> {
        let bytes = |pages: u64| usize::try_from(pages * page_bytes).unwrap_or(usize::MAX);
        let start = bytes(pages.start).min(self.len);
        let len = bytes(pages.end - pages.start).min(self.len - start);
        // SAFETY: the range is inside this mapping; populating changes no content.
        unsafe { madvise(self.at.wrapping_add(start).cast(), len, Advice::LinuxPopulateRead) }?;
        Ok(())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: unmaps the mapping that `map` made; no reference to it remains.
        let _ = unsafe { munmap(self.at.cast(), self.len) };
    }
}
