//! Which rows count, and which of those match.
//!
//! ```text
//!   an input is the series' own number              own input         not counted
//!   ours is another quantity than the published     other quantity    not counted
//!   both stay at nothing                            zero              not counted
//!   level and change are met                        match             counted
//!     by an estimate with assumed constants         coincidence       counted, no match
//!   anything else                                   miss              counted
//! ```
//!
//! A number that was put in comes out again, and a model without any rule also meets 0 with 0. So
//! only *independent* rows count.

use serde::Serialize;

use super::closeness::{CLOSE, Closeness, Pair, ROUNDING};
use super::file::{Change, Row};

/// Whether a row counts, and whether it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// Level and change are those published.
    Match,
    /// So they are, but the estimate rests on assumed constants.
    Coincidence,
    /// Level or change is another.
    Miss,
    /// Both are nothing, before and after.
    Zero,
    /// Ours is another quantity than the published one.
    OtherQuantity,
    /// One of our inputs is the series' own number.
    OwnInput,
}

impl Score {
    /// Words for a table.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::Coincidence => "coincidence",
            Self::Miss => "no match",
            Self::Zero => "not counted: zero",
            Self::OtherQuantity => "not counted: other quantity",
            Self::OwnInput => "not counted: own input",
        }
    }

    /// Whether the row can confirm or refute the model.
    #[must_use]
    pub const fn is_independent(self) -> bool {
        matches!(self, Self::Match | Self::Coincidence | Self::Miss)
    }
}

/// What decides a score, but for the row itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    pub(super) published: Pair,
    pub(super) ours: Pair,
    /// Of the changes, or of two single numbers.
    pub(super) closeness: Option<Closeness>,
    /// Whether one of our inputs is the series' own number.
    pub(super) has_own_input: bool,
    /// Whether the estimate rests on assumed constants.
    pub(super) is_assumed: bool,
    /// Whether rounds of a measurement went both ways: nothing changed.
    pub(super) is_undecided: bool,
}

impl Score {
    /// The score of a row that has both sides.
    pub(super) fn of(row: &Row, compared: Compared) -> Self {
        if compared.has_own_input {
            Self::OwnInput
        } else if row.other_quantity.is_some() {
            Self::OtherQuantity
        } else if is_zero(row, &compared) {
            Self::Zero
        } else if !is_met(row, &compared) {
            Self::Miss
        } else if compared.is_assumed {
            Self::Coincidence
        } else {
            Self::Match
        }
    }
}

/// How close the levels are: the worse of both ends. `None` where no level was published, or ours
/// has another unit.
pub(super) fn level(row: &Row, published: Pair, ours: Pair) -> Option<Closeness> {
    if row.unit != row.ours_unit {
        return None;
    }
    let ends = [(published.before, ours.before), (published.after, ours.after)];
    let all = ends.into_iter().filter_map(|(published, ours)| {
        let published = published?;
        Some(ours.map_or(Closeness::Apart, |ours| of_level(row, published, ours)))
    });
    all.max()
}

fn of_level(row: &Row, published: f64, ours: f64) -> Closeness {
    let resolution = match row.change {
        Change::Points => row.same_within,
        Change::Percent | Change::Speed => row.same_within / 100.0 * published.abs(),
    };
    let ratio = ours / published;
    if (ours - published).abs() <= resolution.max(CLOSE * published.abs()) + ROUNDING {
        Closeness::Close
    } else if published != 0.0 && (0.5..=2.0).contains(&ratio) {
        Closeness::Factor
    } else {
        Closeness::Apart
    }
}

/// Whether every published number is met.
fn is_met(row: &Row, compared: &Compared) -> bool {
    let Compared { published, ours, closeness, .. } = *compared;
    let is_level_met = match level(row, published, ours) {
        Some(level) => level == Closeness::Close,
        // Only the change was published.
        None => published.before.is_none() && published.after.is_none(),
    };
    // From nothing to something has no percentage: the levels say it.
    let has_change = published.change.is_some() || ours.change.is_some();
    is_level_met && (!has_change || closeness == Some(Closeness::Close))
}

/// Whether both sides are nothing and stay so.
fn is_zero(row: &Row, compared: &Compared) -> bool {
    let Compared { published, ours, is_undecided, .. } = *compared;
    let nothing = if row.change == Change::Points { row.same_within } else { 0.0 };
    let is_nothing = |level: Option<f64>| level.is_none_or(|level| level.abs() <= nothing);
    let has_no_level = |pair: Pair| is_nothing(pair.before) && is_nothing(pair.after);
    let stays = |pair: Pair| pair.change.is_none_or(|change| change.abs() <= row.same_within);
    let has_levels = published.before.is_some() || published.after.is_some();
    let is_comparable = has_levels && row.unit == row.ours_unit;
    stays(published)
        && (is_undecided || stays(ours))
        && has_no_level(published)
        && (!is_comparable || has_no_level(ours))
}

#[cfg(test)]
mod tests;
