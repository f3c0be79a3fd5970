//! The C interface of `largefolio-ranges`: `include/largefolio.h` describes it.
//!
//! It is a crate of its own because every shared library that links a crate with C names exports
//! them: the preloaded library, which uses `largefolio-ranges` too, exports nothing.
//!
//! Invariants:
//! - C1: a structure grows only into its reserved fields, which are 0, so programs and libraries of
//!   different versions fit. Numbers of reasons and flags keep their meaning.
//! - C2: nothing below panics (R4); if it did, `extern "C"` ends the program, never unwinds.
//! - C3: a pointer to a result may be null only if the header says so; otherwise the answer is
//!   `-EINVAL`.

#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

// A cdylib needs a panic handler, which is never called (C2).
extern crate std;

use core::ffi::{CStr, c_char, c_int, c_void};

use largefolio_ranges as ranges;
use largefolio_ranges::{Advice, Errno, NR_ORDERS, Options, Range, Reason, Reserved, Settings};

const UNKNOWN: u64 = u64::MAX;
const POPULATE: u32 = 1;
const COLLAPSE: u32 = 2;
const ADVICE_HUGE: c_int = 1;
const ADVICE_NO_HUGE: c_int = 2;

#[repr(C)]
pub struct FolioSizes {
    page_bytes: u64,
    pmd_bytes: u64,
    always_bytes: u64,
    advised_bytes: u64,
    always_orders: u64,
    advised_orders: u64,
    reserved: [u64; 2],
}

#[repr(C)]
pub struct FolioBacked {
    range_bytes: u64,
    folio_bytes: u64,
    fitting_bytes: u64,
    advised_bytes: u64,
    populated_bytes: u64,
    collapsed_bytes: u64,
    reason: u32,
    reserved32: u32,
    reserved: [u64; 4],
}

#[repr(C)]
pub struct FolioView {
    range_bytes: u64,
    mapped_bytes: u64,
    present_bytes: u64,
    swapped_bytes: u64,
    zero_page_bytes: u64,
    huge_bytes: u64,
    folio_bytes: u64,
    fitting_bytes: u64,
    order_bytes: [u64; NR_ORDERS],
    reason: u32,
    reserved32: u32,
    reserved: [u64; 4],
}

#[repr(C)]
pub struct FolioWaste {
    large_bytes: u64,
    zero_bytes: u64,
    unreadable_bytes: u64,
    has_all_sizes: u32,
    reserved32: u32,
    reserved: [u64; 4],
}

#[repr(C)]
pub struct FolioCollapsed {
    folio_bytes: u64,
    fitting_bytes: u64,
    collapsed_bytes: u64,
    reason: u32,
    reserved32: u32,
    reserved: [u64; 4],
}

#[repr(C)]
pub struct FolioSplit {
    huge_bytes: u64,
    split_bytes: u64,
    freed_bytes: u64,
    reserved: [u64; 4],
}

const INVALID: c_int = -libc::EINVAL;

fn range(start: *const c_void, len: usize) -> ranges::Result<Range> {
    Range::new(start.addr(), len)
}

fn code(result: ranges::Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Errno(number)) => -number,
    }
}

/// Writes a result to the caller's structure.
///
/// # Safety
/// `place` is null or valid for writing one `T`.
unsafe fn put<T>(place: *mut T, result: ranges::Result<T>) -> c_int {
    code(result.map(|value| {
        if !place.is_null() {
            // SAFETY: not null, so valid by the caller's promise.
            unsafe { place.write(value) };
        }
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn folio_reason_text(reason: c_int) -> *const c_char {
    let known = Reason::all().iter().find(|known| i64::from(**known as u32) == i64::from(reason));
    known.map_or(c"unknown reason", |known| known.c_text()).as_ptr()
}

/// # Safety
/// `sizes` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folio_sizes(sizes: *mut FolioSizes) -> c_int {
    if sizes.is_null() {
        return INVALID;
    }
    let bytes = |bytes: Option<usize>| bytes.unwrap_or(0) as u64;
    let found = Settings::read().map(|settings| FolioSizes {
        page_bytes: settings.page_bytes as u64,
        pmd_bytes: settings.pmd_bytes() as u64,
        always_bytes: bytes(settings.largest_bytes(false)),
        advised_bytes: bytes(settings.largest_bytes(true)),
        always_orders: settings.orders(false).into(),
        advised_orders: settings.orders(true).into(),
        reserved: [0; 2],
    });
    // SAFETY: by the caller's promise.
    unsafe { put(sizes, found) }
}

/// # Safety
/// `start` is null or valid for writing; `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folio_reserve(
    start: *mut *mut c_void,
    len: usize,
    align: usize,
    name: *const c_char,
) -> c_int {
    if start.is_null() {
        return INVALID;
    }
    // SAFETY: a name that is not null is a C string by the caller's promise.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
    let reserved = Reserved::new(len, Some(align).filter(|align| *align != 0), name);
    // SAFETY: by the caller's promise.
    unsafe { put(start, reserved.map(|reserved| reserved.into_raw().cast())) }
}

/// # Safety
/// Every page that the range touches is the caller's, and nothing refers to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folio_release(start: *mut c_void, len: usize) -> c_int {
    // SAFETY: by the caller's promise.
    code(unsafe { ranges::release(start.addr(), len) })
}

/// # Safety
/// `done` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folio_back(
    start: *mut c_void,
    len: usize,
    flags: u32,
    done: *mut FolioBacked,
) -> c_int {
    if flags & !(POPULATE | COLLAPSE) != 0 {
        return INVALID;
    }
    let options = Options { populate: flags & POPULATE != 0, collapse: flags & COLLAPSE != 0 };
    let backed = range(start, len).and_then(|range| ranges::back(range, options));
    let backed = backed.map(|backed| FolioBacked {
        range_bytes: backed.range_bytes,
        folio_bytes: backed.folio_bytes,
        fitting_bytes: backed.fitting_bytes,
        advised_bytes: backed.advised_bytes,
        populated_bytes: backed.populated_bytes,
        collapsed_bytes: backed.collapsed_bytes,
        reason: backed.reason as u32,
        reserved32: 0,
        reserved: [0; 4],
    });
    // SAFETY: by the caller's promise.
    unsafe { put(done, backed) }
}

/// # Safety
/// `view` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folio_view(
    start: *const c_void,
    len: usize,
    view: *mut FolioView,
) -> c_int {
    if view.is_null() {
        return INVALID;
    }
    let found = range(start, len).and_then(ranges::view).map(|found| FolioView {
        range_bytes: found.range_bytes,
        mapped_bytes: found.mapped_bytes,
        present_bytes: found.present_bytes,
        swapped_bytes: found.swapped_bytes,
        zero_page_bytes: found.zero_page_bytes.unwrap_or(UNKNOWN),
        huge_bytes: found.huge_bytes.unwrap_or(UNKNOWN),
        folio_bytes: found.folio_bytes,
        fitting_bytes: found.fitting_bytes,
        order_bytes: found.bytes_by_order.unwrap_or([UNKNOWN; NR_ORDERS]),
        reason: found.reason as u32,
        reserved32: 0,
        reserved: [0; 4],
    });
    // SAFETY: by the caller's promise.
    unsafe { put(view, found) }
}

/// # Safety
/// `waste` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folio_waste(
    start: *const c_void,
    len: usize,
    waste: *mut FolioWaste,
) -> c_int {
    if waste.is_null() {
        return INVALID;
    }
    let found = range(start, len).and_then(ranges::waste).map(|found| FolioWaste {
        large_bytes: found.large_bytes,
        zero_bytes: found.zero_bytes,
        unreadable_bytes: found.unreadable_bytes,
        has_all_sizes: found.has_all_sizes.into(),
        reserved32: 0,
        reserved: [0; 4],
    });
    // SAFETY: by the caller's promise.
    unsafe { put(waste, found) }
}

/// # Safety
/// `done` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folio_collapse(
    start: *mut c_void,
    len: usize,
    done: *mut FolioCollapsed,
) -> c_int {
    let collapsed = range(start, len).and_then(ranges::collapse).map(|collapsed| FolioCollapsed {
        folio_bytes: collapsed.folio_bytes,
        fitting_bytes: collapsed.fitting_bytes,
        collapsed_bytes: collapsed.collapsed_bytes,
        reason: collapsed.reason as u32,
        reserved32: 0,
        reserved: [0; 4],
    });
    // SAFETY: by the caller's promise.
    unsafe { put(done, collapsed) }
}

#[unsafe(no_mangle)]
pub extern "C" fn folio_advise(start: *mut c_void, len: usize, advice: c_int) -> c_int {
    let advice = match advice {
        ADVICE_HUGE => Advice::Huge,
        ADVICE_NO_HUGE => Advice::NoHuge,
        _ => return INVALID,
    };
    code(range(start, len).and_then(|range| ranges::advise(range, advice)))
}

/// # Safety
/// `done` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folio_split(
    start: *mut c_void,
    len: usize,
    zero_bytes_min: u64,
    done: *mut FolioSplit,
) -> c_int {
    let split = range(start, len).and_then(|range| ranges::split(range, zero_bytes_min));
    let split = split.map(|split| FolioSplit {
        huge_bytes: split.huge_bytes,
        split_bytes: split.split_bytes,
        freed_bytes: split.freed_bytes,
        reserved: [0; 4],
    });
    // SAFETY: by the caller's promise.
    unsafe { put(done, split) }
}

// The sizes that C programs are compiled with (C1); `tests/programs` holds the header to them.
const _: () = assert!(size_of::<FolioSizes>() == 64 && size_of::<FolioBacked>() == 88);
const _: () = assert!(size_of::<FolioView>() == 232 && size_of::<FolioWaste>() == 64);
const _: () = assert!(size_of::<FolioCollapsed>() == 64 && size_of::<FolioSplit>() == 56);
