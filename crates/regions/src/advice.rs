//! Which rule is about memory, and the advice that it gives.

use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use largefolio_ranges::rules::{RegionAdvice, Rule, What};
use largefolio_ranges::sys::{self, Madvise};
use largefolio_ranges::{Errno, Range, collapse};

use crate::{next, report};

type Mallopt = unsafe extern "C" fn(c_int, c_int) -> c_int;

/// The rules' text, in memory of our own: programs overwrite their environment.
static TEXT: AtomicUsize = AtomicUsize::new(0);
static TEXT_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Smaller memory has no rule.
static BYTES_MIN: AtomicUsize = AtomicUsize::new(usize::MAX);
static HAS_FILES: AtomicUsize = AtomicUsize::new(0);
/// The part of the heap that has its advice. `end` is the last address if no rule is about it, so
/// that nothing is past it.
static HEAP_START: AtomicUsize = AtomicUsize::new(usize::MAX);
static HEAP_END: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Steps in which the heap has grown.
static NR_STEPS: AtomicUsize = AtomicUsize::new(0);
/// Half of the mappings that the kernel allows by default: each step is one.
const NR_STEPS_MAX: usize = 32 << 10;

/// The heap's steps: glibc's largest threshold for a mapping of its own.
const STEP_BYTES: c_int = 32 << 20;

/// Memory that a rule can be about.
#[derive(Clone, Copy)]
pub(crate) enum Region<'a> {
    Heap,
    Stack,
    /// With the size that was asked for; the range has only whole pages of it.
    Memory(usize),
    File(&'a [u8]),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Start,
    Later,
}

/// Takes the rules. `text` stays in place for good.
pub(crate) fn set(text: &'static [u8]) {
    for (_, rule) in parsed(text) {
        match rule.what {
            What::Memory { bytes_min } => {
                BYTES_MIN.fetch_min(bytes_min, Ordering::Relaxed);
            }
            What::File(_) => HAS_FILES.store(1, Ordering::Relaxed),
            What::Heap | What::Stack => {}
        }
    }
    TEXT_BYTES.store(text.len(), Ordering::Relaxed);
    TEXT.store(text.as_ptr().addr(), Ordering::Release);
}

/// Remembers how far the heap has its advice.
pub(crate) fn set_heap(range: Range) {
    if rules().any(|(_, rule)| rule.what == What::Heap) {
        HEAP_START.store(range.start(), Ordering::Relaxed);
        HEAP_END.store(range.end(), Ordering::Relaxed);
    }
}

/// Whether the first rule about the heap asks for folios.
pub(crate) fn wants_large_heap() -> bool {
    let rule = rules().find(|(_, rule)| rule.what == What::Heap);
    rule.is_some_and(|(_, rule)| rule.advice != RegionAdvice::NoHuge)
}

/// Makes glibc's malloc grow the heap in large steps. Each step stays a mapping of its own, because
/// malloc writes to it before it has the advice. In the usual steps of 132 KiB no PMD folio would
/// fit, and a heap of 8 GiB would have as many mappings as the kernel allows.
pub(crate) fn grow_in_large_steps() {
    // Not every C library has it.
    let Some(mallopt) = next::anywhere(c"mallopt") else { return };
    // SAFETY: malloc's function of this name has this type.
    let mallopt = unsafe { transmute::<*mut c_void, Mallopt>(mallopt) };
    // Setting one of them turns off glibc's own adjustment, which would end at these.
    for (option, value) in [
        (libc::M_TOP_PAD, STEP_BYTES),
        (libc::M_TRIM_THRESHOLD, 2 * STEP_BYTES),
        (libc::M_MMAP_THRESHOLD, STEP_BYTES),
    ] {
        // SAFETY: mallopt takes numbers.
        unsafe { mallopt(option, value) };
    }
}

/// Advises the heap's new part, if an allocation lies in it.
pub(crate) fn heap_up_to(address: usize, len: usize) {
    let end = HEAP_END.load(Ordering::Relaxed);
    if address.saturating_add(len) <= end || address < HEAP_START.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: 0 only asks for the program break.
    let top = unsafe { libc::sbrk(0) }.addr();
    // Other memory lies above the heap.
    if address >= top || top <= end {
        return;
    }
    let won = HEAP_END.compare_exchange(end, top, Ordering::Relaxed, Ordering::Relaxed);
    let (Ok(_), Ok(range)) = (won, Range::new(end, top - end)) else { return };
    if NR_STEPS.fetch_add(1, Ordering::Relaxed) < NR_STEPS_MAX {
        apply(range, Region::Heap, When::Later);
    } else {
        // The kernel would soon refuse as well, and then the program's own mappings, too.
        HEAP_END.store(usize::MAX, Ordering::Relaxed);
        refuse(Region::Heap, Errno(libc::ENOMEM));
    }
}

/// Whether memory of this size can have a rule.
pub(crate) fn is_ruled(bytes: usize) -> bool {
    bytes >= BYTES_MIN.load(Ordering::Relaxed)
}

pub(crate) fn has_files() -> bool {
    HAS_FILES.load(Ordering::Relaxed) != 0
}

/// Finds the first rule about a region.
fn rule_of(region: Region<'_>) -> Option<(usize, Rule<'static>)> {
    let is_about = |rule: &Rule<'_>| match (rule.what, region) {
        (What::Heap, Region::Heap) | (What::Stack, Region::Stack) => true,
        (What::Memory { bytes_min }, Region::Memory(bytes)) => bytes >= bytes_min,
        (what @ What::File(_), Region::File(path)) => what.is_file(path),
        _ => false,
    };
    rules().find(|(_, rule)| is_about(rule))
}

fn refuse(region: Region<'_>, error: Errno) {
    if let Some((nr, _)) = rule_of(region) {
        report::count(nr, 0, Err(error));
    }
}

/// Gives the advice of the first rule about a region, and keeps errno.
pub(crate) fn apply(range: Range, region: Region<'_>, when: When) {
    let Some((nr, rule)) = rule_of(region).filter(|_| !range.is_empty()) else { return };
    let errno = sys::errno();
    let advice = match rule.advice {
        RegionAdvice::NoHuge => Madvise::NoHuge,
        RegionAdvice::Huge | RegionAdvice::Collapse => Madvise::Huge,
    };
    report::count(nr, range.len(), sys::madvise(range.start(), range.len(), advice));
    if rule.advice == RegionAdvice::Collapse && when == When::Start {
        // Blocks that cannot be collapsed stay as they are.
        let _ = collapse(range);
    }
    sys::set_errno(errno);
}

fn rules() -> impl Iterator<Item = (usize, Rule<'static>)> {
    let text: &[u8] = match TEXT.load(Ordering::Acquire) {
        0 => &[],
        start => {
            let start = ptr::with_exposed_provenance(start);
            // SAFETY: `set` stored the address and, before it, the length of text that stays.
            unsafe { core::slice::from_raw_parts(start, TEXT_BYTES.load(Ordering::Relaxed)) }
        }
    };
    parsed(text)
}

/// Rules with their numbers; the launcher numbers them in the same way.
fn parsed(text: &'static [u8]) -> impl Iterator<Item = (usize, Rule<'static>)> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(|line| Rule::parse(line).ok().flatten()).enumerate()
}
