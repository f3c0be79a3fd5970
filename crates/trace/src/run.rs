//! A run of references in one word: recorders pass thousands of them at a time.
//!
//! Owns the word. It holds every field of a reference row except the thread, limited to the
//! addresses and counts that real recorders produce. An [`Event`] can hold any row.
//!
//! ```text
//!  63           28 27 26 25       4 3    0
//! | page number   | op  | count   | link |
//! ```
//!
//! Invariant R1: every [`Run`] is a legal row ([`Event::validate`]).

use crate::event::{Event, LINK_MAX, Op, ThreadId};
use crate::validate::REFERENCE_PAGE_BYTES;

const LINK_BITS: u32 = 4;
const COUNT_BITS: u32 = 22;
const OP_SHIFT: u32 = LINK_BITS + COUNT_BITS;
const PAGE_SHIFT: u32 = OP_SHIFT + 2;

const _: () = assert!(LINK_MAX < 1 << LINK_BITS);

/// References of one op to one page, and their link.
///
/// ```
/// use largefolio_trace::{Event, Op, Run};
/// let run = Run::new(Op::Read, 0x7000, 5, 2).expect("a legal row");
/// assert_eq!(run.event(3), Event { flags: 2, ..Event::references(3, Op::Read, 0x7000, 5) });
/// assert_eq!(Run::new(Op::Read, 0x7001, 5, 0), None, "not the start of a page");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run(u64);

impl Run {
    /// Maximum references of a run.
    pub const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
    /// First address that is too large for a run.
    pub const ADDR_END: u64 = REFERENCE_PAGE_BYTES << (u64::BITS - PAGE_SHIFT);

    /// Creates a run of `count` references of kind `op` to the page at `addr`; `None` if this is
    /// not a legal reference row or does not fit into the word.
    #[inline]
    #[must_use]
    pub const fn new(op: Op, addr: u64, count: u64, link: u32) -> Option<Self> {
        let link_max = match op {
            Op::Exec => 0,
            Op::Read | Op::Write => LINK_MAX,
            _ => return None,
        };
        let is_legal = addr.is_multiple_of(REFERENCE_PAGE_BYTES)
            && addr < Self::ADDR_END
            && count.wrapping_sub(1) < Self::COUNT_MAX
            && link <= link_max;
        if !is_legal {
            return None;
        }
        let page = addr / REFERENCE_PAGE_BYTES;
        Some(Self(page << PAGE_SHIFT | (op as u64) << OP_SHIFT | count << LINK_BITS | link as u64))
    }

    /// Returns the first address of the page.
    #[inline]
    #[must_use]
    pub const fn addr(self) -> u64 {
        (self.0 >> PAGE_SHIFT) * REFERENCE_PAGE_BYTES
    }

    /// Returns the number of the op: exec, read or write.
    #[inline]
    #[must_use]
    pub const fn op_number(self) -> u8 {
        (self.0 >> OP_SHIFT).to_le_bytes()[0] & 3
    }

    /// Returns the number of references.
    #[inline]
    #[must_use]
    pub const fn count(self) -> u64 {
        self.0 >> LINK_BITS & Self::COUNT_MAX
    }

    /// Returns the link; 0 = none.
    #[inline]
    #[must_use]
    pub fn link(self) -> u32 {
        u32::from(self.0.to_le_bytes()[0]) & LINK_MAX
    }

    /// Returns the row for `thread`.
    #[must_use]
    pub fn event(self, thread: ThreadId) -> Event {
        let Some(op) = Op::from_number(self.op_number()) else { unreachable!("R1: op is known") };
        Event { flags: self.link(), ..Event::references(thread, op, self.addr(), self.count()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_run_is_the_legal_row_that_it_was_made_of(
            op in 0_u8..5,
            page in 0_u64..1 << 37,
            offset in prop_oneof![9 => Just(0_u64), 1 => Just(8)],
            count in prop_oneof![0_u64..10, Run::COUNT_MAX - 2..Run::COUNT_MAX + 3],
            link in 0_u32..18,
        ) {
            let op = Op::from_number(op).unwrap();
            let addr = page * REFERENCE_PAGE_BYTES + offset;
            let row = Event { flags: link, ..Event::references(7, op, addr, count) };
            let fits = op.is_reference() && addr < Run::ADDR_END && count <= Run::COUNT_MAX;
            let expected = Some(row).filter(|row| fits && row.validate().is_ok());
            prop_assert_eq!(Run::new(op, addr, count, link).map(|run| run.event(7)), expected);
        }
    }
}
