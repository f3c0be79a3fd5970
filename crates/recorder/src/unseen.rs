//! Instructions whose memory accesses QEMU does not report to plugins.
//!
//! Owns detecting them. On arm64, `DC ZVA` clears a block in a QEMU helper without a callback.
//! ([`Arch::options`] turns off `FEAT_MOPS`, whose accesses QEMU would not report either.)

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::arch::Arch;
use crate::arguments::Arguments;
use crate::link;
use crate::qemu::{self, Insn};
use crate::sys;
use crate::thread;
use crate::wire::{Kind, PAGE_BITS};

const BLOCK_BYTES: u64 = 64;

/// Number of consecutive clears that cover a page.
const NR_A_PAGE: u64 = (1 << PAGE_BITS) / BLOCK_BYTES;

static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Watches the instruction if QEMU does not report its accesses.
pub(crate) fn watch(insn: *mut Insn) {
    if Arguments::kept().is_none_or(|kept| kept.arch != Arch::Arm64) {
        return;
    }
    // SAFETY: the caller is in the translation callback that `insn` is valid in.
    let host = unsafe { qemu::qemu_plugin_insn_haddr(insn) }.cast::<u32>();
    if host.is_null() || !host.is_aligned() {
        return;
    }
    // SAFETY: QEMU has just read the 4 bytes of this instruction there, and translates them.
    let word = unsafe { host.read_volatile() };
    if is_unseen(word) {
        // SAFETY: as above.
        unsafe {
            qemu::qemu_plugin_register_vcpu_insn_exec_cb(
                insn,
                cleared,
                qemu::NO_REGS,
                ptr::null_mut(),
            );
        }
    }
}

/// Reports once that the program may have cleared a whole page this way. A smaller `memset` also
/// touches the pages at both ends with plain stores.
extern "C" fn cleared(vcpu: c_uint, _data: *mut c_void) {
    if IS_TOLD.load(Relaxed) {
        return;
    }
    let Some((tail, thread)) = thread::thread_of(vcpu) else { return };
    let mark = tail.data_mark();
    let (before, nr_before) = thread.cleared.get();
    let nr = if before == mark { nr_before + 1 } else { 1 };
    thread.cleared.set((mark, nr));
    if nr >= NR_A_PAGE && !IS_TOLD.swap(true, Relaxed) {
        let program = Arguments::kept().map(|kept| kept.program.as_os_str().as_encoded_bytes());
        let program = program.unwrap_or_default();
        let header = link::header(Kind::Unseen, sys::thread_number(), program.len());
        link::send(&header, &[], [program, &[]]);
    }
}

const fn is_unseen(word: u32) -> bool {
    word & 0xffff_ffe0 == 0xd50b_7420
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_known_by_their_words() {
        // dc zva, x3; dc zva, xzr
        for word in [0xd50b_7423, 0xd50b_743f] {
            assert!(is_unseen(word), "{word:#x}");
        }
        // dc civac, x3; dc gva, x3; str x0, [x1]; ldr q0, [x1]; ret; nop
        for word in [0xd50b_7e23, 0xd50b_7463, 0xf900_0020, 0x3dc0_0020, 0xd65f_03c0, 0xd503_201f] {
            assert!(!is_unseen(word), "{word:#x}");
        }
    }
}
