//! Which lists reclaim has in each group.

/// What a list holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LruKind {
    /// Memory that only swap space can take: anonymous and shared memory.
    Anon,
    /// Memory that a file can give again, and what `MADV_FREE` gave up.
    File,
}

impl LruKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Anon, Self::File];
}

/// Which of the two lists of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Looked at by reclaim, oldest first.
    Inactive,
    /// Not evicted before it was inactive once more.
    Active,
}

/// Lists of a group: 2 of each kind, or the generations of each kind.
pub(crate) const NR_LISTS: usize = 8;

/// One of the lists of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListId {
    /// Which memory it holds.
    pub kind: LruKind,
    /// Position among the lists of its kind: 0 inactive and 1 active, or the generation.
    nr: u8,
}

impl ListId {
    /// All lists, in the order in which reclaim scans them.
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

    /// Which of the two lists of its kind it is.
    #[must_use]
    pub const fn age(self) -> Age {
        if self.nr == Age::Active as u8 { Age::Active } else { Age::Inactive }
    }

    pub(super) const fn at(self) -> usize {
        self.kind as usize * (NR_LISTS / 2) + self.nr as usize
    }
}

/// Pages of a kind, from those of each list.
pub(super) fn nr_of_kind(nr_pages: &[u64; NR_LISTS], kind: LruKind) -> u64 {
    let of_kind = nr_pages.iter().skip(kind as usize * (NR_LISTS / 2)).take(NR_LISTS / 2);
    of_kind.sum()
}
