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
//! - I1: in one call of a function, no instruction runs twice, so a call executes at most as many
//!   instructions as the function has.
//! - I2: a run costs as many instructions as it executes, in all calls.
//! - I3: a run ends at [`NR_RUN_INSNS_MAX`], with an error.

mod helpers;

use largefolio_mm::policy::Window;

use super::cached::Cached;
use super::insn::{
    FILLER, INSN_BYTES, Insn, LDDW, NR_REGISTERS, R10, STACK_BYTES, alu, atomic, class, jump, wide,
};
use super::limits::NR_RUN_INSNS_MAX;
use super::maps::Map;
use super::object::{Function, Parsed, Section};
use super::things::{NR_WORDS, Place, Scene};

/// Memory regions, in the upper half of an address.
const CONTEXT: u64 = 1;
const STACK: u64 = 2;
const DATA_FIRST: u64 = 3;
/// The stack of a callback.
const INNER_STACK: u64 = (1 << 24) - 1;
const MAP_FIRST: u64 = 1 << 24;
const REGION_SHIFT: u32 = 32;
/// A program, and a callback of its helper.
const DEPTH_MAX: usize = 2;

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) data: Vec<Section>,
    pub(super) maps: Vec<Map>,
    pub(super) cached: Cached,
}

impl State {
    pub(super) fn new(parsed: &Parsed) -> Self {
        let data = parsed.data.iter().map(Section::fresh).collect();
        let maps = parsed.maps.iter().map(Map::new).collect();
        Self { data, maps, cached: Cached::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) value: u64,
    pub(super) window: Option<Window>,
    /// Executed instructions, including the helpers' cost.
    pub(super) nr_insns: u64,
}

/// An error that the verifier should have caught, or too much work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trap {
    pub(super) at: usize,
    pub(super) what: &'static str,
}

/// The input of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub(super) functions: &'a [Function],
    /// Bytes of the context, or the words of a hook's arguments.
    pub(super) input: &'a [u8],
    pub(super) context: &'a largefolio_mm::policy::Context,
}

struct PolicyRun<'a> {
    state: &'a mut State,
    question: Question<'a>,
    /// Of the program, and of a callback.
    stacks: [[u8; STACK_BYTES]; DEPTH_MAX],
    depth: usize,
    registers: [u64; NR_REGISTERS],
    window: Option<Window>,
    nr_left: u64,
}

const TOO_LONG: &str =
    "it ran more than 1048576 instructions for one decision; do less in its loops";

pub(super) fn run(code: &[Insn], question: Question<'_>, state: &mut State) -> Result<Ran, Trap> {
    let mut run = PolicyRun {
        state,
        question,
        stacks: [[0; STACK_BYTES]; DEPTH_MAX],
        depth: 0,
        registers: [0; NR_REGISTERS],
        window: None,
        nr_left: NR_RUN_INSNS_MAX,
    };
    run.registers[1] = CONTEXT << REGION_SHIFT;
    run.registers[R10 as usize] = (STACK << REGION_SHIFT) + STACK_BYTES as u64;
    let value = run.execute(code)?;
    let nr_insns = NR_RUN_INSNS_MAX - run.nr_left;
    Ok(Ran { value, window: run.window, nr_insns })
}

impl PolicyRun<'_> {
    /// Executes a function to its end, and returns r0.
    fn execute(&mut self, code: &[Insn]) -> Result<u64, Trap> {
        let mut at = 0;
        for _ in 0..code.len() {
            let Some(insn) = code.get(at) else { break };
            let trap = |what| Trap { at, what };
            self.spend(1).map_err(trap)?;
            match insn.class() {
                class::ALU64 => self.compute(*insn, true),
                class::ALU => self.compute(*insn, false),
                class::JMP if insn.op() == jump::EXIT => return Ok(self.registers[0]),
                class::JMP if insn.op() == jump::CALL => self.call(insn.imm).map_err(trap)?,
                class::JMP | class::JMP32 if self.jumps(*insn) => {
                    at = insn.target(at).ok_or(trap("a foreign jump"))?;
                    continue;
                }
                class::JMP | class::JMP32 => {}
                class::LDX => {
                    let addr = self.address(insn.src, insn.off);
                    let value = self.load(addr, insn.access_bytes());
                    self.registers[insn.dst as usize] = value.ok_or(trap("a foreign load"))?;
                }
                class::STX if insn.is_atomic() => {
                    self.atomic(*insn).ok_or(trap("a foreign store"))?;
                }
                class::ST | class::STX => {
                    let addr = self.address(insn.dst, insn.off);
                    let is_register = insn.class() == class::STX;
                    let source = self.registers[insn.src as usize];
                    let value = if is_register { source } else { insn.imm as u64 };
                    self.store(addr, insn.access_bytes(), value).ok_or(trap("a foreign store"))?;
                }
                _ if insn.code == LDDW => {
                    self.registers[insn.dst as usize] = wide_value(*insn);
                    at += 1;
                }
                _ => return Err(trap("an unknown instruction")),
            }
            at += 1;
        }
        Err(Trap { at, what: "no exit" })
    }

    fn spend(&mut self, nr_insns: u64) -> Result<(), &'static str> {
        self.nr_left = self.nr_left.checked_sub(nr_insns).ok_or(TOO_LONG)?;
        Ok(())
    }

    /// Calls a function of the program with two arguments; it has a stack and registers of its own.
    fn call_function(&mut self, nr: u64, arguments: [u64; 2]) -> Result<u64, &'static str> {
        let functions = self.question.functions;
        let function = usize::try_from(nr).ok().and_then(|nr| functions.get(nr));
        let function = function.ok_or("a foreign function")?;
        if self.depth + 1 >= DEPTH_MAX {
            return Err("a callback within a callback");
        }
        let kept = self.registers;
        self.depth += 1;
        self.registers = [0; NR_REGISTERS];
        [self.registers[1], self.registers[2]] = arguments;
        self.registers[R10 as usize] = (INNER_STACK << REGION_SHIFT) + STACK_BYTES as u64;
        let value = self.execute(&function.code).map_err(|trap| trap.what);
        self.depth -= 1;
        self.registers = kept;
        value
    }
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
            CONTEXT => self.question.input,
            STACK => &self.stacks[0],
            INNER_STACK => &self.stacks[1],
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
        let all = match region {
            STACK => &mut self.stacks[0][..],
            INNER_STACK => &mut self.stacks[1][..],
            _ => {
                let nr = usize::try_from(region.checked_sub(DATA_FIRST)?).ok()?;
                match nr.checked_sub(self.state.data.len()) {
                    None => {
                        let section = &mut self.state.data[nr];
                        section.is_writable.then_some(&mut section.bytes[..])?
                    }
                    Some(map) => self.state.maps.get_mut(map)?.values_mut(),
                }
            }
        };
        all.get_mut(offset..)?.get_mut(..nr)
    }

    fn load(&self, addr: u64, nr: usize) -> Option<u64> {
        if let Some(place) = Place::of(addr) {
            return self.load_thing(place, nr);
        }
        let mut word = [0; INSN_BYTES];
        word[..nr].copy_from_slice(self.bytes(addr, nr)?);
        Some(u64::from_le_bytes(word))
    }

    fn load_thing(&self, Place { kind, number, offset }: Place, nr: usize) -> Option<u64> {
        if offset + nr > kind.bytes() {
            return None;
        }
        let scene = Scene { context: self.question.context, cached: &self.state.cached };
        let mut bytes = [0; 8 * NR_WORDS];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(scene.words(kind, number)) {
            *to = word.to_le_bytes();
        }
        let mut word = [0; INSN_BYTES];
        word[..nr].copy_from_slice(&bytes[offset..][..nr]);
        Some(u64::from_le_bytes(word))
    }

    fn store(&mut self, addr: u64, nr: usize, value: u64) -> Option<()> {
        let to = self.bytes_mut(addr, nr)?;
        to.copy_from_slice(&value.to_le_bytes()[..nr]);
        Some(())
    }

    fn atomic(&mut self, insn: Insn) -> Option<()> {
        let (addr, nr) = (self.address(insn.dst, insn.off), insn.access_bytes());
        let old = self.load(addr, nr)?;
        let by = self.registers[insn.src as usize];
        let limit = if nr == 8 { u64::MAX } else { u64::from(u32::MAX) };
        let new = match insn.imm & !atomic::FETCH {
            _ if insn.imm == atomic::XCHG => by,
            _ if insn.imm == atomic::CMPXCHG => {
                let is_equal = self.registers[0] & limit == old;
                self.registers[0] = old;
                if is_equal { by } else { old }
            }
            atomic::ADD => old.wrapping_add(by),
            atomic::OR => old | by,
            atomic::AND => old & by,
            atomic::XOR => old ^ by,
            _ => return None,
        };
        self.store(addr, nr, new)?;
        if insn.imm & atomic::FETCH > 0 && insn.imm != atomic::CMPXCHG {
            self.registers[insn.src as usize] = old;
        }
        Some(())
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
