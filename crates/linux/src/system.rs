//! What the census asks the operating system, behind one trait.
//!
//! Owns the seam: [`System`] is asked, [`Live`] answers from `/proc` of the running machine,
//! [`MemSystem`] from a directory of small text files, so that the census is tested without a kernel
//! and without root.
//!
//! ```text
//!   maps, smaps     text          mappings of a process
//!   pagemap         u64 a page    virtual page -> PFN            [`Entries`], indexed by virtual page
//!   kpageflags      u64 a page    PFN -> flags of the folio      [`Entries`], indexed by PFN
//! ```
//!
//! Invariants:
//! - S1: asking changes nothing that is asked about: files are opened for reading, never written.
//! - S2: no answer takes memory without bound: texts end at [`TEXT_BYTES_MAX`], entries go into
//!   buffers of the caller.

mod live;
mod memory;
mod mounts;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

pub use live::Live;
pub use memory::MemSystem;

/// Longest text taken from procfs: `smaps` of a process with the usual limit of 65,530 mappings has
/// 50 MiB.
pub const TEXT_BYTES_MAX: u64 = 256 << 20;

/// A range of present pages of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// Virtual pages (address / page size).
    pub pages: Range<u64>,
    /// Mapped by PMD entries, or of hugetlb.
    pub is_pmd: bool,
}

/// A file of 64-bit entries, one a page.
pub trait Entries: Send + Sync {
    /// Reads entries from number `first` on; returns how many there were before the end.
    ///
    /// # Errors
    /// What the system says.
    fn read(&self, first: u64, entries: &mut [u64]) -> io::Result<usize>;

    /// Appends the present ranges among `pages`, ascending; only pagemap of Linux 6.7 and later.
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

/// What is known about a file beyond its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// Name of the filesystem, such as `ext4`; empty where it is not known.
    pub filesystem: String,
    /// Whether some process has it open for writing; `None` where that cannot be found out.
    pub is_open_for_write: Option<bool>,
}

/// What the census asks.
pub trait System: Sync {
    /// Base page in bytes.
    fn page_bytes(&self) -> u64;

    /// Processes, ascending.
    ///
    /// # Errors
    /// When `/proc` cannot be listed.
    fn pids(&self) -> io::Result<Vec<u32>>;

    /// Contents of a file below `/proc` or `/sys`.
    ///
    /// # Errors
    /// What the system says, or when it is longer than [`TEXT_BYTES_MAX`].
    fn text(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The pagemap of a process.
    ///
    /// # Errors
    /// What the system says.
    fn pagemap(&self, pid: u32) -> io::Result<Box<dyn Entries>>;

    /// The flags of all pages.
    ///
    /// # Errors
    /// What the system says; without `CAP_SYS_ADMIN` it is a refusal.
    fn kpageflags(&self) -> io::Result<Box<dyn Entries>>;

    /// Facts about a mapped file.
    ///
    /// # Errors
    /// When it cannot be reached any more.
    fn file_facts(&self, file: &FileRef) -> io::Result<FileFacts>;

    /// Processes that have a file open for writing.
    fn writers(&self, file: &FileRef) -> Vec<u32>;
}
