//! Folios that enter, use and leave the page cache, kept until the policy learns of them.
//!
//! The core does not know the policy. It notes events in order, and [`crate::memory::Memory`]
//! passes them on before the policy's next question and at the start of each call.
//!
//! Differs: no kernel has this ([`crate::policy`]). A split folio leaves, and its parts enter.
//!
//! Invariants:
//! - I1: without a policy that wants them, no event is noted.

use super::Core;
use crate::folio::{FolioId, Owner};
use crate::policy::Point;
use crate::units::{GroupId, MappingId, Order, PageIndex};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheEvent {
    pub(crate) point: Point,
    pub(crate) folio: FolioId,
    pub(crate) file: MappingId,
    pub(crate) index: PageIndex,
    pub(crate) order: Order,
    pub(crate) group: GroupId,
    pub(crate) is_dirty: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct CacheEvents {
    is_wanted: [bool; Point::ALL.len()],
    queue: Vec<CacheEvent>,
}

impl CacheEvents {
    pub(crate) fn want(&mut self, point: Point, is_wanted: bool) {
        self.is_wanted[point as usize] = is_wanted;
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn take(&mut self) -> Vec<CacheEvent> {
        std::mem::take(&mut self.queue)
    }
}

impl Core {
    /// Notes an event of a cached folio.
    #[inline]
    pub(crate) fn note(&mut self, point: Point, id: FolioId) {
        if self.cache_events.is_wanted[point as usize] {
            self.note_wanted(point, id);
        }
    }

    #[cold]
    fn note_wanted(&mut self, point: Point, id: FolioId) {
        let folio = self.folios.get(id);
        let Owner::File { mapping: file, index } = folio.owner else { return };
        // Shared memory has no storage to read it from again.
        if folio.is_swapbacked {
            return;
        }
        let (order, group, is_dirty) = (folio.order, folio.group, folio.is_dirty);
        let event = CacheEvent { point, folio: id, file, index, order, group, is_dirty };
        self.cache_events.queue.push(event);
    }
}
