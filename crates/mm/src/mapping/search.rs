//! The kernel's searches for the next or previous page that is not cached.
//!
//! Corresponds to: `page_cache_next_miss`, `page_cache_prev_miss`.
//!
//! The searches walk *slots* of the tree but count *indices*. A walk that starts inside a folio
//! starts at its head slot, so the reported index is too high by the distance to the head
//! (docs/behaviour A.4.6). Readahead depends on these results, so the model walks the same way:
//!
//! ```text
//!   slots     | o2 head |  sib  |  sib  |  sib  | empty |
//!   walk from index 13 (head 12):
//!     slot      12        13      14      15      16 -> hole
//!     index     13        14      15      16      17 -> reported: one too many
//! ```

use super::tree::{CHUNK, NodeId, Tree, TreeSlot};
use crate::rules::readahead::FullSearch;

/// A position in the tree, and the index that the walk assumes for it.
struct Walk<'a> {
    tree: &'a Tree,
    index: u64,
    place: Option<(NodeId, usize)>,
}

impl<'a> Walk<'a> {
    fn start(tree: &'a Tree, index: u64) -> Self {
        Self { tree, index, place: tree.descend(index) }
    }

    fn is_cached(&self) -> bool {
        self.place.is_some_and(|(id, offset)| self.tree.node(id).slots[offset] != TreeSlot::Empty)
    }

    fn forward(&mut self) {
        self.index = self.index.wrapping_add(1);
        let Some((id, mut offset)) = self.place else { return };
        let node = self.tree.node(id);
        let is_leaf_step = node.level == 0 && offset != CHUNK - 1;
        if is_leaf_step || offset != node.offset_of(self.index) {
            offset += 1;
        }
        self.place = if is_leaf_step { Some((id, offset)) } else { self.climb(id, Some(offset)) };
    }

    fn backward(&mut self) {
        self.index = self.index.wrapping_sub(1);
        let Some((id, offset)) = self.place else { return };
        let node = self.tree.node(id);
        if node.level == 0 && offset != 0 {
            self.place = Some((id, offset - 1));
            return;
        }
        let is_behind = offset != node.offset_of(self.index);
        self.place = self.climb(id, if is_behind { offset.checked_sub(1) } else { Some(offset) });
    }

    /// Leaves a node after its last slot, then descends again by index.
    fn climb(&self, mut id: NodeId, mut offset: Option<usize>) -> Option<(NodeId, usize)> {
        let mut offset = loop {
            match offset {
                Some(inside) if inside < CHUNK => break inside,
                _ => {}
            }
            let (parent, own) = self.tree.node(id).parent?;
            offset = if offset.is_some() { Some(own + 1) } else { own.checked_sub(1) };
            id = parent;
        };
        while let TreeSlot::Node(child) = self.tree.node(id).slots[offset] {
            id = child;
            offset = self.tree.node(id).offset_of(self.index);
        }
        Some((id, offset))
    }
}

/// The index at which an upward search from `start` of at most `nr_pages` steps ends.
#[must_use]
pub fn next_miss(tree: &Tree, start: u64, nr_pages: u64, full: FullSearch) -> u64 {
    let mut walk = Walk::start(tree, start);
    for step in 0..nr_pages {
        if step > 0 {
            walk.forward();
        }
        if !walk.is_cached() || walk.index == 0 {
            return walk.index;
        }
    }
    match full {
        FullSearch::LastPage => walk.index,
        FullSearch::Beyond => start.wrapping_add(nr_pages),
    }
}

/// The index at which a downward search from `start` of at most `nr_pages` steps ends; wraps to
/// `u64::MAX` below index 0.
#[must_use]
pub fn prev_miss(tree: &Tree, start: u64, nr_pages: u64, full: FullSearch) -> u64 {
    let mut walk = Walk::start(tree, start);
    for step in 0..nr_pages {
        if step > 0 {
            walk.backward();
        }
        if !walk.is_cached() || walk.index == u64::MAX {
            return walk.index;
        }
    }
    match full {
        FullSearch::LastPage => walk.index,
        FullSearch::Beyond => start.wrapping_sub(nr_pages),
    }
}

#[cfg(test)]
mod tests;
