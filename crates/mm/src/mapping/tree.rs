//! A 64-way tree from page index to folio, with entries that span several slots.
//!
//! Corresponds to: `xas_load`, `xas_store`.
//!
//! ```text
//!   level 1 (64 pages a slot)   [ node | folio o7 | <-sibling | - | .. ]
//!                                  |
//!   level 0 (1 page a slot)     [ o0 | o0 | folio o1 | <-sibling | - | .. ]
//! ```
//!
//! A folio of order 0..5 occupies slots of level 0, a folio of order 6..11 slots of level 1. The
//! head slot refers to the folio, and the other slots refer to the head. The kernel's hole searches
//! expose an entry's level (docs/behaviour A.4.6), so the shape is part of the model.
//!
//! Invariants:
//! - T1: a sibling slot comes after its head slot, within the head's aligned group of `2^k` slots.
//! - T2: no node below the root is empty.
//! - T3: `nr_pages` is the sum of all folio sizes.

use super::Violation;
use crate::folio::FolioId;
use crate::units::{Order, PageIndex};

/// log2 of the slots per node (docs/behaviour 0.4, `XA_CHUNK_SHIFT`).
pub(super) const CHUNK_SHIFT: u32 = 6;
pub(super) const CHUNK: usize = 1 << CHUNK_SHIFT;
/// Largest order of an entry: `2 * CHUNK_SHIFT - 1`.
pub const MAX_ORDER: Order = Order::new(11);

pub(super) type NodeId = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeSlot {
    Empty,
    Folio(FolioId, Order),
    /// Another slot of the folio; names the offset of its head slot.
    Sibling(u8),
    Node(NodeId),
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(super) slots: [TreeSlot; CHUNK],
    /// 0 = one page per slot, 1 = 64 pages per slot, ..
    pub(super) level: u32,
    /// Parent, and this node's offset in it; `None` for the root.
    pub(super) parent: Option<(NodeId, usize)>,
    nr_used: u32,
}

impl Node {
    fn new(level: u32, parent: Option<(NodeId, usize)>) -> Self {
        Self { slots: [TreeSlot::Empty; CHUNK], level, parent, nr_used: 0 }
    }

    pub(super) fn offset_of(&self, index: u64) -> usize {
        let slot = index.checked_shr(self.level * CHUNK_SHIFT).unwrap_or(0);
        usize::from((slot & (CHUNK as u64 - 1)) as u8)
    }

    fn pages_per_slot(&self) -> u64 {
        1 << (self.level * CHUNK_SHIFT)
    }
}

/// A folio found in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The folio.
    pub folio: FolioId,
    /// Index of its first page, a multiple of its number of pages.
    pub index: PageIndex,
    /// The folio's order.
    pub order: Order,
}

impl Entry {
    /// Index after its last page.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.index.0 + self.order.nr_pages()
    }
}

/// An index in the range is already cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupied;

/// A file's tree: an arena of nodes and a root that grows.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    root: Option<NodeId>,
    nr_pages: u64,
}

impl Tree {
    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Pages held by the folios in the tree.
    #[must_use]
    pub fn nr_pages(&self) -> u64 {
        self.nr_pages
    }

    pub(crate) const fn nr_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The folio that covers `index`.
    #[must_use]
    pub fn get(&self, index: PageIndex) -> Option<Entry> {
        let (node, offset) = self.descend(index.0)?;
        let node = self.node(node);
        let TreeSlot::Folio(folio, order) = node.slots[offset] else { return None };
        Some(Entry { folio, index: PageIndex(order.round_down(index.0)), order })
    }

    /// The first folio that covers an index of `[first, last]`.
    #[must_use]
    pub fn first_in(&self, first: PageIndex, last: PageIndex) -> Option<Entry> {
        let mut index = first.0;
        while index <= last.0 {
            if let Some(entry) = self.get(PageIndex(index)) {
                return Some(entry);
            }
            index = self.after_empty(index)?;
        }
        None
    }

    /// All folios in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.iter_from(0)
    }

    pub(crate) fn iter_from(&self, first: u64) -> impl Iterator<Item = Entry> + '_ {
        let mut next = Some(first);
        std::iter::from_fn(move || {
            let entry = self.first_in(PageIndex(next?), PageIndex(u64::MAX))?;
            next = entry.index.0.checked_add(entry.order.nr_pages());
            Some(entry)
        })
    }

    /// Stores `folio` at `[index, index + 2^order)`.
    ///
    /// # Errors
    /// [`Occupied`] if any of these pages is cached. Nothing changes.
    ///
    /// # Panics
    /// If `index` is not a multiple of `2^order`, or the order exceeds [`MAX_ORDER`].
    pub fn insert(
        &mut self,
        index: PageIndex,
        order: Order,
        folio: FolioId,
    ) -> Result<(), Occupied> {
        assert!(order.is_aligned(index.0) && order <= MAX_ORDER, "folio must be aligned");
        if self.first_in(index, PageIndex(index.0 + (order.nr_pages() - 1))).is_some() {
            return Err(Occupied);
        }
        let level = u32::from(order.get()) / CHUNK_SHIFT;
        let id = self.make_path(index.0, level);
        let node = &mut self.nodes[id as usize];
        let head = node.offset_of(index.0);
        let nr_slots = 1 << (u32::from(order.get()) % CHUNK_SHIFT);
        node.slots[head] = TreeSlot::Folio(folio, order);
        node.slots[head + 1..head + nr_slots].fill(TreeSlot::Sibling(head as u8));
        node.nr_used += nr_slots as u32;
        self.nr_pages += order.nr_pages();
        Ok(())
    }

    /// Removes the folio that covers `index`.
    pub fn remove(&mut self, index: PageIndex) -> Option<Entry> {
        let entry = self.get(index)?;
        let (id, head) = self.descend(index.0)?;
        let node = &mut self.nodes[id as usize];
        let nr_slots = 1 << (u32::from(entry.order.get()) % CHUNK_SHIFT);
        node.slots[head..head + nr_slots].fill(TreeSlot::Empty);
        node.nr_used -= nr_slots as u32;
        self.nr_pages -= entry.order.nr_pages();
        self.drop_empty(id);
        self.shrink();
        Some(entry)
    }

    pub(super) fn validate(&self) -> Result<(), Violation> {
        let mut nr_pages = 0;
        for entry in self.iter() {
            nr_pages += entry.order.nr_pages();
            for index in [entry.index.0, entry.end() - 1] {
                let cached = self.get(PageIndex(index));
                if cached != Some(entry) {
                    return Err(Violation::I2 { index: PageIndex(index) });
                }
            }
        }
        let is_counted = nr_pages == self.nr_pages;
        if is_counted { Ok(()) } else { Err(Violation::I2 { index: PageIndex(nr_pages) }) }
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    /// Node and *head* offset of the slot that covers `index`; `None` beyond the tree.
    pub(super) fn descend(&self, index: u64) -> Option<(NodeId, usize)> {
        let mut id = self.root?;
        if index > self.last_index_below(id) {
            return None;
        }
        loop {
            let node = self.node(id);
            let offset = node.offset_of(index);
            match node.slots[offset] {
                TreeSlot::Node(child) => id = child,
                TreeSlot::Sibling(head) => return Some((id, usize::from(head))),
                TreeSlot::Empty | TreeSlot::Folio(..) => return Some((id, offset)),
            }
        }
    }

    fn last_index_below(&self, root: NodeId) -> u64 {
        last_index_at(self.node(root).level)
    }

    /// First page after the empty slot of `index`; `None` if no later index can be cached.
    fn after_empty(&self, index: u64) -> Option<u64> {
        let (id, _) = self.descend(index)?;
        let pages = self.node(id).pages_per_slot();
        index.checked_add(pages - (index & (pages - 1)))
    }

    fn make_path(&mut self, index: u64, level: u32) -> NodeId {
        let mut id = self.grow_root(index, level);
        while self.node(id).level > level {
            let offset = self.node(id).offset_of(index);
            id = match self.node(id).slots[offset] {
                TreeSlot::Node(child) => child,
                TreeSlot::Empty => {
                    let child = self.new_node(self.node(id).level - 1, Some((id, offset)));
                    self.nodes[id as usize].slots[offset] = TreeSlot::Node(child);
                    self.nodes[id as usize].nr_used += 1;
                    child
                }
                TreeSlot::Folio(..) | TreeSlot::Sibling(_) => {
                    unreachable!("insert checked the range")
                }
            };
        }
        id
    }

    fn grow_root(&mut self, index: u64, level: u32) -> NodeId {
        let mut root = if let Some(root) = self.root {
            root
        } else {
            // T2: an empty tree starts at the height it needs.
            let mut height = level;
            while index > last_index_at(height) {
                height += 1;
            }
            self.new_node(height, None)
        };
        while index > self.last_index_below(root) || self.node(root).level < level {
            let above = self.new_node(self.node(root).level + 1, None);
            self.nodes[above as usize].slots[0] = TreeSlot::Node(root);
            self.nodes[above as usize].nr_used = 1;
            self.nodes[root as usize].parent = Some((above, 0));
            root = above;
        }
        self.root = Some(root);
        root
    }

    fn new_node(&mut self, level: u32, parent: Option<(NodeId, usize)>) -> NodeId {
        let node = Node::new(level, parent);
        if let Some(id) = self.free.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as NodeId
    }

    fn drop_empty(&mut self, mut id: NodeId) {
        while self.node(id).nr_used == 0 {
            self.free.push(id);
            let Some((parent, offset)) = self.node(id).parent else {
                self.root = None;
                return;
            };
            self.nodes[parent as usize].slots[offset] = TreeSlot::Empty;
            self.nodes[parent as usize].nr_used -= 1;
            id = parent;
        }
    }

    fn shrink(&mut self) {
        while let Some(root) = self.root {
            let TreeSlot::Node(child) = self.node(root).slots[0] else { return };
            if self.node(root).nr_used > 1 {
                return;
            }
            self.free.push(root);
            self.nodes[child as usize].parent = None;
            self.root = Some(child);
        }
    }
}

fn last_index_at(level: u32) -> u64 {
    1_u64.checked_shl((level + 1) * CHUNK_SHIFT).map_or(u64::MAX, |end| end - 1)
}

#[cfg(test)]
pub(in crate::mapping) mod tests;
