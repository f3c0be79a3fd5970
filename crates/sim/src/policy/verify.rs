//! Decides which programs may run. Checks each instruction once, with the known state of every
//! register and every stack byte.
//!
//! ```text
//!   at 0: r1 = context, r10 = stack       state at N --insn--> state at N + 1, at the jump's target
//!                                         at a join: the facts true on all paths
//! ```
//!
//! There are no loops. So `order` can sort the instructions so that every predecessor comes first,
//! and each is checked once. A run executes at most as many instructions as the program has.
//!
//! Owns refusals and their reasons. `value` tracks values, `frame` tracks the stack.
//!
//! Invariants:
//! - I1: an accepted program reads only memory that it wrote or was given, writes only its own
//!   memory, and returns a number that depends on no address.

mod frame;
mod number;
mod order;
mod value;

use largefolio_mm::policy::{NR_CONTEXT_WORDS, Point};

use super::insn::{FILLER, Insn, LDDW, NR_REGISTERS, R10, alu, class, helper, jump, wide};
use super::maps::MapSpec;
use super::object::Parsed;
use frame::Frame;
use number::{Number, Range, Width, mirrored};
use value::{MIXED, Value};

const CONTEXT_BYTES: usize = 8 * NR_CONTEXT_WORDS;
const NR_ARGUMENTS: u8 = 5;
/// Bytes of keys and values that the helpers of one run may handle: at most 0.3 ms (measured) with
/// as many helper calls as fit in a program. A cell's budget limits the number of runs.
const HANDLED_BYTES_MAX: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) what: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    registers: [Value; NR_REGISTERS],
    frame: Frame,
}

impl Known {
    fn at_start() -> Self {
        let mut registers = [Value::Unset; NR_REGISTERS];
        registers[1] = Value::Context { offset: Range::exact(0) };
        registers[R10 as usize] = Value::Stack { offset: 0 };
        Self { registers, frame: Frame::default() }
    }

    /// Keeps the facts that are true on both paths.
    fn meet(&mut self, other: &Self, fresh: &mut usize) {
        for (one, other) in self.registers.iter_mut().zip(&other.registers) {
            *one = one.meet(*other, fresh);
        }
        self.frame.meet(&other.frame, fresh);
    }

    /// Sets every copy of the pointer from lookup `id` to the test's result.
    fn settle(&mut self, id: usize, settled: Value) {
        let settle = |value: &mut Value| {
            if matches!(*value, Value::MaybeEntry { id: other, .. } if other == id) {
                *value = settled;
            }
        };
        self.registers.iter_mut().for_each(settle);
        self.frame.values_mut().for_each(settle);
    }
}

type Checked<T> = Result<T, String>;

pub(super) fn check(code: &[Insn], parsed: &Parsed, point: Point) -> Result<(), Fault> {
    let fresh = code.len();
    let mut verifier =
        Verifier { code, parsed, point, known: vec![None; code.len()], fresh, handled_bytes: 0 };
    verifier.known[0] = Some(Known::at_start());
    for at in order::order(code)? {
        if let Some(known) = verifier.known[at].take() {
            verifier.step(at, known).map_err(|what| Fault { at, what })?;
        }
    }
    Ok(())
}

struct Verifier<'a> {
    code: &'a [Insn],
    parsed: &'a Parsed,
    point: Point,
    known: Vec<Option<Known>>,
    /// The last lookup id; the first ids are instruction numbers.
    fresh: usize,
    handled_bytes: usize,
}

impl Verifier<'_> {
    fn step(&mut self, at: usize, mut known: Known) -> Checked<()> {
        let insn = self.code[at];
        if usize::from(insn.dst) >= NR_REGISTERS || usize::from(insn.src) >= NR_REGISTERS {
            return Err("only registers r0 to r10 exist".to_owned());
        }
        if insn.class() == class::JMP && insn.op() == jump::CALL && insn.is_register() {
            let what = "it calls an address, as unoptimized code does; compile with -O2";
            return Err(what.to_owned());
        }
        if has_unknown_parts(insn) {
            return Err(format!("code {:#04x} has unknown parts", insn.code));
        }
        match insn.class() {
            class::ALU | class::ALU64 => compute(insn, &mut known)?,
            class::LDX => self.load(insn, &mut known)?,
            class::ST | class::STX => self.store(insn, &mut known)?,
            class::LD if insn.code == LDDW => {
                known.registers[insn.dst as usize] = wide_value(insn)?;
                check_written(insn.dst)?;
                return self.lead(at + 2, known);
            }
            class::JMP if insn.op() == jump::EXIT => return exit(&known),
            class::JMP if insn.op() == jump::CALL => self.call(at, insn, &mut known)?,
            class::JMP | class::JMP32 => return self.jump(at, insn, known),
            _ => return Err(format!("code {:#04x} is not known", insn.code)),
        }
        self.lead(at + 1, known)
    }

    fn lead(&mut self, to: usize, known: Known) -> Checked<()> {
        let inside = self.code.get(to).is_some_and(|insn| insn.code != FILLER);
        if !inside {
            return Err("a path leads past the end, or into a 64-bit number".to_owned());
        }
        match &mut self.known[to] {
            Some(before) => before.meet(&known, &mut self.fresh),
            none => *none = Some(known),
        }
        Ok(())
    }

    fn load(&self, insn: Insn, known: &mut Known) -> Checked<()> {
        if !insn.is_plain_access() {
            return Err("sign-extending loads are not supported; compile with -mcpu=v3".to_owned());
        }
        check_written(insn.dst)?;
        let (nr, from) = (insn.access_bytes(), known.registers[insn.src as usize]);
        let value = match self.place(from, insn.off, nr, false)? {
            StackPlace::Frame(offset) => known.frame.load(offset, nr)?,
            StackPlace::Elsewhere => Value::Number(Number::of_bytes(nr)),
        };
        known.registers[insn.dst as usize] = value;
        Ok(())
    }

    fn store(&self, insn: Insn, known: &mut Known) -> Checked<()> {
        if !insn.is_plain_access() {
            return Err(
                "atomic operations are not supported, and nothing runs concurrently with a \
                 policy: write n += 1"
                    .to_owned(),
            );
        }
        let value = if insn.class() == class::STX {
            known.registers[insn.src as usize]
        } else {
            Value::Number(Number::exact(insn.imm as u64))
        };
        match value {
            Value::Unset => return Err(format!("r{} may be unset", insn.src)),
            Value::Mixed => return Err(MIXED.to_owned()),
            _ => {}
        }
        let (nr, to) = (insn.access_bytes(), known.registers[insn.dst as usize]);
        match self.place(to, insn.off, nr, true)? {
            StackPlace::Frame(offset) => known.frame.store(offset, nr, value),
            StackPlace::Elsewhere if value.is_number() => Ok(()),
            StackPlace::Elsewhere => Err("it stores an address in a map or variable".to_owned()),
        }
    }

    /// Checks an access of `nr` bytes at a pointer.
    fn place(&self, pointer: Value, off: i16, nr: usize, writes: bool) -> Checked<StackPlace> {
        let off = i64::from(off);
        match pointer {
            Value::Context { .. } if writes => Err("the context cannot be modified".to_owned()),
            Value::Context { offset } => inside(offset, off, nr, CONTEXT_BYTES, "the context"),
            Value::Stack { offset } => {
                Frame::at(offset.saturating_add(off), nr).map(StackPlace::Frame)
            }
            Value::Entry { map, offset } => {
                let size = self.map(map)?.value_bytes;
                inside(offset, off, nr, size, "the value of its map")
            }
            Value::Data { section, offset } => {
                let section = self.parsed.data.get(section).ok_or("no such variable")?;
                if writes && !section.is_writable {
                    return Err("a constant cannot be modified".to_owned());
                }
                inside(offset, off, nr, section.bytes.len(), "its variables")
            }
            Value::MaybeEntry { .. } => {
                Err("the result of bpf_map_lookup_elem must first be compared with 0".to_owned())
            }
            Value::Map { .. } => Err("a map can be accessed only by helpers".to_owned()),
            Value::Number(_) => Err("a number is not an address".to_owned()),
            Value::Mixed => Err(MIXED.to_owned()),
            Value::Unset => Err("the address may be unset".to_owned()),
        }
    }

    fn map(&self, nr: usize) -> Checked<&MapSpec> {
        self.parsed.maps.get(nr).ok_or_else(|| "no such map".to_owned())
    }

    fn call(&mut self, at: usize, insn: Insn, known: &mut Known) -> Checked<()> {
        if insn.src != 0 {
            let what = "function calls are not supported; make the functions static \
                        __always_inline";
            return Err(what.to_owned());
        }
        let result = match insn.imm {
            helper::WINDOW if self.point == Point::Window => {
                (1..=4).try_for_each(|nr| number_in(known, nr))?;
                Value::Number(Number::ANY)
            }
            helper::WINDOW => {
                return Err("folio_window() is available only in folio/window".to_owned());
            }
            helper::MAP_LOOKUP | helper::MAP_UPDATE | helper::MAP_DELETE => {
                let Value::Map { nr } = known.registers[1] else {
                    let is_mixed = known.registers[1] == Value::Mixed;
                    let what = if is_mixed { MIXED } else { "the first argument is not a map" };
                    return Err(what.to_owned());
                };
                let &MapSpec { key_bytes, value_bytes, .. } = self.map(nr)?;
                self.memory(known, 2, key_bytes)?;
                self.handle(key_bytes)?;
                if insn.imm == helper::MAP_UPDATE {
                    self.memory(known, 3, value_bytes)?;
                    number_in(known, 4)?;
                    self.handle(value_bytes)?;
                }
                if insn.imm == helper::MAP_LOOKUP {
                    Value::MaybeEntry { map: nr, id: at }
                } else {
                    Value::Number(Number::ANY)
                }
            }
            nr => {
                return Err(format!(
                    "helper {nr} is not supported; a policy has maps and folio_window(), but no \
                     clock and no random numbers, so results are reproducible"
                ));
            }
        };
        for register in 1..=NR_ARGUMENTS {
            known.registers[register as usize] = Value::Unset;
        }
        known.registers[0] = result;
        Ok(())
    }

    fn handle(&mut self, nr: usize) -> Checked<()> {
        self.handled_bytes += nr;
        if self.handled_bytes > HANDLED_BYTES_MAX {
            let kib = HANDLED_BYTES_MAX >> 10;
            return Err(format!("the keys and values for its helpers take more than {kib} KiB"));
        }
        Ok(())
    }

    /// Checks that an argument points to `nr` readable bytes.
    fn memory(&self, known: &Known, argument: u8, nr: usize) -> Checked<()> {
        let pointer = known.registers[argument as usize];
        match self.place(pointer, 0, nr, false).map_err(|what| format!("r{argument}: {what}"))? {
            StackPlace::Frame(offset) => known.frame.check_numbers(offset, nr),
            StackPlace::Elsewhere => Ok(()),
        }
    }

    fn jump(&mut self, at: usize, insn: Insn, known: Known) -> Checked<()> {
        let to = insn.target(at).ok_or("it jumps before the first instruction")?;
        if insn.op() == jump::JA {
            if insn.class() == class::JMP32 {
                return Err("long jumps are not supported; compile with -mcpu=v3".to_owned());
            }
            return self.lead(to, known);
        }
        if insn.op() > jump::JSLE || matches!(insn.op(), jump::CALL | jump::EXIT) {
            return Err(format!("jump {:#04x} is not known", insn.code));
        }
        let left = known.registers[insn.dst as usize];
        let right = if insn.is_register() {
            known.registers[insn.src as usize]
        } else {
            Value::Number(Number::exact(insn.imm as u64))
        };
        let (mut taken, mut passed) = (known.clone(), known);
        match (left, right) {
            (Value::Number(a), Value::Number(b)) => {
                let is_half = insn.class() == class::JMP32;
                let width = if is_half { Width::Half } else { Width::Whole };
                let (op, other) = (insn.op(), mirrored(insn.op()));
                let (dst, src) = (insn.dst as usize, insn.src as usize);
                taken.registers[dst] = Value::Number(a.if_true(op, b, width));
                passed.registers[dst] = Value::Number(a.if_false(op, b, width));
                if insn.is_register() && src != dst {
                    taken.registers[src] = Value::Number(b.if_true(other, a, width));
                    passed.registers[src] = Value::Number(b.if_false(other, a, width));
                }
            }
            (Value::MaybeEntry { map, id }, Value::Number(zero)) if is_test(insn, zero) => {
                let entry = Value::Entry { map, offset: Range::exact(0) };
                let none = Value::Number(Number::exact(0));
                let is_equal = insn.op() == jump::JEQ;
                taken.settle(id, if is_equal { none } else { entry });
                passed.settle(id, if is_equal { entry } else { none });
            }
            // A pointer inside its object is not 0, so the comparison reveals nothing. Beyond the
            // object it may have wrapped around, and the result would reveal its address.
            (
                Value::Context { .. } | Value::Entry { .. } | Value::Data { .. },
                Value::Number(zero),
            ) if is_test(insn, zero) => {
                self.place(left, 0, 0, false)?;
            }
            (Value::Unset, _) | (_, Value::Unset) => {
                return Err("it compares a value that may be unset".to_owned());
            }
            (Value::Mixed, _) | (_, Value::Mixed) => return Err(MIXED.to_owned()),
            _ => return Err("it compares an address".to_owned()),
        }
        self.lead(to, taken)?;
        self.lead(at + 1, passed)
    }
}

/// Returns whether an unused field is set. It would have an unsupported meaning, such as a call
/// through a register.
const fn has_unknown_parts(insn: Insn) -> bool {
    let Insn { code, dst, src, off, imm } = insn;
    let two = if insn.is_register() { imm == 0 } else { src == 0 };
    let is_plain = match (insn.class(), insn.op()) {
        (class::ALU | class::ALU64, alu::END) | (class::ST, _) => src == 0,
        (class::ALU | class::ALU64, alu::NEG) => !insn.is_register() && src == 0 && imm == 0,
        (class::JMP, jump::CALL) => !insn.is_register() && dst == 0 && off == 0,
        (class::JMP, jump::EXIT) => {
            !insn.is_register() && dst == 0 && src == 0 && off == 0 && imm == 0
        }
        (class::JMP, jump::JA) => !insn.is_register() && dst == 0 && src == 0 && imm == 0,
        (class::ALU | class::ALU64 | class::JMP | class::JMP32, _) => two,
        // Atomic operations have their own error.
        (class::LDX | class::STX, _) => imm == 0 || !insn.is_plain_access(),
        _ => code != LDDW || off == 0,
    };
    !is_plain
}

fn wide_value(insn: Insn) -> Checked<Value> {
    let number = insn.imm as u64;
    match insn.src {
        wide::NUMBER => Ok(Value::Number(Number::exact(number))),
        wide::MAP => Ok(Value::Map { nr: insn.imm as usize }),
        wide::DATA => {
            let (section, offset) = ((number >> 32) as usize, number & u64::from(u32::MAX));
            Ok(Value::Data { section, offset: Range::exact(offset) })
        }
        _ => Err("an unknown kind of 64-bit number".to_owned()),
    }
}

enum StackPlace {
    /// Offset in the stack, from its lowest byte.
    Frame(usize),
    Elsewhere,
}

fn is_test(insn: Insn, zero: Number) -> bool {
    let is_equality = matches!(insn.op(), jump::JEQ | jump::JNE);
    is_equality && insn.class() == class::JMP && zero == Number::exact(0)
}

fn inside(range: Range, off: i64, nr: usize, size: usize, of: &str) -> Checked<StackPlace> {
    let outside = || {
        let Range { min, max } = range;
        let bound = if min == max {
            ""
        } else {
            "; compare the index with the size first, as an unsigned number"
        };
        format!("bytes {min} to {max} from {off} are not all in {of}{bound}")
    };
    let low = range.min.checked_add_signed(off).ok_or_else(outside)?;
    let high = range.max.checked_add_signed(off).and_then(|high| high.checked_add(nr as u64));
    let high = high.ok_or_else(outside)?;
    if low <= high && high <= size as u64 { Ok(StackPlace::Elsewhere) } else { Err(outside()) }
}

fn exit(known: &Known) -> Checked<()> {
    match known.registers[0] {
        Value::Number(_) => Ok(()),
        Value::Unset => Err("a path returns without an answer".to_owned()),
        Value::Mixed => Err(MIXED.to_owned()),
        _ => Err("it returns an address".to_owned()),
    }
}

fn check_written(register: u8) -> Checked<()> {
    if register == R10 {
        return Err("r10 cannot be written".to_owned());
    }
    Ok(())
}

fn number_in(known: &Known, register: u8) -> Checked<()> {
    let value = known.registers[register as usize];
    if value.is_number() {
        return Ok(());
    }
    Err(format!("r{register} is not a number"))
}

fn compute(insn: Insn, known: &mut Known) -> Checked<()> {
    check_written(insn.dst)?;
    let is_wide = insn.class() == class::ALU64;
    let op = insn.op();
    if op > alu::END {
        return Err(format!("code {:#04x} is not known", insn.code));
    }
    if insn.off != 0 {
        return Err("signed divisions and moves are not supported; compile with \
                    -mcpu=v3"
            .to_owned());
    }
    if op == alu::END && !matches!(insn.imm, 16 | 32 | 64) {
        return Err("a byte swap has 16, 32 or 64 bits".to_owned());
    }
    let left = known.registers[insn.dst as usize];
    let right = match (op, insn.is_register()) {
        (alu::NEG | alu::END, _) => Value::Number(Number::exact(0)),
        (_, true) => known.registers[insn.src as usize],
        (_, false) => Value::Number(Number::exact(insn.imm as u64)),
    };
    if right == Value::Unset || op != alu::MOV && left == Value::Unset {
        return Err("it computes with a value that may be unset".to_owned());
    }
    known.registers[insn.dst as usize] = match (op, left, right) {
        (alu::MOV, _, value) if is_wide => value,
        (alu::MOV, _, Value::Number(number)) => Value::Number(number.low_half()),
        (alu::END, Value::Number(_), _) => Value::Number(match insn.imm {
            16 => Number::of_bytes(2),
            32 => Number::of_bytes(4),
            _ => Number::ANY,
        }),
        (_, Value::Number(a), Value::Number(b)) => {
            let width = if is_wide { Width::Whole } else { Width::Half };
            Value::Number(a.computed(op, b, width))
        }
        (alu::ADD, pointer, Value::Number(by)) if is_wide => pointer.moved(by.all)?,
        (alu::ADD, Value::Number(by), pointer) if is_wide => pointer.moved(by.all)?,
        (alu::SUB, pointer, Value::Number(by)) if is_wide => pointer.moved(by.all.negated()?)?,
        _ => return Err("it computes with an address".to_owned()),
    };
    Ok(())
}
