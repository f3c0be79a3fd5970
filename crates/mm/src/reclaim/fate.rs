//! Outcomes for a folio that reclaim examines.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Freed,
    Keep,
    Activate,
    Split,
}

pub(super) enum Victim {
    Own,
    Evict,
    Done(Fate),
}
