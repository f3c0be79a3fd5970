//! Calls of helpers: their arguments, their results, and the callbacks that they run.

use super::super::insn::{Insn, helper};
use super::super::maps::{MapKind, MapSpec};
use super::super::posted::{Callback, Expected, Helper, Returned};
use super::super::things::Kind;
use super::frame::CallerFrame;
use super::number::Number;
use super::value::{MIXED, Value};
use super::{Access, Checked, Entrance, Input, Known, StackPlace, Verifier, number_in};

const NR_ARGUMENTS: u8 = 5;
/// Bytes of keys and values that the helpers of one run may handle: at most 0.3 ms (measured) with
/// as many helper calls as fit in a program. A cell's budget limits the number of runs.
const HANDLED_BYTES_MAX: usize = 16 << 10;

impl Verifier<'_> {
    pub(super) fn call(&mut self, at: usize, insn: Insn, known: &mut Known) -> Checked<()> {
        if insn.src != 0 {
            let what = "function calls are not supported; make the functions static \
                        __always_inline";
            return Err(what.to_owned());
        }
        let result = match insn.imm {
            helper::WINDOW if self.entrance.has_window => {
                (1..=4).try_for_each(|nr| number_in(known, nr))?;
                Value::Number(Number::ANY)
            }
            helper::WINDOW => {
                return Err("folio_window() is available only in folio/window".to_owned());
            }
            helper::MAP_LOOKUP | helper::MAP_UPDATE | helper::MAP_DELETE => {
                self.call_map(at, insn.imm, known)?
            }
            nr => match Helper::numbered(nr) {
                Some(helper) => self.call_helper(at, helper, known)?,
                None => {
                    return Err(format!(
                        "helper {nr} is not supported; a policy has maps, bpf_loop() and \
                         folio_window(), but no clock and no random numbers, so results are \
                         reproducible"
                    ));
                }
            },
        };
        for register in 1..=NR_ARGUMENTS {
            known.registers[register as usize] = Value::Unset;
        }
        known.registers[0] = result;
        Ok(())
    }

    fn map_in(&self, known: &Known, argument: usize) -> Checked<(usize, &MapSpec)> {
        let Value::Map { nr } = known.registers[argument] else {
            let is_mixed = known.registers[argument] == Value::Mixed;
            let what = if is_mixed { MIXED } else { "the first argument is not a map" };
            return Err(what.to_owned());
        };
        Ok((nr, self.map(nr)?))
    }

    fn call_map(&mut self, at: usize, number: i64, known: &Known) -> Checked<Value> {
        let (nr, &MapSpec { key_bytes, value_bytes, kind, .. }) = self.map_in(known, 1)?;
        if matches!(kind, MapKind::OfCgroups | MapKind::Ring) {
            return Err(
                "this map has helpers of its own, such as bpf_cgrp_storage_get()".to_owned()
            );
        }
        self.memory(known, 2, key_bytes)?;
        self.handle(key_bytes)?;
        if number == helper::MAP_UPDATE {
            self.memory(known, 3, value_bytes)?;
            number_in(known, 4)?;
            self.handle(value_bytes)?;
        }
        Ok(if number == helper::MAP_LOOKUP {
            Value::MaybeEntry { map: nr, id: at }
        } else {
            Value::Number(Number::ANY)
        })
    }

    fn call_helper(&mut self, at: usize, helper: &Helper, known: &mut Known) -> Checked<Value> {
        let named = |what: String| format!("{}(): {what}", helper.name);
        for (register, expected) in (1..).zip(helper.arguments) {
            self.check_argument(*expected, register, known).map_err(named)?;
        }
        for (register, expected) in (1..).zip(helper.arguments) {
            if let Expected::Callback(callback) = expected {
                let Value::Function { nr } = known.registers[register] else {
                    unreachable!("the argument was checked")
                };
                // Of bpf_loop: the argument after the function.
                let passed = known.registers[register + 1];
                self.check_callback(*callback, nr, passed, known).map_err(named)?;
            }
        }
        Ok(match helper.returned {
            Returned::Number => Value::Number(Number::ANY),
            Returned::Zero => Value::Number(Number::exact(0)),
            Returned::Thing(kind) => Value::Thing { kind, offset: 0 },
            Returned::MaybeEntry => {
                let (map, &MapSpec { key_bytes, value_bytes, .. }) = self.map_in(known, 1)?;
                self.handle(key_bytes + value_bytes)?;
                Value::MaybeEntry { map, id: at }
            }
        })
    }

    fn check_argument(
        &mut self,
        expected: Expected,
        register: u8,
        known: &mut Known,
    ) -> Checked<()> {
        let value = known.registers[register as usize];
        let is_map =
            |kind| self.map_in(known, register.into()).is_ok_and(|(_, map)| map.kind == kind);
        let what = match expected {
            Expected::Number => return number_in(known, register),
            Expected::Thing(kind) if value == (Value::Thing { kind, offset: 0 }) => return Ok(()),
            Expected::Thing(kind) => {
                return Err(format!("r{register} must be a struct {}", kind.name()));
            }
            Expected::Callback(_) if matches!(value, Value::Function { .. }) => return Ok(()),
            Expected::Callback(_) => "must be a function",
            Expected::Passed => match value {
                Value::Unset | Value::Mixed | Value::MaybeEntry { .. } | Value::Function { .. } => {
                    "cannot be passed to a callback; compare an entry of a map with 0 first"
                }
                _ => return Ok(()),
            },
            Expected::Bytes(nr) => return self.memory(known, register, nr),
            Expected::Changed(nr) => {
                self.memory(known, register, nr)?;
                return self.change(known, value, nr);
            }
            Expected::OfCgroups if is_map(MapKind::OfCgroups) => return Ok(()),
            Expected::OfCgroups => "must be a map of BPF_MAP_TYPE_CGRP_STORAGE",
            Expected::Ring if is_map(MapKind::Ring) => return Ok(()),
            Expected::Ring => "must be a map of BPF_MAP_TYPE_RINGBUF",
        };
        Err(format!("r{register} {what}"))
    }

    /// A helper changes `nr` bytes at a pointer to other numbers.
    fn change(&mut self, known: &mut Known, pointer: Value, nr: usize) -> Checked<()> {
        match self.place(pointer, 0, nr, Access::Store)? {
            StackPlace::Frame(offset) => {
                let number = Value::Number(Number::of_bytes(1));
                (offset..offset + nr).try_for_each(|at| known.frame.store(at, 1, number))
            }
            StackPlace::Caller(offset) => {
                self.caller.as_mut().ok_or("no caller")?.change(offset, nr)
            }
            StackPlace::Elsewhere => Ok(()),
        }
    }

    /// Checks a callback with the facts at the call. It runs any number of times, so it may
    /// change bytes of the caller's stack only from numbers to numbers.
    fn check_callback(
        &mut self,
        callback: Callback,
        nr: usize,
        passed: Value,
        known: &mut Known,
    ) -> Checked<()> {
        if self.caller.is_some() {
            return Err("a callback cannot call a helper that has a callback itself".to_owned());
        }
        let function = self.parsed.functions.get(nr).ok_or("no such function")?;
        let index = Value::Number(Number::of_bytes(4));
        let node = Value::Thing { kind: Kind::ListNode, offset: 0 };
        let mut first = Known::at_start();
        let (one, two) = match callback {
            Callback::Loop => {
                let passed = match passed {
                    Value::Stack { offset } => Value::Caller { offset },
                    other => other,
                };
                (index, passed)
            }
            Callback::Node => (index, node),
            Callback::Score => (node, Value::Unset),
        };
        (first.registers[1], first.registers[2]) = (one, two);
        let Entrance { has_window, .. } = self.entrance;
        // The callback has no context, unless it was passed.
        let input = match passed {
            Value::Context { .. } if callback == Callback::Loop => self.entrance.input,
            _ => Input::Words(0),
        };
        let mut inner = Verifier {
            code: &function.code,
            parsed: self.parsed,
            entrance: Entrance { input, has_window, has_answer: true },
            known: vec![None; function.code.len()],
            fresh: function.code.len(),
            handled_bytes: 0,
            caller: Some(CallerFrame::new(&known.frame)),
            nr_left: self.nr_left,
        };
        inner.run(first).map_err(|fault| {
            let name = largefolio_trace::shown(&function.name).to_string();
            format!("function {name}, instruction {}: {}", fault.at, fault.what)
        })?;
        self.nr_left = inner.nr_left;
        if let Some(caller) = inner.caller {
            known.frame.forget(caller.changed());
        }
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
        let place = self.place(pointer, 0, nr, Access::Load);
        match place.map_err(|what| format!("r{argument}: {what}"))? {
            StackPlace::Frame(offset) => known.frame.check_numbers(offset, nr),
            StackPlace::Caller(offset) => {
                self.caller.as_ref().ok_or("no caller")?.check(offset, nr)
            }
            StackPlace::Elsewhere => Ok(()),
        }
    }
}
