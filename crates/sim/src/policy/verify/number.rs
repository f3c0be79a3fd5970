//! The known range of a number, and the effect of arithmetic and comparisons on it.
//!
//! Owns ranges. `value` has the other kinds of register contents.
//!
//! Invariants:
//! - I1: every number that a run can have is within its known range. If the analysis is imprecise,
//!   the range is too wide, never too narrow.

use super::super::insn::{alu, jump};

const HALF: u64 = u32::MAX as u64;

/// Unsigned 64-bit numbers, both ends included. Negative offsets wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

/// The known range of all bits, and of the lower 32, because some instructions compare only those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) all: Range,
    pub(super) low: Range,
}

impl Range {
    pub(super) const ANY: Self = Self { min: 0, max: u64::MAX };
    const HALF: Self = Self { min: 0, max: HALF };

    pub(super) const fn exact(number: u64) -> Self {
        Self { min: number, max: number }
    }

    pub(super) const fn of_bytes(nr: usize) -> Self {
        Self { min: 0, max: if nr >= 8 { u64::MAX } else { (1 << (8 * nr)) - 1 } }
    }

    pub(super) fn exactly(self) -> Option<u64> {
        self.is_exact().then_some(self.min)
    }

    const fn is_exact(self) -> bool {
        self.min == self.max
    }

    pub(super) fn hull(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// Returns the sum if no end overflows; a negative number must be exact.
    pub(super) fn plus(self, by: Self) -> Option<Self> {
        if by.is_exact() {
            let by = by.min as i64;
            let min = self.min.checked_add_signed(by)?;
            return Some(Self { min, max: self.max.checked_add_signed(by)? });
        }
        Some(Self { min: self.min.checked_add(by.min)?, max: self.max.checked_add(by.max)? })
    }

    /// Returns the negated number. Only an exact number can be subtracted from a pointer.
    pub(super) fn negated(self) -> Result<Self, String> {
        if !self.is_exact() {
            return Err("it moves an address backward by an unknown amount".to_owned());
        }
        Ok(Self::exact(self.min.wrapping_neg()))
    }

    fn low_half(self) -> Self {
        if self.max <= HALF {
            self
        } else if self.is_exact() {
            Self::exact(self.min & HALF)
        } else {
            Self::HALF
        }
    }

    /// Returns the shift amount, masked to the operand's width.
    fn of_shift(self, width: Width) -> Self {
        let most = if width == Width::Whole { 63 } else { 31 };
        if self.is_exact() { Self::exact(self.min & most) } else { Self { min: 0, max: most } }
    }

    fn computed(self, op: u8, by: Self) -> Self {
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
                // No result bit is above the operands' highest bit.
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

    /// Returns the numbers for which the comparison is true. If there are none, the branch is never
    /// taken, and the range stays unchanged.
    fn if_true(self, op: u8, than: Self, width: Width) -> Self {
        let Self { min, max } = self;
        let (min, max) = match op {
            jump::JEQ => (min.max(than.min), max.min(than.max)),
            jump::JGT => (min.max(than.min.saturating_add(1)), max),
            jump::JGE => (min.max(than.min), max),
            jump::JLT => (min, max.min(than.max.saturating_sub(1))),
            jump::JLE => (min, max.min(than.max)),
            jump::JSGT | jump::JSGE | jump::JSLT | jump::JSLE => {
                return self.if_signed(op, than, width);
            }
            _ => (min, max),
        };
        self.both(Self { min, max })
    }

    /// Narrows the range by a signed comparison. If the remaining numbers have both signs, they are
    /// not an unsigned range.
    fn if_signed(self, op: u8, than: Self, width: Width) -> Self {
        let ((low, high), (than_low, than_high)) = (width.signed(self), width.signed(than));
        let (low, high) = match op {
            jump::JSGT => (low.max(than_low.saturating_add(1)), high),
            jump::JSGE => (low.max(than_low), high),
            jump::JSLT => (low, high.min(than_high.saturating_sub(1))),
            _ => (low, high.min(than_high)),
        };
        if low > high || (low < 0) != (high < 0) {
            return self;
        }
        self.both(Self { min: width.unsigned(low), max: width.unsigned(high) })
    }

    /// Intersects two ranges. If the result is empty, the branch is never taken, and `self` stays
    /// unchanged.
    fn both(self, other: Self) -> Self {
        let (min, max) = (self.min.max(other.min), self.max.min(other.max));
        if min <= max { Self { min, max } } else { self }
    }
}

/// Bits that an instruction compares or computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Whole,
    Half,
}

impl Width {
    const fn positive_max(self) -> u64 {
        match self {
            Self::Whole => i64::MAX as u64,
            Self::Half => i32::MAX as u64,
        }
    }

    /// Returns a range's signed ends; if it has both signs, the ends of all numbers.
    const fn signed(self, range: Range) -> (i64, i64) {
        let has_both = range.min <= self.positive_max() && range.max > self.positive_max();
        match self {
            Self::Whole if has_both => (i64::MIN, i64::MAX),
            Self::Whole => (range.min as i64, range.max as i64),
            Self::Half if has_both => (i32::MIN as i64, i32::MAX as i64),
            Self::Half => (range.min as i32 as i64, range.max as i32 as i64),
        }
    }

    const fn unsigned(self, number: i64) -> u64 {
        match self {
            Self::Whole => number as u64,
            Self::Half => number as u32 as u64,
        }
    }
}

impl Number {
    pub(super) const ANY: Self = Self { all: Range::ANY, low: Range::HALF };

    pub(super) const fn exact(number: u64) -> Self {
        Self { all: Range::exact(number), low: Range::exact(number & HALF) }
    }

    pub(super) fn of_bytes(nr: usize) -> Self {
        Self::of(Range::of_bytes(nr))
    }

    fn of(all: Range) -> Self {
        Self { all, low: all.low_half() }
    }

    fn new(all: Range, low: Range) -> Self {
        let low = low.both(all.low_half());
        // If the upper half is 0, both describe the same number.
        let all = if all.max <= HALF { all.both(low) } else { all };
        Self { all, low }
    }

    /// The only number that it can be.
    pub(super) fn exactly(self, width: Width) -> Option<u64> {
        let range = if width == Width::Whole { self.all } else { self.low };
        range.is_exact().then_some(range.min)
    }

    pub(super) fn hull(self, other: Self) -> Self {
        Self::new(self.all.hull(other.all), self.low.hull(other.low))
    }

    pub(super) fn low_half(self) -> Self {
        Self::of(self.low)
    }

    pub(super) fn computed(self, op: u8, by: Self, width: Width) -> Self {
        let (a, b) = match width {
            Width::Half => (self.low, by.low),
            // The AND clears the upper half.
            Width::Whole if op == alu::AND && by.all.max <= HALF => (self.low, by.all),
            Width::Whole if op == alu::AND && self.all.max <= HALF => (self.all, by.low),
            Width::Whole if op == alu::LSH && by.all.is_exact() && by.all.min & 63 >= 32 => {
                (self.low, by.all)
            }
            Width::Whole => (self.all, by.all),
        };
        let is_shift = matches!(op, alu::LSH | alu::RSH | alu::ARSH);
        let b = if is_shift { b.of_shift(width) } else { b };
        // The sign bit is 0, so an arithmetic shift equals a logical one.
        let op = if op == alu::ARSH && a.max <= width.positive_max() { alu::RSH } else { op };
        let range = a.computed(op, b);
        Self::of(if width == Width::Half { range.low_half() } else { range })
    }

    /// Returns the numbers for which the comparison is true.
    pub(super) fn if_true(self, op: u8, than: Self, width: Width) -> Self {
        match width {
            Width::Whole => Self::new(self.all.if_true(op, than.all, width), self.low),
            Width::Half => Self::new(self.all, self.low.if_true(op, than.low, width)),
        }
    }

    /// Returns the numbers for which the comparison is false.
    pub(super) fn if_false(self, op: u8, than: Self, width: Width) -> Self {
        let opposite = match op {
            jump::JNE => jump::JEQ,
            jump::JGT => jump::JLE,
            jump::JGE => jump::JLT,
            jump::JLT => jump::JGE,
            jump::JLE => jump::JGT,
            jump::JSGT => jump::JSLE,
            jump::JSGE => jump::JSLT,
            jump::JSLT => jump::JSGE,
            jump::JSLE => jump::JSGT,
            _ => return self,
        };
        self.if_true(opposite, than, width)
    }
}

/// Returns the comparison with the operands swapped.
pub(super) const fn mirrored(op: u8) -> u8 {
    match op {
        jump::JGT => jump::JLT,
        jump::JGE => jump::JLE,
        jump::JLT => jump::JGT,
        jump::JLE => jump::JGE,
        jump::JSGT => jump::JSLT,
        jump::JSGE => jump::JSLE,
        jump::JSLT => jump::JSGT,
        jump::JSLE => jump::JSGE,
        _ => op,
    }
}

#[cfg(test)]
mod tests;
