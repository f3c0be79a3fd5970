//! Stretches: pages cleared and copied between two reschedule points (docs/behaviour D.4.7).
//!
//! ```text
//!   point | right ................ | left ... | near | point     no point inside: one stretch
//!   point | unit | point | unit | point                          units with points: one each
//! ```
//!
//! - I1: the pages of all stretches equal the pages moved by plans, page copies and collapses.

use std::collections::BTreeMap;

use largefolio_bulk::plan::{Plan, Step};

use super::{NR_UNITS, log2_of};

/// Whether pages are zeroed or copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StretchWork {
    /// Filled with zeroes.
    Clear,
    /// Copied from other frames.
    Copy,
}

/// Pages by log2 of their unit, rounded to the nearest power of two.
pub type ByUnit = [u32; NR_UNITS];

/// Content of one stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stretch {
    /// Pages zeroed.
    pub cleared: ByUnit,
    /// Pages copied.
    pub copied: ByUnit,
}

impl Stretch {
    /// Adds `nr` pages in units of `at_once` pages.
    pub fn add(&mut self, work: StretchWork, nr: u64, at_once: u64) {
        let by_unit = match work {
            StretchWork::Clear => &mut self.cleared,
            StretchWork::Copy => &mut self.copied,
        };
        let pages = &mut by_unit[log2_of(at_once)];
        *pages = pages.saturating_add(u32::try_from(nr).unwrap_or(u32::MAX));
    }

    /// Adds the pages of `plan` in its units.
    pub fn add_units(&mut self, work: StretchWork, plan: &Plan) {
        for unit in plan.units() {
            self.add(work, unit.nr, plan.at_once(unit));
        }
    }

    /// Returns the number of pages.
    #[must_use]
    pub fn nr_pages(&self) -> u64 {
        self.cleared.iter().chain(&self.copied).map(|&nr| u64::from(nr)).sum()
    }
}

/// Number of stretches of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretches {
    nr_cleared_alone: u64,
    nr_copied_alone: u64,
    longer: BTreeMap<Stretch, u64>,
}

impl Stretches {
    /// Counts the stretches of `plan`.
    pub fn plan(&mut self, work: StretchWork, plan: &Plan) {
        let (nr_units, nr_points) = (plan.nr_units(), plan.nr_points());
        let nr_pages = plan.shape().nr_pages;
        if nr_units == nr_pages && (nr_points == nr_units || nr_pages == 1) {
            self.alone(work, nr_pages);
            return;
        }
        let mut stretch = Stretch::default();
        for step in plan.steps() {
            match step {
                Step::Unit(unit) => stretch.add(work, unit.nr, plan.at_once(unit)),
                Step::Reschedule => self.stretch(std::mem::take(&mut stretch)),
            }
        }
        self.stretch(stretch);
    }

    /// Counts `nr` pages with a reschedule point after each.
    pub const fn alone(&mut self, work: StretchWork, nr: u64) {
        match work {
            StretchWork::Clear => self.nr_cleared_alone += nr,
            StretchWork::Copy => self.nr_copied_alone += nr,
        }
    }

    /// Counts a stretch; ignores an empty one between two points.
    pub fn stretch(&mut self, stretch: Stretch) {
        if stretch.nr_pages() > 0 {
            *self.longer.entry(stretch).or_default() += 1;
        }
    }

    /// Returns every kind of stretch with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Stretch, u64)> + '_ {
        let alone = |work, nr| {
            let mut stretch = Stretch::default();
            stretch.add(work, 1, 1);
            (stretch, nr)
        };
        let alone = [
            alone(StretchWork::Clear, self.nr_cleared_alone),
            alone(StretchWork::Copy, self.nr_copied_alone),
        ];
        let longer = self.longer.iter().map(|(&stretch, &nr)| (stretch, nr));
        alone.into_iter().chain(longer).filter(|&(_, nr)| nr > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Arch;
    use crate::rules::clear::{ClearOrder, ClearRules, Preemption};
    use crate::units::{Order, PageSize};

    /// Clears a folio around its middle page. Returns (pages, count) per kind of stretch.
    fn of(order: ClearOrder, preemption: Preemption, folio: u8) -> Vec<(u64, u64)> {
        let rules = ClearRules { order, preemption, ..ClearRules::stock() };
        let page = (1 << folio) / 2;
        let plan = rules.plan(Arch::X86_64, PageSize::K4, Order::new(folio), page);
        let mut stretches = Stretches::default();
        stretches.plan(StretchWork::Clear, &plan);
        let mut all: Vec<_> =
            stretches.iter().map(|(stretch, nr)| (stretch.nr_pages(), nr)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_stretch_ends_at_a_reschedule_point_or_with_the_folio_d_4_7() {
        use ClearOrder::{Converging, Merged, Posted};
        for model in [Preemption::None, Preemption::Voluntary] {
            assert_eq!(of(Converging, model, 9), [(1, 512)]);
            // Near, right and left of page 256 of 512.
            assert_eq!(of(Merged, model, 9), [(5, 1), (253, 1), (254, 1)]);
            // 1 GiB: left and right of the page, units of 32 MiB and one remainder each.
            assert_eq!(of(Merged, model, 18), [(5, 1), (8189, 1), (8190, 1), (8192, 30)]);
            assert_eq!(of(Posted, model, 18), [(2048, 128)]);
        }
        for model in [Preemption::Full, Preemption::Lazy] {
            for order in [Converging, Merged, Posted] {
                assert_eq!(of(order, model, 9), [(512, 1)], "{order:?}");
            }
            assert_eq!(of(Merged, model, 18), [(1 << 18, 1)]);
        }
    }

    #[test]
    fn a_stretch_knows_what_it_consists_of() {
        let mut stretch = Stretch::default();
        stretch.add(StretchWork::Copy, 512, 512);
        stretch.add(StretchWork::Clear, 3, 1);
        assert_eq!((stretch.copied[9], stretch.cleared[0], stretch.nr_pages()), (512, 3, 515));
    }
}
