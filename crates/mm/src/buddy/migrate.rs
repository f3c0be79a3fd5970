//! Migrate types and their fallbacks.

/// A pageblock's mobility. Differs: no high-atomic, CMA and isolate blocks (I.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MigrateType {
    /// Can be moved: user memory, page cache. All pageblocks start as movable.
    Movable,
    /// Cannot be moved: kernel memory.
    Unmovable,
    /// Cannot be moved but freed on demand: kernel caches.
    Reclaimable,
}

impl MigrateType {
    /// All types.
    pub const ALL: [Self; Self::NR] = [Self::Movable, Self::Unmovable, Self::Reclaimable];

    pub(super) const NR: usize = 3;

    /// Types that lend blocks to this one, in order of preference (docs/behaviour I.3).
    #[must_use]
    pub const fn donors(self) -> [Self; 2] {
        match self {
            Self::Unmovable => [Self::Reclaimable, Self::Movable],
            Self::Movable => [Self::Reclaimable, Self::Unmovable],
            Self::Reclaimable => [Self::Unmovable, Self::Movable],
        }
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }
}
