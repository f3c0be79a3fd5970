//! The instructions that zero or copy memory, each as a routine that this CPU supports.
//!
//! A [`Clearer`] or [`Copier`] exists only for a primitive whose instructions were detected.
//! [`Tuning`](crate::Tuning) chooses among them.
//!
//! - I1: a routine writes every byte of its range and no other, whatever the length and alignment.
//! - I2: a routine with weakly ordered stores ends with `sfence`: code that publishes the memory
//!   afterwards needs no fence of its own.

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod arm64;
#[cfg(any(test, all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod lines;
mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

use std::fmt;

use crate::error::RangeError;

/// Zeroes `len` bytes. Safe if the CPU has the instructions and the range is valid for writes.
type ClearFn = unsafe fn(*mut u8, usize);
/// Copies `len` bytes to the first address. Safe if the CPU has the instructions, and both ranges
/// are valid and do not overlap.
type CopyFn = unsafe fn(*mut u8, *const u8, usize);

/// One way to zero or copy memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Primitive {
    /// The platform's `memset` and `memcpy`, available everywhere.
    Portable,
    /// x86-64 `rep stosb`, as in the kernel's multi-page clear with ERMS (D.4.4), and `rep movsb`.
    RepString,
    /// 32-byte AVX2 stores through the cache.
    Avx2,
    /// 32-byte AVX2 stores bypassing the cache.
    Avx2Stream,
    /// 64-byte AVX-512 stores through the cache.
    Avx512,
    /// 64-byte AVX-512 stores bypassing the cache.
    Avx512Stream,
    /// AMD `clzero`: one cache line per instruction, bypassing the cache; clears only.
    ClZero,
    /// arm64 `stp` of two 16-byte registers.
    StorePair,
    /// arm64 `stnp`: `stp` with the hint that the data will not be used again.
    StorePairStream,
    /// arm64 `dc zva`: clears only; unavailable if the system prohibits it.
    DcZva,
    /// arm64 `set*` and `cpyf*` (`FEAT_MOPS`, v8.8).
    Mops,
}

impl Primitive {
    /// Every primitive of every architecture.
    pub const ALL: [Self; 11] = [
        Self::Portable,
        Self::RepString,
        Self::Avx2,
        Self::Avx2Stream,
        Self::Avx512,
        Self::Avx512Stream,
        Self::ClZero,
        Self::StorePair,
        Self::StorePairStream,
        Self::DcZva,
        Self::Mops,
    ];

    /// Name in reports and machine files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::RepString => "rep-string",
            Self::Avx2 => "avx2",
            Self::Avx2Stream => "avx2-stream",
            Self::Avx512 => "avx512",
            Self::Avx512Stream => "avx512-stream",
            Self::ClZero => "clzero",
            Self::StorePair => "stp",
            Self::StorePairStream => "stnp",
            Self::DcZva => "dc-zva",
            Self::Mops => "mops",
        }
    }

    /// Whether its stores bypass the cache.
    ///
    /// `stnp` counts although it is only a hint. `rep stosb` does not count, although some CPUs
    /// bypass the cache above the size of their last-level cache (docs/behaviour J.2.1).
    #[must_use]
    pub const fn is_streaming(self) -> bool {
        matches!(self, Self::Avx2Stream | Self::Avx512Stream | Self::ClZero | Self::StorePairStream)
    }

    fn clear_fn(self) -> Option<ClearFn> {
        if self == Self::Portable {
            return Some(portable::clear);
        }
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return x86::clear_fn(self);
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        return arm64::clear_fn(self);
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        None
    }

    fn copy_fn(self) -> Option<CopyFn> {
        if self == Self::Portable {
            return Some(portable::copy);
        }
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return x86::copy_fn(self);
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        return arm64::copy_fn(self);
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        None
    }
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A primitive that this CPU has, ready to zero memory.
///
/// ```
/// # use largefolio_bulk::{Clearer, Primitive};
/// let clearer = Clearer::new(Primitive::Portable).unwrap();
/// let mut bytes = [7; 100];
/// clearer.clear(&mut bytes[10..20]);
/// assert_eq!(bytes.iter().filter(|&&byte| byte == 0).count(), 10);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clearer {
    primitive: Primitive,
    /// Matches `primitive`, whose instructions were detected.
    run: ClearFn,
}

impl Clearer {
    /// Returns the routine of `primitive`, or `None` if this CPU cannot clear with it.
    #[must_use]
    pub fn new(primitive: Primitive) -> Option<Self> {
        Some(Self { primitive, run: primitive.clear_fn()? })
    }

    /// Returns every primitive that can clear on this CPU, the portable one first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        Primitive::ALL.into_iter().filter_map(Self::new).collect()
    }

    /// Returns the primitive.
    #[must_use]
    pub const fn primitive(&self) -> Primitive {
        self.primitive
    }

    /// Zeroes `extent`. Does nothing for an empty one.
    #[inline]
    pub fn clear(&self, extent: &mut [u8]) {
        // SAFETY: the slice is valid for writes of its length; `new` proved the instructions.
        unsafe { (self.run)(extent.as_mut_ptr(), extent.len()) };
    }

    /// Zeroes `len_bytes` at `start`; with no bytes, any address works.
    ///
    /// # Errors
    /// [`RangeError::Wraps`] if the range extends past the end of the address space.
    ///
    /// # Safety
    /// The range is mapped for writing and nothing else reads or writes it meanwhile.
    #[inline]
    pub unsafe fn clear_raw(&self, start: *mut u8, len_bytes: usize) -> Result<(), RangeError> {
        RangeError::check(start, len_bytes)?;
        // SAFETY: the caller vouches for the range; `new` proved the instructions.
        unsafe { (self.run)(start, len_bytes) };
        Ok(())
    }
}

/// A primitive that this CPU has, ready to copy memory.
#[derive(Clone, Copy, Debug)]
pub struct Copier {
    primitive: Primitive,
    /// Matches `primitive`, whose instructions were detected.
    run: CopyFn,
}

impl Copier {
    /// Returns the routine of `primitive`, or `None` if this CPU cannot copy with it.
    #[must_use]
    pub fn new(primitive: Primitive) -> Option<Self> {
        Some(Self { primitive, run: primitive.copy_fn()? })
    }

    /// Returns every primitive that can copy on this CPU, the portable one first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        Primitive::ALL.into_iter().filter_map(Self::new).collect()
    }

    /// Returns the primitive.
    #[must_use]
    pub const fn primitive(&self) -> Primitive {
        self.primitive
    }

    /// Copies `from` over `to`. Does nothing for empty ones.
    ///
    /// # Errors
    /// [`RangeError::Lengths`] if their lengths differ. Nothing is written.
    #[inline]
    pub fn copy(&self, to: &mut [u8], from: &[u8]) -> Result<(), RangeError> {
        RangeError::check_lengths(to.len(), from.len())?;
        // SAFETY: both slices are valid for the length, and an exclusive slice overlaps no other;
        // `new` proved the instructions.
        unsafe { (self.run)(to.as_mut_ptr(), from.as_ptr(), to.len()) };
        Ok(())
    }

    /// Copies `len_bytes` from `from` to `to`; with no bytes, any addresses work.
    ///
    /// # Errors
    /// [`RangeError::Overlap`] if the ranges share a byte, [`RangeError::Wraps`] if one extends
    /// past the end of the address space. Nothing is written.
    ///
    /// # Safety
    /// `from` is mapped for reading and `to` for writing, and nothing else writes either or reads
    /// `to` meanwhile.
    #[inline]
    pub unsafe fn copy_raw(
        &self,
        to: *mut u8,
        from: *const u8,
        len_bytes: usize,
    ) -> Result<(), RangeError> {
        RangeError::check_apart(to, from, len_bytes)?;
        // SAFETY: the caller vouches for the ranges, which do not overlap; `new` proved the
        // instructions.
        unsafe { (self.run)(to, from, len_bytes) };
        Ok(())
    }
}
