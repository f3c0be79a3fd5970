//! The functions that the library replaces.
//!
//! glibc's malloc calls the kernel without going through `mmap`, so allocations that are mappings
//! of their own are seen here.

use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use largefolio_ranges::{Range, sys};

use crate::advice::{self, Region, When};
use crate::next::{self, Next};

/// A path in `/proc/self/fd` and its zero.
const PATH_BYTES_MAX: usize = 4096;

type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type PosixMemalign = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;

static MMAP: Next = Next::new(c"mmap");
static MALLOC: Next = Next::new(c"malloc");
static CALLOC: Next = Next::new(c"calloc");
static REALLOC: Next = Next::new(c"realloc");
static MEMALIGN: Next = Next::new(c"memalign");
static ALIGNED_ALLOC: Next = Next::new(c"aligned_alloc");
static POSIX_MEMALIGN: Next = Next::new(c"posix_memalign");

/// Whether glibc's malloc serves the program. Other allocators call `mmap`.
static IS_GLIBC: AtomicBool = AtomicBool::new(false);

/// Looks all of them up.
pub(crate) fn find_all() {
    for each in [&MMAP, &MALLOC, &CALLOC, &REALLOC, &MEMALIGN, &ALIGNED_ALLOC, &POSIX_MEMALIGN] {
        let _ = each.get();
    }
    let malloc = MALLOC.get().and_then(next::library_of);
    let glibc = next::anywhere(c"gnu_get_libc_version");
    let glibc = glibc.and_then(|function| next::library_of(function.addr()));
    IS_GLIBC.store(malloc.is_some() && malloc == glibc, Ordering::Relaxed);
}

/// Returns an allocation's mapping, `None` if it lies in the heap or in an arena: advice for a part
/// of them would divide their mappings, and stay for later allocations there.
///
/// glibc writes two words before an allocation: the mapping's bytes before them, and its bytes from
/// there on. The lowest bits of the second are flags.
fn mapping_of(address: *mut c_void) -> Option<Range> {
    const IS_MMAPPED: usize = 2;
    const FLAGS: usize = 7;
    let header = address.cast::<usize>().wrapping_sub(2);
    // SAFETY: glibc returned the address, so its aligned words are before it; other threads change
    // the flags of allocations in an arena.
    let size = unsafe { AtomicUsize::from_ptr(header.wrapping_add(1)) }.load(Ordering::Relaxed);
    if size & IS_MMAPPED == 0 {
        return None;
    }
    // SAFETY: as above; in a mapping, the word belongs to this allocation alone.
    let before = unsafe { header.read() };
    let start = header.addr().checked_sub(before)?;
    let len = before.checked_add(size & !FLAGS)?;
    let range = Range::new(start, len).ok()?;
    (range.start() == start && range.len() == len).then_some(range)
}

fn allocated(address: *mut c_void, len: usize) -> *mut c_void {
    if address.is_null() {
        return address;
    }
    if advice::is_ruled(len)
        && IS_GLIBC.load(Ordering::Relaxed)
        && let Some(range) = mapping_of(address)
    {
        advice::apply(range, Region::Memory(len), When::Later);
    }
    advice::heap_up_to(address.addr(), len);
    address
}

fn out_of_memory() -> *mut c_void {
    sys::set_errno(libc::ENOMEM);
    core::ptr::null_mut()
}

/// # Safety
/// As for the function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let Some(next) = MMAP.get() else {
        sys::set_errno(libc::ENOSYS);
        return libc::MAP_FAILED;
    };
    // SAFETY: the next library's function of this name has this type.
    let next = unsafe { transmute::<usize, Mmap>(next) };
    // SAFETY: by the caller's promise.
    let mapped = unsafe { next(address, len, protection, flags, fd, offset) };
    if mapped != libc::MAP_FAILED {
        seen(mapped, len, flags, fd);
    }
    mapped
}

/// # Safety
/// As for the function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: by the caller's promise; both are one function where offsets have 64 bits.
    unsafe { mmap(address, len, protection, flags, fd, offset) }
}

fn seen(mapped: *mut c_void, len: usize, flags: c_int, fd: c_int) {
    const OTHER: c_int = libc::MAP_HUGETLB | libc::MAP_STACK | libc::MAP_GROWSDOWN;
    // The kernel maps whole pages.
    let whole = len.checked_next_multiple_of(sys::page_bytes());
    let Some(Ok(range)) = whole.map(|whole| Range::new(mapped.addr(), whole)) else { return };
    if flags & libc::MAP_ANONYMOUS != 0 {
        if flags & libc::MAP_PRIVATE != 0 && flags & OTHER == 0 && advice::is_ruled(len) {
            advice::apply(range, Region::Memory(len), When::Later);
        }
    } else if advice::has_files() {
        let errno = sys::errno();
        let mut path = [0; PATH_BYTES_MAX];
        if let Some(path) = path_of(fd, &mut path) {
            advice::apply(range, Region::File(path), When::Later);
        }
        sys::set_errno(errno);
    }
}

fn path_of(fd: c_int, path: &mut [u8; PATH_BYTES_MAX]) -> Option<&[u8]> {
    let mut link = [0_u8; 32];
    let mut number = u32::try_from(fd).ok()?;
    let mut digits = [0_u8; 10];
    let mut nr = 0;
    for slot in &mut digits {
        *slot = b'0' + u8::try_from(number % 10).ok()?;
        (nr, number) = (nr + 1, number / 10);
        if number == 0 {
            break;
        }
    }
    let text = b"/proc/self/fd/".iter().chain(digits.iter().take(nr).rev());
    link.iter_mut().zip(text).for_each(|(slot, byte)| *slot = *byte);
    let link = CStr::from_bytes_until_nul(&link).ok()?;
    // SAFETY: a C string, and a buffer with its length.
    let nr = unsafe { libc::readlink(link.as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    path.get(..usize::try_from(nr).ok()?)
}

/// # Safety
/// As for the function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn malloc(len: usize) -> *mut c_void {
    let Some(next) = MALLOC.get() else { return out_of_memory() };
    // SAFETY: the next library's function of this name has this type.
    let next = unsafe { transmute::<usize, Malloc>(next) };
    // SAFETY: by the caller's promise.
    allocated(unsafe { next(len) }, len)
}

/// # Safety
/// As for the function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn calloc(nr: usize, len: usize) -> *mut c_void {
    let Some(next) = CALLOC.get() else { return out_of_memory() };
    // SAFETY: the next library's function of this name has this type.
    let next = unsafe { transmute::<usize, Calloc>(next) };
    // SAFETY: by the caller's promise.
    allocated(unsafe { next(nr, len) }, nr.saturating_mul(len))
}

/// # Safety
/// As for the function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn realloc(address: *mut c_void, len: usize) -> *mut c_void {
    let Some(next) = REALLOC.get() else { return out_of_memory() };
    // SAFETY: the next library's function of this name has this type.
    let next = unsafe { transmute::<usize, Realloc>(next) };
    // SAFETY: by the caller's promise.
    allocated(unsafe { next(address, len) }, len)
}

/// # Safety
/// As for the function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn memalign(align: usize, len: usize) -> *mut c_void {
    let Some(next) = MEMALIGN.get() else { return out_of_memory() };
    // SAFETY: the next library's function of this name has this type.
    let next = unsafe { transmute::<usize, Calloc>(next) };
    // SAFETY: by the caller's promise.
    allocated(unsafe { next(align, len) }, len)
}

/// # Safety
/// As for the function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aligned_alloc(align: usize, len: usize) -> *mut c_void {
    let Some(next) = ALIGNED_ALLOC.get() else { return out_of_memory() };
    // SAFETY: the next library's function of this name has this type.
    let next = unsafe { transmute::<usize, Calloc>(next) };
    // SAFETY: by the caller's promise.
    allocated(unsafe { next(align, len) }, len)
}

/// # Safety
/// As for the function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    align: usize,
    len: usize,
) -> c_int {
    let Some(next) = POSIX_MEMALIGN.get() else { return libc::ENOMEM };
    // SAFETY: the next library's function of this name has this type.
    let next = unsafe { transmute::<usize, PosixMemalign>(next) };
    // SAFETY: by the caller's promise.
    let result = unsafe { next(place, align, len) };
    if result == 0 {
        // SAFETY: it succeeded, so it wrote the address.
        allocated(unsafe { *place }, len);
    }
    result
}
