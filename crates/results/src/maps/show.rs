//! How much of a look is shown.

use super::group::Sort;

/// Mappings that are judged for a row.
const JUDGED_OF_ROW: usize = 8;
/// Characters of a line that the columns beside a name take.
const BESIDE: usize = 68;
/// Characters a name gets at least.
pub(super) const NAME_MIN: usize = 24;

/// How much is shown, in which order.
#[derive(Clone, Copy, Debug)]
pub struct Show {
    /// Rows of each table.
    pub nr_rows: usize,
    /// Their order.
    pub sort: Sort,
    /// Characters of a line.
    pub width: usize,
}

impl Show {
    /// Mappings that are judged: more than are shown, since they are grouped by file.
    #[must_use]
    pub const fn nr_judged(self) -> usize {
        self.nr_rows.saturating_mul(JUDGED_OF_ROW)
    }

    /// Characters of a name beside the columns of a table.
    pub(super) fn name_chars(self) -> usize {
        self.width.saturating_sub(BESIDE).max(NAME_MIN)
    }
}
