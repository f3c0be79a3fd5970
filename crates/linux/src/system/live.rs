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

use largefolio_trace::disk::PathHandle;

use super::{
    Entries, FdInfo, FileFacts, FileRef, Present, System, ids, list, list_folders, mapped_file,
    mounts, read,
};

const ENTRY_BYTES: usize = 8;
/// `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)` of 96 bytes (include/uapi/linux/fs.h).
const PAGEMAP_SCAN: libc::Ioctl = 0xC060_6610_u32 as libc::Ioctl;
/// Categories of a scanned page.
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_HUGE: u64 = 1 << 6;
/// Regions per call: 12 KiB.
const REGIONS: usize = 512;

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

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}
const _: () = assert!(size_of::<ScanArg>() == 96 && size_of::<Region>() == 24);

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
        let (mut start, end) = (bytes(pages.start)?, bytes(pages.end)?);
        let mut regions = [Region::default(); REGIONS];
        while start < end {
            let mut arg = ScanArg {
                size: size_of::<ScanArg>() as u64,
                start,
                end,
                vec: regions.as_mut_ptr() as u64,
                vec_len: REGIONS as u64,
                category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                return_mask: PAGE_IS_HUGE | PAGE_IS_PRESENT,
                ..ScanArg::default()
            };
            // SAFETY: `arg` is the structure this call takes, and `vec` points to `vec_len` regions
            // that outlive the call.
            let nr = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
            let Ok(nr) = usize::try_from(nr) else { return Err(scan_error()) };
            present.extend(regions[..nr.min(REGIONS)].iter().map(|region| Present {
                pages: region.start / self.page_bytes..region.end / self.page_bytes,
                is_pmd: region.categories & PAGE_IS_HUGE != 0,
            }));
            if arg.walk_end <= start {
                break;
            }
            start = arg.walk_end;
        }
        Ok(())
    }
}

fn scan_error() -> io::Error {
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EINVAL | libc::ENOSYS) => io::ErrorKind::Unsupported.into(),
        _ => error,
    }
}
