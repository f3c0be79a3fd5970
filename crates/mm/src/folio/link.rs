//! The data kept in an LRU list and in each folio on it. [`super::lru`] links and unlinks.

use super::list_id::ListId;
use crate::units::{GroupId, Order};

pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListPlace {
    Absent,
    /// New, or temporarily off its list.
    Isolated,
    Batched,
    On(ListId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "page flags: independent of each other")]
pub(crate) struct Marks {
    /// Used once since the last scan.
    pub(crate) is_referenced: bool,
    /// On, or on the way to, the active list or a young generation.
    pub(crate) is_active: bool,
    /// Reclaim waits for its writeback (`PG_reclaim`).
    pub(crate) is_reclaim: bool,
    pub(crate) is_activating: bool,
    /// With generations: uses through descriptors, without the first.
    pub(crate) nr_refs: u8,
    /// Its generation while it is on a list. The list can be that of an older generation.
    pub(crate) generation: Option<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) newer: u32,
    pub(super) older: u32,
    pub(super) place: ListPlace,
    pub(super) order: Order,
    pub(super) group: GroupId,
    pub(super) marks: Marks,
}

pub(super) const EMPTY: Link = Link {
    newer: NONE,
    older: NONE,
    place: ListPlace::Absent,
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

#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) nr_folios: u64,
    pub(super) nr_pages: u64,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE, nr_folios: 0, nr_pages: 0 };
}
