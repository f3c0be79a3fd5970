//! The order in which a new folio is zeroed and a huge page copied (docs/behaviour D.4).
//!
//! Corresponds to: `folio_zero_user`, `clear_huge_page`, `copy_user_large_folio`, `folio_mc_copy`.
//!
//! Owns a kernel's choice of order and preemption model. [`largefolio_bulk::plan`] defines the
//! orders, and [`crate::ram`] executes them.

pub use largefolio_bulk::plan::Plan;
use largefolio_bulk::plan::{self, PreemptBuild, Rule, Shape};
use serde::{Deserialize, Serialize};

use super::Arch;
use crate::units::{Order, PageSize};

/// How kernels differ in clearing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearRules {
    /// Order of the pages.
    pub order: ClearOrder,
    /// Whether other tasks must wait for a reschedule point.
    pub preemption: Preemption,
    /// Whether several pages are copied in one go.
    pub copy: CopyOrder,
    /// Whether arm64 has an operation for several pages.
    pub arm64_bulk: Arm64Bulk,
}

/// D.4.1 .. D.4.3: the order in which a folio is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClearOrder {
    /// \[..6.19\] page by page, from both ends towards the faulting page.
    Converging,
    /// Series 001 as posted: three extents, the near one last. Only on x86-64, in a kernel built
    /// with `CONFIG_PREEMPTION`.
    Posted,
    /// \[7.0+\] three extents on every architecture, the near one last.
    Merged,
    /// Ascending: a baseline for comparison, which no kernel uses for a fault.
    OnePass,
}

/// D.4.5: the pieces in which several pages are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyOrder {
    /// \[all\] page by page: towards the faulting page; in compaction and collapse ascending.
    Pages,
    /// Left open by series 001 (K.2.5): the extents and units of merged clearing, or one ascending
    /// pass if no fault waits for a page.
    Extents,
}

/// D.4.2: the preemption model, set by distribution and command line. Debian uses voluntary up to
/// 6.12 and lazy from 6.16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preemption {
    /// The kernel runs until it reaches a reschedule point.
    None,
    /// The same with more points, but none in clearing and copying.
    Voluntary,
    /// A more important task runs immediately, so an extent is cleared in one piece.
    Full,
    /// Like full, but a task of equal priority waits for the next tick.
    Lazy,
}

impl Preemption {
    /// Name in exports and kernel files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Voluntary => "voluntary",
            Self::Full => "full",
            Self::Lazy => "lazy",
        }
    }

    const fn of_plans(self) -> plan::Preemption {
        match self {
            Self::None | Self::Voluntary => plan::Preemption::Cooperative,
            Self::Full | Self::Lazy => plan::Preemption::Preemptible,
        }
    }
}

/// K.2.5: how an arm64 kernel zeroes and copies several pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm64Bulk {
    /// \[..7.3\] page by page in every extent.
    None,
    /// A loop of `DC ZVA` (or of loads and stores) over the extent, in units of 512 KiB if other
    /// tasks wait: the suggestion for architectures without a suitable instruction.
    Loop,
    /// `SETP`/`CPYP` of `FEAT_MOPS` over the whole extent, in the units of x86-64.
    Mops,
}

/// Unit of a loop under `none` and `voluntary` (K.2.5).
const LOOP_UNIT_BYTES: u64 = 512 << 10;

impl ClearRules {
    /// Linux 6.18 as packaged, with lazy preemption.
    #[must_use]
    pub const fn stock() -> Self {
        let (order, preemption) = (ClearOrder::Converging, Preemption::Lazy);
        Self { order, preemption, copy: CopyOrder::Pages, arm64_bulk: Arm64Bulk::None }
    }

    /// The plan to clear a folio of `order` whose page `fault_page` is used next (D.4).
    ///
    /// # Panics
    /// If the folio has no such page.
    ///
    /// ```
    /// use largefolio_mm::rules::Arch;
    /// use largefolio_mm::rules::clear::{ClearOrder, ClearRules};
    /// use largefolio_mm::units::{Order, PageSize};
    ///
    /// let merged = ClearRules { order: ClearOrder::Merged, ..ClearRules::stock() };
    /// let plan = merged.plan(Arch::X86_64, PageSize::K4, Order::new(4), 7);
    /// let extents: Vec<_> = plan.units().map(|unit| (unit.first, unit.nr)).collect();
    /// assert_eq!(extents, [(10, 6), (0, 5), (5, 5)]); // D.4.3: [10,15], [0,4], [5,9]
    /// ```
    #[must_use]
    pub fn plan(self, arch: Arch, page: PageSize, order: Order, fault_page: u64) -> Plan {
        self.plan_by(self.rule(arch, page), page, order, fault_page)
    }

    /// The plan to copy a huge page whose base page `fault_page` is used next (D.4.5): page by page
    /// towards it, whatever the order of clearing, or in extents.
    ///
    /// # Panics
    /// If the huge page has no such base page.
    ///
    /// ```
    /// use largefolio_mm::rules::Arch;
    /// use largefolio_mm::rules::clear::{ClearRules, CopyOrder};
    /// use largefolio_mm::units::{Order, PageSize};
    ///
    /// let extents = ClearRules { copy: CopyOrder::Extents, ..ClearRules::stock() };
    /// let plan = extents.copy_plan(Arch::X86_64, PageSize::K4, Order::new(9), 0);
    /// assert_eq!(plan.nr_units(), 2); // what lies right of the page, then the page
    /// assert_eq!(ClearRules::stock().copy_plan(Arch::X86_64, PageSize::K4, Order::new(9), 0).nr_units(), 512);
    /// ```
    #[must_use]
    pub fn copy_plan(self, arch: Arch, page: PageSize, order: Order, fault_page: u64) -> Plan {
        let rule = match self.copy {
            CopyOrder::Pages => Rule::converging(page.bytes()),
            CopyOrder::Extents => self.merged(arch),
        };
        self.plan_by(rule, page, order, fault_page)
    }

    /// The plan to move `nr_pages` consecutive pages when no fault waits: ascending (D.4.5).
    ///
    /// # Panics
    /// If `nr_pages` is 0.
    #[must_use]
    pub fn move_plan(self, arch: Arch, page: PageSize, nr_pages: u64) -> Plan {
        let unit_bytes = match (self.copy, self.merged(arch)) {
            (CopyOrder::Extents, Rule::Merged { unit_bytes }) => unit_bytes,
            _ => 1,
        };
        let shape = Shape { nr_pages, fault_page: 0, page_bytes: page.bytes() };
        self.plan_of(Rule::OnePass { unit_bytes }, shape)
    }

    fn plan_by(self, rule: Rule, page: PageSize, order: Order, fault_page: u64) -> Plan {
        let nr_pages = order.nr_pages();
        self.plan_of(rule, Shape { nr_pages, fault_page, page_bytes: page.bytes() })
    }

    fn plan_of(self, rule: Rule, shape: Shape) -> Plan {
        match Plan::new(rule, shape, self.preemption.of_plans()) {
            Ok(plan) => plan,
            Err(error) => panic!("a folio cannot be cleared or copied this way: {error}"),
        }
    }

    const fn merged(self, arch: Arch) -> Rule {
        match (arch, self.arm64_bulk) {
            (Arch::X86_64, _) | (Arch::Arm64, Arm64Bulk::Mops) => Rule::merged(plan::Arch::X86_64),
            (Arch::Arm64, Arm64Bulk::Loop) => Rule::Merged { unit_bytes: LOOP_UNIT_BYTES },
            (Arch::Arm64, Arm64Bulk::None) => Rule::merged(plan::Arch::Other),
        }
    }

    fn rule(self, arch: Arch, page: PageSize) -> Rule {
        match self.order {
            ClearOrder::Converging => Rule::converging(page.bytes()),
            ClearOrder::Posted => Rule::posted(page.bytes(), arch.into(), PreemptBuild::Preemption),
            ClearOrder::Merged => self.merged(arch),
            ClearOrder::OnePass => Rule::OnePass { unit_bytes: plan::MERGED_UNIT_BYTES },
        }
    }
}

impl From<Arch> for plan::Arch {
    fn from(arch: Arch) -> Self {
        match arch {
            Arch::X86_64 => Self::X86_64,
            Arch::Arm64 => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First pages, last pages and number of reschedule points of the plan for a 2 MiB folio.
    fn extents(rules: ClearRules, arch: Arch, fault_page: u64) -> (Vec<(u64, u64)>, u64) {
        let plan = rules.plan(arch, PageSize::K4, Order::new(9), fault_page);
        let extents = plan.units().map(|unit| (unit.first, unit.first + unit.nr - 1)).collect();
        (extents, plan.nr_points())
    }

    #[test]
    fn an_order_is_that_of_the_kernel_on_the_architecture() {
        let rules = |order, preemption| ClearRules { order, preemption, ..ClearRules::stock() };
        let three = vec![(258, 511), (0, 252), (253, 257)];
        let (cooperative, preemptible) = (Preemption::Voluntary, Preemption::Lazy);
        for (order, nr_points) in [(ClearOrder::Merged, 3), (ClearOrder::Posted, 3)] {
            let of = |preemption| extents(rules(order, preemption), Arch::X86_64, 255);
            assert_eq!(of(cooperative), (three.clone(), nr_points), "{order:?}");
            assert_eq!(of(preemptible), (three.clone(), 0), "{order:?}");
        }
        let whole = extents(rules(ClearOrder::OnePass, preemptible), Arch::X86_64, 255);
        assert_eq!(whole, (vec![(0, 511)], 0));
        let converging = |preemption| rules(ClearOrder::Converging, preemption);
        for (preemption, points) in [(cooperative, 512), (preemptible, 0)] {
            let (pages, nr_points) = extents(converging(preemption), Arch::X86_64, 255);
            assert_eq!((pages.len(), pages[511], nr_points), (512, (255, 255), points));
        }
        // arm64: the posted series does not apply, the merged form goes page by page.
        let posted = extents(rules(ClearOrder::Posted, cooperative), Arch::Arm64, 255);
        assert_eq!(posted, extents(converging(cooperative), Arch::Arm64, 255));
        let (pages, nr_points) = extents(rules(ClearOrder::Merged, cooperative), Arch::Arm64, 255);
        assert_eq!(
            (pages.len(), pages[0], pages[511], nr_points),
            (512, (258, 258), (257, 257), 512)
        );
        assert_eq!(extents(rules(ClearOrder::Merged, preemptible), Arch::Arm64, 255), (three, 0));
        // D.4.4: nothing interrupts an extent, but arm64 still clears it page by page.
        for (arch, nr) in [(Arch::X86_64, 254), (Arch::Arm64, 1)] {
            let merged = rules(ClearOrder::Merged, preemptible);
            let plan = merged.plan(arch, PageSize::K4, Order::new(9), 255);
            assert_eq!(plan.units().next().map(|unit| plan.at_once(unit)), Some(nr), "{arch:?}");
        }
    }

    #[test]
    fn a_copy_converges_whatever_the_order_of_clearing_d_4_5() {
        let merged = ClearRules { order: ClearOrder::Merged, ..ClearRules::stock() };
        let plan = merged.copy_plan(Arch::X86_64, PageSize::K4, Order::new(3), 3);
        let pages: Vec<u64> = plan.units().map(|unit| unit.first).collect();
        assert_eq!(pages, [7, 6, 0, 5, 1, 4, 2, 3]);
    }

    #[test]
    fn a_copy_in_extents_has_those_of_the_merged_form_k_2_5() {
        let with =
            |preemption| ClearRules { preemption, copy: CopyOrder::Extents, ..ClearRules::stock() };
        let of = |preemption, arch, order| {
            let plan = with(preemption).copy_plan(arch, PageSize::K4, Order::new(order), 255);
            (plan.nr_units(), plan.nr_points())
        };
        let (cooperative, preemptible) = (Preemption::Voluntary, Preemption::Lazy);
        assert_eq!(of(cooperative, Arch::X86_64, 9), (3, 3));
        assert_eq!(of(preemptible, Arch::X86_64, 9), (3, 0));
        // 1 GiB: 32 units of 32 MiB after the page, then the part before it, then the near pages.
        assert_eq!(of(cooperative, Arch::X86_64, 18), (34, 34));
        assert_eq!(of(cooperative, Arch::Arm64, 9), (512, 512), "no primitive");
    }

    #[test]
    fn what_nobody_waits_for_is_moved_upwards_by_pages_or_in_one_go() {
        for (copy, arch, nr_at_once) in [
            (CopyOrder::Pages, Arch::X86_64, 1),
            (CopyOrder::Extents, Arch::X86_64, 300),
            (CopyOrder::Extents, Arch::Arm64, 1),
        ] {
            for (preemption, nr_points) in
                [(Preemption::None, 300 / nr_at_once), (Preemption::Full, 0)]
            {
                let rules = ClearRules { preemption, copy, ..ClearRules::stock() };
                let plan = rules.move_plan(arch, PageSize::K4, 300);
                let at_once = plan.units().map(|unit| plan.at_once(unit)).max();
                assert_eq!(
                    (at_once, plan.nr_points()),
                    (Some(nr_at_once), nr_points),
                    "{copy:?} {arch:?} {preemption:?}"
                );
                let mut at = 0;
                for unit in plan.units() {
                    assert_eq!(unit.first, at);
                    at += unit.nr;
                }
                assert_eq!(at, 300);
            }
        }
    }

    #[test]
    fn arm64_clears_and_copies_in_extents_with_a_primitive_k_2_5() {
        let of = |arm64_bulk, preemption, order| {
            let (order_of_clearing, copy) = (ClearOrder::Merged, CopyOrder::Extents);
            let rules = ClearRules { order: order_of_clearing, preemption, copy, arm64_bulk };
            let plan = rules.plan(Arch::Arm64, PageSize::K4, Order::new(order), 255);
            assert_eq!(plan, rules.copy_plan(Arch::Arm64, PageSize::K4, Order::new(order), 255));
            let at_once = plan.units().map(|unit| plan.at_once(unit)).max();
            (plan.nr_units(), at_once)
        };
        let (voluntary, full) = (Preemption::Voluntary, Preemption::Full);
        assert_eq!(of(Arm64Bulk::None, voluntary, 9), (512, Some(1)));
        assert_eq!(of(Arm64Bulk::None, full, 9), (3, Some(1)));
        // 253 and 254 pages in units of 128, then the near pages.
        assert_eq!(of(Arm64Bulk::Loop, voluntary, 9), (5, Some(128)));
        assert_eq!(of(Arm64Bulk::Loop, full, 9), (3, Some(254)));
        assert_eq!(of(Arm64Bulk::Mops, voluntary, 9), (3, Some(254)));
        assert_eq!(of(Arm64Bulk::Mops, voluntary, 18), (34, Some(8192)));
        // x86-64 has its own instruction.
        let rules = ClearRules { order: ClearOrder::Merged, ..ClearRules::stock() };
        let with = |arm64_bulk| {
            let rules = ClearRules { arm64_bulk, ..rules };
            rules.plan(Arch::X86_64, PageSize::K4, Order::new(9), 255)
        };
        assert_eq!(with(Arm64Bulk::None), with(Arm64Bulk::Loop));
    }
}
