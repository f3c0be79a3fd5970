//! Whole pages of memory, and the naturally aligned blocks in them.

use crate::sys::{Errno, Result, page_bytes};

/// Whole pages. May be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// A multiple of the page size.
    start: usize,
    /// A multiple of the page size, not below `start`.
    end: usize,
}

impl Range {
    /// Returns the whole pages of the `len` bytes at `start`. The bytes before and after them share
    /// a page with other data, which is left alone.
    ///
    /// # Errors
    /// `EOVERFLOW` if the bytes go past the end of addresses.
    pub fn new(start: usize, len: usize) -> Result<Self> {
        let end = start.checked_add(len).ok_or(Errno(libc::EOVERFLOW))?;
        Ok(Self::inside(start, end, page_bytes()))
    }

    /// Returns the whole pages of a slice.
    #[must_use]
    pub fn of<T>(slice: &[T]) -> Self {
        let start = slice.as_ptr().addr();
        Self::inside(start, start.saturating_add(size_of_val(slice)), page_bytes())
    }

    fn inside(start: usize, end: usize, page_bytes: usize) -> Self {
        blocks(start, end, page_bytes).unwrap_or(Self { start, end: start })
    }

    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    #[must_use]
    pub const fn end(&self) -> usize {
        self.end
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.end - self.start
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns the whole blocks of `bytes` (a power of two) in the range, `None` if there are none.
    #[must_use]
    pub fn blocks(&self, bytes: usize) -> Option<Self> {
        blocks(self.start, self.end, bytes)
    }

    #[must_use]
    pub(crate) fn overlap(&self, other: &Self) -> Option<Self> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(Self { start, end })
    }

    /// The caller guarantees `start <= end`, both multiples of the page size.
    pub(crate) const fn of_pages(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// Divides the range into parts of at most `bytes`, a multiple of the page size.
    pub(crate) fn parts(&self, bytes: usize) -> impl Iterator<Item = Self> {
        let (mut start, end) = (self.start, self.end);
        core::iter::from_fn(move || {
            let part = Self { start, end: end.min(start.saturating_add(bytes)) };
            start = part.end;
            (!part.is_empty()).then_some(part)
        })
    }
}

/// Returns the whole naturally aligned blocks of `bytes` (a power of two) from `start` to `end`,
/// `None` if there are none.
///
/// ```
/// let found = largefolio_ranges::blocks(0x7f00_0000_1000, 0x7f00_0070_0000, 2 << 20).unwrap();
/// assert_eq!((found.start(), found.len()), (0x7f00_0020_0000, 4 << 20));
/// ```
#[must_use]
pub fn blocks(start: usize, end: usize, bytes: usize) -> Option<Range> {
    let mask = bytes.checked_sub(1)?;
    let (start, end) = (start.checked_add(mask)? & !mask, end & !mask);
    (start < end).then_some(Range { start, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partly_covered_pages_at_the_ends_are_left_out() {
        let page = page_bytes();
        let range = Range::new(page + 1, 3 * page).unwrap();
        assert_eq!((range.start(), range.len()), (2 * page, 2 * page));
        assert!(Range::new(page + 1, page).unwrap().is_empty());
        assert!(Range::new(page, 0).unwrap().is_empty());
    }

    #[test]
    fn what_goes_past_the_end_of_addresses_is_refused() {
        assert_eq!(Range::new(usize::MAX - 5, 100), Err(Errno(libc::EOVERFLOW)));
        assert!(Range::new(usize::MAX - 5, 5).unwrap().is_empty());
        assert_eq!(blocks(usize::MAX - 4096, usize::MAX, 2 << 20), None);
    }

    #[test]
    fn parts_cover_the_range_once() {
        let range = Range::of_pages(0x1000, 0x9000);
        let lens: std::vec::Vec<_> = range.parts(0x3000).map(|part| part.len()).collect();
        assert_eq!(lens, [0x3000, 0x3000, 0x2000]);
    }
}
