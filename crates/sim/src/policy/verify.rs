//! Decides which programs may run. Checks each instruction once, with the known state of every
//! register and every stack byte.
//!
//! ```text
//!   at 0: r1 = context, r10 = stack       state at N --insn--> state at N + 1, at the jump's target
//!                                         at a join: the facts true on all paths
//! ```
//!
//! Within a function, nothing loops. So `order` can sort the instructions so that every
//! predecessor comes first, and each is checked once. A function executes at most as many
//! instructions as it has. Helpers that call a function limit the number of calls
//! ([`super::interpreter`]); such a callback is checked at each call of the helper, with the
//! facts about the caller's stack.
//!
//! Owns refusals and their reasons. `value` tracks values, `frame` tracks the stack, `helpers` has
//! calls of helpers.
//!
//! Invariants:
//! - I1: an accepted program reads only memory that it wrote or was given, writes only its own
//!   memory, and returns a number that depends on no address.

mod frame;
mod helpers;
mod number;
mod order;
mod value;

use largefolio_mm::policy::{NR_CONTEXT_WORDS, Point};

use super::insn::{FILLER, Insn, LDDW, NR_REGISTERS, R10, alu, atomic, class, jump, wide};
use super::interpreter::holds;
use super::maps::MapSpec;
use super::object::Parsed;
use super::posted::{Argument, Entry};
use frame::{CallerFrame, Frame};
use number::{Number, Range, Width, mirrored};
use value::{MIXED, Value};

const WORD_BYTES: usize = 8;
/// The largest offset that an addition may make within a thing: more than any structure has.
const MEMBER_OFFSET_MAX: u64 = 64;
/// Instructions that are checked for one entry, callbacks included.
const NR_CHECKED_MAX: usize = 1 << 16;

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

/// The first argument of a function points to this.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input {
    /// A `struct folio_context`, of which a program may read so many words.
    Words(usize),
    /// One word per argument of a hook.
    Arguments(&'static [Argument]),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entrance {
    input: Input,
    has_window: bool,
    /// Whether its result has a meaning.
    has_answer: bool,
}

impl Entrance {
    /// The entrance of a program in the model.
    pub(super) fn of(entry: Entry) -> Self {
        match entry {
            Entry::Point(point) => Self::at(point, NR_CONTEXT_WORDS),
            Entry::Hook(hook) => {
                let input = Input::Arguments(hook.arguments());
                Self { input, has_window: false, has_answer: hook.has_answer() }
            }
        }
    }

    /// The entrance at a point with this many words of context.
    pub(super) fn at(point: Point, nr_words: usize) -> Self {
        let has_window = point == Point::Window;
        Self { input: Input::Words(nr_words), has_window, has_answer: true }
    }
}

pub(super) fn check(code: &[Insn], parsed: &Parsed, entrance: Entrance) -> Result<(), Fault> {
    let mut verifier = Verifier {
        code,
        parsed,
        entrance,
        known: vec![None; code.len()],
        fresh: code.len(),
        handled_bytes: 0,
        caller: None,
        nr_left: NR_CHECKED_MAX,
    };
    verifier.run(Known::at_start())
}

struct Verifier<'a> {
    code: &'a [Insn],
    parsed: &'a Parsed,
    entrance: Entrance,
    known: Vec<Option<Known>>,
    /// The last lookup id; the first ids are instruction numbers.
    fresh: usize,
    handled_bytes: usize,
    /// In a callback: the stack of the function that called the helper.
    caller: Option<CallerFrame>,
    nr_left: usize,
}

impl Verifier<'_> {
    fn run(&mut self, first: Known) -> Result<(), Fault> {
        self.known[0] = Some(first);
        for at in order::order(self.code)? {
            if let Some(known) = self.known[at].take() {
                self.nr_left = self.nr_left.checked_sub(1).ok_or_else(|| Fault {
                    at,
                    what: format!(
                        "more than {NR_CHECKED_MAX} instructions would have to be checked, because \
                         each call of a helper checks its callback again"
                    ),
                })?;
                self.step(at, known).map_err(|what| Fault { at, what })?;
            }
        }
        Ok(())
    }

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
            class::JMP if insn.op() == jump::EXIT && !self.entrance.has_answer => return Ok(()),
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
        let value = match self.place(from, insn.off, nr, Access::Load)? {
            StackPlace::Frame(offset) => known.frame.load(offset, nr)?,
            StackPlace::Caller(offset) => {
                self.caller.as_ref().ok_or("no caller")?.check(offset, nr)?;
                Value::Number(Number::of_bytes(nr))
            }
            StackPlace::Elsewhere => self.loaded(from, insn.off, nr),
        };
        known.registers[insn.dst as usize] = value;
        Ok(())
    }

    /// The value of a checked load: a pointer in a structure leads to a thing.
    fn loaded(&self, from: Value, off: i16, nr: usize) -> Value {
        let thing = match (from, self.entrance.input) {
            (Value::Thing { kind, offset }, _) if nr == WORD_BYTES => {
                let offset = usize::try_from(offset + i64::from(off));
                offset.ok().and_then(|offset| kind.pointer(offset))
            }
            (Value::Context { offset }, Input::Arguments(arguments)) if nr == WORD_BYTES => {
                let at = offset.exactly().and_then(|at| at.checked_add_signed(off.into()));
                let at = at.filter(|at| at % WORD_BYTES as u64 == 0).unwrap_or(u64::MAX);
                match arguments.get((at / WORD_BYTES as u64) as usize) {
                    Some(Argument::Thing(kind)) => Some(*kind),
                    Some(Argument::Number) | None => None,
                }
            }
            _ => None,
        };
        let number = Value::Number(Number::of_bytes(nr));
        thing.map_or(number, |kind| Value::Thing { kind, offset: 0 })
    }

    fn store(&mut self, insn: Insn, known: &mut Known) -> Checked<()> {
        if insn.is_atomic() {
            return self.atomic(insn, known);
        }
        if !insn.is_plain_access() {
            return Err(format!("code {:#04x} is not known", insn.code));
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
        match self.place(to, insn.off, nr, Access::Store)? {
            StackPlace::Frame(offset) => known.frame.store(offset, nr, value),
            StackPlace::Caller(offset) if value.is_number() => {
                self.caller.as_mut().ok_or("no caller")?.change(offset, nr)
            }
            StackPlace::Caller(_) => {
                Err("it stores an address in the stack of its caller".to_owned())
            }
            StackPlace::Elsewhere if value.is_number() => Ok(()),
            StackPlace::Elsewhere => Err("it stores an address in a map or variable".to_owned()),
        }
    }

    /// Nothing runs at the same time, so an atomic operation is a load and a store.
    fn atomic(&mut self, insn: Insn, known: &mut Known) -> Checked<()> {
        let nr = insn.access_bytes();
        let is_known = matches!(
            insn.imm & !atomic::FETCH,
            atomic::ADD | atomic::OR | atomic::AND | atomic::XOR
        ) || matches!(insn.imm, atomic::XCHG | atomic::CMPXCHG);
        if !is_known || nr < 4 {
            return Err(format!("atomic operation {:#x} is not known", insn.imm));
        }
        number_in(known, insn.src)?;
        let compares = insn.imm == atomic::CMPXCHG;
        if compares {
            number_in(known, 0)?;
        }
        let to = known.registers[insn.dst as usize];
        let unknown = Value::Number(Number::of_bytes(nr));
        match self.place(to, insn.off, nr, Access::Store)? {
            StackPlace::Frame(offset) => {
                known.frame.check_numbers(offset, nr)?;
                known.frame.store(offset, nr, unknown)?;
            }
            StackPlace::Caller(offset) => {
                self.caller.as_mut().ok_or("no caller")?.change(offset, nr)?;
            }
            StackPlace::Elsewhere => {}
        }
        if compares {
            known.registers[0] = unknown;
        } else if insn.imm & atomic::FETCH > 0 {
            check_written(insn.src)?;
            known.registers[insn.src as usize] = unknown;
        }
        Ok(())
    }

    /// Checks an access of `nr` bytes at a pointer.
    fn place(&self, pointer: Value, off: i16, nr: usize, access: Access) -> Checked<StackPlace> {
        let off = i64::from(off);
        let writes = access == Access::Store;
        match pointer {
            Value::Context { .. } if writes => Err("the context cannot be modified".to_owned()),
            Value::Context { offset } => {
                let nr_words = match self.entrance.input {
                    Input::Words(nr_words) => nr_words,
                    Input::Arguments(arguments) => arguments.len(),
                };
                inside(offset, off, nr, WORD_BYTES * nr_words, "the context")
            }
            Value::Stack { offset } => {
                Frame::at(offset.saturating_add(off), nr).map(StackPlace::Frame)
            }
            Value::Caller { offset } => {
                Frame::at(offset.saturating_add(off), nr).map(StackPlace::Caller)
            }
            Value::Thing { kind, .. } if writes => {
                Err(format!("struct {} cannot be modified", kind.name()))
            }
            Value::Thing { kind, offset } => {
                let offset = Range::exact(offset as u64);
                inside(offset, off, nr, kind.bytes(), kind.name())
            }
            Value::Function { .. } => Err("a function is not data".to_owned()),
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
                if let (Some(a), Some(b)) = (a.exactly(width), b.exactly(width)) {
                    // One branch is never taken.
                    let is_taken = holds(insn.op(), a, b, is_half);
                    return self.lead(if is_taken { to } else { at + 1 }, passed);
                }
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
                self.place(left, 0, 0, Access::Load)?;
            }
            (Value::Unset, _) | (_, Value::Unset) => {
                return Err("it compares a value that may be unset".to_owned());
            }
            // Addresses of things are numbers, and a comparison tells nothing about them.
            (one, other) if one.is_number() && other.is_number() => {}
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
        wide::FUNCTION => Ok(Value::Function { nr: insn.imm as usize }),
        _ => Err("an unknown kind of 64-bit number".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Load,
    Store,
}

enum StackPlace {
    /// Offset in the stack, from its lowest byte.
    Frame(usize),
    /// Offset in the caller's stack.
    Caller(usize),
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
        Value::Number(_) | Value::Thing { .. } => Ok(()),
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
        (alu::MOV, _, value) if value.is_number() => {
            Value::Number(value.number().unwrap_or(Number::ANY).low_half())
        }
        (alu::END, Value::Number(_) | Value::Thing { .. }, _) => Value::Number(match insn.imm {
            16 => Number::of_bytes(2),
            32 => Number::of_bytes(4),
            _ => Number::ANY,
        }),
        (_, Value::Number(a), Value::Number(b)) => {
            let width = if is_wide { Width::Whole } else { Width::Half };
            Value::Number(a.computed(op, b, width))
        }
        (alu::ADD, Value::Thing { kind, offset }, Value::Number(by))
            if is_wide && by.exactly(Width::Whole).is_some_and(|by| by <= MEMBER_OFFSET_MAX) =>
        {
            let by = by.exactly(Width::Whole).unwrap_or(0) as i64;
            Value::Thing { kind, offset: offset.saturating_add(by) }
        }
        (_, one, other)
            if (matches!(one, Value::Thing { .. }) || matches!(other, Value::Thing { .. }))
                && one.is_number()
                && other.is_number() =>
        {
            Value::Number(if is_wide { Number::ANY } else { Number::ANY.low_half() })
        }
        (alu::ADD, pointer, Value::Number(by)) if is_wide => pointer.moved(by.all)?,
        (alu::ADD, Value::Number(by), pointer) if is_wide => pointer.moved(by.all)?,
        (alu::SUB, pointer, Value::Number(by)) if is_wide => pointer.moved(by.all.negated()?)?,
        _ => return Err("it computes with an address".to_owned()),
    };
    Ok(())
}
