//! Instructions whose memory QEMU tells no plugin.
//!
//! Owns their recognition. On arm64 `DC ZVA` clears a block, and the instructions of `FEAT_MOPS` set and
//! copy memory; QEMU does both in a helper that calls nobody. The CPU of [`Arch::options`] has blocks of
//! 512 bytes, and before QEMU 8.2 no `FEAT_MOPS`.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::arch::Arch;
use crate::arguments::Arguments;
use crate::link;
use crate::qemu::{self, Insn};
use crate::sys;
use crate::wire::Kind;

static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Tells that the program has such an instruction, once.
pub(crate) fn look(insn: *const Insn) {
    let Some(arguments) = Arguments::kept().filter(|kept| kept.arch == Arch::Arm64) else { return };
    // SAFETY: the caller is in the translation callback that `insn` is valid in.
    let host = unsafe { qemu::qemu_plugin_insn_haddr(insn) }.cast::<u32>();
    if host.is_null() || !host.is_aligned() {
        return;
    }
    // SAFETY: QEMU has just read the 4 bytes of this instruction there, and translates them.
    let word = unsafe { host.read_volatile() };
    if is_unseen(word) && !IS_TOLD.swap(true, Relaxed) {
        let program = arguments.program.as_os_str().as_encoded_bytes();
        let header = link::header(Kind::Unseen, sys::thread_number(), program.len());
        link::send(&header, &[], [program, &[]]);
    }
}

/// Whether the instruction of arm64 is `DC ZVA`, or one of CPY and SET of `FEAT_MOPS`.
const fn is_unseen(word: u32) -> bool {
    word & 0xffff_ffe0 == 0xd50b_7420 || word & 0xfb20_0c00 == 0x1900_0400
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_known_by_their_words() {
        // dc zva, x3; setp [x0]!, x1!, x2; setm; cpyfp [x0]!, [x1]!, x2!; cpye
        for word in [0xd50b_7423, 0x19c2_0420, 0x19c2_4420, 0x1901_0440, 0x1d81_0440] {
            assert!(is_unseen(word), "{word:#x}");
        }
        // dc civac, x3; str x0, [x1]; ldr q0, [x1]; ret; nop
        for word in [0xd50b_7e23, 0xf900_0020, 0x3dc0_0020, 0xd65f_03c0, 0xd503_201f] {
            assert!(!is_unseen(word), "{word:#x}");
        }
    }
}
