//! Text of bounded length without allocation.
//!
//! Invariants:
//! - T1: `len < N` and `bytes[len..]` is zero, so the text is always a C string.
//! - T2: text that does not fit is cut off, and [`Line::is_cut`] returns true.

use core::ffi::CStr;

const DIGITS: &[u8] = b"0123456789abcdef";

pub(crate) struct Line<const N: usize> {
    bytes: [u8; N],
    len: usize,
    is_cut: bool,
}

impl<const N: usize> Line<N> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], len: 0, is_cut: false }
    }

    pub(crate) fn push(&mut self, text: &[u8]) -> &mut Self {
        for &byte in text {
            self.push_byte(byte);
        }
        self
    }

    /// Appends `text`, with `_` for spaces and unprintable characters.
    pub(crate) fn push_name(&mut self, text: &[u8]) -> &mut Self {
        for &byte in text {
            self.push_byte(if byte.is_ascii_graphic() { byte } else { b'_' });
        }
        self
    }

    fn push_number<const BASE: u64>(&mut self, mut number: u64) -> &mut Self {
        let mut digits = [0_u8; 64];
        let mut nr = 0;
        for slot in &mut digits {
            let digit = usize::try_from(number % BASE).unwrap_or(0);
            *slot = DIGITS.get(digit).copied().unwrap_or(b'?');
            number /= BASE;
            nr += 1;
            if number == 0 {
                break;
            }
        }
        for &digit in digits.iter().take(nr).rev() {
            self.push_byte(digit);
        }
        self
    }

    pub(crate) fn push_decimal(&mut self, number: u64) -> &mut Self {
        self.push_number::<10>(number)
    }

    pub(crate) fn push_hex(&mut self, number: u64) -> &mut Self {
        self.push_number::<16>(number)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    pub(crate) fn c_str(&self) -> &CStr {
        c_str(&self.bytes).unwrap_or(c"")
    }

    pub(crate) const fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn push_byte(&mut self, byte: u8) {
        match self.bytes.get_mut(self.len) {
            Some(slot) if self.len + 1 < N => {
                *slot = byte;
                self.len += 1;
            }
            _ => self.is_cut = true,
        }
    }
}

/// Returns the C string at the start of `bytes`, `None` if no byte is zero. `core`'s version
/// contains a path to a panic (P4).
pub(crate) fn c_str(bytes: &[u8]) -> Option<&CStr> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let text = bytes.get(..=end)?;
    // SAFETY: the last byte of `text` is its first zero.
    Some(unsafe { CStr::from_bytes_with_nul_unchecked(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_appended() {
        let mut line = Line::<64>::new();
        line.push(b"a").push_decimal(0).push(b" ").push_decimal(u64::MAX).push(b" ");
        line.push_hex(0xdead_beef).push_name(b" x\n\xff");
        assert_eq!(line.bytes(), b"a0 18446744073709551615 deadbeef_x__");
        assert_eq!(line.c_str().to_bytes(), line.bytes());
    }

    #[test]
    fn what_does_not_fit_is_cut_and_the_end_stays_zero() {
        let mut line = Line::<4>::new();
        line.push(b"abcdef");
        assert_eq!(line.c_str().to_bytes(), b"abc");
        assert!(line.is_cut());
    }
}
