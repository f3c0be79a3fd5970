//! Programs about hugetlb: their pages are huge pages from a pool.
//!
//! ```text
//!   program 3 pages=8 sizes=- huge=2048:6    2M pages, the pool has 6
//!   0 map 0 3 g                              private; gs shared; with o: MAP_NORESERVE
//!   0 trim 0 2 ue                            munmap of 2 huge pages except the last base page
//! ```

use std::fmt;

use largefolio_mm::vma::Sharing;

use super::range::{PageRange, SIZE_KIB_MAX};
use crate::crosscheck::text::{Parsed, number_to};

const NR_POOL_MAX: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Size of one page in KiB.
    pub kib: u64,
    /// Free, unreserved pages in the pool at the start; none is in use.
    pub nr_pool: u64,
    /// Additional pages, reserved for processes that have exited (docs/behaviour O.5.3). The kernel
    /// reports them.
    pub nr_lost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HugeMapping {
    pub(super) sharing: Sharing,
    /// Mapped without `MAP_NORESERVE`.
    pub(super) is_reserved: bool,
}

/// A call whose range may begin or end inside a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trim {
    pub(super) call: TrimCall,
    pub(super) edge: Edge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrimCall {
    Unmap,
    Drop,
    /// To read-only.
    Protect,
    /// `MADV_FREE`, which hugetlb memory refuses.
    Free,
}

/// The base page that the range excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    First,
    Last,
    None,
}

impl HugePages {
    /// Reads `KIB:NR` or `KIB:NR:LOST`.
    pub(super) fn of(word: &str) -> Parsed<Self> {
        let (kib, nr) = word.split_once(':').ok_or("huge= needs KIB:NR")?;
        let (nr, lost) = nr.split_once(':').unwrap_or((nr, "0"));
        let kib = number_to(SIZE_KIB_MAX, kib)?;
        if !kib.is_power_of_two() {
            return Err(format!("{kib} KiB is not a huge page size"));
        }
        let (nr_pool, nr_lost) = (number_to(NR_POOL_MAX, nr)?, number_to(NR_POOL_MAX, lost)?);
        Ok(Self { kib, nr_pool, nr_lost })
    }

    pub(super) const fn nr_pages(self) -> u64 {
        self.nr_pool + self.nr_lost
    }
}

impl HugeMapping {
    pub(super) fn of(word: &str) -> Self {
        let sharing = if word.contains('s') { Sharing::Shared } else { Sharing::Private };
        Self { sharing, is_reserved: !word.contains('o') }
    }
}

impl Trim {
    pub(super) fn of(word: &str) -> Parsed<Self> {
        let mut letters = word.chars();
        let call = match letters.next() {
            Some('u') => TrimCall::Unmap,
            Some('d') => TrimCall::Drop,
            Some('p') => TrimCall::Protect,
            Some('f') => TrimCall::Free,
            _ => return Err(format!("{word:?} is not a call that trims")),
        };
        let edge = match letters.next() {
            Some('s') => Edge::First,
            Some('e') => Edge::Last,
            _ => Edge::None,
        };
        Ok(Self { call, edge })
    }

    /// Returns the call's first byte and length: `range` without one base page.
    pub(super) const fn bytes(self, range: PageRange, unit: u64, base: u64) -> (u64, u64) {
        let (at, len) = (range.first * unit, range.nr * unit);
        match self.edge {
            Edge::First => (at + base, len - base),
            Edge::Last => (at, len - base),
            Edge::None => (at, len),
        }
    }
}

impl fmt::Display for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "huge={}:{}", self.kib, self.nr_pool)?;
        if self.nr_lost > 0 { write!(f, ":{}", self.nr_lost) } else { Ok(()) }
    }
}

impl fmt::Display for HugeMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("g")?;
        f.write_str(if self.sharing == Sharing::Shared { "s" } else { "" })?;
        f.write_str(if self.is_reserved { "" } else { "o" })
    }
}

impl fmt::Display for Trim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.call {
            TrimCall::Unmap => "u",
            TrimCall::Drop => "d",
            TrimCall::Protect => "p",
            TrimCall::Free => "f",
        })?;
        f.write_str(match self.edge {
            Edge::First => "s",
            Edge::Last => "e",
            Edge::None => "",
        })
    }
}
