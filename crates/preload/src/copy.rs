//! Makes a copy of a text.
//!
//! Owns the order of steps and the memory checks before them. Invariants:
//! - C1: no step can raise a signal. Memory is allocated by calls that return an error (`pwrite`,
//!   `MADV_COLLAPSE`), and only blocks that already have a folio are written through a mapping.
//! - C2: a block's bytes equal the file's bytes at the same place. Nothing else is written there.
//! - C3: according to its timestamps, the file did not change while it was copied. `proof` shows
//!   afterwards that the copy equals the process's mapping.

use core::ffi::CStr;

use largefolio_ranges::number;

use crate::elf;
use crate::maps::{Blocks, Text};
use crate::store::{self, Name, Store};
use crate::sys::{self, Area, Errno, Fd, Madvise, Mapping, Status, Window};
use crate::wire::{BUDGET_VARIABLE, Refusal};

/// Bytes of the tmpfs that stay free for other files.
const SLACK_BYTES: u64 = 8 << 20;
/// Fraction of all memory that stays available: 1/32, about 3%.
const RESERVE_PART: u64 = 32;
/// Bytes copied per step if no large folio was available.
const STEP_BYTES: usize = 8 << 10;

pub(crate) struct Job<'a> {
    pub(crate) text: &'a Text<'a>,
    pub(crate) blocks: Blocks,
    pub(crate) source: &'a Fd,
    pub(crate) status: Status,
    pub(crate) pagemap: &'a Fd,
}

pub(crate) fn make(store: &Store, job: &Job, name: Option<&Name>) -> Result<Fd, Refusal> {
    check_gain(job)?;
    check_room(store, job)?;
    let bytes = store::copy_bytes(&job.status, &job.blocks).ok_or(Refusal::Os)?;
    if sys::file_size_limit() < bytes {
        return Err(Refusal::FileLimit);
    }
    let copy = store.unnamed()?;
    copy.resize(bytes).map_err(of_room)?;
    fill(&copy, job)?;
    if name.is_some() {
        // Only tools need symbols: a copy without them runs as well.
        let _ = elf::describe(job.source, &copy, job.status.bytes, &job.blocks);
    }
    if job.source.status() != Ok(job.status) {
        return Err(Refusal::FileChanged);
    }
    if let Some(name) = name {
        let source: Option<&CStr> = (job.blocks.shift() == 0).then_some(job.text.path);
        store.publish(&copy, name, source)?;
    }
    Ok(copy)
}

/// Faults in one page of each block and checks whether large folios already map the text.
fn check_gain(job: &Job) -> Result<(), Refusal> {
    let (start, len) = (job.blocks.start, job.blocks.len);
    for at in (0..len).step_by(job.blocks.block) {
        // If a page cannot be mapped now, the program will deal with it.
        let _ = sys::madvise(start + at, sys::page_bytes(), Madvise::PopulateRead);
    }
    // A kernel before 6.7 cannot tell, which does not prove that there is nothing to gain.
    let large = job.pagemap.large_bytes(start, len).unwrap_or(0);
    if large * 2 >= len { Err(Refusal::AlreadyLarge) } else { Ok(()) }
}

fn check_room(store: &Store, job: &Job) -> Result<(), Refusal> {
    let wanted = job.blocks.len as u64;
    let budget = sys::variable(BUDGET_VARIABLE).and_then(|text| number::<10>(text.to_bytes()));
    let mut buffer = [0; 2048];
    let meminfo = Fd::open(c"/proc/meminfo", libc::O_RDONLY).map_err(|_| Refusal::NoProc)?;
    let nr = meminfo.read(&mut buffer).map_err(|_| Refusal::NoProc)?;
    let meminfo = buffer.get(..nr).unwrap_or(&[]);
    let total = kib(meminfo, b"MemTotal:").ok_or(Refusal::NoProc)?;
    let available = kib(meminfo, b"MemAvailable:").ok_or(Refusal::NoProc)?;
    let is_room = budget.is_none_or(|budget| wanted <= budget)
        && available >= wanted.saturating_add(total / RESERVE_PART)
        && store.free_bytes() >= wanted.saturating_add(SLACK_BYTES);
    if is_room { Ok(()) } else { Err(Refusal::LowMemory) }
}

fn kib(meminfo: &[u8], name: &[u8]) -> Option<u64> {
    let mut lines = meminfo.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name))?.trim_ascii();
    number::<10>(value.strip_suffix(b" kB")?)?.checked_mul(1024)
}

/// Copies each block into a large folio if the kernel has one.
///
/// A folio is made from a single page and then filled. This is 12 times faster than filling 512
/// pages and collapsing them, which copies twice and allocates 513 times (13 against 158 ms for 64
/// MiB).
fn fill(copy: &Fd, job: &Job) -> Result<(), Refusal> {
    let len = job.blocks.len;
    let start = job.blocks.offset + job.blocks.shift();
    let area = Area::reserve_blocks(len).map_err(|_| Refusal::LowMemory)?;
    let address = area.first_block();
    let window = Window { offset: start, len };
    // SAFETY: the reserved area has room for `len` bytes after its first whole block.
    unsafe { copy.map_over(address, window, Mapping::Fill) }.map_err(|_| Refusal::LowMemory)?;
    let mut nr_large = 0;
    for at in (0..len).step_by(job.blocks.block) {
        copy.write_at(&[0], start + at as u64).map_err(of_room)?;
        let offset = job.blocks.offset + at as u64;
        match sys::madvise(address + at, job.blocks.block, Madvise::Collapse) {
            Ok(()) => {
                // SAFETY: the block is mapped writable, is ours, and has its folio (C1).
                let nr = unsafe { job.source.read_to(address + at, job.blocks.block, offset) };
                check_whole(nr, job, at)?;
                nr_large += 1;
            }
            Err(Errno(libc::EINVAL)) if at == 0 => return Err(Refusal::OldKernel),
            Err(_) => fill_small(copy, job, at)?,
        }
        // If most blocks stay small, stops before they use memory for no gain.
        if (at / job.blocks.block + 1 - nr_large) * 2 * job.blocks.block > len {
            return Err(Refusal::NoLargeFolio);
        }
    }
    Ok(())
}

/// A file can end within its text's last page. The rest of the page is zero in both.
fn check_whole(nr: sys::Result<usize>, job: &Job, at: usize) -> Result<(), Refusal> {
    let end = job.blocks.offset + at as u64 + nr.map_err(|_| Refusal::Unreadable)? as u64;
    let wanted = job.blocks.offset + (at + job.blocks.block) as u64;
    let is_last_page = end == job.status.bytes && wanted - end < sys::page_bytes() as u64;
    if end == wanted || is_last_page { Ok(()) } else { Err(Refusal::FileChanged) }
}

fn fill_small(copy: &Fd, job: &Job, at: usize) -> Result<(), Refusal> {
    let mut buffer = [0; STEP_BYTES];
    let mut done = 0;
    while done < job.blocks.block {
        let offset = job.blocks.offset + (at + done) as u64;
        let nr = job.source.read_at(&mut buffer, offset).map_err(|_| Refusal::Unreadable)?;
        let read = buffer.get(..nr).filter(|read| !read.is_empty());
        let Some(read) = read else { break };
        copy.write_at(read, offset + job.blocks.shift()).map_err(of_room)?;
        done += nr;
    }
    check_whole(Ok(done), job, at)
}

fn of_room(error: Errno) -> Refusal {
    match error {
        Errno(libc::ENOSPC | libc::ENOMEM | libc::EDQUOT) => Refusal::LowMemory,
        Errno(libc::EFBIG) => Refusal::FileLimit,
        _ => Refusal::Os,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let text = b"MemTotal:       24684088 kB\nMemFree: 1 kB\nMemAvailable:   7 kB\nX: 3\n";
        assert_eq!(kib(text, b"MemTotal:"), Some(24_684_088 << 10));
        assert_eq!(kib(text, b"MemAvailable:"), Some(7 << 10));
        assert_eq!(kib(text, b"X:"), None);
        assert_eq!(kib(b"MemTotal: 99999999999999999999 kB\n", b"MemTotal:"), None);
    }
}
