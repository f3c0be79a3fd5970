//! A range as aligned lines with a ragged head and tail.
//!
//! ```text
//! start          first line           end of lines   end
//!   |--- head -----|== line == line ====|--- tail ---|
//! ```
//!
//! Instructions for aligned lines handle the middle; the portable routine handles the ends, each
//! shorter than a line.

use super::portable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) head: usize,
    pub(super) nr: usize,
    pub(super) tail: usize,
}

impl Lines {
    #[inline]
    pub(super) fn of(start: usize, len: usize, line: usize) -> Self {
        let head = (start.wrapping_neg() & (line - 1)).min(len);
        let rest = len - head;
        Self { head, nr: rest / line, tail: rest % line }
    }

    /// Zeroes the head and tail of the range.
    ///
    /// # Safety
    /// `len` bytes at `start` are valid for writes, and `self` was made from them.
    #[inline]
    pub(super) unsafe fn clear_ends(self, start: *mut u8, len: usize) {
        // SAFETY: the head begins the range.
        unsafe { portable::clear(start, self.head) };
        // SAFETY: the tail ends the range.
        unsafe { portable::clear(start.wrapping_add(len - self.tail), self.tail) };
    }

    /// Copies head and tail; the lines are the destination's.
    ///
    /// # Safety
    /// `len` bytes at `to` and `from` are valid and do not overlap, and `self` was made from the
    /// bytes at `to`.
    #[inline]
    pub(super) unsafe fn copy_ends(self, to: *mut u8, from: *const u8, len: usize) {
        let last = len - self.tail;
        // SAFETY: the heads begin the ranges.
        unsafe { portable::copy(to, from, self.head) };
        // SAFETY: the tails end the ranges.
        unsafe { portable::copy(to.wrapping_add(last), from.wrapping_add(last), self.tail) };
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn head_lines_and_tail_make_the_range() {
        for start in 0..64 {
            for len in 0..300 {
                let lines = Lines::of(start, len, 64);
                assert_eq!(lines.head + lines.nr * 64 + lines.tail, len);
                assert!(lines.head < 64 && lines.tail < 64);
                assert!(lines.nr == 0 || (start + lines.head).is_multiple_of(64));
            }
        }
    }

    #[test]
    fn only_the_ends_are_written() {
        for (start, len) in [(0, 200), (3, 0), (3, 1), (3, 61), (3, 200), (63, 130)] {
            #[repr(align(64))]
            struct Bytes([u8; 512]);
            let (mut to, from) = (Bytes([1; 512]), [2; 512]);
            let lines = Lines::of(start, len, 64);
            let at = to.0[start..].as_mut_ptr();
            // SAFETY: the range is inside the array.
            unsafe { lines.copy_ends(at, from.as_ptr(), len) };
            let written: usize = to.0.iter().map(|&byte| usize::from(byte == 2)).sum();
            assert_eq!(written, lines.head + lines.tail);
            // SAFETY: as above.
            unsafe { lines.clear_ends(at, len) };
            assert!(!to.0.contains(&2));
        }
    }
}
