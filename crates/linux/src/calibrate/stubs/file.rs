//! Unnamed files, which disappear when the process ends, even if it is killed.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, MemfdFlags, fadvise, fsync, memfd_create};

use super::StubsError;

const CHUNK_BYTES: usize = 1 << 20;

pub(crate) fn on_disk(dir: &Path) -> Result<File, StubsError> {
    tempfile::tempfile_in(dir)
        .map_err(|source| StubsError::Directory { dir: dir.to_owned(), source })
}

pub(super) fn in_memory(is_hugetlb: bool) -> Result<File, StubsError> {
    let flags =
        if is_hugetlb { MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB } else { MemfdFlags::empty() };
    let file = memfd_create("folio-stubs", flags | MemfdFlags::CLOEXEC);
    file.map(File::from).map_err(|error| failed("memfd_create", error))
}

pub(crate) fn write(
    file: &mut File,
    len_bytes: usize,
    make: &mut dyn FnMut(usize, &mut [u8]),
) -> Result<(), StubsError> {
    let mut chunk = vec![0; CHUNK_BYTES];
    for at in (0..len_bytes).step_by(CHUNK_BYTES) {
        let part = &mut chunk[..CHUNK_BYTES.min(len_bytes - at)];
        make(at, part);
        file.write_all(part).map_err(|error| failed("write", error))?;
    }
    Ok(())
}

/// Drops the file from the page cache. Its pages must not be mapped.
pub(crate) fn drop_cache(file: &File) -> Result<(), StubsError> {
    fsync(file).map_err(|error| failed("fsync", error))?;
    fadvise(file.as_fd(), 0, None, Advice::DontNeed).map_err(|error| failed("posix_fadvise", error))
}

/// Fills the page cache with base pages. Reads of a file with `FADV_RANDOM` do no readahead and
/// never request a large folio.
pub(super) fn read_in_base_pages(file: &mut File) -> Result<(), StubsError> {
    fadvise(file.as_fd(), 0, None, Advice::Random)
        .map_err(|error| failed("posix_fadvise", error))?;
    file.seek(SeekFrom::Start(0)).map_err(|error| failed("lseek", error))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    while file.read(&mut chunk).map_err(|error| failed("read", error))? > 0 {}
    fadvise(file.as_fd(), 0, None, Advice::Normal).map_err(|error| failed("posix_fadvise", error))
}

pub(crate) fn failed(call: &'static str, error: impl Into<io::Error>) -> StubsError {
    StubsError::Call { call, source: error.into() }
}

/// Returns the default directory for benchmark files: the cache directory, else the one for
/// temporary files.
#[must_use]
pub fn default_dir() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    cache.filter(|dir| dir.is_dir()).unwrap_or_else(|| PathBuf::from("/var/tmp"))
}
