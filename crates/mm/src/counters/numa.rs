//! Counts of pages by node.

/// Events of a machine with several nodes; all zero with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaCounters {
    /// Pages allocated on the node of the CPU.
    pub nr_local_pages: u64,
    /// Pages allocated on another node.
    pub nr_other_pages: u64,
    /// Folios that mbind, `move_pages` or `migrate_pages` moved.
    pub nr_moved_folios: u64,
    /// Their pages.
    pub nr_moved_pages: u64,
    /// Folios that those calls could not move.
    pub nr_not_moved: u64,
}
