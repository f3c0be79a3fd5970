//! A BPF instruction: its fields and opcodes (RFC 9669).

pub(super) const INSN_BYTES: usize = 8;
/// Registers: r0 is the result, r1 to r5 are arguments, r10 is the end of the stack.
pub(super) const NR_REGISTERS: usize = 11;
pub(super) const R10: u8 = 10;
pub(super) const STACK_BYTES: usize = 512;

pub(super) mod class {
    pub(in super::super) const LD: u8 = 0;
    pub(in super::super) const LDX: u8 = 1;
    pub(in super::super) const ST: u8 = 2;
    pub(in super::super) const STX: u8 = 3;
    pub(in super::super) const ALU: u8 = 4;
    pub(in super::super) const JMP: u8 = 5;
    pub(in super::super) const JMP32: u8 = 6;
    pub(in super::super) const ALU64: u8 = 7;
}

pub(super) mod alu {
    pub(in super::super) const ADD: u8 = 0x00;
    pub(in super::super) const SUB: u8 = 0x10;
    pub(in super::super) const MUL: u8 = 0x20;
    pub(in super::super) const DIV: u8 = 0x30;
    pub(in super::super) const OR: u8 = 0x40;
    pub(in super::super) const AND: u8 = 0x50;
    pub(in super::super) const LSH: u8 = 0x60;
    pub(in super::super) const RSH: u8 = 0x70;
    pub(in super::super) const NEG: u8 = 0x80;
    pub(in super::super) const MOD: u8 = 0x90;
    pub(in super::super) const XOR: u8 = 0xa0;
    pub(in super::super) const MOV: u8 = 0xb0;
    pub(in super::super) const ARSH: u8 = 0xc0;
    pub(in super::super) const END: u8 = 0xd0;
}

pub(super) mod jump {
    pub(in super::super) const JA: u8 = 0x00;
    pub(in super::super) const JEQ: u8 = 0x10;
    pub(in super::super) const JGT: u8 = 0x20;
    pub(in super::super) const JGE: u8 = 0x30;
    pub(in super::super) const JSET: u8 = 0x40;
    pub(in super::super) const JNE: u8 = 0x50;
    pub(in super::super) const JSGT: u8 = 0x60;
    pub(in super::super) const JSGE: u8 = 0x70;
    pub(in super::super) const CALL: u8 = 0x80;
    pub(in super::super) const EXIT: u8 = 0x90;
    pub(in super::super) const JLT: u8 = 0xa0;
    pub(in super::super) const JLE: u8 = 0xb0;
    pub(in super::super) const JSLT: u8 = 0xc0;
    pub(in super::super) const JSLE: u8 = 0xd0;
}

/// Loads a 64-bit number; two instructions long.
pub(super) const LDDW: u8 = 0x18;
/// Opcode of its second half.
pub(super) const FILLER: u8 = 0;
pub(super) const MODE_MEM: u8 = 0x60;
/// Arithmetic and jumps with a register as second operand.
pub(super) const IS_REGISTER: u8 = 0x08;

/// Kinds of an [`LDDW`]'s number, in its source register field.
pub(super) mod wide {
    pub(in super::super) const NUMBER: u8 = 0;
    pub(in super::super) const MAP: u8 = 1;
    /// An address in a data section: section in the upper half, offset in the lower.
    pub(in super::super) const DATA: u8 = 2;
    /// A function of the program, for a helper that calls it.
    pub(in super::super) const FUNCTION: u8 = 4;
}

/// Atomic operations: their mode, and what to do, in the immediate number.
pub(super) mod atomic {
    pub(in super::super) const MODE: u8 = 0xc0;
    pub(in super::super) const ADD: i64 = 0x00;
    pub(in super::super) const OR: i64 = 0x40;
    pub(in super::super) const AND: i64 = 0x50;
    pub(in super::super) const XOR: i64 = 0xa0;
    pub(in super::super) const XCHG: i64 = 0xe1;
    pub(in super::super) const CMPXCHG: i64 = 0xf1;
    /// The old value goes to the source register.
    pub(in super::super) const FETCH: i64 = 0x01;
}

pub(super) mod helper {
    pub(in super::super) const MAP_LOOKUP: i64 = 1;
    pub(in super::super) const MAP_UPDATE: i64 = 2;
    pub(in super::super) const MAP_DELETE: i64 = 3;
    pub(in super::super) const RING_RESERVE: i64 = 131;
    pub(in super::super) const LOOP: i64 = 181;
    pub(in super::super) const CGROUP_STORAGE: i64 = 210;
    /// Specific to folio: sets the window to read.
    pub(in super::super) const WINDOW: i64 = 4096;
    // Kernel functions have no numbers in an object file; these are folio's own.
    pub(in super::super) const LIST_NEW: i64 = 4097;
    pub(in super::super) const LIST_ADD: i64 = 4098;
    pub(in super::super) const LIST_ADD_TAIL: i64 = 4099;
    pub(in super::super) const LIST_MOVE: i64 = 4100;
    pub(in super::super) const LIST_DEL: i64 = 4101;
    pub(in super::super) const LIST_ITERATE: i64 = 4102;
    pub(in super::super) const LIST_ITERATE_EXTENDED: i64 = 4103;
    pub(in super::super) const LIST_SAMPLE: i64 = 4104;
    pub(in super::super) const GET_MEM_CGROUP: i64 = 4105;
    pub(in super::super) const PUT_MEM_CGROUP: i64 = 4106;
    pub(in super::super) const FLUSH_CGROUP: i64 = 4107;
    pub(in super::super) const FLUSH_MEM_CGROUP: i64 = 4108;
    pub(in super::super) const CGROUP_STALL: i64 = 4109;
    pub(in super::super) const PAGE_STATE: i64 = 4110;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Insn {
    pub(super) code: u8,
    pub(super) dst: u8,
    pub(super) src: u8,
    pub(super) off: i16,
    /// Sign-extended; all 64 bits of an [`LDDW`].
    pub(super) imm: i64,
}

impl Insn {
    pub(super) fn decode(bytes: [u8; INSN_BYTES]) -> Self {
        let [code, registers, off_low, off_high, imm @ ..] = bytes;
        Self {
            code,
            dst: registers & 0xf,
            src: registers >> 4,
            off: i16::from_le_bytes([off_low, off_high]),
            imm: i32::from_le_bytes(imm).into(),
        }
    }

    pub(super) const fn class(self) -> u8 {
        self.code & 7
    }

    pub(super) const fn op(self) -> u8 {
        self.code & 0xf0
    }

    pub(super) const fn is_register(self) -> bool {
        self.code & IS_REGISTER != 0
    }

    /// Returns whether a load or store is plain: neither atomic nor sign-extending.
    pub(super) const fn is_plain_access(self) -> bool {
        self.code & 0xe0 == MODE_MEM
    }

    pub(super) const fn is_atomic(self) -> bool {
        self.class() == class::STX && self.code & 0xe0 == atomic::MODE
    }

    pub(super) const fn access_bytes(self) -> usize {
        match self.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }

    /// Returns the target of a jump at `at`; `None` if it is before the first instruction.
    pub(super) fn target(self, at: usize) -> Option<usize> {
        (at + 1).checked_add_signed(self.off.into())
    }
}
