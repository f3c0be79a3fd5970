//! Counts of pages by node.

/// Events of a machine with several nodes; all zero with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaCounters {
    /// Pages allocated on the node of the CPU.
    pub nr_local_pages: u64,
    /// Pages allocated on another node.
    pub nr_other_pages: u64,
    /// Folios that moved: by mbind, `move_pages`, `migrate_pages` or a hinting fault.
    pub nr_moved_folios: u64,
    /// Their pages.
    pub nr_moved_pages: u64,
    /// Folios that could not move.
    pub nr_not_moved: u64,
    /// Pages that NUMA balancing marked.
    pub nr_marked_pages: u64,
    /// Hinting faults: uses of marked pages.
    pub nr_hints: u64,
    /// Pages that hinting faults moved; part of `nr_moved_pages`.
    pub nr_hint_moved_pages: u64,
}
