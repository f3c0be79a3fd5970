//! Shadow entries for a file's evicted pages (docs/behaviour G.5.2).
//!
//! Owns the ranges of shadow entries. Does not own the clock that they use
//! ([`crate::core::workingset`]).
//!
//! Invariants:
//! - I1: ranges do not overlap and are not empty.

use crate::units::{GroupId, PageRange};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shadow {
    /// The group whose limit caused the eviction; the root for global reclaim.
    pub(crate) group: GroupId,
    /// The group's clock at eviction; with generations, the oldest generation.
    pub(crate) time: u64,
    /// With generations: counted uses, minus one.
    pub(crate) nr_refs: u8,
    pub(crate) was_workingset: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Shadows {
    /// First page -> page after the last, shadow.
    ranges: BTreeMap<u64, (u64, Shadow)>,
}

impl Shadows {
    pub(crate) fn record(&mut self, PageRange { first, end }: PageRange, shadow: Shadow) {
        let _ = self.take(PageRange { first, end });
        self.ranges.insert(first, (end, shadow));
    }

    /// Removes the shadows of pages `[first, end)`. Returns the last one.
    pub(crate) fn take(&mut self, PageRange { first, end }: PageRange) -> Option<Shadow> {
        if self.ranges.is_empty() {
            return None;
        }
        let mut found = None;
        while let Some((&from, &(to, shadow))) = self.ranges.range(..end).next_back() {
            if to <= first {
                break;
            }
            self.ranges.remove(&from);
            if from < first {
                self.ranges.insert(from, (first, shadow));
            }
            if to > end {
                self.ranges.insert(end, (to, shadow));
            }
            found = found.or(Some(shadow));
        }
        found
    }

    pub(crate) fn nr_in(&self, PageRange { first, end }: PageRange) -> u64 {
        let overlap =
            |(&from, &(to, _)): (&u64, &(u64, Shadow))| to.min(end).saturating_sub(from.max(first));
        self.ranges.range(..end).rev().map(overlap).take_while(|&nr| nr > 0).sum()
    }

    pub(crate) fn nr_ranges(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn validate(&self) -> Result<(), u64> {
        let mut last = 0;
        for (&first, &(end, _)) in &self.ranges {
            if first < last || end <= first {
                return Err(first);
            }
            last = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: u64) -> Shadow {
        Shadow { group: GroupId::ROOT, time, nr_refs: 0, was_workingset: false }
    }

    #[test]
    fn a_small_folio_takes_its_part_of_a_large_shadow() {
        let mut shadows = Shadows::default();
        shadows.record(PageRange { first: 0, end: 512 }, at(1));
        assert_eq!(shadows.take(PageRange { first: 100, end: 101 }), Some(at(1)));
        assert_eq!(shadows.take(PageRange { first: 100, end: 101 }), None);
        assert_eq!(shadows.take(PageRange { first: 99, end: 100 }), Some(at(1)));
        assert_eq!(shadows.take(PageRange { first: 101, end: 1000 }), Some(at(1)));
        assert_eq!(shadows.validate(), Ok(()));
        assert_eq!(shadows.take(PageRange { first: 0, end: 99 }), Some(at(1)));
        assert!(shadows.ranges.is_empty());
    }

    #[test]
    fn a_large_folio_takes_the_last_of_many_shadows() {
        let mut shadows = Shadows::default();
        (0..16).for_each(|page| shadows.record(PageRange { first: page, end: page + 1 }, at(page)));
        assert_eq!(shadows.take(PageRange { first: 0, end: 8 }), Some(at(7)));
        assert_eq!(shadows.take(PageRange { first: 0, end: 8 }), None);
        shadows.record(PageRange { first: 4, end: 12 }, at(99));
        assert_eq!(shadows.validate(), Ok(()));
        assert_eq!(shadows.take(PageRange { first: 11, end: 13 }), Some(at(12)));
    }
}
