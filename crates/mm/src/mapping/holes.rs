//! A file's pages without data in storage: holes, and blocks that were never written.
//!
//! Such a page reads as zeroes without I/O. A store or a write gives it data, and punching a hole
//! takes the data away. Blocks are counted in pages: a page with any data has data.
//!
//! Owns one file's holes ([`Holes`]). Pages beyond the end of the file are not holes; the file's
//! owner adds them when the file grows past them.
//!
//! Invariants:
//! - I1: ranges are sorted, non-empty, and neither overlap nor touch.

use std::collections::BTreeMap;

use crate::units::PageRange;

/// The holes of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    /// First page and page after the last.
    ranges: BTreeMap<u64, u64>,
}

impl Holes {
    /// Takes the data of a range away.
    ///
    /// ```
    /// use largefolio_mm::mapping::holes::Holes;
    /// use largefolio_mm::units::PageRange;
    /// let mut holes = Holes::default();
    /// holes.insert(PageRange { first: 2, end: 6 });
    /// holes.insert(PageRange { first: 6, end: 9 });
    /// holes.remove(PageRange { first: 4, end: 5 });
    /// assert_eq!(holes.nr_in(PageRange { first: 0, end: 100 }), 6);
    /// assert!(holes.contains(3) && !holes.contains(4));
    /// ```
    pub fn insert(&mut self, PageRange { mut first, mut end }: PageRange) {
        if first >= end {
            return;
        }
        if let Some((&start, &stop)) = self.ranges.range(..=first).next_back()
            && stop >= first
        {
            (first, end) = (start, end.max(stop));
        }
        while let Some((&start, &stop)) = self.ranges.range(first..=end).next_back() {
            end = end.max(stop);
            self.ranges.remove(&start);
        }
        self.ranges.insert(first, end);
    }

    /// Gives a range data.
    pub fn remove(&mut self, PageRange { first, end }: PageRange) {
        if first >= end || self.ranges.is_empty() {
            return;
        }
        while let Some((&start, &stop)) = self.ranges.range(..end).next_back()
            && stop > first
        {
            self.ranges.remove(&start);
            if stop > end {
                self.ranges.insert(end, stop);
            }
            if start < first {
                self.ranges.insert(start, first);
            }
        }
    }

    /// Moves the pages from `from` on to `to`. A range between them that is removed is forgotten,
    /// and one that is inserted has no data.
    pub fn shift(&mut self, from: u64, to: u64) {
        self.remove(PageRange { first: to, end: from });
        let moved = self.ranges.split_off(&from);
        let over = self.ranges.last_entry().filter(|last| *last.get() > from);
        let over = over.map(|mut last| std::mem::replace(last.get_mut(), from));
        let moved = over.map(|end| (from, end)).into_iter().chain(moved);
        for (first, end) in moved.collect::<Vec<_>>() {
            let by = |page: u64| page.saturating_sub(from).saturating_add(to);
            self.insert(PageRange { first: by(first), end: by(end) });
        }
        self.insert(PageRange { first: from, end: to });
    }

    /// Counts the pages of a range that are in holes.
    #[must_use]
    pub fn nr_in(&self, PageRange { first, end }: PageRange) -> u64 {
        let before_end = self.ranges.range(..end).rev();
        let overlapping = before_end.take_while(|&(_, &stop)| stop > first);
        overlapping.map(|(&start, &stop)| stop.min(end) - start.max(first)).sum()
    }

    /// Returns the parts of a range that are not in holes, in order.
    pub(crate) fn data_in(&self, all: PageRange) -> impl Iterator<Item = PageRange> {
        let inside = self.ranges.range(..all.end).filter(move |&(_, &end)| end > all.first);
        let starts = inside.clone().map(|(_, &end)| end);
        let ends = inside.map(|(&first, _)| first).chain([all.end]);
        let parts = [all.first].into_iter().chain(starts).zip(ends);
        parts.map(|(first, end)| PageRange { first, end }).filter(|part| part.first < part.end)
    }

    /// Returns whether a page is in a hole.
    #[must_use]
    pub fn contains(&self, page: u64) -> bool {
        self.ranges.range(..=page).next_back().is_some_and(|(_, &end)| end > page)
    }

    /// Returns whether every page that the file has or had has data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn nr_ranges(&self) -> usize {
        self.ranges.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NR_PAGES: u64 = 64;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(u64, u64),
        Remove(u64, u64),
        Shift(u64, u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let pair = (0..NR_PAGES, 0..NR_PAGES);
        let step = prop_oneof![
            4 => pair.clone().prop_map(|(a, b)| Step::Insert(a, b)),
            4 => pair.clone().prop_map(|(a, b)| Step::Remove(a, b)),
            1 => pair.prop_map(|(a, b)| Step::Shift(a, b)),
        ];
        proptest::collection::vec(step, 1..24)
    }

    /// One flag per page, true for a hole.
    fn naive(pages: &mut Vec<bool>, step: Step) {
        let nr = pages.len();
        match step {
            Step::Insert(first, end) | Step::Remove(first, end) => {
                for page in first..end {
                    pages[page as usize] = matches!(step, Step::Insert(..));
                }
            }
            Step::Shift(from, to) if to < from => {
                pages.drain(to as usize..from as usize);
            }
            Step::Shift(from, to) => {
                let inserted = vec![true; (to - from) as usize];
                pages.splice(from as usize..from as usize, inserted);
            }
        }
        pages.resize(nr, false);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(256)))]

        #[test]
        fn holes_equal_a_flag_per_page(steps in steps()) {
            let nr = 4 * NR_PAGES;
            let (mut holes, mut pages) = (Holes::default(), vec![false; nr as usize]);
            for step in steps {
                match step {
                    Step::Insert(first, end) => holes.insert(PageRange { first, end }),
                    Step::Remove(first, end) => holes.remove(PageRange { first, end }),
                    Step::Shift(from, to) => holes.shift(from, to),
                }
                naive(&mut pages, step);
                // The naive list has no pages beyond its end.
                holes.remove(PageRange { first: nr, end: u64::MAX });
                let found: Vec<bool> = (0..nr).map(|page| holes.contains(page)).collect();
                prop_assert_eq!(&found, &pages);
                let nr_holes = pages.iter().filter(|&&hole| hole).count() as u64;
                let all = PageRange { first: 0, end: nr };
                prop_assert_eq!(holes.nr_in(all), nr_holes);
                let nr_data: u64 = holes.data_in(all).map(|part| part.end - part.first).sum();
                prop_assert_eq!(nr_data, nr - nr_holes);
                let mut before = None;
                for (&first, &end) in &holes.ranges {
                    prop_assert!(first < end && before.is_none_or(|before| before < first));
                    before = Some(end);
                }
            }
        }
    }
}
