//! A list of folios and a folio on it, as values.
//!
//! Owns what is written down for each, and changes nothing: [`super::lru`] links and unlinks.

use super::list_id::ListId;
use crate::units::{GroupId, Order};

/// No folio.
pub(super) const NONE: u32 = u32::MAX;

/// Where a folio is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Not alive.
    Absent,
    /// New, or taken off its list for a while.
    Isolated,
    /// In the batch of new folios.
    Batched,
    On(ListId),
}

/// What reclaim knows of a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "page flags: independent of each other")]
pub(crate) struct Marks {
    /// It was used once since it was last examined.
    pub(crate) is_referenced: bool,
    /// It is, or goes, onto the active list or into a young generation.
    pub(crate) is_active: bool,
    /// Reclaim waits for its writeback (`PG_reclaim`).
    pub(crate) is_reclaim: bool,
    /// It waits in the batch of folios that become active.
    pub(crate) is_activating: bool,
    /// Uses through descriptors beyond the first, with generations.
    pub(crate) nr_refs: u8,
    /// The generation it belongs to, while it is on a list; the list may be that of an older one.
    pub(crate) generation: Option<u8>,
}

/// A folio as the lists see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Neighbour on the side of the head.
    pub(super) newer: u32,
    /// Neighbour on the side of the tail.
    pub(super) older: u32,
    pub(super) place: Place,
    pub(super) order: Order,
    pub(super) group: GroupId,
    pub(super) marks: Marks,
}

/// The link of a folio that is not alive.
pub(super) const EMPTY: Link = Link {
    newer: NONE,
    older: NONE,
    place: Place::Absent,
    order: Order::ZERO,
    group: GroupId::ROOT,
    marks: Marks {
        is_referenced: false,
        is_active: false,
        is_reclaim: false,
        is_activating: false,
        nr_refs: 0,
        generation: None,
    },
};

/// A list: its ends and what it counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) nr_folios: u64,
    pub(super) nr_pages: u64,
}

impl List {
    /// No folio.
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE, nr_folios: 0, nr_pages: 0 };
}
