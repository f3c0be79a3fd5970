//! What is known of a value: a number within a range, or a pointer into one thing.

use super::super::insn::{alu, jump};

/// What is known of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Nothing: it may not be used.
    Unset,
    /// A number.
    Number(Range),
    /// Into the context, so many bytes from its start.
    Context { offset: i64 },
    /// Into the stack, so many bytes from its end.
    Stack { offset: i64 },
    /// A map.
    Map { nr: usize },
    /// What lookup `id` returned: an entry, or 0.
    MaybeEntry { map: usize, id: usize },
    /// Into an entry of a map.
    Entry { map: usize, offset: Range },
    /// Into a section of variables.
    Data { section: usize, offset: Range },
}

/// Numbers of 64 bits without a sign, both ends included. Offsets below 0 wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Value {
    pub(super) const fn is_number(self) -> bool {
        matches!(self, Self::Number(_))
    }

    /// What holds for both; `fresh` is a number that no lookup has, and is used up where both are
    /// an entry or 0.
    pub(super) fn meet(self, other: Self, fresh: &mut usize) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (one, other) if let Some(map) = one.entry_or_none(other) => {
                *fresh += 1;
                Self::MaybeEntry { map, id: *fresh }
            }
            (Self::Number(one), Self::Number(other)) => Self::Number(one.hull(other)),
            (Self::Entry { map, offset }, Self::Entry { map: same, offset: other })
                if map == same =>
            {
                Self::Entry { map, offset: offset.hull(other) }
            }
            (Self::Data { section, offset }, Self::Data { section: same, offset: other })
                if section == same =>
            {
                Self::Data { section, offset: offset.hull(other) }
            }
            _ => Self::Unset,
        }
    }

    /// The map of which both are an entry from its start, or 0; at least one is.
    fn entry_or_none(self, other: Self) -> Option<usize> {
        let start = Range::exact(0);
        let map_of = |value| match value {
            Self::MaybeEntry { map, .. } => Some(Some(map)),
            Self::Entry { map, offset } if offset == start => Some(Some(map)),
            Self::Number(number) if number == start => Some(None),
            _ => None,
        };
        let both_are_entries = matches!((self, other), (Self::Entry { .. }, Self::Entry { .. }));
        match (map_of(self)?, map_of(other)?) {
            (Some(one), Some(other)) => (one == other && !both_are_entries).then_some(one),
            (one, other) => one.or(other),
        }
    }

    /// The pointer moved on.
    pub(super) fn moved(self, by: Range) -> Result<Self, String> {
        let exact = || {
            let is_exact = by.min == by.max;
            is_exact.then_some(by.min as i64).ok_or("it moves an address by an unknown number")
        };
        let far = || "it moves an address too far".to_owned();
        Ok(match self {
            Self::Context { offset } => {
                Self::Context { offset: offset.checked_add(exact()?).ok_or_else(far)? }
            }
            Self::Stack { offset } => {
                Self::Stack { offset: offset.checked_add(exact()?).ok_or_else(far)? }
            }
            Self::Entry { map, offset } => {
                Self::Entry { map, offset: offset.plus(by).ok_or_else(far)? }
            }
            Self::Data { section, offset } => {
                Self::Data { section, offset: offset.plus(by).ok_or_else(far)? }
            }
            Self::MaybeEntry { .. } => {
                return Err(
                    "what bpf_map_lookup_elem returned has to be compared with 0 before".to_owned()
                );
            }
            Self::Unset | Self::Number(_) | Self::Map { .. } => {
                return Err("it computes with an address".to_owned());
            }
        })
    }
}

impl Range {
    pub(super) const ANY: Self = Self { min: 0, max: u64::MAX };

    pub(super) const fn exact(number: u64) -> Self {
        Self { min: number, max: number }
    }

    /// What so many bytes can hold.
    pub(super) const fn of_bytes(nr: usize) -> Self {
        Self { min: 0, max: if nr >= 8 { u64::MAX } else { (1 << (8 * nr)) - 1 } }
    }

    const fn is_exact(self) -> bool {
        self.min == self.max
    }

    fn hull(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// The sum, as far as an end does not overflow; a negative number is an exact one.
    fn plus(self, by: Self) -> Option<Self> {
        if by.is_exact() {
            let by = by.min as i64;
            let min = self.min.checked_add_signed(by)?;
            return Some(Self { min, max: self.max.checked_add_signed(by)? });
        }
        Some(Self { min: self.min.checked_add(by.min)?, max: self.max.checked_add(by.max)? })
    }

    /// Of what is subtracted, only an exact number can move a pointer.
    pub(super) fn negated(self) -> Result<Self, String> {
        if !self.is_exact() {
            return Err("it moves an address back by an unknown number".to_owned());
        }
        Ok(Self::exact(self.min.wrapping_neg()))
    }

    /// The lower 32 bits.
    pub(super) fn low_half(self) -> Self {
        let all = u64::from(u32::MAX);
        if self.max <= all {
            self
        } else if self.is_exact() {
            Self::exact(self.min & all)
        } else {
            Self { min: 0, max: all }
        }
    }

    /// By how many bits is shifted: the number is cut to what the width has.
    pub(super) const fn of_shift(self, is_wide: bool) -> Self {
        let most = if is_wide { 63 } else { 31 };
        if self.is_exact() { Self::exact(self.min & most) } else { Self { min: 0, max: most } }
    }

    /// What an operation may give.
    pub(super) fn computed(self, op: u8, by: Self) -> Self {
        let both = |min: Option<u64>, max: Option<u64>| match (min, max) {
            (Some(min), Some(max)) => Self { min, max },
            _ => Self::ANY,
        };
        let shift = by.is_exact().then_some(by.min & 63);
        match op {
            alu::ADD => both(self.min.checked_add(by.min), self.max.checked_add(by.max)),
            alu::SUB => both(self.min.checked_sub(by.max), self.max.checked_sub(by.min)),
            alu::MUL => both(self.min.checked_mul(by.min), self.max.checked_mul(by.max)),
            alu::DIV if by.min > 0 => Self { min: self.min / by.max, max: self.max / by.min },
            alu::MOD if by.min > 0 => Self { min: 0, max: self.max.min(by.max - 1) },
            alu::AND => Self { min: 0, max: self.max.min(by.max) },
            alu::OR | alu::XOR => {
                // No bit above the highest of both.
                let bits = 64 - (self.max | by.max).leading_zeros();
                Self { min: 0, max: if bits == 64 { u64::MAX } else { (1 << bits) - 1 } }
            }
            alu::RSH => match shift {
                Some(shift) => Self { min: self.min >> shift, max: self.max >> shift },
                None => Self { min: 0, max: self.max },
            },
            alu::LSH => match shift {
                Some(shift) if u64::from(self.max.leading_zeros()) >= shift => {
                    Self { min: self.min << shift, max: self.max << shift }
                }
                _ => Self::ANY,
            },
            _ => Self::ANY,
        }
    }

    /// What is left where the comparison holds; everything where nothing is, because then no run
    /// comes there.
    pub(super) fn if_true(self, op: u8, than: Self) -> Value {
        let Self { min, max } = self;
        let (min, max) = match op {
            jump::JEQ => (min.max(than.min), max.min(than.max)),
            jump::JGT => (min.max(than.min.saturating_add(1)), max),
            jump::JGE => (min.max(than.min), max),
            jump::JLT => (min, max.min(than.max.saturating_sub(1))),
            jump::JLE => (min, max.min(than.max)),
            _ => (min, max),
        };
        Value::Number(if min <= max { Self { min, max } } else { self })
    }

    /// What is left where it does not.
    pub(super) fn if_false(self, op: u8, than: Self) -> Value {
        let opposite = match op {
            jump::JNE => jump::JEQ,
            jump::JGT => jump::JLE,
            jump::JGE => jump::JLT,
            jump::JLT => jump::JGE,
            jump::JLE => jump::JGT,
            _ => return Value::Number(self),
        };
        self.if_true(opposite, than)
    }
}
