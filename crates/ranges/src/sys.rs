//! System calls on the process's own memory.
//!
//! Calls use `syscall(2)` instead of libc's wrappers, which the program or a preloaded library may
//! have replaced. Each call changes errno only if it fails.

use core::ffi::{CStr, c_int, c_long};
use core::fmt;

pub type Result<T> = core::result::Result<T, Errno>;

/// The kernel's number for an error, such as `libc::ENOMEM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

impl fmt::Display for Errno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "error {} of the system", self.0)
    }
}

impl core::error::Error for Errno {}

/// Converts a number to a system call argument, which has 64 bits (asserted below).
#[expect(clippy::cast_possible_truncation, reason = "words have 64 bits")]
#[must_use]
pub const fn word(value: u64) -> usize {
    value as usize
}

/// Sign-extends a number to a system call argument.
#[must_use]
pub const fn i32_word(value: c_int) -> usize {
    (value as isize).cast_unsigned()
}

/// Makes one system call.
///
/// # Safety
/// The arguments are valid for the call, and any memory it writes is the caller's to write.
///
/// # Errors
/// The kernel's.
pub unsafe fn call(number: c_long, a: [usize; 6]) -> Result<usize> {
    // SAFETY: by the caller's promise; unused arguments are ignored by the kernel.
    let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
    usize::try_from(result).map_err(|_| Errno(errno()))
}

#[must_use]
pub fn errno() -> c_int {
    // SAFETY: libc returns the address of the thread's errno, valid for the thread's lifetime.
    let slot = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *slot }
}

pub fn set_errno(value: c_int) {
    // SAFETY: libc returns the address of the thread's errno, valid for the thread's lifetime.
    let slot = unsafe { libc::__errno_location() };
    // SAFETY: as above; no other thread uses it.
    unsafe { *slot = value };
}

/// Reads a word of the auxiliary vector, 0 if it is missing.
#[must_use]
pub fn auxiliary(kind: libc::c_ulong) -> usize {
    // SAFETY: getauxval takes a number.
    let value = unsafe { libc::getauxval(kind) };
    usize::try_from(value).unwrap_or(0)
}

#[must_use]
pub fn page_bytes() -> usize {
    match auxiliary(libc::AT_PAGESZ) {
        0 => 4096,
        bytes => bytes,
    }
}

/// Returns the bytes that one PMD entry maps, for base pages of `page_bytes`: a page table has
/// 8-byte entries. `MADV_COLLAPSE` makes only folios of this size.
#[must_use]
pub const fn block_bytes(page_bytes: usize) -> usize {
    page_bytes / 8 * page_bytes
}

/// Advice of madvise(2) that keeps the memory's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Madvise {
    Cold = 20,
    Huge = 14,
    NoHuge = 15,
    /// Map pages as a read would, with an error instead of a signal (Linux 5.14).
    PopulateRead = 22,
    /// The same as a write would.
    PopulateWrite = 23,
    /// Linux 6.1.
    Collapse = 25,
}

/// # Errors
/// The kernel's.
pub fn madvise(address: usize, len: usize, advice: Madvise) -> Result<()> {
    // SAFETY: none of the advices changes the memory's contents.
    unsafe { call(libc::SYS_madvise, [address, len, advice as usize, 0, 0, 0]) }.map(drop)
}

/// Copies memory of this process to `buffer`. Returns the number of bytes before the first that
/// cannot be read. The kernel copies, so other threads may write to the memory or unmap it.
///
/// # Errors
/// The kernel's: a filter that denies the call, or an unreadable first byte (EFAULT).
pub(crate) fn read_memory(address: usize, buffer: &mut [u8]) -> Result<usize> {
    let local = [buffer.as_mut_ptr().addr(), buffer.len()];
    let remote = [address, buffer.len()];
    let (local, remote) = (local.as_ptr().addr(), remote.as_ptr().addr());
    let arguments = [process()?, local, 1, remote, 1, 0];
    // SAFETY: both vectors (two words each) outlive the call, which writes only to the buffer.
    unsafe { call(libc::SYS_process_vm_readv, arguments) }
}

fn process() -> Result<usize> {
    // SAFETY: getpid takes nothing.
    unsafe { call(libc::SYS_getpid, [0; 6]) }
}

/// Returns `PR_GET_THP_DISABLE`: 0, or 1 and the flags.
pub(crate) fn thp_disabled() -> Result<usize> {
    let option = i32_word(libc::PR_GET_THP_DISABLE);
    // SAFETY: the call takes numbers.
    unsafe { call(libc::SYS_prctl, [option, 0, 0, 0, 0, 0]) }
}

/// Maps new private memory at an address that the kernel chooses.
pub(crate) fn map(len: usize) -> Result<usize> {
    let protection = i32_word(libc::PROT_READ | libc::PROT_WRITE);
    let flags = i32_word(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
    unsafe { call(libc::SYS_mmap, [0, len, protection, flags, usize::MAX, 0]) }
}

/// Returns whether the kernel is built with large folios: it checks the advice before the length.
pub(crate) fn has_thp() -> bool {
    madvise(0, 0, Madvise::Huge) != Err(Errno(libc::EINVAL))
}

/// Returns whether all pages are mapped. `MS_ASYNC` starts no writing since Linux 2.6.19: the call
/// only looks for holes.
pub(crate) fn is_mapped(address: usize, len: usize) -> bool {
    let arguments = [address, len, i32_word(libc::MS_ASYNC), 0, 0, 0];
    // SAFETY: the call writes to no memory.
    let result = unsafe { call(libc::SYS_msync, arguments) };
    result != Err(Errno(libc::ENOMEM))
}

/// # Safety
/// The range is the caller's to unmap, and nothing refers to it.
pub(crate) unsafe fn unmap(address: usize, len: usize) -> Result<()> {
    // SAFETY: by the caller's promise.
    unsafe { call(libc::SYS_munmap, [address, len, 0, 0, 0, 0]) }.map(drop)
}

/// Names anonymous memory in `/proc/PID/maps` (Linux 5.17).
pub(crate) fn name(address: usize, len: usize, name: &CStr) -> Result<()> {
    let (option, kind) = (i32_word(libc::PR_SET_VMA), word(libc::PR_SET_VMA_ANON_NAME as u64));
    let arguments = [option, kind, address, len, name.as_ptr().addr(), 0];
    // SAFETY: `name` is a C string that outlives the call.
    unsafe { call(libc::SYS_prctl, arguments) }.map(drop)
}

const _: () = assert!(size_of::<usize>() == 8);
