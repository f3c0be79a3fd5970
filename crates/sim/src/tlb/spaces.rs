//! Decides which address spaces keep their TLB entries across a process switch.
//!
//! Each entry has a tag, like a PCID or an ASID, above the page number. A CPU has a limited number
//! of tags. An address space keeps its tag until all tags are in use. Then the next space gets the
//! tag that was assigned first, and that tag's entries are flushed. With one tag, every switch
//! flushes all entries.
//!
//! Invariants:
//! - A1: an address space has at most one tag, and a tag belongs to at most one address space.
//! - A2: when a tag moves to another address space, no entries with it are left.

use std::collections::BTreeMap;

use largefolio_mm::pgtable::PageTable;
use largefolio_mm::units::{Vpn, VpnRange};

const SPACE_PAGES: u64 = PageTable::VPN_END.0;
const TAG_SHIFT: u32 = SPACE_PAGES.trailing_zeros();
const _: () = assert!(SPACE_PAGES.is_power_of_two());

/// Maximum tags of a CPU: the limit of a key, and of the processes alive in a replay.
pub const NR_SPACES_MAX: u32 = 1 << 14;

#[derive(Clone, Debug)]
pub(super) struct Spaces {
    tags: BTreeMap<u64, usize>,
    holders: Vec<Option<u64>>,
    free: Vec<usize>,
    nr_max: usize,
    next: usize,
    /// The current address space's tag, shifted above its pages.
    base: u64,
}

impl Spaces {
    pub(super) fn new(nr_max: u32) -> Self {
        let nr_max = nr_max.clamp(1, NR_SPACES_MAX) as usize;
        let (tags, holders, free) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { tags, holders, free, nr_max, next: 0, base: 0 }
    }

    #[inline]
    pub(super) const fn tagged(&self, vpn: Vpn) -> Vpn {
        Vpn(vpn.0 | self.base)
    }

    /// Tags an arbitrary number with the current address space.
    #[inline]
    pub(super) const fn marked(&self, number: u64) -> u64 {
        number ^ self.base
    }

    /// Switches to an address space. Returns the pages to flush if it took another space's tag.
    pub(super) fn switch_to(&mut self, space: u64) -> Option<VpnRange> {
        if let Some(&tag) = self.tags.get(&space) {
            self.base = base_of(tag);
            return None;
        }
        let tag = self.free.pop().or_else(|| {
            (self.holders.len() < self.nr_max).then(|| {
                self.holders.push(None);
                self.holders.len() - 1
            })
        });
        let tag = tag.unwrap_or_else(|| {
            let oldest = self.next;
            self.next = (oldest + 1) % self.nr_max;
            oldest
        });
        let before = self.holders[tag].replace(space);
        self.tags.insert(space, tag);
        self.base = base_of(tag);
        before.map(|before| {
            self.tags.remove(&before);
            pages_of(tag)
        })
    }

    pub(super) fn end(&mut self, space: u64) -> Option<VpnRange> {
        let tag = self.tags.remove(&space)?;
        self.holders[tag] = None;
        self.free.push(tag);
        Some(pages_of(tag))
    }

    /// Returns the tagged pages of an address space; `None` without a tag: it has no entries.
    pub(super) fn range(&self, space: u64, first: Vpn, nr_pages: u64) -> Option<VpnRange> {
        let base = base_of(*self.tags.get(&space)?);
        let end = first.0.saturating_add(nr_pages).min(SPACE_PAGES);
        let start = first.0.min(end);
        Some(VpnRange { start: Vpn(base + start), end: Vpn(base + end) })
    }
}

const fn base_of(tag: usize) -> u64 {
    (tag as u64) << TAG_SHIFT
}

const fn pages_of(tag: usize) -> VpnRange {
    let base = base_of(tag);
    VpnRange { start: Vpn(base), end: Vpn(base + SPACE_PAGES) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_that_was_given_away_first_goes_to_the_next() {
        let mut spaces = Spaces::new(2);
        assert_eq!((spaces.switch_to(7), spaces.switch_to(8)), (None, None));
        assert_eq!(spaces.switch_to(7), None, "it still has its tag");
        assert_eq!(spaces.tagged(Vpn(5)), Vpn(5));
        assert_eq!(spaces.switch_to(9), Some(pages_of(0)));
        assert_eq!(spaces.switch_to(7), Some(pages_of(1)), "8 was the oldest then");
        assert_eq!(spaces.tagged(Vpn(5)), Vpn(SPACE_PAGES + 5));
        assert_eq!(spaces.range(8, Vpn(1), 2), None);
        let range = VpnRange { start: Vpn(SPACE_PAGES + 1), end: Vpn(SPACE_PAGES + 3) };
        assert_eq!(spaces.range(7, Vpn(1), 2), Some(range));
    }

    #[test]
    fn the_tag_of_one_that_ended_is_used_before_another_is_taken() {
        let mut spaces = Spaces::new(2);
        assert_eq!((spaces.switch_to(1), spaces.switch_to(2)), (None, None));
        assert_eq!(spaces.end(1), Some(pages_of(0)));
        assert_eq!((spaces.end(1), spaces.switch_to(3)), (None, None));
        assert_eq!(spaces.switch_to(2), None);
    }

    #[test]
    fn with_one_tag_every_switch_flushes() {
        let mut spaces = Spaces::new(1);
        assert_eq!(spaces.switch_to(1), None);
        assert_eq!([2, 1, 1].map(|space| spaces.switch_to(space).is_some()), [true, true, false]);
    }

    #[test]
    fn no_tag_reaches_into_another() {
        let last = pages_of(NR_SPACES_MAX as usize - 1);
        assert!(last.end.0 <= 1 << (64 - 5), "a key has room for it");
        let mut spaces = Spaces::new(4);
        assert_eq!(spaces.switch_to(1), None);
        assert_eq!(spaces.range(1, Vpn(3), u64::MAX).unwrap().end, pages_of(0).end);
        assert_eq!(spaces.range(1, Vpn(u64::MAX), 1).unwrap().start, pages_of(0).end);
    }
}
