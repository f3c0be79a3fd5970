//! Converts the dictionary numbers of a data page to values.
//!
//! A page starts with its width in bits (one byte), followed by runs. Each run starts with a
//! variable-length number. If its low bit is 0, one number in whole bytes follows, repeated that
//! many times. If it is 1, groups of eight numbers of `width` bits follow, lowest bits first.
//!
//! ```text
//!   width | 2 * nr     | number            ..      nr values of dictionary[number]
//!         | 2 * nr + 1 | nr * width bytes  ..  8 * nr values
//! ```
//!
//! Apart from decompression, nearly all the time for reading a trace is spent here. Each width
//! therefore has its own code, with constant shifts. Invariants:
//! - I1: every number is below the dictionary's length, or the page is rejected.
//! - I2: nothing is allocated for values that a page declares but does not hold.

use super::values::Values;

const WIDTH_MAX: u8 = 32;

/// Bytes read for a group of eight numbers: at most 32, plus the rest of a word.
const WINDOW: usize = 40;

#[derive(Debug)]
pub(super) struct Numbers {
    /// The page, followed by [`WINDOW`] zeros.
    bytes: Vec<u8>,
    end: usize,
    /// First byte after the current run's header; for a packed run, after the groups used.
    at: usize,
    width: u8,
    run: Run,
}

#[derive(Clone, Copy, Debug)]
enum Run {
    Repeated {
        number: u32,
        nr_left: usize,
    },
    /// `nr_used` numbers of the group at `at` are used.
    Packed {
        nr_left: usize,
        nr_used: usize,
    },
}

impl Default for Numbers {
    fn default() -> Self {
        let run = Run::Repeated { number: 0, nr_left: 0 };
        Self { bytes: Vec::new(), end: 0, at: 0, width: 0, run }
    }
}

impl Numbers {
    /// Starts a page and reuses the memory; `None` if its width is impossible.
    pub(super) fn begin(&mut self, page: &[u8]) -> Option<()> {
        let (&width, rest) = page.split_first().filter(|(width, _)| **width <= WIDTH_MAX)?;
        self.bytes.clear();
        self.bytes.extend_from_slice(rest);
        self.bytes.resize(rest.len() + WINDOW, 0);
        (self.end, self.at, self.width) = (rest.len(), 0, width);
        self.run = Run::Repeated { number: 0, nr_left: 0 };
        Some(())
    }

    /// Appends the next `nr` values to `target`; `None` on an early end or an unknown number.
    pub(super) fn take<T: Copy + Default + PartialEq>(
        &mut self,
        nr: usize,
        dictionary: &[T],
        target: &mut Values<T>,
    ) -> Option<()> {
        let mut nr_left = nr;
        while nr_left > 0 {
            nr_left -= match self.run {
                Run::Repeated { nr_left: 0, .. } | Run::Packed { nr_left: 0, .. } => {
                    self.next_run()?;
                    0
                }
                Run::Repeated { number, nr_left: nr_run } => {
                    let nr = nr_left.min(nr_run);
                    target.fill(*dictionary.get(number as usize)?, nr);
                    self.run = Run::Repeated { number, nr_left: nr_run - nr };
                    nr
                }
                Run::Packed { nr_left: nr_run, .. } => {
                    let nr = nr_left.min(nr_run);
                    self.unpack(dictionary, target.append(nr))?;
                    nr
                }
            };
        }
        Some(())
    }

    fn next_run(&mut self) -> Option<()> {
        if let Run::Packed { nr_used: 1.., .. } = self.run {
            self.at = self.end;
        }
        let header = self.varint()?;
        let nr = usize::try_from(header >> 1).ok().filter(|&nr| nr > 0)?;
        let width = usize::from(self.width);
        if header & 1 == 1 {
            // Some writers omit the unused end of the last group.
            let nr_held = ((self.end - self.at) * 8).checked_div(width).unwrap_or(usize::MAX);
            let nr_left = nr.saturating_mul(8).min(nr_held);
            self.run = Run::Packed { nr_left, nr_used: 0 };
            return (nr_left > 0).then_some(());
        }
        let nr_bytes = width.div_ceil(8);
        let number = self.bits(self.at * 8, self.width);
        self.at = self.at.checked_add(nr_bytes).filter(|&at| at <= self.end)?;
        self.run = Run::Repeated { number, nr_left: nr };
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes[..self.end].get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Fills `target` from the packed run, which has enough values left.
    fn unpack<T: Copy>(&mut self, dictionary: &[T], target: &mut [T]) -> Option<()> {
        let Run::Packed { nr_left, nr_used } = self.run else {
            unreachable!("the caller matched a packed run")
        };
        let nr = target.len();
        let to_next_group = if nr_used == 0 { 0 } else { (8 - nr_used).min(nr) };
        let (head, rest) = target.split_at_mut(to_next_group);
        self.one_by_one(nr_used, dictionary, head)?;
        self.at += (nr_used + head.len()) / 8 * usize::from(self.width);
        let (groups, tail) = rest.as_chunks_mut::<8>();
        unpack_groups(self.width, &self.bytes[self.at..], dictionary, groups)?;
        self.at += groups.len() * usize::from(self.width);
        let nr_used = if groups.is_empty() && tail.is_empty() { (nr_used + nr) % 8 } else { 0 };
        self.one_by_one(nr_used, dictionary, tail)?;
        self.run = Run::Packed { nr_left: nr_left - nr, nr_used: nr_used + tail.len() };
        Some(())
    }

    /// Fills `target` from the group at `at`. Its first `nr_used` numbers are already used.
    fn one_by_one<T: Copy>(
        &self,
        nr_used: usize,
        dictionary: &[T],
        target: &mut [T],
    ) -> Option<()> {
        for (nr, value) in (nr_used..).zip(target) {
            let number = self.bits(self.at * 8 + nr * usize::from(self.width), self.width);
            *value = *dictionary.get(number as usize)?;
        }
        Some(())
    }

    /// Returns the `width` bits from bit `at` on. Bits after the page are zero.
    #[expect(clippy::cast_possible_truncation, reason = "at most 32 bits are left")]
    fn bits(&self, at: usize, width: u8) -> u32 {
        let word = self.bytes.get(at / 8..).and_then(|bytes| bytes.first_chunk());
        let word = word.map_or(0, |word| u64::from_le_bytes(*word));
        ((word >> (at % 8)) & ((1 << width) - 1)) as u32
    }
}

/// Unpacks whole groups from the start of `bytes`. [`WINDOW`] more bytes must follow them.
fn unpack_groups<T: Copy>(
    width: u8,
    bytes: &[u8],
    dictionary: &[T],
    groups: &mut [[T; 8]],
) -> Option<()> {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                $($width => unpack_width::<$width, T>(bytes, dictionary, groups),)*
                _ => None,
            }
        };
    }
    by_width! {
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most 32 bits are left")]
fn unpack_width<const WIDTH: usize, T: Copy>(
    bytes: &[u8],
    dictionary: &[T],
    groups: &mut [[T; 8]],
) -> Option<()> {
    let mask = (1_u64 << WIDTH) - 1;
    for (nr, group) in groups.iter_mut().enumerate() {
        let window: &[u8; WINDOW] = bytes.get(nr * WIDTH..)?.first_chunk()?;
        for (i, value) in group.iter_mut().enumerate() {
            // A group of up to eight bytes is one word, read once.
            let (byte, shift) =
                if WIDTH <= 8 { (0, i * WIDTH) } else { (i * WIDTH / 8, i * WIDTH % 8) };
            let word = u64::from_le_bytes(*window[byte..].first_chunk()?);
            *value = *dictionary.get(((word >> shift) & mask) as usize)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests;
