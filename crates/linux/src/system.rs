//! Access to the kernel's files through one trait.
//!
//! [`Live`] implements [`System`] for this machine, and [`MemSystem`] implements it for a directory
//! of small text files. Readers of `/proc` and `/sys` are therefore tested without a kernel and
//! without root. [`crate::proc`] parses the texts.
//!
//! ```text
//!   maps, status, a setting   text
//!   pagemap                   u64 per page    virtual page -> PFN            [`Entries`]
//!   kpageflags                u64 per page    PFN -> flags of the folio      [`Entries`]
//!   a mapped file             filesystem, writers
//! ```
//!
//! Invariants:
//! - S1: reading changes nothing: files are opened for reading and never written.
//! - S2: all answers are bounded: texts end at `TEXT_BYTES_MAX`, a directory has at most
//!   `NAMES_MAX` names, and entries go into the caller's buffers.

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

pub use fdinfo::FdInfo;
pub use live::Live;
pub use memory::MemSystem;

/// The longest text read from procfs: with the usual limit of 65,530 mappings, `smaps` has 50 MiB.
pub(crate) const TEXT_BYTES_MAX: u64 = 256 << 20;
/// Initial buffer: otherwise a file of unknown length is read in pieces from 32 bytes.
const USUAL_BYTES: usize = 4 << 10;
/// The most names read from a directory: as many as there can be processes.
pub(crate) const NAMES_MAX: usize = 1 << 22;

/// A range of a process's pages with something in the page table: present, swapped, or a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    pub pages: Range<u64>,
    /// Mapped by PMD entries, or hugetlb.
    pub is_pmd: bool,
}

pub trait Entries: Send + Sync {
    /// Reads entries from number `first`; returns how many were available.
    ///
    /// # Errors
    /// The system's error.
    fn read(&self, first: u64, entries: &mut [u64]) -> io::Result<usize>;

    /// Appends the ranges among `pages` with something in the page table, ascending. Only pagemap
    /// of Linux 6.7 and later supports it.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if the kernel does not support it, or the system's error.
    fn scan(&self, pages: Range<u64>, present: &mut Vec<Present>) -> io::Result<()> {
        let _ = (pages, present);
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRef {
    pub path: PathBuf,
    pub device: (u32, u32),
    /// The inode, to check that the path still leads to the file.
    pub inode: u64,
    pub mapped: Option<(u32, Range<u64>)>,
}

/// Returns the link to the file of a mapping, which root can open even if the name is gone.
pub(crate) fn mapped_file(process: &Path, range: &Range<u64>) -> PathBuf {
    process.join(format!("map_files/{:x}-{:x}", range.start, range.end))
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// The filesystem's name, such as `ext4`; empty if unknown.
    pub filesystem: String,
    /// Whether any process has it open for writing; `None` if unknown.
    pub is_open_for_write: Option<bool>,
}

pub trait System: Sync {
    fn page_bytes(&self) -> u64;

    /// Lists the names in a directory below `/proc` or `/sys`, in no order.
    ///
    /// # Errors
    /// If it cannot be listed.
    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Lists the directories in a directory below `/sys`, in no order and without links.
    ///
    /// # Errors
    /// If it cannot be listed.
    fn folders(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Reads a file below `/proc` or `/sys`.
    ///
    /// # Errors
    /// The system's error, or if it is longer than `TEXT_BYTES_MAX`.
    fn text(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Opens a file of entries: a process's pagemap, or kpageflags.
    ///
    /// # Errors
    /// The system's error.
    fn entries(&self, path: &Path) -> io::Result<Box<dyn Entries>>;

    /// Reads the facts about a mapped file.
    ///
    /// # Errors
    /// If it is no longer reachable.
    fn file_facts(&self, file: &FileRef) -> io::Result<FileFacts>;

    /// Whether the path leads to the file, by its inode number; never contacts a server.
    fn is_there(&self, file: &FileRef) -> bool;

    fn writers(&self, file: &FileRef) -> Vec<u32>;
}

/// Lists a directory of any filesystem like [`System::names`].
fn list(dir: &Path) -> io::Result<Vec<OsString>> {
    Ok(fs::read_dir(dir)?.flatten().take(NAMES_MAX).map(|entry| entry.file_name()).collect())
}

/// Lists the directories of any filesystem like [`System::folders`].
fn list_folders(dir: &Path) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(dir)?.flatten().take(NAMES_MAX);
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(folders.map(|entry| entry.file_name()).collect())
}

pub(crate) fn ids(names: &[OsString]) -> Vec<u32> {
    let mut ids: Vec<u32> = names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

/// Reads a file of any filesystem like [`System::text`].
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(USUAL_BYTES);
    fs::File::open(path)?.take(TEXT_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}
