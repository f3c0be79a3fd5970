//! The mappings that exist when the program's first instruction is translated.
//!
//! Owns the one message that hands `/proc/self/maps` to the parent, which tells the program's
//! mappings from QEMU's.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::qemu::{self, Insn};
use crate::wire::{self, BODY_MAX, Kind};
use crate::{link, restore, sys};

static GUEST_BASE: AtomicU64 = AtomicU64::new(0);

/// The base by which loaded values are read; 1, which is none, until it is known.
static LOAD_BASE: AtomicU64 = AtomicU64::new(1);

/// What QEMU adds to an address of the program to get its own.
pub(crate) fn guest_base() -> u64 {
    GUEST_BASE.load(Relaxed)
}

/// The same for the addresses of loads, `None` where it is not known.
#[inline]
pub(crate) fn load_base() -> Option<u64> {
    let base = LOAD_BASE.load(Relaxed);
    wire::is_base(base).then_some(base)
}

/// Sends the mappings; `insn` at `addr` is the first instruction translated.
pub(crate) fn send(insn: *const Insn, addr: u64) {
    // SAFETY: the caller is in the translation callback that `insn` is valid in.
    let host = unsafe { qemu::qemu_plugin_insn_haddr(insn) };
    let base = (host.addr() as u64).wrapping_sub(addr);
    GUEST_BASE.store(base, Relaxed);
    LOAD_BASE.store(base, Relaxed);
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    restore::variables(&maps, base);
    let maps = maps.get(..BODY_MAX - 8).unwrap_or(&maps);
    let header = link::header(Kind::Layout, sys::thread_number(), maps.len() + 8);
    link::send(&header, &[], [&base.to_le_bytes(), maps]);
}
