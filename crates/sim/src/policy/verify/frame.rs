//! The known state of the stack, byte by byte. A register that was saved whole is restored with its
//! state unchanged.

use super::super::insn::STACK_BYTES;
use super::number::Number;
use super::value::Value;

const SLOT_BYTES: usize = 8;
pub(super) const NR_SLOTS: usize = STACK_BYTES / SLOT_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// Bitmap of the bytes that hold numbers.
    Bytes(u8),
    Saved(Value),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    slots: [Slot; NR_SLOTS],
}

impl Default for Frame {
    fn default() -> Self {
        Self { slots: [Slot::Bytes(0); NR_SLOTS] }
    }
}

impl Slot {
    const fn numbers(self) -> u8 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Saved(Value::Number(_) | Value::Thing { .. }) => u8::MAX,
            Self::Saved(_) => 0,
        }
    }
}

impl Frame {
    /// Converts an offset from the end of the stack to one from its lowest byte, for `nr` bytes.
    pub(super) fn at(from_end: i64, nr: usize) -> Result<usize, String> {
        let offset = from_end.checked_add(STACK_BYTES as i64);
        let offset = offset.and_then(|offset| usize::try_from(offset).ok());
        let fits = |offset: &usize| offset.checked_add(nr).is_some_and(|end| end <= STACK_BYTES);
        offset.filter(fits).ok_or_else(|| {
            format!("{nr} bytes at r10{from_end:+} are not in the stack of {STACK_BYTES} bytes")
        })
    }

    pub(super) fn load(&self, offset: usize, nr: usize) -> Result<Value, String> {
        if nr == SLOT_BYTES
            && offset.is_multiple_of(SLOT_BYTES)
            && let Slot::Saved(value) = self.slots[offset / SLOT_BYTES]
        {
            return Ok(value);
        }
        self.check_numbers(offset, nr)?;
        Ok(Value::Number(Number::of_bytes(nr)))
    }

    pub(super) fn check_numbers(&self, offset: usize, nr: usize) -> Result<(), String> {
        for at in offset..offset + nr {
            if self.slots[at / SLOT_BYTES].numbers() >> (at % SLOT_BYTES) & 1 == 0 {
                let from_end = STACK_BYTES - at;
                return Err(format!(
                    "the byte at r10-{from_end} is unset or part of an address; clear a struct \
                     with __builtin_memset first to set the gaps between its fields too"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn store(&mut self, offset: usize, nr: usize, value: Value) -> Result<(), String> {
        if nr == SLOT_BYTES && offset.is_multiple_of(SLOT_BYTES) {
            self.slots[offset / SLOT_BYTES] = Slot::Saved(value);
            return Ok(());
        }
        if !value.is_number() {
            return Err("it saves part of an address".to_owned());
        }
        for at in offset..offset + nr {
            let slot = &mut self.slots[at / SLOT_BYTES];
            *slot = Slot::Bytes(slot.numbers() | 1 << (at % SLOT_BYTES));
        }
        Ok(())
    }

    /// The bytes that hold numbers, as a bitmap per slot.
    pub(super) fn numbers(&self) -> [u8; NR_SLOTS] {
        self.slots.map(Slot::numbers)
    }

    /// Another function may have changed these bytes to other numbers.
    pub(super) fn forget(&mut self, changed: &[u8; NR_SLOTS]) {
        for (slot, _) in self.slots.iter_mut().zip(changed).filter(|(_, changed)| **changed > 0) {
            *slot = Slot::Bytes(slot.numbers());
        }
    }

    pub(super) fn meet(&mut self, other: &Self, fresh: &mut usize) {
        for (one, other) in self.slots.iter_mut().zip(&other.slots) {
            *one = match (*one, *other) {
                (Slot::Saved(one), Slot::Saved(other)) => match one.meet(other, fresh) {
                    Value::Unset | Value::Mixed => Slot::Bytes(0),
                    value => Slot::Saved(value),
                },
                (one, other) => Slot::Bytes(one.numbers() & other.numbers()),
            };
        }
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Saved(value) => Some(value),
            Slot::Bytes(_) => None,
        })
    }
}

/// The caller's stack, as a callback sees it: it may read numbers, and replace them by others.
#[derive(Clone, Debug)]
pub(super) struct CallerFrame {
    numbers: [u8; NR_SLOTS],
    changed: [u8; NR_SLOTS],
}

impl CallerFrame {
    pub(super) fn new(frame: &Frame) -> Self {
        Self { numbers: frame.numbers(), changed: [0; NR_SLOTS] }
    }

    pub(super) fn check(&self, offset: usize, nr: usize) -> Result<(), String> {
        let is_number = |at: usize| self.numbers[at / SLOT_BYTES] >> (at % SLOT_BYTES) & 1 > 0;
        if (offset..offset + nr).all(is_number) {
            return Ok(());
        }
        Err("a callback can use only bytes of its caller's stack that hold numbers; set them before \
             the call"
            .to_owned())
    }

    pub(super) fn change(&mut self, offset: usize, nr: usize) -> Result<(), String> {
        self.check(offset, nr)?;
        for at in offset..offset + nr {
            self.changed[at / SLOT_BYTES] |= 1 << (at % SLOT_BYTES);
        }
        Ok(())
    }

    pub(super) const fn changed(&self) -> &[u8; NR_SLOTS] {
        &self.changed
    }
}
