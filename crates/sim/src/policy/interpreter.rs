//! Runs a verified program.
//!
//! ```text
//!   address:  | region | offset |      1 context   2 stack   3.. data sections   then maps
//! ```
//!
//! An address is a region and an offset, not a pointer into this process. So a program sees the
//! same numbers in every run. The interpreter repeats every access check that the verifier makes.
//!
//! Owns the registers, the stack and the meaning of each instruction. [`super::verify`] decides
//! which programs may run.
//!
//! Invariants:
//! - I1: no instruction runs twice, so a run executes at most as many instructions as the program
//!   has.
//! - I2: the cost of a run is the number of instructions that it executes.

use largefolio_mm::policy::Window;

use super::insn::{
    FILLER, INSN_BYTES, Insn, LDDW, NR_REGISTERS, R10, STACK_BYTES, alu, class, helper, jump, wide,
};
use super::maps::Map;
use super::object::{Parsed, Section};

/// Memory regions, in the upper half of an address.
const CONTEXT: u64 = 1;
const STACK: u64 = 2;
const DATA_FIRST: u64 = 3;
const MAP_FIRST: u64 = 1 << 24;
/// Cost of a map helper, in instructions of 4 to 6 ns: 0.1 us for a small map, up to 0.7 us for a
/// large one.
const INSNS_OF_HELPER: u64 = 64;
/// Bytes of keys and values that cost one more instruction.
const BYTES_OF_INSN: usize = 8;
const REGION_SHIFT: u32 = 32;

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) data: Vec<Section>,
    pub(super) maps: Vec<Map>,
}

impl State {
    pub(super) fn new(parsed: &Parsed) -> Self {
        let data = parsed.data.iter().map(Section::fresh).collect();
        Self { data, maps: parsed.maps.iter().map(Map::new).collect() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) value: u64,
    pub(super) window: Option<Window>,
    /// Executed instructions, including the helpers' cost.
    pub(super) nr_insns: u64,
}

/// An error that the verifier should have caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trap {
    pub(super) at: usize,
    pub(super) what: &'static str,
}

struct PolicyRun<'a> {
    state: &'a mut State,
    context: &'a [u8],
    stack: [u8; STACK_BYTES],
    registers: [u64; NR_REGISTERS],
    window: Option<Window>,
    nr_helped: u64,
}

pub(super) fn run(code: &[Insn], context: &[u8], state: &mut State) -> Result<Ran, Trap> {
    let mut registers = [0; NR_REGISTERS];
    registers[1] = CONTEXT << REGION_SHIFT;
    registers[R10 as usize] = (STACK << REGION_SHIFT) + STACK_BYTES as u64;
    let stack = [0; STACK_BYTES];
    let mut run = PolicyRun { state, context, stack, registers, window: None, nr_helped: 0 };
    let mut at = 0;
    for nr_left in (0..code.len()).rev() {
        let Some(insn) = code.get(at) else { break };
        let trap = |what| Trap { at, what };
        match insn.class() {
            class::ALU64 => run.compute(*insn, true),
            class::ALU => run.compute(*insn, false),
            class::JMP if insn.op() == jump::EXIT => {
                let nr_insns = (code.len() - nr_left) as u64 + run.nr_helped;
                return Ok(Ran { value: run.registers[0], window: run.window, nr_insns });
            }
            class::JMP if insn.op() == jump::CALL => run.call(insn.imm).map_err(trap)?,
            class::JMP | class::JMP32 if run.jumps(*insn) => {
                at = insn.target(at).ok_or(trap("a foreign jump"))?;
                continue;
            }
            class::JMP | class::JMP32 => {}
            class::LDX => {
                let addr = run.address(insn.src, insn.off);
                let value = run.load(addr, insn.access_bytes()).ok_or(trap("a foreign load"))?;
                run.registers[insn.dst as usize] = value;
            }
            class::ST | class::STX => {
                let addr = run.address(insn.dst, insn.off);
                let is_register = insn.class() == class::STX;
                let value =
                    if is_register { run.registers[insn.src as usize] } else { insn.imm as u64 };
                let bytes = value.to_le_bytes();
                let to = run.bytes_mut(addr, insn.access_bytes()).ok_or(trap("a foreign store"))?;
                to.copy_from_slice(&bytes[..to.len()]);
            }
            _ if insn.code == LDDW => {
                run.registers[insn.dst as usize] = wide_value(*insn);
                at += 1;
            }
            _ => return Err(trap("an unknown instruction")),
        }
        at += 1;
    }
    Err(Trap { at, what: "no exit" })
}

const fn wide_value(insn: Insn) -> u64 {
    let number = insn.imm as u64;
    match insn.src {
        wide::MAP => (MAP_FIRST + number) << REGION_SHIFT,
        wide::DATA => number + (DATA_FIRST << REGION_SHIFT),
        _ => number,
    }
}

impl PolicyRun<'_> {
    fn address(&self, register: u8, off: i16) -> u64 {
        self.registers[register as usize].wrapping_add_signed(off.into())
    }

    fn bytes(&self, addr: u64, nr: usize) -> Option<&[u8]> {
        let (region, offset) = (addr >> REGION_SHIFT, addr as u32 as usize);
        let all = match region {
            CONTEXT => self.context,
            STACK => &self.stack,
            _ => {
                let nr = usize::try_from(region.checked_sub(DATA_FIRST)?).ok()?;
                match nr.checked_sub(self.state.data.len()) {
                    None => &self.state.data[nr].bytes,
                    Some(map) => self.state.maps.get(map)?.values(),
                }
            }
        };
        all.get(offset..)?.get(..nr)
    }

    fn bytes_mut(&mut self, addr: u64, nr: usize) -> Option<&mut [u8]> {
        let (region, offset) = (addr >> REGION_SHIFT, addr as u32 as usize);
        let all = if region == STACK {
            &mut self.stack[..]
        } else {
            let nr = usize::try_from(region.checked_sub(DATA_FIRST)?).ok()?;
            match nr.checked_sub(self.state.data.len()) {
                None => {
                    let section = &mut self.state.data[nr];
                    section.is_writable.then_some(&mut section.bytes[..])?
                }
                Some(map) => self.state.maps.get_mut(map)?.values_mut(),
            }
        };
        all.get_mut(offset..)?.get_mut(..nr)
    }

    fn load(&self, addr: u64, nr: usize) -> Option<u64> {
        let mut word = [0; INSN_BYTES];
        word[..nr].copy_from_slice(self.bytes(addr, nr)?);
        Some(u64::from_le_bytes(word))
    }

    fn operand(&self, insn: Insn) -> u64 {
        if insn.is_register() { self.registers[insn.src as usize] } else { insn.imm as u64 }
    }

    fn compute(&mut self, insn: Insn, is_wide: bool) {
        let (a, b) = (self.registers[insn.dst as usize], self.operand(insn));
        let value = if insn.op() == alu::END {
            swapped(insn, a, is_wide)
        } else if is_wide {
            computed(insn.op(), a, b)
        } else {
            computed32(insn.op(), a as u32, b as u32).into()
        };
        self.registers[insn.dst as usize] = value;
    }

    fn jumps(&self, insn: Insn) -> bool {
        let (a, b) = (self.registers[insn.dst as usize], self.operand(insn));
        holds(insn.op(), a, b, insn.class() == class::JMP32)
    }

    fn call(&mut self, nr: i64) -> Result<(), &'static str> {
        let [_, first, second, third, fourth, ..] = self.registers;
        let value = match nr {
            helper::WINDOW => {
                let (start, nr_pages, nr_ahead, order) = (first, second, third, fourth);
                self.window = Some(Window { start, nr_pages, nr_ahead, order });
                0
            }
            _ => self.call_map(nr, [first, second, third, fourth]).ok_or("a foreign argument")?,
        };
        self.registers[0] = value;
        Ok(())
    }

    fn call_map(&mut self, nr: i64, [map, key, value, flags]: [u64; 4]) -> Option<u64> {
        let number = usize::try_from((map >> REGION_SHIFT).checked_sub(MAP_FIRST)?).ok()?;
        let spec = self.state.maps.get(number)?.spec();
        let (key_bytes, value_bytes) = (spec.key_bytes, spec.value_bytes);
        let nr_bytes = key_bytes + if nr == helper::MAP_UPDATE { value_bytes } else { 0 };
        self.nr_helped += INSNS_OF_HELPER + (nr_bytes / BYTES_OF_INSN) as u64;
        let key = self.bytes(key, key_bytes)?;
        if nr == helper::MAP_LOOKUP {
            let region = DATA_FIRST + (self.state.data.len() + number) as u64;
            let offset_of_value = self.state.maps[number].lookup(key);
            return Some(
                offset_of_value.map_or(0, |offset| (region << REGION_SHIFT) + offset as u64),
            );
        }
        let key = key.to_vec();
        let status = match nr {
            helper::MAP_DELETE => self.state.maps[number].delete(&key),
            helper::MAP_UPDATE => {
                let value = self.bytes(value, value_bytes)?.to_vec();
                self.state.maps[number].update(&key, &value, flags)
            }
            _ => return None,
        };
        Some(status as u64)
    }
}

/// Evaluates a comparison of 64 bits, or of the lower 32.
#[inline]
pub(super) const fn holds(op: u8, mut a: u64, mut b: u64, is_half: bool) -> bool {
    if is_half {
        // Sign-extend both, so that signed and unsigned comparisons work on 32 bits.
        (a, b) = (a as i32 as u64, b as i32 as u64);
    }
    match op {
        jump::JA => true,
        jump::JEQ => a == b,
        jump::JNE => a != b,
        jump::JGT => a > b,
        jump::JGE => a >= b,
        jump::JLT => a < b,
        jump::JLE => a <= b,
        jump::JSET => a & b != 0,
        jump::JSGT => a as i64 > b as i64,
        jump::JSGE => a as i64 >= b as i64,
        jump::JSLT => (a as i64) < b as i64,
        jump::JSLE => a as i64 <= b as i64,
        _ => false,
    }
}

/// Computes on 64 bits. `x / 0` is 0, and `x % 0` is x.
pub(super) fn computed(op: u8, a: u64, b: u64) -> u64 {
    match op {
        alu::ADD => a.wrapping_add(b),
        alu::SUB => a.wrapping_sub(b),
        alu::MUL => a.wrapping_mul(b),
        alu::DIV => a.checked_div(b).unwrap_or(0),
        alu::OR => a | b,
        alu::AND => a & b,
        alu::LSH => a.wrapping_shl(b as u32),
        alu::RSH => a.wrapping_shr(b as u32),
        alu::NEG => a.wrapping_neg(),
        alu::MOD => a.checked_rem(b).unwrap_or(a),
        alu::XOR => a ^ b,
        alu::MOV => b,
        _ => (a as i64).wrapping_shr(b as u32) as u64,
    }
}

pub(super) fn computed32(op: u8, a: u32, b: u32) -> u32 {
    match op {
        alu::DIV => a.checked_div(b).unwrap_or(0),
        alu::MOD => a.checked_rem(b).unwrap_or(a),
        alu::LSH => a.wrapping_shl(b),
        alu::RSH => a.wrapping_shr(b),
        alu::ARSH => (a as i32).wrapping_shr(b) as u32,
        _ => computed(op, a.into(), b.into()) as u32,
    }
}

/// Converts the lowest `imm` bits to the requested byte order, or always swaps them.
fn swapped(insn: Insn, a: u64, is_swap: bool) -> u64 {
    let is_big = is_swap || insn.is_register();
    match (insn.imm, is_big) {
        (16, true) => (a as u16).swap_bytes().into(),
        (32, true) => (a as u32).swap_bytes().into(),
        (16, false) => (a as u16).into(),
        (32, false) => (a as u32).into(),
        (_, true) => a.swap_bytes(),
        (_, false) => a,
    }
}

/// The second half of an [`LDDW`] is never executed.
const _: () = assert!(FILLER == class::LD && LDDW & 7 == class::LD);
