//! What is asked of the kernel's files, behind one trait.
//!
//! Owns the seam: [`System`] is asked, [`Live`] answers from the running machine, [`MemSystem`] from a
//! directory of small text files, so that what reads `/proc` and `/sys` is tested without a kernel and
//! without root. What the texts mean is [`crate::proc`]'s.
//!
//! ```text
//!   maps, status, a setting   text
//!   pagemap                   u64 a page    virtual page -> PFN            [`Entries`]
//!   kpageflags                u64 a page    PFN -> flags of the folio      [`Entries`]
//!   a mapped file             filesystem, writers
//! ```
//!
//! Invariants:
//! - S1: asking changes nothing that is asked about: files are opened for reading, never written.
//! - S2: no answer takes memory without bound: texts end at `TEXT_BYTES_MAX`, a directory has at most
//!   `NAMES_MAX` names, entries go into buffers of the caller.

pub(crate) mod entry;
mod fdinfo;
mod live;
mod memory;
pub(crate) mod mounts;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

pub(crate) use fdinfo::FdInfo;
pub use live::Live;
pub use memory::MemSystem;

/// Longest text taken from procfs: `smaps` of a process with the usual limit of 65,530 mappings has
/// 50 MiB.
pub(crate) const TEXT_BYTES_MAX: u64 = 256 << 20;
/// Room for the usual text: without it, a file of unknown length is read in pieces from 32 bytes on.
const USUAL_BYTES: usize = 4 << 10;
/// Names taken from one directory: as many as there can be processes.
pub(crate) const NAMES_MAX: usize = 1 << 22;

/// A range of pages of one process with something in the page table: in memory, in swap, or a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// Virtual pages (address / page size).
    pub pages: Range<u64>,
    /// Mapped by PMD entries, or of hugetlb.
    pub is_pmd: bool,
}

/// A file of 64-bit entries, one per page.
pub trait Entries: Send + Sync {
    /// Reads entries from number `first` on; returns how many there were before the end.
    ///
    /// # Errors
    /// What the system says.
    fn read(&self, first: u64, entries: &mut [u64]) -> io::Result<usize>;

    /// Appends the ranges among `pages` with something in the page table, ascending; only pagemap of
    /// Linux 6.7 and later.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where the kernel cannot, or what the system says.
    fn scan(&self, pages: Range<u64>, found: &mut Vec<Present>) -> io::Result<()> {
        let _ = (pages, found);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// How to reach the file of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRef {
    /// Path as `maps` has it.
    pub path: PathBuf,
    /// Device of the file, major and minor.
    pub device: (u32, u32),
    /// Inode number, to tell whether the path still names the file.
    pub inode: u64,
    /// A process that maps it, and the address range, for `/proc/PID/map_files`.
    pub mapped: Option<(u32, Range<u64>)>,
}

/// The link to the file of a process's mapping at `range`, which root reaches whatever became of the
/// file's name.
pub(crate) fn mapped_file(process: &Path, range: &Range<u64>) -> PathBuf {
    process.join(format!("map_files/{:x}-{:x}", range.start, range.end))
}

/// What is known about a file beyond its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// Name of the filesystem, such as `ext4`; empty where it is not known.
    pub filesystem: String,
    /// Whether some process has it open for writing; `None` where that cannot be found out.
    pub is_open_for_write: Option<bool>,
}

/// What is asked.
pub trait System: Sync {
    /// Base page in bytes.
    fn page_bytes(&self) -> u64;

    /// Names in a directory below `/proc` or `/sys`, in no order.
    ///
    /// # Errors
    /// When it cannot be listed.
    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Names of the directories in one below `/sys`, in no order; links are none.
    ///
    /// # Errors
    /// When it cannot be listed.
    fn folders(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Contents of a file below `/proc` or `/sys`.
    ///
    /// # Errors
    /// What the system says, or when it is longer than `TEXT_BYTES_MAX`.
    fn text(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// A file of entries: the pagemap of a process, or kpageflags.
    ///
    /// # Errors
    /// What the system says.
    fn entries(&self, path: &Path) -> io::Result<Box<dyn Entries>>;

    /// Facts about a mapped file.
    ///
    /// # Errors
    /// When it cannot be reached any more.
    fn file_facts(&self, file: &FileRef) -> io::Result<FileFacts>;

    /// Whether the path leads to the file, by its inode number; never asked of a server.
    fn is_there(&self, file: &FileRef) -> bool;

    /// Processes that have a file open for writing.
    fn writers(&self, file: &FileRef) -> Vec<u32>;
}

/// The names in a directory of any filesystem, as [`System::names`] has them.
fn list(dir: &Path) -> io::Result<Vec<OsString>> {
    Ok(fs::read_dir(dir)?.flatten().take(NAMES_MAX).map(|entry| entry.file_name()).collect())
}

/// The directories in one of any filesystem, as [`System::folders`] has them.
fn list_folders(dir: &Path) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(dir)?.flatten().take(NAMES_MAX);
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(folders.map(|entry| entry.file_name()).collect())
}

/// The names that are ids of processes, ascending.
pub(crate) fn ids(names: &[OsString]) -> Vec<u32> {
    let mut ids: Vec<u32> = names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

/// The text of a file of any filesystem, as [`System::text`] has it.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(USUAL_BYTES);
    fs::File::open(path)?.take(TEXT_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}
