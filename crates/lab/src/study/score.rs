//! Which rows count, and which of them match.
//!
//! ```text
//!   an input is the series' own number              own input         not counted
//!   ours is another quantity than the published     other quantity    not counted
//!   both stay at zero                               zero              not counted
//!   level and change agree                          match             counted
//!     in an estimate with assumed constants         coincidence       counted, no match
//!   anything else                                   miss              counted
//! ```
//!
//! An input comes out again unchanged, and a model without any rule also predicts 0 for 0. So only
//! *independent* rows count.

use serde::Serialize;

use super::closeness::{CLOSE, Closeness, ROUNDING, ValuePair};
use super::file::{Change, Row};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// Level and change agree with the published ones.
    Match,
    /// Level and change agree, but the estimate uses assumed constants.
    Coincidence,
    Miss,
    /// Both are zero, before and after.
    Zero,
    OtherQuantity,
    /// One of our inputs is the series' own number.
    OwnInput,
}

impl Score {
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::Coincidence => "coincidence",
            Self::Miss => "no match",
            Self::Zero => "not counted: zero",
            Self::OtherQuantity => "not counted: other quantity",
            Self::OwnInput => "not counted: own input",
        }
    }

    /// Returns whether the row can confirm or refute the model.
    #[must_use]
    pub const fn is_independent(self) -> bool {
        matches!(self, Self::Match | Self::Coincidence | Self::Miss)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    pub(super) published: ValuePair,
    pub(super) ours: ValuePair,
    /// For the changes, or for two single numbers.
    pub(super) closeness: Option<Closeness>,
    pub(super) has_own_input: bool,
    pub(super) is_assumed: bool,
    /// Rounds moved in both directions, so nothing changed.
    pub(super) is_undecided: bool,
}

impl Score {
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

/// Returns how close the levels are: the worse of both ends. `None` if no level was published, or
/// ours has another unit.
pub(super) fn level(row: &Row, published: ValuePair, ours: ValuePair) -> Option<Closeness> {
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

fn is_met(row: &Row, compared: &Compared) -> bool {
    let Compared { published, ours, closeness, .. } = *compared;
    let is_level_met = match level(row, published, ours) {
        Some(level) => level == Closeness::Close,
        // Only the change was published.
        None => published.before.is_none() && published.after.is_none(),
    };
    // A rise from zero has no percentage; the levels decide.
    let has_change = published.change.is_some() || ours.change.is_some();
    is_level_met && (!has_change || closeness == Some(Closeness::Close))
}

fn is_zero(row: &Row, compared: &Compared) -> bool {
    let Compared { published, ours, is_undecided, .. } = *compared;
    let nothing = if row.change == Change::Points { row.same_within } else { 0.0 };
    let is_nothing = |level: Option<f64>| level.is_none_or(|level| level.abs() <= nothing);
    let has_no_level = |pair: ValuePair| is_nothing(pair.before) && is_nothing(pair.after);
    let stays = |pair: ValuePair| pair.change.is_none_or(|change| change.abs() <= row.same_within);
    let has_levels = published.before.is_some() || published.after.is_some();
    let is_comparable = has_levels && row.unit == row.ours_unit;
    stays(published)
        && (is_undecided || stays(ours))
        && has_no_level(published)
        && (!is_comparable || has_no_level(ours))
}

#[cfg(test)]
mod tests;
