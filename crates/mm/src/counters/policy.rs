//! Counts calls to a policy, and the outcomes of its answers.

use crate::policy::Point;

/// Counts per point.
pub type PolicyCounters = [PointCounters; Point::ALL.len()];

/// Counts of one point. The kernel decided every question that is neither honoured nor refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointCounters {
    /// Questions.
    pub nr_calls: u64,
    /// Answers that the kernel followed.
    pub nr_honoured: u64,
    /// Answers that it could not follow, or only partly.
    pub nr_refused: u64,
}
