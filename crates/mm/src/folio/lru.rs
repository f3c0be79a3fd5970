//! The LRU lists of each group: an active and an inactive list, or four generations, for anonymous
//! memory and for file memory.
//!
//! Corresponds to: `lruvec_add_folio`, `folio_isolate_lru`, `folio_putback_lru`.
//!
//! ```text
//!   new -> batch -> head [ inactive ] tail ---> reclaim: freed, or kept for another round (head)
//!                     ^                 |
//!        not used     |                 | used twice, or executable and used
//!                     |                 v
//!                   tail [  active  ] head
//! ```
//!
//! Owns the order of the lists, and each folio's marks for reclaim (G.5.1: one entry per folio,
//! whatever its size). Does not own the moves (`super::batch`, [`crate::reclaim`]) or a group's
//! other state ([`super::lruvec`]).
//!
//! Invariants:
//! - I1: a live folio is on exactly one list, in the batch of new folios, or isolated.
//! - I2: links are mutual. Each list counts its folios and their pages; the totals are the sums
//!   over all groups.

use super::link::{EMPTY, Link, ListPlace, Marks, NONE};
use super::list_id::{NR_LISTS, nr_of_kind};
use super::lruvec::Lruvec;
use crate::folio::FolioId;
use crate::units::{GroupId, Order};

pub use super::list_id::{Age, ListId, LruKind};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    list: Option<ListId>,
    older: u32,
    marks: Marks,
}

/// The lists of all groups, linked through one table of folios.
#[derive(Clone, Debug)]
pub struct Lru {
    pub(super) links: Vec<Link>,
    pub(super) vecs: Vec<Lruvec>,
    totals: [u64; NR_LISTS],
}

impl Default for Lru {
    fn default() -> Self {
        Self { links: Vec::new(), vecs: vec![Lruvec::default()], totals: [0; NR_LISTS] }
    }
}

impl Lru {
    pub(crate) fn add(&mut self, id: FolioId, order: Order, group: GroupId) {
        if id.nr() >= self.links.len() {
            self.links.resize(id.nr() + 1, EMPTY);
        }
        self.links[id.nr()] = Link { order, group, place: ListPlace::Isolated, ..EMPTY };
        self.vec_mut(group).charge(order.nr_pages());
    }

    /// Removes a freed folio. The caller has already removed it from the batches.
    pub(super) fn forget(&mut self, id: FolioId) {
        self.unlink(id);
        let Link { order, group, .. } = self.links[id.nr()];
        self.vec_mut(group).uncharge(order.nr_pages());
        self.links[id.nr()] = EMPTY;
    }

    pub(crate) fn add_group(&mut self) {
        self.vecs.push(Lruvec::default());
    }

    /// The lists of a group and its other reclaim state.
    #[must_use]
    pub fn vec(&self, group: GroupId) -> &Lruvec {
        &self.vecs[group.0 as usize]
    }

    pub(crate) fn vec_mut(&mut self, group: GroupId) -> &mut Lruvec {
        &mut self.vecs[group.0 as usize]
    }

    /// Pages on a kind's lists, in all groups.
    #[must_use]
    pub fn nr_of_kind(&self, kind: LruKind) -> u64 {
        nr_of_kind(&self.totals, kind)
    }

    /// The group charged for a folio.
    #[must_use]
    pub fn group_of(&self, id: FolioId) -> GroupId {
        self.links[id.nr()].group
    }

    pub(crate) fn marks(&self, id: FolioId) -> Marks {
        self.links[id.nr()].marks
    }

    pub(crate) fn marks_mut(&mut self, id: FolioId) -> &mut Marks {
        &mut self.links[id.nr()].marks
    }

    /// Whether the folio is on a list or in the batch of new folios, i.e. not isolated.
    #[must_use]
    pub fn is_on_lru(&self, id: FolioId) -> bool {
        self.links
            .get(id.nr())
            .is_some_and(|link| matches!(link.place, ListPlace::On(_) | ListPlace::Batched))
    }

    /// The folio's list.
    #[must_use]
    pub fn list_of(&self, id: FolioId) -> Option<ListId> {
        match self.links.get(id.nr())?.place {
            ListPlace::On(list) => Some(list),
            ListPlace::Absent | ListPlace::Isolated | ListPlace::Batched => None,
        }
    }

    /// The folio of a group that reclaim scans next.
    #[must_use]
    pub fn tail(&self, group: GroupId, list: ListId) -> Option<FolioId> {
        as_id(self.vec(group).lists[list.at()].tail)
    }

    /// Pages on a list, in all groups.
    #[must_use]
    pub const fn nr_pages(&self, list: ListId) -> u64 {
        self.totals[list.at()]
    }

    /// Folios on a list, in all groups.
    #[must_use]
    pub fn nr_folios(&self, list: ListId) -> u64 {
        self.vecs.iter().map(|vec| vec.lists[list.at()].nr_folios).sum()
    }

    pub(crate) fn take_off(&mut self, id: FolioId) {
        self.unlink(id);
        let link = &mut self.links[id.nr()];
        (link.place, link.marks.generation) = (ListPlace::Isolated, None);
    }

    pub(crate) fn link_head(&mut self, id: FolioId, list: ListId) {
        self.unlink(id);
        let head = self.vec(self.links[id.nr()].group).lists[list.at()].head;
        self.link(id, list, head);
    }

    pub(crate) fn link_tail(&mut self, id: FolioId, list: ListId) {
        self.unlink(id);
        self.link(id, list, NONE);
    }

    pub(super) fn spot_of(&self, id: FolioId) -> Spot {
        let Link { older, place, marks, .. } = self.links[id.nr()];
        match place {
            ListPlace::On(list) => Spot { list: Some(list), older, marks },
            ListPlace::Isolated | ListPlace::Batched | ListPlace::Absent => {
                Spot { list: None, older: NONE, marks }
            }
        }
    }

    pub(crate) fn settle(&mut self, id: FolioId, spot: Spot) {
        self.unlink(id);
        self.links[id.nr()].marks = spot.marks;
        match spot.list {
            Some(list) => self.link(id, list, spot.older),
            None => self.links[id.nr()].place = ListPlace::Isolated,
        }
    }

    /// Links a folio on the head's side of `older`, or at the tail if that is [`NONE`].
    fn link(&mut self, id: FolioId, list: ListId, older: u32) {
        let nr = id.nr() as u32;
        let Link { order, group, .. } = self.links[id.nr()];
        let of = &mut self.vecs[group.0 as usize].lists[list.at()];
        let newer = match older {
            NONE => std::mem::replace(&mut of.tail, nr),
            older => std::mem::replace(&mut self.links[older as usize].newer, nr),
        };
        match newer {
            NONE => of.head = nr,
            newer => self.links[newer as usize].older = nr,
        }
        of.nr_folios += 1;
        of.nr_pages += order.nr_pages();
        self.vecs[group.0 as usize].note_change(order.nr_pages());
        self.totals[list.at()] += order.nr_pages();
        let link = &mut self.links[id.nr()];
        (link.newer, link.older, link.place) = (newer, older, ListPlace::On(list));
    }

    pub(super) fn unlink(&mut self, id: FolioId) {
        let Link { newer, older, place, order, group, .. } = self.links[id.nr()];
        let ListPlace::On(list) = place else { return };
        let of = &mut self.vecs[group.0 as usize].lists[list.at()];
        match newer {
            NONE => of.head = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => of.tail = newer,
            older => self.links[older as usize].newer = newer,
        }
        of.nr_folios -= 1;
        of.nr_pages -= order.nr_pages();
        self.vecs[group.0 as usize].note_change(order.nr_pages());
        self.totals[list.at()] -= order.nr_pages();
    }

    fn iter(&self, group: GroupId, list: ListId) -> impl Iterator<Item = FolioId> + '_ {
        let of = self.vec(group).lists[list.at()];
        let next = |&id: &FolioId| as_id(self.links[id.nr()].older);
        // One folio more than counted is enough to expose a cycle.
        std::iter::successors(as_id(of.head), next).take(of.nr_folios as usize + 1)
    }

    /// Folios on a group's list, in the order in which reclaim scans them.
    #[must_use]
    pub fn oldest_first(&self, group: GroupId, list: ListId) -> Vec<FolioId> {
        let mut folios: Vec<_> = self.iter(group, list).collect();
        folios.reverse();
        folios
    }

    /// Checks I2, and I1 for the live folios `alive`, given with their orders.
    ///
    /// # Errors
    /// The folio and its problem; no folio if a count is wrong.
    pub(crate) fn validate(
        &self,
        alive: impl Iterator<Item = (FolioId, Order)>,
    ) -> Result<(), (Option<FolioId>, &'static str)> {
        let (mut nr_linked, mut totals) = (0, [0; NR_LISTS]);
        for group in (0..self.vecs.len() as u32).map(GroupId) {
            for (at, total) in totals.iter_mut().enumerate() {
                let kind = LruKind::ALL[at / (NR_LISTS / 2)];
                let list = ListId::generation(kind, (at % (NR_LISTS / 2)) as u8);
                nr_linked += self.validate_list(group, list)?;
                *total += self.vec(group).lists[at].nr_pages;
            }
        }
        if !self.vecs.iter().all(|vec| vec.gens.is_sound()) {
            return Err((None, "a group has no generations, or more generations than lists"));
        }
        if totals != self.totals {
            return Err((None, "the page counts of all groups do not add up to the total"));
        }
        let (mut nr_alive, mut charged) = (0, vec![0; self.vecs.len()]);
        for (id, order) in alive {
            match self.links.get(id.nr()).map(|link| (link.place, link.order)) {
                Some((ListPlace::On(_), of)) if of == order => nr_alive += 1,
                Some((ListPlace::Isolated | ListPlace::Batched, of)) if of == order => {}
                _ => {
                    return Err((
                        Some(id),
                        "it is on no list, or is listed with a different order",
                    ));
                }
            }
            charged[self.group_of(id).0 as usize] += order.nr_pages();
        }
        if !self.vecs.iter().map(Lruvec::nr_charged).eq(charged) {
            return Err((
                None,
                "a group's page count differs from the number of pages in its folios",
            ));
        }
        if nr_alive == nr_linked { Ok(()) } else { Err((None, "a list contains a freed folio")) }
    }

    fn validate_list(
        &self,
        group: GroupId,
        list: ListId,
    ) -> Result<u64, (Option<FolioId>, &'static str)> {
        let (mut nr_folios, mut nr_pages, mut newer) = (0, 0, NONE);
        for id in self.iter(group, list) {
            let link = self.links[id.nr()];
            if link.place != ListPlace::On(list) || link.newer != newer || link.group != group {
                return Err((Some(id), "it is on a different list from the one that it names"));
            }
            newer = id.nr() as u32;
            nr_folios += 1;
            nr_pages += link.order.nr_pages();
        }
        let of = self.vec(group).lists[list.at()];
        if (of.nr_folios, of.nr_pages, of.tail) != (nr_folios, nr_pages, newer) {
            return Err((None, "a list's count differs from the number of its folios"));
        }
        Ok(nr_folios)
    }
}

fn as_id(nr: u32) -> Option<FolioId> {
    (nr != NONE).then(|| FolioId::of_nr(nr))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INACTIVE: ListId = ListId::new(LruKind::File, Age::Inactive);
    const ACTIVE: ListId = ListId::new(LruKind::File, Age::Active);
    const ROOT: GroupId = GroupId::ROOT;

    fn id(nr: u32) -> FolioId {
        FolioId::of_nr(nr)
    }

    fn add(lru: &mut Lru, nr: u32) {
        lru.add(id(nr), Order::new(2), ROOT);
        lru.link_head(id(nr), INACTIVE);
    }

    fn lru(nr: u32) -> Lru {
        let mut lru = Lru::default();
        (0..nr).for_each(|nr| add(&mut lru, nr));
        lru
    }

    fn check(lru: &Lru, alive: &[u32], tail_first: &[u32]) {
        let alive = alive.iter().map(|&nr| (id(nr), Order::new(2)));
        assert_eq!(lru.validate(alive), Ok(()));
        let expected: Vec<_> = tail_first.iter().map(|&nr| id(nr)).collect();
        assert_eq!(lru.oldest_first(ROOT, INACTIVE), expected);
    }

    #[test]
    fn the_oldest_comes_first_and_moving_changes_the_order_only() {
        let mut lru = lru(4);
        check(&lru, &[0, 1, 2, 3], &[0, 1, 2, 3]);
        lru.link_head(id(0), INACTIVE);
        check(&lru, &[0, 1, 2, 3], &[1, 2, 3, 0]);
        lru.link_head(id(1), ACTIVE);
        check(&lru, &[0, 1, 2, 3], &[2, 3, 0]);
        lru.link_tail(id(1), INACTIVE);
        check(&lru, &[0, 1, 2, 3], &[1, 2, 3, 0]);
        assert_eq!((lru.nr_pages(INACTIVE), lru.nr_pages(ACTIVE)), (16, 0));
    }

    #[test]
    fn an_isolated_folio_is_on_no_list_until_it_is_put_back() {
        let mut lru = lru(3);
        lru.take_off(id(1));
        assert!(!lru.is_on_lru(id(1)));
        check(&lru, &[0, 1, 2], &[0, 2]);
        lru.link_head(id(1), INACTIVE);
        check(&lru, &[0, 1, 2], &[0, 2, 1]);
        lru.forget(id(2));
        check(&lru, &[0, 1], &[0, 1]);
    }

    #[test]
    fn parts_take_the_place_of_the_whole() {
        let mut lru = lru(3);
        let spot = lru.spot_of(id(1));
        lru.forget(id(1));
        for part in [3, 4] {
            lru.add(id(part), Order::new(2), ROOT);
            lru.settle(id(part), spot);
        }
        check(&lru, &[0, 2, 3, 4], &[0, 4, 3, 2]);
    }
}
