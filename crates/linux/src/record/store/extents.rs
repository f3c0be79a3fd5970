//! The extents of a file, as `FS_IOC_FIEMAP` lists them.

use std::fs::File;
use std::os::fd::AsRawFd as _;

/// `FS_IOC_FIEMAP`: `_IOWR('f', 11, struct fiemap)` of 32 bytes (`linux/fs.h`).
const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;
/// The data must be decoded, as after compression.
const FIEMAP_EXTENT_ENCODED: u32 = 8;
const FIEMAP_EXTENT_LAST: u32 = 1;
/// Extents per call.
const NR_EXTENTS: u32 = 64;
/// Calls per file: 1 GiB of compressed extents.
const NR_CALLS_MAX: usize = 128;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    nr_mapped: u32,
    nr_extents: u32,
    reserved: u32,
    extents: [Extent; NR_EXTENTS as usize],
}

/// Returns whether any extent is encoded; `false` if the filesystem lists none.
pub(super) fn has_encoded(file: &File) -> bool {
    let mut start = 0;
    for _ in 0..NR_CALLS_MAX {
        let extents = list(file, start);
        if extents.iter().any(|extent| extent.flags & FIEMAP_EXTENT_ENCODED != 0) {
            return true;
        }
        match extents.last() {
            Some(last) if last.flags & FIEMAP_EXTENT_LAST == 0 => {
                start = last.logical.saturating_add(last.length.max(1));
            }
            _ => return false,
        }
    }
    false
}

fn list(file: &File, start: u64) -> Vec<Extent> {
    let mut request = Request {
        start,
        length: u64::MAX - start,
        flags: 0,
        nr_mapped: 0,
        nr_extents: NR_EXTENTS,
        reserved: 0,
        extents: [Extent::default(); NR_EXTENTS as usize],
    };
    // SAFETY: the request outlives the call and has room for `nr_extents` extents, as it says.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) };
    let nr = if result == 0 { request.nr_mapped.min(NR_EXTENTS) } else { 0 };
    request.extents[..nr as usize].to_vec()
}
