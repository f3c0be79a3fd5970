//! Dirty file folios, queued in the order in which the files became dirty (docs/behaviour P.6).
//!
//! Corresponds to: `folio_mark_dirty`, `folio_clear_dirty_for_io`, `inode_attach_wb`.
//!
//! Owns the dirty flag, the queue and its counts. Does not decide when to write
//! ([`crate::io::writeback`]). Shared memory has the flag but is never queued, because it has no
//! backing storage.
//!
//! ```text
//!   group, number --> file --> indices of its dirty folios
//!       2, 7            3        0 16 18
//!       2, 9            1        4
//! ```
//!
//! Invariants:
//! - I1: a file is in the queue if and only if it has a dirty folio. Its indices are those of the
//!   dirty folios in its tree.
//!
//! Differs: while a file is in the queue, it belongs to the group that dirtied its first folio. A
//! kernel moves the file to the group that writes most to it.

use std::collections::BTreeMap;

use super::Core;
use crate::folio::{FolioId, Owner};
use crate::mapping::Turn;
use crate::mapping::tree::Entry;
use crate::units::{GroupId, MappingId, PageIndex};

#[derive(Clone, Debug, Default)]
pub(crate) struct Dirty {
    queue: BTreeMap<Turn, MappingId>,
    next: u64,
    nr_pages: u64,
    nr_of: BTreeMap<GroupId, u64>,
}

impl Dirty {
    pub(crate) const fn nr_pages(&self) -> u64 {
        self.nr_pages
    }

    pub(crate) fn nr_pages_of(&self, group: GroupId) -> u64 {
        self.nr_of.get(&group).copied().unwrap_or(0)
    }

    fn add(&mut self, group: GroupId, nr: u64) {
        self.nr_pages += nr;
        *self.nr_of.entry(group).or_default() += nr;
    }

    fn sub(&mut self, group: GroupId, nr: u64) {
        self.nr_pages -= nr;
        let Some(of_group) = self.nr_of.get_mut(&group) else { return };
        *of_group -= nr;
        if *of_group == 0 {
            self.nr_of.remove(&group);
        }
    }
}

impl Core {
    pub(crate) fn set_dirty(&mut self, id: FolioId) {
        let folio = self.folios.get_mut(id);
        let was_dirty = std::mem::replace(&mut folio.is_dirty, true);
        let (group, nr, owner) = (folio.group, folio.nr_pages(), folio.owner);
        // Dirty again: reclaim no longer waits for its writeback.
        self.folios.lru_mut().marks_mut(id).is_reclaim = false;
        let Owner::File { mapping: file, index } = owner else { return };
        if was_dirty || self.mapping(file).is_shmem {
            return;
        }
        let next = self.dirty.next;
        let mapping = self.mapping_mut(file);
        mapping.dirty.insert(index);
        if mapping.dirty_turn.is_none() {
            mapping.dirty_turn = Some((group, next));
            self.dirty.queue.insert((group, next), file);
            self.dirty.next += 1;
        }
        self.dirty.add(group, nr);
        self.counters.reclaim.nr_dirtied += nr;
    }

    pub(crate) fn set_clean(&mut self, id: FolioId) {
        let folio = self.folios.get_mut(id);
        let was_dirty = std::mem::replace(&mut folio.is_dirty, false);
        let (group, nr, owner) = (folio.group, folio.nr_pages(), folio.owner);
        let Owner::File { mapping: file, index } = owner else { return };
        if !was_dirty || self.mapping(file).is_shmem {
            return;
        }
        let mapping = self.mapping_mut(file);
        mapping.dirty.remove(&index);
        if mapping.dirty.is_empty()
            && let Some(turn) = mapping.dirty_turn.take()
        {
            self.dirty.queue.remove(&turn);
        }
        self.dirty.sub(group, nr);
    }

    /// Returns the next dirty folio to write: the first one of the file that has waited longest.
    /// With a group, looks only at that group's files.
    pub(crate) fn next_dirty(&self, group: Option<GroupId>) -> Option<(MappingId, Entry)> {
        let from = group.map_or((GroupId::ROOT, 0), |group| (group, 0));
        let (&(of, _), &file) = self.dirty.queue.range(from..).next()?;
        if group.is_some_and(|group| group != of) {
            return None;
        }
        let index: PageIndex = *self.mapping(file).dirty.first()?;
        Some((file, self.find(file, index)?))
    }

    pub(crate) fn is_dirty_sound(&self) -> bool {
        let mut left = self.dirty.clone();
        for (file, mapping) in self.mappings() {
            let mut nr = 0;
            for entry in mapping.tree.iter_from(0) {
                let folio = self.folios.get(entry.folio);
                if !folio.is_dirty || mapping.is_shmem {
                    continue;
                }
                nr += 1;
                if !mapping.dirty.contains(&entry.index) {
                    return false;
                }
                left.sub(folio.group, folio.nr_pages());
            }
            let is_queued =
                mapping.dirty_turn.is_some_and(|turn| left.queue.remove(&turn) == Some(file));
            if nr != mapping.dirty.len() || is_queued != (nr > 0) {
                return false;
            }
        }
        left.queue.is_empty() && left.nr_pages == 0 && left.nr_of.is_empty()
    }
}
