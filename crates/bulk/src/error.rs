//! Errors in a range of memory.

use thiserror::Error;

/// Why a range is not cleared or copied. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RangeError {
    /// The range extends past the end of the address space.
    #[error("{len_bytes} bytes at {start:#x} extend past the end of the address space")]
    Wraps {
        /// First address.
        start: usize,
        /// Requested length.
        len_bytes: usize,
    },
    /// Source and destination share bytes.
    #[error(
        "{len_bytes} bytes from {from:#x} overlap those at {to:#x}: copy to memory that does not \
         overlap"
    )]
    Overlap {
        /// First address written.
        to: usize,
        /// First address read.
        from: usize,
        /// Requested length.
        len_bytes: usize,
    },
    /// Source and destination differ in length.
    #[error("{from_bytes} bytes do not fill {to_bytes} bytes; pass slices of the same length")]
    Lengths {
        /// Length of the destination.
        to_bytes: usize,
        /// Length of the source.
        from_bytes: usize,
    },
}

impl RangeError {
    pub(crate) fn check<T>(start: *const T, len_bytes: usize) -> Result<(), Self> {
        let start = start.addr();
        // An allocation is at most isize::MAX long, which keeps pointer arithmetic in range.
        let is_long = isize::try_from(len_bytes).is_err();
        if is_long || start.checked_add(len_bytes).is_none() {
            return Err(Self::Wraps { start, len_bytes });
        }
        Ok(())
    }

    pub(crate) fn check_apart(
        to: *const u8,
        from: *const u8,
        len_bytes: usize,
    ) -> Result<(), Self> {
        Self::check(to, len_bytes)?;
        Self::check(from, len_bytes)?;
        let (to, from) = (to.addr(), from.addr());
        if to.abs_diff(from) < len_bytes {
            return Err(Self::Overlap { to, from, len_bytes });
        }
        Ok(())
    }

    pub(crate) fn check_lengths(to_bytes: usize, from_bytes: usize) -> Result<(), Self> {
        if to_bytes != from_bytes {
            return Err(Self::Lengths { to_bytes, from_bytes });
        }
        Ok(())
    }
}
