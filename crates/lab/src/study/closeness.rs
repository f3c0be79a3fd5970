//! How close two changes are; [`super::score`] compares levels.
//!
//! ```text
//!   published -65%    ours -61.7%   within 10%        of the published change
//!                          -40%     within factor 2   half of it to twice it
//!                          -10%     same direction    only the sign agrees
//!                          +3%, 0   other direction
//! ```
//!
//! A change below the published table's resolution counts as no change, and two such changes are
//! within 10%. Single numbers are compared as numbers: they have no direction, and are close or
//! *apart*.

use serde::Serialize;

use super::file::Row;

/// Largest relative distance of a close number.
pub(super) const CLOSE: f64 = 0.1;
/// Distances up to this are rounding errors.
pub(super) const ROUNDING: f64 = 1e-9;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ValuePair {
    /// Without the change under study.
    pub before: Option<f64>,
    /// With the change under study.
    pub after: Option<f64>,
    /// The change in the row's measure: percent or points.
    pub change: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Closeness {
    /// Within 10%, or within the published table's resolution.
    #[serde(rename = "within_10_percent")]
    Close,
    /// Between half and twice the published number.
    #[serde(rename = "within_factor_2")]
    Factor,
    /// Only the direction agrees.
    #[serde(rename = "same_direction")]
    Direction,
    /// Single numbers more than a factor of 2 apart.
    #[serde(rename = "apart")]
    Apart,
    /// One rises, and the other falls or stays.
    #[serde(rename = "other_direction")]
    Other,
}

impl Closeness {
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Close => "within 10%",
            Self::Factor => "within a factor of 2",
            Self::Direction => "same direction",
            Self::Apart => "apart",
            Self::Other => "OTHER DIRECTION",
        }
    }

    #[must_use]
    pub const fn agrees(self) -> bool {
        matches!(self, Self::Close | Self::Factor | Self::Direction)
    }

    /// Compares two pairs of a row. With `is_undecided`, our rounds moved in both directions, which
    /// counts as no change.
    pub(super) fn of(
        row: &Row,
        published: ValuePair,
        ours: ValuePair,
        is_undecided: bool,
    ) -> Option<Self> {
        let way = |pair| direction(pair, row.same_within);
        match (way(published), if is_undecided { Some(0) } else { way(ours) }) {
            (Some(published), Some(ours)) if published != ours => Some(Self::Other),
            (Some(0), Some(0)) => Some(Self::Close),
            (Some(_), Some(_)) => Some(match (published.change, ours.change) {
                (Some(published), Some(ours)) => {
                    Self::of_sizes(published, ours, row.same_within).unwrap_or(Self::Direction)
                }
                _ => Self::Direction,
            }),
            (None, None) if row.unit == row.ours_unit => {
                let (published, ours) = (published.after?, ours.after?);
                Some(Self::of_sizes(published, ours, row.same_within).unwrap_or(Self::Apart))
            }
            _ => None,
        }
    }

    /// Compares two numbers of one sign; `None` if they are further apart than a factor of 2.
    fn of_sizes(published: f64, ours: f64, same_within: f64) -> Option<Self> {
        let apart = (ours - published).abs();
        if apart <= same_within.max(CLOSE * published.abs()) + ROUNDING {
            return Some(Self::Close);
        }
        let ratio = ours / published;
        (0.5..=2.0).contains(&ratio).then_some(Self::Factor)
    }
}

/// Returns the direction of a pair: -1, 0 or 1.
fn direction(pair: ValuePair, same_within: f64) -> Option<i8> {
    let change = match (pair.change, pair.before, pair.after) {
        (Some(change), ..) => change,
        // A rise from 0 is larger than any percentage.
        (None, Some(before), Some(after)) => (after - before).signum() * f64::MAX,
        _ => return None,
    };
    Some(if change.abs() <= same_within {
        0
    } else if change > 0.0 {
        1
    } else {
        -1
    })
}
