//! Instructions that load from memory and store the result in the same place, such as
//! `add %rdi, (%rax)`.
//!
//! Owns detecting them on `x86_64`. Such a CPU asks for write access before it loads, so the first
//! touch of a page is one write fault, while QEMU reports a load and then a store. On arm64, the
//! load of an atomic instruction faults as a read does.

use crate::arch::Arch;
use crate::arguments::Arguments;
use crate::qemu::{self, Insn};

/// Longest instruction in bytes.
const LENGTH_MAX: usize = 15;

/// Legacy prefixes: LOCK, REPNE, REP, operand and address size, segments.
const PREFIXES: [u8; 11] = [0xf0, 0xf2, 0xf3, 0x66, 0x67, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65];
const REX: std::ops::RangeInclusive<u8> = 0x40..=0x4f;
const TWO_BYTES: u8 = 0x0f;
/// The mode of a `ModRM` byte without a memory operand.
const REGISTER: u8 = 3;

/// Returns whether the instruction modifies memory.
pub(crate) fn is_modifying(insn: *const Insn, size: usize) -> bool {
    if Arguments::kept().is_none_or(|kept| kept.arch != Arch::X86_64) {
        return false;
    }
    // SAFETY: the caller is in the translation callback that `insn` is valid in.
    let host = unsafe { qemu::qemu_plugin_insn_haddr(insn) }.cast::<u8>();
    if host.is_null() || size > LENGTH_MAX {
        return false;
    }
    let mut bytes = [0; LENGTH_MAX];
    for (nr, byte) in bytes.iter_mut().take(size).enumerate() {
        // SAFETY: QEMU has just read the `size` bytes of this instruction there, and translates
        // them.
        *byte = unsafe { host.add(nr).read_volatile() };
    }
    modifies(bytes.get(..size).unwrap_or_default())
}

/// Returns whether an instruction of 64-bit mode reads and writes its memory operand.
fn modifies(bytes: &[u8]) -> bool {
    let after_prefixes = bytes.iter().position(|byte| !PREFIXES.contains(byte));
    let mut rest = bytes.get(after_prefixes.unwrap_or(bytes.len())..).unwrap_or_default();
    if let [rex, after @ ..] = rest
        && REX.contains(rex)
    {
        rest = after;
    }
    match *rest {
        [TWO_BYTES, opcode, modrm, ..] => {
            is_memory(modrm) && modifies_two_bytes(opcode, operation(modrm))
        }
        [opcode, modrm, ..] => is_memory(modrm) && modifies_one_byte(opcode, operation(modrm)),
        _ => false,
    }
}

const fn is_memory(modrm: u8) -> bool {
    modrm >> 6 != REGISTER
}

/// Returns the bits that choose between operations with one opcode.
const fn operation(modrm: u8) -> u8 {
    modrm >> 3 & 7
}

const fn modifies_one_byte(opcode: u8, operation: u8) -> bool {
    match opcode {
        // add, or, adc, sbb, and, sub, xor of a register; their immediate forms, without cmp
        0x00..=0x37 => opcode & 7 <= 1,
        0x80 | 0x81 | 0x83 => operation != 7,
        // xchg; rotations and shifts
        0x86 | 0x87 | 0xc0 | 0xc1 | 0xd0..=0xd3 => true,
        // not, neg
        0xf6 | 0xf7 => matches!(operation, 2 | 3),
        // inc, dec
        0xfe | 0xff => operation <= 1,
        _ => false,
    }
}

const fn modifies_two_bytes(opcode: u8, operation: u8) -> bool {
    match opcode {
        // shld, shrd; bts, btr, btc; cmpxchg; xadd
        0xa4 | 0xa5 | 0xac | 0xad | 0xab | 0xb3 | 0xbb | 0xb0 | 0xb1 | 0xc0 | 0xc1 => true,
        // bts, btr, btc of an immediate
        0xba => operation >= 5,
        // cmpxchg8b, cmpxchg16b
        0xc7 => operation == 1,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_modify_memory_are_known() {
        let modifying: [(&str, &[u8]); 12] = [
            ("add %rdi,(%r8,%rax,8)", &[0x49, 0x01, 0x3c, 0xc0]),
            ("xor %al,(%rdi)", &[0x30, 0x07]),
            ("addl $1,(%rax)", &[0x83, 0x00, 0x01]),
            ("lock xadd %eax,(%rdx)", &[0xf0, 0x0f, 0xc1, 0x02]),
            ("lock cmpxchg %rcx,(%rdx)", &[0xf0, 0x48, 0x0f, 0xb1, 0x0a]),
            ("xchg %rax,(%rbx)", &[0x48, 0x87, 0x03]),
            ("incl (%rax)", &[0xff, 0x00]),
            ("notq (%rax)", &[0x48, 0xf7, 0x10]),
            ("shll (%rax)", &[0xd1, 0x20]),
            ("bts $3,(%rax)", &[0x48, 0x0f, 0xba, 0x28, 0x03]),
            ("addw $1,%fs:0(%rax)", &[0x64, 0x66, 0x83, 0x40, 0x00, 0x01]),
            ("lock cmpxchg16b (%rsi)", &[0xf0, 0x48, 0x0f, 0xc7, 0x0e]),
        ];
        for (name, bytes) in modifying {
            assert!(modifies(bytes), "{name}");
        }
    }

    #[test]
    fn loads_stores_and_registers_are_left_alone() {
        let others: [(&str, &[u8]); 14] = [
            ("add %rdi,%rax", &[0x48, 0x01, 0xf8]),
            ("add (%rax),%rdi", &[0x48, 0x03, 0x38]),
            ("cmp %rdi,(%rax)", &[0x48, 0x39, 0x38]),
            ("cmpl $1,(%rax)", &[0x83, 0x38, 0x01]),
            ("mov %rdi,(%rax)", &[0x48, 0x89, 0x38]),
            ("mov (%rax),%rdi", &[0x48, 0x8b, 0x38]),
            ("testl $1,(%rax)", &[0xf7, 0x00, 1, 0, 0, 0]),
            ("push (%rax)", &[0xff, 0x30]),
            ("call *(%rax)", &[0xff, 0x10]),
            ("bt $3,(%rax)", &[0x48, 0x0f, 0xba, 0x20, 0x03]),
            ("movaps %xmm0,(%rax)", &[0x0f, 0x29, 0x00]),
            ("vmovdqu (%rax),%ymm0", &[0xc5, 0xfe, 0x6f, 0x00]),
            ("nop", &[0x90]),
            ("and $0x10,%al", &[0x24, 0x10]),
        ];
        for (name, bytes) in others {
            assert!(!modifies(bytes), "{name}");
        }
        assert!(!modifies(&[]) && !modifies(&[0xf0]) && !modifies(&[0x0f, 0xb1]));
    }
}
