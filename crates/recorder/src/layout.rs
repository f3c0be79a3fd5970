//! The mappings that exist when the program's first instruction is translated.
//!
//! Owns the one message that hands `/proc/self/maps` to the parent, as it was before QEMU loaded
//! the program and as it is now: the parent tells the program's mappings from QEMU's.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::qemu::{self, Insn};
use crate::wire::{self, BODY_MAX, Kind};
use crate::{link, restore, sys};

/// Most bytes of each of the two texts; QEMU's own mappings are about 50 lines of 80 bytes.
const MAPS_MAX: usize = (BODY_MAX - 16) / 2;

static BEFORE: OnceLock<Vec<u8>> = OnceLock::new();

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

/// Notes QEMU's own mappings; to be called before QEMU loads the program.
pub(crate) fn start() {
    BEFORE.get_or_init(maps);
}

/// Lines of `/proc/self/maps`.
fn maps() -> Vec<u8> {
    let mut maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    maps.truncate(MAPS_MAX);
    maps
}

/// Sends the mappings; `insn` at `addr` is the first instruction translated.
pub(crate) fn send(insn: *const Insn, addr: u64) {
    // SAFETY: the caller is in the translation callback that `insn` is valid in.
    let host = unsafe { qemu::qemu_plugin_insn_haddr(insn) };
    let base = (host.addr() as u64).wrapping_sub(addr);
    GUEST_BASE.store(base, Relaxed);
    LOAD_BASE.store(base, Relaxed);
    let (before, now) = (BEFORE.get_or_init(Vec::new), maps());
    restore::variables(&now, base);
    let mut body = Vec::with_capacity(16 + before.len() + now.len());
    body.extend_from_slice(&base.to_le_bytes());
    body.extend_from_slice(&(before.len() as u64).to_le_bytes());
    body.extend_from_slice(before);
    let header = link::header(Kind::Layout, sys::thread_number(), body.len() + now.len());
    link::send(&header, &[], [&body, &now]);
}
