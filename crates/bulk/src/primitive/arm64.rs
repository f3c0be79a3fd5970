//! arm64: pairs of 16-byte stores, `dc zva`, and the memory instructions of `FEAT_MOPS`.

use core::arch::asm;

use super::lines::Lines;
use super::{ClearFn, CopyFn, Primitive};

const TURN_BYTES: usize = 64;
/// `HWCAP2_MOPS` of the kernel's arm64 ABI (`Documentation/arch/arm64/elf_hwcaps.rst`).
const HWCAP2_MOPS: usize = 1 << 43;

pub(super) fn clear_fn(primitive: Primitive) -> Option<ClearFn> {
    match primitive {
        Primitive::StorePair => Some(clear_stp),
        Primitive::StorePairStream => Some(clear_stnp),
        Primitive::DcZva => zva_block_bytes().map(|_| clear_zva as ClearFn),
        Primitive::Mops => has_mops().then_some(clear_mops),
        _ => None,
    }
}

pub(super) fn copy_fn(primitive: Primitive) -> Option<CopyFn> {
    match primitive {
        Primitive::StorePair => Some(copy_stp),
        Primitive::StorePairStream => Some(copy_stnp),
        Primitive::Mops => has_mops().then_some(copy_mops),
        _ => None,
    }
}

/// Only the kernel knows on a machine with different CPUs, so their registers are not used.
fn has_mops() -> bool {
    #[cfg(target_os = "linux")]
    return rustix::param::linux_hwcap().1 & HWCAP2_MOPS != 0;
    #[cfg(not(target_os = "linux"))]
    false
}

/// Bytes that one `dc zva` zeroes; `None` if the system prohibits it (bit 4 of `DCZID_EL0`, whose
/// low four bits are log2 of the block in 4-byte words).
fn zva_block_bytes() -> Option<usize> {
    let dczid: usize;
    // SAFETY: the register is readable at every exception level and has no side effect.
    unsafe {
        asm!("mrs {}, dczid_el0", out(reg) dczid,
            options(pure, nomem, nostack, preserves_flags));
    }
    (dczid & 0x10 == 0).then_some(4 << (dczid & 0xf))
}

macro_rules! clear_by_pairs {
    ($name:ident, $store:literal) => {
        unsafe fn $name(start: *mut u8, len: usize) {
            let lines = Lines::of(start.addr(), len, TURN_BYTES);
            // SAFETY: the lines come from the caller's range.
            unsafe { lines.clear_ends(start, len) };
            let first = start.wrapping_add(lines.head);
            for line in 0..lines.nr {
                let at = first.wrapping_add(line * TURN_BYTES);
                // SAFETY: writes the 64 bytes of a whole line of the range.
                unsafe {
                    asm!(
                        "movi v0.2d, #0",
                        concat!($store, " q0, q0, [{at}]"),
                        concat!($store, " q0, q0, [{at}, #32]"),
                        at = in(reg) at, out("v0") _,
                        options(nostack, preserves_flags)
                    );
                }
            }
        }
    };
}

macro_rules! copy_by_pairs {
    ($name:ident, $store:literal) => {
        unsafe fn $name(to: *mut u8, from: *const u8, len: usize) {
            let lines = Lines::of(to.addr(), len, TURN_BYTES);
            // SAFETY: the lines come from the caller's destination.
            unsafe { lines.copy_ends(to, from, len) };
            for line in 0..lines.nr {
                let offset = lines.head + line * TURN_BYTES;
                // SAFETY: reads 64 bytes of the source, at any alignment, and writes a whole line
                // of the destination.
                unsafe {
                    asm!(
                        "ldp q0, q1, [{from}]",
                        "ldp q2, q3, [{from}, #32]",
                        concat!($store, " q0, q1, [{to}]"),
                        concat!($store, " q2, q3, [{to}, #32]"),
                        from = in(reg) from.wrapping_add(offset),
                        to = in(reg) to.wrapping_add(offset),
                        out("v0") _, out("v1") _, out("v2") _, out("v3") _,
                        options(nostack, preserves_flags)
                    );
                }
            }
        }
    };
}

clear_by_pairs!(clear_stp, "stp");
clear_by_pairs!(clear_stnp, "stnp");
copy_by_pairs!(copy_stp, "stp");
copy_by_pairs!(copy_stnp, "stnp");

unsafe fn clear_zva(start: *mut u8, len: usize) {
    let Some(block) = zva_block_bytes() else { unreachable!("clear_fn asked") };
    let lines = Lines::of(start.addr(), len, block);
    // SAFETY: the lines come from the caller's range.
    unsafe { lines.clear_ends(start, len) };
    let first = start.wrapping_add(lines.head);
    for line in 0..lines.nr {
        let at = first.wrapping_add(line * block);
        // SAFETY: zeroes the aligned block at `at`, which is inside the range; not prohibited.
        unsafe { asm!("dc zva, {}", in(reg) at, options(nostack, preserves_flags)) };
    }
}

/// Prologue, main and epilogue of a memory set, with registers x0 (address), x1 (bytes left), xzr
/// (value): `setp [x0]!, x1!, xzr`, `setm ..`, `sete ..`. They are encoded as words because the
/// pinned assembler has no stable name for the feature.
unsafe fn clear_mops(start: *mut u8, len: usize) {
    // SAFETY: writes `len` bytes at `start`, which the caller vouches for; `has_mops` held.
    unsafe {
        asm!(
            ".inst 0x19df0420",
            ".inst 0x19df4420",
            ".inst 0x19df8420",
            inout("x0") start => _, inout("x1") len => _,
            options(nostack)
        );
    }
}

/// The forward copy: x0 (to), x1 (from), x2 (bytes left). `cpyfp`, `cpyfm`, `cpyfe`.
unsafe fn copy_mops(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: writes `len` bytes at `to` and reads as many at `from`, which the caller vouches for
    // and which do not overlap; `has_mops` held.
    unsafe {
        asm!(
            ".inst 0x19010440",
            ".inst 0x19410440",
            ".inst 0x19810440",
            inout("x0") to => _, inout("x1") from => _, inout("x2") len => _,
            options(nostack)
        );
    }
}
