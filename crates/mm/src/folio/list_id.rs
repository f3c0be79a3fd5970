//! The names of a group's LRU lists.

/// The kind of memory on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LruKind {
    /// Memory that only swap space can hold: anonymous and shared memory.
    Anon,
    /// Memory that can be read again from a file, and memory freed by `MADV_FREE`.
    File,
}

impl LruKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Anon, Self::File];
}

/// Which of a kind's two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Scanned by reclaim, oldest first.
    Inactive,
    /// Must become inactive before it can be evicted.
    Active,
}

/// Lists per group: two per kind, or the generations of each kind.
pub(crate) const NR_LISTS: usize = 8;

/// One list of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListId {
    /// Kind of memory.
    pub kind: LruKind,
    /// Position among the kind's lists: 0 inactive, 1 active; or the generation.
    nr: u8,
}

impl ListId {
    /// The inactive and active lists, in the order in which reclaim scans them.
    pub const ALL: [Self; 4] = [
        Self::new(LruKind::Anon, Age::Inactive),
        Self::new(LruKind::Anon, Age::Active),
        Self::new(LruKind::File, Age::Inactive),
        Self::new(LruKind::File, Age::Active),
    ];

    /// The list of `kind` and `age`.
    #[must_use]
    pub const fn new(kind: LruKind, age: Age) -> Self {
        Self { kind, nr: age as u8 }
    }

    /// The list of a generation, 0 .. 3.
    #[must_use]
    pub const fn generation(kind: LruKind, nr: u8) -> Self {
        Self { kind, nr }
    }

    /// Which of the kind's two lists it is.
    #[must_use]
    pub const fn age(self) -> Age {
        if self.nr == Age::Active as u8 { Age::Active } else { Age::Inactive }
    }

    pub(super) const fn at(self) -> usize {
        self.kind as usize * (NR_LISTS / 2) + self.nr as usize
    }
}

pub(super) fn nr_of_kind(nr_pages: &[u64; NR_LISTS], kind: LruKind) -> u64 {
    let of_kind = nr_pages.iter().skip(kind as usize * (NR_LISTS / 2)).take(NR_LISTS / 2);
    of_kind.sum()
}
