//! The mappings at the program's first instruction.
//!
//! Owns the one message that sends `/proc/self/maps` to the parent, from before QEMU loaded the
//! program and from now. The difference tells the parent which mappings are the program's.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::qemu::{self, Insn};
use crate::wire::{self, BODY_MAX, Kind};
use crate::{link, restore, sys};

/// Size limit of each of the two texts. QEMU's own mappings take about 50 lines of 80 bytes.
const MAPS_MAX: usize = (BODY_MAX - 16) / 2;

static BEFORE: OnceLock<Vec<u8>> = OnceLock::new();

static GUEST_BASE: AtomicU64 = AtomicU64::new(0);

/// Base address for reading loaded values. 1 is not a valid base and means unknown.
static LOAD_BASE: AtomicU64 = AtomicU64::new(1);

/// Returns QEMU's offset from a program address to its own.
pub(crate) fn guest_base() -> u64 {
    GUEST_BASE.load(Relaxed)
}

#[inline]
pub(crate) fn load_base() -> Option<u64> {
    let base = LOAD_BASE.load(Relaxed);
    wire::is_base(base).then_some(base)
}

/// Notes QEMU's own mappings. Must run before QEMU loads the program.
pub(crate) fn start() {
    BEFORE.get_or_init(maps);
}

fn maps() -> Vec<u8> {
    let mut maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    maps.truncate(MAPS_MAX);
    maps
}

/// Sends the mappings to the parent. `insn` at `addr` is the first translated instruction.
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
