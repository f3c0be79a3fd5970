//! How often a policy was asked, and what came of its answers.

use crate::policy::Point;

/// Counts of all points.
pub type PolicyCounters = [PointCounters; Point::ALL.len()];

/// Counts of one point; what is neither honoured nor refused was left to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointCounters {
    /// Questions.
    pub nr_asked: u64,
    /// Answers that the kernel followed.
    pub nr_honoured: u64,
    /// Answers that it could not follow, or only in part.
    pub nr_refused: u64,
}
