//! Counters of each rule, in a file that the launcher and all processes map.
//!
//! Counters reach the launcher however a process ends. Without the file, nothing is counted.

use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use largefolio_ranges::rules::{
    NR_COUNTERS, NR_RULES_MAX, REPORT_BYTES, REPORT_LINK, REPORT_MAGIC,
};
use largefolio_ranges::sys::{call, i32_word};
use largefolio_ranges::{Errno, Fd};

static COUNTERS: AtomicUsize = AtomicUsize::new(0);

/// Maps the launcher's file.
pub(crate) fn open(path: &core::ffi::CStr) {
    let mut target = [0_u8; REPORT_LINK.len()];
    // SAFETY: a C string, and a buffer with its length.
    let nr = unsafe { libc::readlink(path.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    // Opening another file could have effects: the path may name one once the launcher has ended.
    if usize::try_from(nr) != Ok(target.len()) || target != *REPORT_LINK {
        return;
    }
    let Ok(file) = Fd::open(path, libc::O_RDWR) else { return };
    let (mut magic, mut last) = ([0; 8], [0; 1]);
    // Counting past the end of a shorter file would raise SIGBUS.
    let is_whole = file.read_at(&mut last, REPORT_BYTES as u64 - 1) == Ok(1);
    let is_read = file.read_at(&mut magic, 0) == Ok(magic.len());
    if !is_whole || !is_read || u64::from_le_bytes(magic) != REPORT_MAGIC {
        return;
    }
    let protection = i32_word(libc::PROT_READ | libc::PROT_WRITE);
    let arguments = [0, REPORT_BYTES, protection, i32_word(libc::MAP_SHARED), file.word(), 0];
    // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
    if let Ok(address) = unsafe { call(libc::SYS_mmap, arguments) } {
        COUNTERS.store(address, Ordering::Release);
    }
}

pub(crate) fn count(rule: usize, bytes: usize, result: Result<(), Errno>) {
    match result {
        Ok(()) => {
            add(rule, 0, 1);
            add(rule, 1, bytes as u64);
        }
        Err(Errno(number)) => {
            add(rule, 2, 1);
            if let Some(slot) = counter(rule, 3) {
                slot.store(u64::from(number.unsigned_abs()), Ordering::Relaxed);
            }
        }
    }
}

fn add(rule: usize, which: usize, amount: u64) {
    if let Some(slot) = counter(rule, which) {
        slot.fetch_add(amount, Ordering::Relaxed);
    }
}

fn counter(rule: usize, which: usize) -> Option<&'static AtomicU64> {
    let start = COUNTERS.load(Ordering::Acquire);
    if start == 0 || rule >= NR_RULES_MAX || which >= NR_COUNTERS {
        return None;
    }
    let offset = (1 + rule * NR_COUNTERS + which) * size_of::<u64>();
    let slot = ptr::with_exposed_provenance::<AtomicU64>(start + offset);
    // SAFETY: an aligned number inside the mapping, which stays; processes only use it atomically.
    Some(unsafe { &*slot })
}
