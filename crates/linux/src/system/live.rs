//! `/proc` on this machine.
//!
//! Owns the system calls. A read lease shows whether a file has writers: the kernel refuses the
//! lease if and only if the file is open for writing. The lease is released immediately. Only the
//! file's owner or a process with `CAP_LEASE` can take it; otherwise the answer is "not known".
//! While the lease is held, for microseconds, a process that opens the file for writing waits;
//! nothing else is affected. Finding the writer needs every `/proc/PID/fdinfo`, so that happens
//! only after a refusal.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use largefolio_ranges::{Errno, Wanted, category};
use largefolio_trace::disk::PathHandle;

use super::{
    Entries, FdInfo, FileFacts, FileRef, Present, System, ids, list, list_folders, mapped_file,
    mounts, read,
};

const ENTRY_BYTES: usize = 8;
#[derive(Clone, Copy, Debug, Default)]
pub struct Live;

impl System for Live {
    fn page_bytes(&self) -> u64 {
        rustix::param::page_size() as u64
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        list(dir)
    }

    fn folders(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        list_folders(dir)
    }

    fn text(&self, path: &Path) -> io::Result<Vec<u8>> {
        read(path)
    }

    fn entries(&self, path: &Path) -> io::Result<Box<dyn Entries>> {
        Ok(Box::new(EntryFile { file: File::open(path)?, page_bytes: self.page_bytes() }))
    }

    fn file_facts(&self, file: &FileRef) -> io::Result<FileFacts> {
        let process = file.mapped.as_ref().map_or("self".to_owned(), |(pid, _)| pid.to_string());
        let mountinfo = self.text(Path::new(&format!("/proc/{process}/mountinfo")))?;
        let filesystem = mounts::filesystem(&mountinfo, file.device, &file.path);
        let filesystem = filesystem.unwrap_or_default();
        if !mounts::is_local(&filesystem) {
            return Ok(FileFacts { filesystem, is_open_for_write: None });
        }
        let is_open_for_write = is_open_for_write(&reach(file)?);
        Ok(FileFacts { filesystem, is_open_for_write })
    }

    fn is_there(&self, file: &FileRef) -> bool {
        let mountinfo = self.text(Path::new("/proc/self/mountinfo")).unwrap_or_default();
        let filesystem = mounts::filesystem(&mountinfo, file.device, &file.path);
        filesystem.is_some_and(|name| mounts::is_local(&name))
            && fs::metadata(&file.path).is_ok_and(|metadata| metadata.ino() == file.inode)
    }

    fn writers(&self, file: &FileRef) -> Vec<u32> {
        let Ok(handle) = reach(file) else { return Vec::new() };
        let id = FileId::of(handle.metadata());
        let pids = ids(&list(Path::new("/proc")).unwrap_or_default());
        pids.into_iter().filter(|pid| has_open_for_write(*pid, &file.path, id)).collect()
    }
}

/// Opens the exact file of a mapping as a path only.
fn reach(file: &FileRef) -> io::Result<PathHandle> {
    if let Some((pid, range)) = &file.mapped {
        let link = mapped_file(&Path::new("/proc").join(pid.to_string()), range);
        if let Ok(handle) = PathHandle::of(&link) {
            return Ok(handle);
        }
    }
    let handle = PathHandle::of(&file.path)?;
    // The name may now belong to another file, or the path to another root directory.
    if file.inode != 0 && handle.metadata().ino() != file.inode {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(handle)
}

fn is_open_for_write(handle: &PathHandle) -> Option<bool> {
    let file = handle.open_regular().ok()?;
    // SAFETY: requests a lease on an open descriptor; no memory is passed.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) };
    if result == 0 {
        // SAFETY: as above; releases the lease. Closing would, too.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
        return Some(false);
    }
    (io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)).then_some(true)
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// Whether a process can write to the file. Only descriptors with the file's name are examined:
/// others may be on a filesystem with a server that does not respond.
fn has_open_for_write(pid: u32, path: &Path, id: FileId) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let is_writer = |fd: &std::ffi::OsStr| {
        let info = format!("/proc/{pid}/fdinfo/{}", fd.to_string_lossy());
        FdInfo::parse(&read(Path::new(&info)).unwrap_or_default()).may_write()
    };
    entries.flatten().any(|entry| {
        fs::read_link(entry.path()).is_ok_and(|name| name == path)
            && fs::metadata(entry.path()).is_ok_and(|metadata| FileId::of(&metadata) == id)
            && is_writer(&entry.file_name())
    })
}

struct EntryFile {
    file: File,
    page_bytes: u64,
}

impl Entries for EntryFile {
    fn read(&self, first: u64, entries: &mut [u64]) -> io::Result<usize> {
        let Some(pos) = first.checked_mul(ENTRY_BYTES as u64) else { return Ok(0) };
        let len = size_of_val(entries);
        // SAFETY: the same memory as bytes: any value is valid for both types, and bytes need no
        // alignment.
        let bytes = unsafe { std::slice::from_raw_parts_mut(entries.as_mut_ptr().cast(), len) };
        let mut filled = 0;
        while filled < len {
            match self.file.read_at(&mut bytes[filled..], pos + filled as u64) {
                Ok(0) => break,
                Ok(taken) => filled += taken,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled / ENTRY_BYTES)
    }

    fn scan(&self, pages: Range<u64>, present: &mut Vec<Present>) -> io::Result<()> {
        let bytes = |page: u64| {
            page.checked_mul(self.page_bytes).ok_or(io::Error::from(io::ErrorKind::InvalidInput))
        };
        let wanted = Wanted {
            any_of: category::PRESENT | category::SWAPPED,
            returned: category::HUGE | category::PRESENT,
        };
        let addresses = bytes(pages.start)?..bytes(pages.end)?;
        let result = largefolio_ranges::scan(self.file.as_raw_fd(), addresses, wanted, |region| {
            present.push(Present {
                pages: region.start / self.page_bytes..region.end / self.page_bytes,
                is_pmd: region.categories & category::HUGE != 0,
            });
        });
        result.map_err(scan_error)
    }
}

fn scan_error(Errno(number): Errno) -> io::Error {
    match number {
        libc::ENOTTY | libc::EINVAL | libc::ENOSYS => io::ErrorKind::Unsupported.into(),
        number => io::Error::from_raw_os_error(number),
    }
}
