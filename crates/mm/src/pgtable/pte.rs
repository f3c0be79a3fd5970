//! A page-table entry as a word, its flags, and the folio it points into.
//!
//! ```text
//!  63                                   8 7     6     5    4     3     2     1     0
//! +--------------------------------------+-+-----+----+-----+-----+-----+-----+-----+
//! |                 pfn                  |N|TABLE|CONT|SPECL|YOUNG|DIRTY|WRITE|PRSNT|
//! +--------------------------------------+-+-----+----+-----+-----+-----+-----+-----+
//! ```
//! `N` is `NO_ACCESS`. `TABLE` occurs only in PMD slots, `CONT` only in PTEs. An all-zero word is
//! an empty entry.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use crate::units::{Order, Pfn};

/// Flags of a present entry that a caller reads and sets.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PteFlags(u8);

impl PteFlags {
    /// No flag: read-only, clean, old.
    pub const NONE: Self = Self(0);
    /// The page can be written.
    pub const WRITABLE: Self = Self(1 << 1);
    /// Written since the bit was last cleared.
    pub const DIRTY: Self = Self(1 << 2);
    /// Accessed since the bit was last cleared.
    pub const YOUNG: Self = Self(1 << 3);
    /// Not part of a folio that the rmap knows (the shared zero page): never folded or batched.
    pub const SPECIAL: Self = Self(1 << 4);
    /// No access is allowed (`PROT_NONE`); the page stays in place.
    pub const NO_ACCESS: Self = Self(1 << 7);
    /// Accessed and dirty: the flags that C.1 ignores when it compares a block's entries.
    pub const ACCESSED_DIRTY: Self = Self(Self::YOUNG.0 | Self::DIRTY.0);

    const ALL: u8 =
        Self::WRITABLE.0 | Self::DIRTY.0 | Self::YOUNG.0 | Self::SPECIAL.0 | Self::NO_ACCESS.0;

    /// Whether every flag of `flags` is set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// The flags of `self` that are not in `flags`.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// The union of both.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    const fn bits(self) -> u64 {
        self.0 as u64
    }
}

impl BitOr for PteFlags {
    type Output = Self;

    fn bitor(self, flags: Self) -> Self {
        self.with(flags)
    }
}

impl BitOrAssign for PteFlags {
    fn bitor_assign(&mut self, flags: Self) {
        *self = self.with(flags);
    }
}

impl fmt::Debug for PteFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters =
            [(Self::WRITABLE, 'w'), (Self::DIRTY, 'd'), (Self::YOUNG, 'y'), (Self::SPECIAL, 's')];
        let letter_of = |(flag, letter)| if self.contains(flag) { letter } else { '-' };
        let text: String = letters.into_iter().map(letter_of).collect();
        f.write_str(&text)
    }
}

/// A page's folio: its first page frame and its order.
///
/// The page table does not know folios; the caller that maps or rewrites PTEs passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolioSpan {
    /// First page frame; a multiple of `2^order`.
    pub first: Pfn,
    /// The folio's order.
    pub order: Order,
}

impl FolioSpan {
    /// The folio of `2^order` pages that starts at `first`.
    #[must_use]
    pub const fn new(first: Pfn, order: Order) -> Self {
        Self { first, order }
    }

    /// A folio of one page.
    #[must_use]
    pub const fn single(pfn: Pfn) -> Self {
        Self { first: pfn, order: Order::ZERO }
    }

    /// Whether the `nr` pages from `pfn` are all in this folio.
    #[must_use]
    pub const fn covers(self, pfn: Pfn, nr: u64) -> bool {
        let last = self.first.0 + self.order.nr_pages();
        pfn.0 >= self.first.0 && pfn.0 <= last && nr <= last - pfn.0
    }

    /// Pages from `pfn` to the folio's end.
    #[must_use]
    pub const fn nr_from(self, pfn: Pfn) -> u64 {
        (self.first.0 + self.order.nr_pages()).saturating_sub(pfn.0)
    }
}

/// A page-table entry: empty, or a present page.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Pte(u64);

impl Pte {
    /// The empty entry.
    pub const NONE: Self = Self(0);
    /// Page frames that an entry can name: 2^56.
    pub const NR_PFNS_MAX: u64 = 1 << (64 - Self::PFN_SHIFT);

    const PFN_SHIFT: u32 = 8;
    const PRESENT: u64 = 1;
    const CONT: u64 = 1 << 5;
    const TABLE: u64 = 1 << 6;

    /// A present entry for `pfn`, outside a contpte block.
    #[must_use]
    pub const fn new(pfn: Pfn, flags: PteFlags) -> Self {
        debug_assert!(pfn.0 < Self::NR_PFNS_MAX, "pfn does not fit an entry");
        Self(pfn.0 << Self::PFN_SHIFT | flags.bits() | Self::PRESENT)
    }

    /// Whether the entry is empty.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether the entry maps a page.
    #[must_use]
    pub const fn is_present(self) -> bool {
        self.0 & Self::PRESENT != 0
    }

    /// Whether the entry carries the contiguous bit.
    #[must_use]
    pub const fn is_contpte(self) -> bool {
        self.0 & Self::CONT != 0
    }

    /// The page frame of a present entry.
    #[must_use]
    pub const fn pfn(self) -> Pfn {
        Pfn(self.0 >> Self::PFN_SHIFT)
    }

    /// The flags of a present entry.
    #[must_use]
    pub const fn flags(self) -> PteFlags {
        PteFlags(self.0 as u8 & PteFlags::ALL)
    }

    #[must_use]
    pub(super) const fn with_flags(self, flags: PteFlags) -> Self {
        Self(self.0 & !(PteFlags::ALL as u64) | flags.bits())
    }

    pub(super) const fn with_contpte(self) -> Self {
        Self(self.0 | Self::CONT)
    }

    pub(super) const fn without_contpte(self) -> Self {
        Self(self.0 & !Self::CONT)
    }

    pub(super) const fn advanced(self, by: u64) -> Self {
        Self(self.0 + (by << Self::PFN_SHIFT))
    }

    pub(super) const fn retreated(self, by: u64) -> Self {
        Self(self.0 - (by << Self::PFN_SHIFT))
    }

    /// The bits that must match within a batch: all but the contiguous bit and `ignored`.
    pub(super) const fn key(self, ignored: PteFlags) -> u64 {
        self.0 & !(Self::CONT | ignored.bits())
    }

    pub(super) const fn table(id: u32) -> Self {
        Self((id as u64) << Self::PFN_SHIFT | Self::TABLE)
    }

    pub(super) const fn table_id(self) -> Option<u32> {
        if self.0 & Self::TABLE == 0 { None } else { Some((self.0 >> Self::PFN_SHIFT) as u32) }
    }
}

impl fmt::Debug for Pte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        let cont = if self.is_contpte() { "c" } else { "" };
        write!(f, "{}:{:?}{cont}", self.pfn(), self.flags())
    }
}
