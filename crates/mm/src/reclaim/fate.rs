//! What becomes of a folio that reclaim looks at.

/// What became of a folio that was examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its pages are free.
    Freed,
    /// It gets another round.
    Keep,
    /// It becomes active.
    Activate,
    /// It is in parts, which take its place on the list.
    Split,
}

/// What a policy wants to become of it.
pub(super) enum Victim {
    /// The kernel goes on.
    Own,
    /// It is to go: what it then comes to says whether it did.
    Evict,
    /// That became of it.
    Done(Fate),
}
