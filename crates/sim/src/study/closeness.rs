//! How close two changes are; [`super::score`] has the levels.
//!
//! ```text
//!   published -65%    ours -61.7%   within 10%        of the published change
//!                          -40%     within factor 2   half of it to twice it
//!                          -10%     same direction    no more than that
//!                          +3%, 0   other direction
//! ```
//!
//! A change below the resolution of the published table counts as no change, and two such changes
//! are within 10%. Single numbers are compared as numbers; they have no direction and are close or
//! *apart*.

use serde::Serialize;

use super::file::Row;

/// Share of the published number within which ours is as good as the same.
pub(super) const CLOSE: f64 = 0.1;
/// A distance that is no more than a rounding error of the two numbers.
pub(super) const ROUNDING: f64 = 1e-9;

/// Two numbers, or the second alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pair {
    /// Without the change under study.
    pub before: Option<f64>,
    /// With the change under study.
    pub after: Option<f64>,
    /// The change in the row's measure: percent or points.
    pub change: Option<f64>,
}

/// How close ours is to what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Closeness {
    /// Within 10% of it, or within what the published table resolves.
    #[serde(rename = "within_10_percent")]
    Close,
    /// Half of it to twice it.
    #[serde(rename = "within_factor_2")]
    Factor,
    /// Both rise or both fall, and that is all.
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
    /// Words for a table.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Close => "within 10%",
            Self::Factor => "within a factor of 2",
            Self::Direction => "same direction",
            Self::Apart => "apart",
            Self::Other => "OTHER DIRECTION",
        }
    }

    /// Whether ours goes where the published number goes.
    #[must_use]
    pub const fn agrees(self) -> bool {
        matches!(self, Self::Close | Self::Factor | Self::Direction)
    }

    /// That of two pairs of a row; `is_undecided`: rounds of ours went both ways, which is no change.
    pub(super) fn of(row: &Row, published: Pair, ours: Pair, is_undecided: bool) -> Option<Self> {
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

    /// The class of two numbers of one sign; `None` where they are further apart.
    fn of_sizes(published: f64, ours: f64, same_within: f64) -> Option<Self> {
        let apart = (ours - published).abs();
        if apart <= same_within.max(CLOSE * published.abs()) + ROUNDING {
            return Some(Self::Close);
        }
        let ratio = ours / published;
        (0.5..=2.0).contains(&ratio).then_some(Self::Factor)
    }
}

/// -1, 0 or 1: which way a pair goes.
fn direction(pair: Pair, same_within: f64) -> Option<i8> {
    let change = match (pair.change, pair.before, pair.after) {
        (Some(change), ..) => change,
        // From nothing to something: more than any share of it.
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
