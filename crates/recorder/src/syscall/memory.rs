//! Calls that change the address space.
//!
//! Owns mmap, munmap, mprotect, mremap, madvise, brk, mlock, memory policies and the switch for THP. Keeps brk's previous end, because the call
//! does not report it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::sysno::Sysno;
use super::{Call, file, guest, low, op};
use crate::placed::{Turn, Wish};
use crate::wire::{PAGE_BITS, WireEvent};
use crate::{grace, layout, placed, sys};

static BRK: AtomicU64 = AtomicU64::new(0);

/// `largefolio_trace::event::lock`, equal to `MCL_*`.
const LOCK_CURRENT: u32 = 1;
const LOCK_ON_FAULT: u32 = 4;

/// The argument of mlock2.
const MLOCK_ONFAULT: u64 = 1;

/// Advice that discards pages: `MADV_DONTNEED`, `_REMOVE`, `_DONTNEED_LOCKED`, `_GUARD_INSTALL`.
const TAKING_AWAY: [u64; 4] = [4, 9, 24, 102];

/// Advice that only sets flags of a mapping, which it splits: `MADV_NORMAL`, `_RANDOM`,
/// `_SEQUENTIAL`, `_HUGEPAGE`, `_NOHUGEPAGE`, `_DONTDUMP`, `_DODUMP`. QEMU ignores it, and then
/// moves areas that a kernel does not.
const SETTING_FLAGS: [u64; 7] = [0, 1, 2, 14, 15, 16, 17];

/// Advice that refuses some areas: also `MADV_FREE`, `_COLD` and `_PAGEOUT`.
const REFUSING: [u64; 4] = [4, 8, 20, 21];

/// `PR_THP_DISABLE_EXCEPT_ADVISED`.
const EXCEPT_ADVISED: u64 = 2;

/// `largefolio_trace::event::mempolicy`.
const MOVE_SHIFT: u32 = 16;

const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

/// Sends other threads' rows first if the call removes memory or access rights.
pub(super) fn before(call: &Call) {
    if takes_away(call) {
        grace::flush_others(call.tail);
    }
    if let Sysno::Mmap | Sysno::Munmap | Sysno::Mremap | Sysno::Shmat | Sysno::Shmdt = call.sysno {
        Turn::begin(call.tail);
    }
    if let Some(wish) = wish(call) {
        placed::wish(wish);
    }
}

/// Returns how the kernel would choose an address, `None` if the program did.
fn wish(call: &Call) -> Option<Wish> {
    let [addr, _, _, flags, _, pos] = call.args;
    let flags = low(flags).cast_signed();
    let is_chosen = addr != 0 || flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    match call.sysno {
        Sysno::Mmap if is_chosen => None,
        Sysno::Mmap if flags & libc::MAP_ANONYMOUS != 0 => Some(Wish { flags, ..Wish::ANONYMOUS }),
        // Mapping a device can have other effects.
        Sysno::Mmap if is_regular(call.descriptor(4)) => {
            Some(Wish { flags, fd: call.descriptor(4), pos: pos.cast_signed() })
        }
        Sysno::Mremap => Some(Wish::ANONYMOUS),
        Sysno::Shmat if call.args[1] == 0 => Some(Wish::ANONYMOUS),
        _ => None,
    }
}

fn is_regular(fd: i32) -> bool {
    sys::identity(fd).is_some_and(|found| found.is_regular())
}

fn takes_away(call: &Call) -> bool {
    match call.sysno {
        Sysno::Munmap | Sysno::Mremap => true,
        Sysno::Mmap => call.args[3] & libc::MAP_FIXED as u64 != 0,
        // A change to read-write (malloc growing an arena) removes nothing that a row needs.
        Sysno::Mprotect => call.args[2] & READ_WRITE != READ_WRITE,
        Sysno::Madvise => TAKING_AWAY.contains(&call.args[2]),
        Sysno::Brk => call.args[0] != 0 && call.args[0] < BRK.load(Relaxed),
        _ => false,
    }
}

pub(super) fn after(call: &Call, result: u64) {
    let [a1, a2, a3, a4, ..] = call.args;
    match call.sysno {
        Sysno::Mmap => map(call, result),
        Sysno::Munmap => call.send(&event(op::MUNMAP, a1, a2)),
        Sysno::Mprotect => {
            call.send(&WireEvent { flags: low(a3), ..event(op::MPROTECT, a1, a2) });
        }
        Sysno::Mremap => {
            let moved =
                WireEvent { pos: result, aux: a3, flags: low(a4), ..event(op::MREMAP, a1, a2) };
            call.send(&moved);
        }
        Sysno::Madvise => {
            if SETTING_FLAGS.contains(&a3) {
                sys::advise(a1.wrapping_add(layout::guest_base()), a2, a3);
            }
            call.send(&WireEvent { aux: a3, ..event(op::MADVISE, a1, a2) });
        }
        Sysno::Brk => brk(call, result),
        Sysno::Mlock => lock(call, LOCK_CURRENT),
        Sysno::Mlock2 => {
            lock(call, if a3 & MLOCK_ONFAULT == 0 { LOCK_CURRENT } else { LOCK_ON_FAULT });
        }
        Sysno::Munlock => lock(call, 0),
        Sysno::Mlockall => call.send(&WireEvent { flags: low(a1), ..event(op::MLOCK, 0, 0) }),
        Sysno::Munlockall => call.send(&event(op::MLOCK, 0, 0)),
        Sysno::Mbind => bind(call, a1, a2, [a3, a4, call.args[4]]),
        Sysno::SetMempolicy => bind(call, 0, 0, [a1, a2, a3]),
        Sysno::Prctl if switches_thp(call) => {
            let aux = if a2 == 0 { 0 } else { 1 | a3 & EXCEPT_ADVISED };
            call.send(&WireEvent { aux, ..event(op::THP_DISABLE, 0, 0) });
        }
        _ => {}
    }
}

/// Sends a call that failed at an area in the middle of its range. It changed the areas before, and
/// with `ENOMEM`, for unmapped pages, all others.
pub(super) fn failed(call: &Call, error: i32) {
    let [addr, len, advice, ..] = call.args;
    let is_partial = call.sysno == Sysno::Madvise
        && REFUSING.contains(&advice)
        && addr.is_multiple_of(1 << PAGE_BITS)
        && matches!(error, libc::EINVAL | libc::ENOMEM);
    if is_partial {
        call.send(&WireEvent { aux: advice, ..event(op::MADVISE, addr, len) });
    }
}

/// The trace's flag of an attached System V segment (`event::abi` of the trace crate).
pub(super) const MAP_SEGMENT: u32 = 0x80_0000;

pub(super) fn switches_thp(call: &Call) -> bool {
    call.sysno == Sysno::Prctl && low(call.args[0]) == libc::PR_SET_THP_DISABLE.cast_unsigned()
}

/// A length of 0 locks nothing; in an event it means all memory.
fn lock(call: &Call, flags: u32) {
    let [start, len, ..] = call.args;
    if len > 0 {
        call.send(&WireEvent { flags, ..event(op::MLOCK, start, len) });
    }
}

/// The first word of a call's nodes has all that the model knows. Their number counts one bit more.
fn bind(call: &Call, addr: u64, len: u64, [mode, nodes, nr_bits]: [u64; 3]) {
    if call.sysno == Sysno::Mbind && len == 0 {
        return;
    }
    let nr_bits = nr_bits.saturating_sub(1);
    let has_nodes = nodes != 0 && nr_bits > 0;
    let Some(nodes) = (if has_nodes { guest::word_at(nodes) } else { Some(0) }) else { return };
    let aux = if nr_bits < u64::from(u64::BITS) { nodes & ((1 << nr_bits) - 1) } else { nodes };
    let moves = if call.sysno == Sysno::Mbind { low(call.args[5]) } else { 0 };
    let flags = low(mode) & 0xffff | moves << MOVE_SHIFT;
    call.send(&WireEvent { flags, aux, ..event(op::MEMPOLICY, addr, len) });
}

pub(super) fn event(op: u32, addr: u64, len: u64) -> WireEvent {
    WireEvent { op, addr, len, ..WireEvent::default() }
}

fn map(call: &Call, address: u64) {
    let [_, len, prot, flags, _, pos] = call.args;
    let is_anonymous = flags & libc::MAP_ANONYMOUS as u64 != 0;
    let file = if is_anonymous { 0 } else { file::announce(call, call.descriptor(4)) };
    let pos = if is_anonymous { 0 } else { pos };
    let flags = low(flags) & !MAP_SEGMENT;
    let huge = if is_anonymous { None } else { sys::huge_page_bytes(call.descriptor(4)) };
    let (file, pos, flags) = match huge {
        Some(bytes) => (0, 0, flags | huge_flags(bytes)),
        None => (file, pos, flags),
    };
    call.send(&WireEvent { flags, aux: prot, pos, file, ..event(op::MMAP, address, len) });
}

/// A file of huge pages is mapped like anonymous memory of this page size.
fn huge_flags(page_bytes: u64) -> u32 {
    let size = page_bytes.checked_ilog2().unwrap_or(0) << libc::MAP_HUGE_SHIFT;
    (libc::MAP_ANONYMOUS | libc::MAP_HUGETLB).cast_unsigned() | size
}

/// The first call reports the start of the heap, with an old end of 0.
fn brk(call: &Call, result: u64) {
    let old = BRK.swap(result, Relaxed);
    if old != result {
        call.send(&WireEvent { pos: result, aux: call.args[0], ..event(op::BRK, old, 0) });
    }
}
