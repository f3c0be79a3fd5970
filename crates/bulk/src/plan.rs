//! The order and units in which a folio's pages are cleared or copied, without bytes.
//!
//! A plan is a pure function of a rule, a shape and a preemption model (docs/behaviour D.4).
//! [`clear_folio`](crate::clear_folio) and [`copy_folio`](crate::copy_folio) run it.
//!
//! - I1: the units of a plan cover every page of the folio once.
//! - I2: the last unit is the near region or, in converging order, the faulting page.
//! - I3: without reschedule points, only the converging order divides an extent.
//!
//! Three extents around the fault page `n`, in the order in which they are done:
//!
//! ```text
//! 0            n-2  n  n+2             N-1
//! |--- left ---|-- near --|--- right ---|
//!       2nd         3rd         1st
//! ```
//!
//! The posted series computes the address of an extent's remainder with the page *shift* instead of
//! the page *size* (docs/behaviour D.4.2), which is wrong for an extent longer than 8 MiB that is
//! not a multiple of it. Differs: the remainder here begins where the last whole unit ended.

mod rule;
mod steps;

use thiserror::Error;

pub use rule::{Arch, MERGED_UNIT_BYTES, POSTED_UNIT_BYTES, PreemptBuild, Rule};
pub use steps::Steps;
use steps::{Pace, Piece, Points};

/// Pages on each side of the fault page that are cleared last (docs/behaviour D.4.2, D.4.3).
pub const NEAR_RADIUS_PAGES: u64 = 2;

/// A folio and its faulting page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Base pages; at least 1.
    pub nr_pages: u64,
    /// The page that is touched right after the folio is mapped; below `nr_pages`.
    pub fault_page: u64,
    /// Bytes of a base page; a power of two.
    pub page_bytes: u64,
}

/// Whether the kernel can be preempted while it clears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preemption {
    /// Models `none` and `voluntary`: other tasks wait for a reschedule point.
    Cooperative,
    /// Models `full` and `lazy`: an extent is one piece and needs no reschedule points.
    Preemptible,
}

/// The part of the folio a unit belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Region {
    /// After the near region; done first.
    Right,
    /// Before the near region; done second.
    Left,
    /// The fault page and its neighbours; done last, so they stay in the cache.
    Near,
    /// A whole folio in one ascending pass.
    Whole,
}

/// Consecutive pages done in one call, in ascending order (docs/behaviour D.4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// First page, counted from the folio's head.
    pub first: u64,
    /// Pages; at least 1.
    pub nr: u64,
    /// Region of its pages.
    pub region: Region,
}

/// Next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Clear or copy these pages.
    Unit(Unit),
    /// Let another task run.
    Reschedule,
}

/// Why a shape has no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The folio has no pages.
    #[error("a folio cannot have 0 pages; pass at least 1")]
    NoPages,
    /// The fault page is outside the folio.
    #[error(
        "a folio of {nr_pages} pages has no fault page {fault_page}; pass one of 0..{nr_pages}"
    )]
    FaultPageOutside {
        /// The requested page.
        fault_page: u64,
        /// Pages of the folio.
        nr_pages: u64,
    },
    /// Not a valid page size.
    #[error("the base page size cannot be {page_bytes} bytes; pass a power of two")]
    PageBytes {
        /// The requested size.
        page_bytes: u64,
    },
    /// The folio's length in bytes does not fit in 64 bits.
    #[error("{nr_pages} pages of {page_bytes} bytes add up to more bytes than 64 bits can count")]
    TooLong {
        /// Requested pages.
        nr_pages: u64,
        /// Bytes per page.
        page_bytes: u64,
    },
}

/// A checked order of clearing or copying.
///
/// ```
/// # use largefolio_bulk::plan::{Plan, Preemption, Rule, Shape};
/// let shape = Shape { nr_pages: 512, fault_page: 255, page_bytes: 4096 };
/// let rule = Rule::Merged { unit_bytes: 32 << 20 };
/// let plan = Plan::new(rule, shape, Preemption::Preemptible).unwrap();
/// let units: Vec<_> = plan.units().map(|unit| (unit.first, unit.first + unit.nr - 1)).collect();
/// assert_eq!(units, [(258, 511), (0, 252), (253, 257)]); // docs/behaviour D.4.3
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    shape: Shape,
    at_once_pages: u64,
    pieces: [Piece; 3],
}

impl Plan {
    /// Plans the order of `rule` for `shape` under `preemption`.
    ///
    /// # Errors
    /// [`PlanError`] if the shape is not a valid folio.
    pub fn new(rule: Rule, shape: Shape, preemption: Preemption) -> Result<Self, PlanError> {
        shape.validate()?;
        let whole = |unit_bytes, points| one_piece(shape, unit_bytes, preemption, points);
        let extents = |unit_bytes, points| three_extents(shape, unit_bytes, preemption, points);
        let pieces = match rule {
            Rule::Converging { straight_over_pages } if shape.nr_pages > straight_over_pages => {
                let points = preemption.points(Points::Before);
                [
                    Piece::extent(0, shape.nr_pages, Region::Whole, Pace { unit_pages: 1, points }),
                    EMPTY,
                    EMPTY,
                ]
            }
            Rule::Converging { .. } => {
                [Piece::converging(shape, preemption.points(Points::Before)), EMPTY, EMPTY]
            }
            Rule::Posted { straight_over_pages, unit_bytes }
                if shape.nr_pages > straight_over_pages =>
            {
                whole(unit_bytes, Points::After)
            }
            Rule::Posted { unit_bytes, .. } => extents(unit_bytes, Points::After),
            Rule::Merged { unit_bytes } => extents(unit_bytes, Points::Before),
            Rule::OnePass { unit_bytes } => whole(unit_bytes, Points::Before),
        };
        let at_once_pages = match rule {
            Rule::Converging { .. } => 1,
            // A unit smaller than a page: page by page (D.4.4).
            Rule::Merged { unit_bytes } | Rule::OnePass { unit_bytes }
                if unit_bytes < shape.page_bytes =>
            {
                1
            }
            Rule::Posted { .. } | Rule::Merged { .. } | Rule::OnePass { .. } => u64::MAX,
        };
        Ok(Self { shape, at_once_pages, pieces })
    }

    /// Returns the plan's shape.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Units and reschedule points in order.
    #[must_use]
    pub const fn steps(&self) -> Steps {
        Steps::new(self.pieces)
    }

    /// Counts the units in constant time.
    #[must_use]
    pub fn nr_units(&self) -> u64 {
        self.pieces.iter().map(Piece::nr_units).sum()
    }

    /// Counts the reschedule points in constant time.
    #[must_use]
    pub fn nr_points(&self) -> u64 {
        self.pieces.iter().map(Piece::nr_points).sum()
    }

    /// Pages of `unit` that the kernel's primitive clears per call.
    #[must_use]
    pub fn at_once(&self, unit: Unit) -> u64 {
        unit.nr.min(self.at_once_pages)
    }

    /// The units in order, without reschedule points.
    pub fn units(&self) -> impl Iterator<Item = Unit> + use<> {
        self.steps().filter_map(|step| match step {
            Step::Unit(unit) => Some(unit),
            Step::Reschedule => None,
        })
    }
}

const EMPTY: Piece =
    Piece::extent(0, 0, Region::Near, Pace { unit_pages: 1, points: Points::Never });

impl Shape {
    /// Bytes of the folio.
    #[must_use]
    pub const fn len_bytes(self) -> u64 {
        self.nr_pages * self.page_bytes // Checked by `validate`.
    }

    /// Checks the shape.
    ///
    /// # Errors
    /// Returns the first broken rule.
    pub fn validate(self) -> Result<(), PlanError> {
        let Self { nr_pages, fault_page, page_bytes } = self;
        if nr_pages == 0 {
            return Err(PlanError::NoPages);
        }
        if fault_page >= nr_pages {
            return Err(PlanError::FaultPageOutside { fault_page, nr_pages });
        }
        if !page_bytes.is_power_of_two() {
            return Err(PlanError::PageBytes { page_bytes });
        }
        if nr_pages.checked_mul(page_bytes).is_none() {
            return Err(PlanError::TooLong { nr_pages, page_bytes });
        }
        Ok(())
    }

    fn region(self, page: u64) -> Region {
        if page.abs_diff(self.fault_page) <= NEAR_RADIUS_PAGES {
            Region::Near
        } else if page > self.fault_page {
            Region::Right
        } else {
            Region::Left
        }
    }
}

impl Preemption {
    const fn points(self, points: Points) -> Points {
        match self {
            Self::Cooperative => points,
            Self::Preemptible => Points::Never,
        }
    }

    fn pace(self, unit_bytes: u64, page_bytes: u64, points: Points) -> Pace {
        let unit_pages = match self {
            Self::Cooperative => (unit_bytes / page_bytes).max(1),
            Self::Preemptible => u64::MAX,
        };
        Pace { unit_pages, points: self.points(points) }
    }
}

fn one_piece(shape: Shape, unit_bytes: u64, preemption: Preemption, points: Points) -> [Piece; 3] {
    let pace = preemption.pace(unit_bytes, shape.page_bytes, points);
    [Piece::extent(0, shape.nr_pages, Region::Whole, pace), EMPTY, EMPTY]
}

fn three_extents(
    shape: Shape,
    unit_bytes: u64,
    preemption: Preemption,
    points: Points,
) -> [Piece; 3] {
    let pace = preemption.pace(unit_bytes, shape.page_bytes, points);
    let low = shape.fault_page.saturating_sub(NEAR_RADIUS_PAGES);
    let end = shape.fault_page.saturating_add(NEAR_RADIUS_PAGES + 1).min(shape.nr_pages);
    [
        Piece::extent(end, shape.nr_pages - end, Region::Right, pace),
        Piece::extent(0, low, Region::Left, pace),
        Piece::extent(low, end - low, Region::Near, pace),
    ]
}
