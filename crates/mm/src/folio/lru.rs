//! The four lists that reclaim scans: anonymous and file memory, each active and inactive.
//!
//! Answers to: `folio_add_lru`, `folio_isolate_lru`, `folio_putback_lru`.
//!
//! ```text
//!   new ------> head [ inactive ] tail ---> reclaim: freed, or kept for another round (head)
//!                 ^                 |
//!    not used     |                 | used twice, or executable and used
//!                 |                 v
//!               tail [  active  ] head
//! ```
//!
//! Owns the order of folios on the lists and whether one was referenced once (G.5.1: one entry for
//! each folio, whatever its size). Does not own who moves them (`scan`).
//!
//! Differs: the kernel can be built with generations in place of these lists; they are not
//! modelled. Nothing waits in per-CPU batches: a folio is on its list at once.
//!
//! Invariants:
//! - I1: a live folio is on exactly one list, or isolated.
//! - I2: links are mutual; a list counts its folios and their pages.

use crate::folio::FolioId;
use crate::units::Order;

/// What a list holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LruKind {
    /// Memory that only swap space can take: anonymous and shared memory.
    Anon,
    /// Memory that a file can give again, and what `MADV_FREE` gave up.
    File,
}

/// Which of the two lists of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Looked at by reclaim, oldest first.
    Inactive,
    /// Not evicted before it was inactive once more.
    Active,
}

/// One of the four lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListId {
    /// Which memory it holds.
    pub kind: LruKind,
    /// Which of the two.
    pub age: Age,
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
        Self { kind, age }
    }

    const fn nr(self) -> usize {
        self.kind as usize * 2 + self.age as usize
    }
}

/// No folio.
const NONE: u32 = u32::MAX;

/// Where a folio is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not alive.
    Absent,
    /// Taken off its list for a while.
    Isolated(ListId),
    On(ListId),
}

#[derive(Clone, Copy, Debug)]
struct Link {
    /// Neighbour on the side of the head.
    newer: u32,
    /// Neighbour on the side of the tail.
    older: u32,
    place: Place,
    order: Order,
    is_referenced: bool,
}

const EMPTY: Link = Link {
    newer: NONE,
    older: NONE,
    place: Place::Absent,
    order: Order::ZERO,
    is_referenced: false,
};

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    nr_folios: u64,
    nr_pages: u64,
}

/// A place between two folios, for the parts of one that is split.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    list: ListId,
    is_isolated: bool,
    older: u32,
    is_referenced: bool,
}

/// The four lists, linked through one table of folios.
#[derive(Clone, Debug)]
pub struct Lru {
    links: Vec<Link>,
    lists: [List; 4],
}

impl Default for Lru {
    fn default() -> Self {
        let list = List { head: NONE, tail: NONE, nr_folios: 0, nr_pages: 0 };
        Self { links: Vec::new(), lists: [list; 4] }
    }
}

impl Lru {
    /// Puts a new folio at the head of `list`.
    pub(crate) fn add(&mut self, id: FolioId, order: Order, list: ListId) {
        if id.nr() >= self.links.len() {
            self.links.resize(id.nr() + 1, EMPTY);
        }
        self.links[id.nr()] = Link { order, ..EMPTY };
        self.link(id, list, self.lists[list.nr()].head);
    }

    /// Forgets a folio that is no more.
    pub(crate) fn remove(&mut self, id: FolioId) {
        self.unlink(id);
        self.links[id.nr()] = EMPTY;
    }

    /// Takes a folio off its list, so that nobody else does; `false` when somebody has.
    pub(crate) fn isolate(&mut self, id: FolioId) -> bool {
        let Place::On(list) = self.links[id.nr()].place else { return false };
        self.unlink(id);
        self.links[id.nr()].place = Place::Isolated(list);
        true
    }

    /// Puts an isolated folio back, at the head of the list it was on.
    pub(crate) fn putback(&mut self, id: FolioId) {
        if let Place::Isolated(list) = self.links[id.nr()].place {
            self.link(id, list, self.lists[list.nr()].head);
        }
    }

    /// Whether the folio is on a list: not isolated.
    #[must_use]
    pub fn is_on_lru(&self, id: FolioId) -> bool {
        self.list_of(id).is_some()
    }

    /// The list the folio is on.
    #[must_use]
    pub fn list_of(&self, id: FolioId) -> Option<ListId> {
        match self.links.get(id.nr())?.place {
            Place::On(list) => Some(list),
            Place::Absent | Place::Isolated(_) => None,
        }
    }

    /// The folio that reclaim scans next.
    #[must_use]
    pub fn tail(&self, list: ListId) -> Option<FolioId> {
        as_id(self.lists[list.nr()].tail)
    }

    /// Pages on a list.
    #[must_use]
    pub const fn nr_pages(&self, list: ListId) -> u64 {
        self.lists[list.nr()].nr_pages
    }

    /// Folios on a list.
    #[must_use]
    pub const fn nr_folios(&self, list: ListId) -> u64 {
        self.lists[list.nr()].nr_folios
    }

    /// Moves a folio to the head of `list`; an isolated one stays isolated and comes back there.
    pub(crate) fn move_to_head(&mut self, id: FolioId, list: ListId) {
        self.unlink(id);
        match self.links[id.nr()].place {
            Place::Isolated(_) => self.links[id.nr()].place = Place::Isolated(list),
            Place::On(_) | Place::Absent => self.link(id, list, self.lists[list.nr()].head),
        }
    }

    /// Whether the folio was used once since it was last examined; forgets it.
    pub(crate) fn take_referenced(&mut self, id: FolioId) -> bool {
        std::mem::take(&mut self.links[id.nr()].is_referenced)
    }

    /// The folio was used; whether it had been before.
    pub(crate) fn set_referenced(&mut self, id: FolioId) -> bool {
        std::mem::replace(&mut self.links[id.nr()].is_referenced, true)
    }

    /// The place of a folio that is about to be split.
    pub(crate) fn spot(&self, id: FolioId) -> Option<Spot> {
        let Link { older, place, is_referenced, .. } = self.links[id.nr()];
        match place {
            Place::On(list) => Some(Spot { list, is_isolated: false, older, is_referenced }),
            Place::Isolated(list) => {
                Some(Spot { list, is_isolated: true, older: NONE, is_referenced })
            }
            Place::Absent => None,
        }
    }

    /// Moves a part of a split folio to where the whole was.
    pub(crate) fn settle(&mut self, id: FolioId, spot: Option<Spot>) {
        let Some(spot) = spot else { return };
        self.unlink(id);
        self.links[id.nr()].is_referenced = spot.is_referenced;
        if spot.is_isolated {
            self.link(id, spot.list, self.lists[spot.list.nr()].head);
        } else {
            self.link(id, spot.list, spot.older);
        }
    }

    /// Links a folio on the head's side of `older`.
    fn link(&mut self, id: FolioId, list: ListId, older: u32) {
        let nr = id.nr() as u32;
        let of = &mut self.lists[list.nr()];
        let newer = match older {
            NONE => std::mem::replace(&mut of.tail, nr),
            older => std::mem::replace(&mut self.links[older as usize].newer, nr),
        };
        match newer {
            NONE => of.head = nr,
            newer => self.links[newer as usize].older = nr,
        }
        let link = &mut self.links[id.nr()];
        (link.newer, link.older, link.place) = (newer, older, Place::On(list));
        of.nr_folios += 1;
        of.nr_pages += link.order.nr_pages();
    }

    fn unlink(&mut self, id: FolioId) {
        let Link { newer, older, place, order, .. } = self.links[id.nr()];
        let Place::On(list) = place else { return };
        let of = &mut self.lists[list.nr()];
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
    }

    /// Folios of a list, newest first.
    fn iter(&self, list: ListId) -> impl Iterator<Item = FolioId> + '_ {
        let next = |&id: &FolioId| as_id(self.links[id.nr()].older);
        // A cycle would not end; one folio more than counted is enough to show it.
        let nr_max = self.nr_folios(list) as usize + 1;
        std::iter::successors(as_id(self.lists[list.nr()].head), next).take(nr_max)
    }

    /// Checks I2, and I1 for the live folios `alive` with their orders; what is wrong on error.
    ///
    /// # Errors
    /// The folio, and what is wrong with it; no folio where a count is.
    pub(crate) fn validate(
        &self,
        alive: impl Iterator<Item = (FolioId, Order)>,
    ) -> Result<(), (Option<FolioId>, &'static str)> {
        let mut nr_linked = 0;
        for list in ListId::ALL {
            let (mut nr_folios, mut nr_pages, mut newer) = (0, 0, NONE);
            for id in self.iter(list) {
                let link = self.links[id.nr()];
                if link.place != Place::On(list) || link.newer != newer {
                    return Err((Some(id), "it is linked into a list it does not name"));
                }
                newer = id.nr() as u32;
                nr_folios += 1;
                nr_pages += link.order.nr_pages();
            }
            let of = self.lists[list.nr()];
            if (of.nr_folios, of.nr_pages, of.tail) != (nr_folios, nr_pages, newer) {
                return Err((None, "a list counts other folios than it links"));
            }
            nr_linked += nr_folios;
        }
        let mut nr_alive = 0;
        for (id, order) in alive {
            match self.links.get(id.nr()).map(|link| (link.place, link.order)) {
                Some((Place::On(_), of)) if of == order => nr_alive += 1,
                Some((Place::Isolated(_), of)) if of == order => {}
                _ => return Err((Some(id), "it is on no list, or as a folio of another order")),
            }
        }
        if nr_alive == nr_linked { Ok(()) } else { Err((None, "a list links a freed folio")) }
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

    fn id(nr: u32) -> FolioId {
        FolioId::of_nr(nr)
    }

    fn lru(nr: u32) -> Lru {
        let mut lru = Lru::default();
        (0..nr).for_each(|nr| lru.add(id(nr), Order::new(2), INACTIVE));
        lru
    }

    fn check(lru: &Lru, alive: &[u32], tail_first: &[u32]) {
        let alive = alive.iter().map(|&nr| (id(nr), Order::new(2)));
        assert_eq!(lru.validate(alive), Ok(()));
        let mut order: Vec<_> = lru.iter(INACTIVE).collect();
        order.reverse();
        assert_eq!(order, tail_first.iter().map(|&nr| id(nr)).collect::<Vec<_>>());
    }

    #[test]
    fn the_oldest_comes_first_and_moving_changes_the_order_only() {
        let mut lru = lru(4);
        check(&lru, &[0, 1, 2, 3], &[0, 1, 2, 3]);
        lru.move_to_head(id(0), INACTIVE);
        check(&lru, &[0, 1, 2, 3], &[1, 2, 3, 0]);
        lru.move_to_head(id(1), ACTIVE);
        check(&lru, &[0, 1, 2, 3], &[2, 3, 0]);
        assert_eq!((lru.nr_pages(INACTIVE), lru.nr_pages(ACTIVE)), (12, 4));
    }

    #[test]
    fn an_isolated_folio_is_on_no_list_until_it_is_put_back() {
        let mut lru = lru(3);
        assert!(lru.isolate(id(1)) && !lru.isolate(id(1)) && !lru.is_on_lru(id(1)));
        check(&lru, &[0, 1, 2], &[0, 2]);
        lru.putback(id(1));
        check(&lru, &[0, 1, 2], &[0, 2, 1]);
        lru.remove(id(2));
        check(&lru, &[0, 1], &[0, 1]);
    }

    #[test]
    fn parts_take_the_place_of_the_whole() {
        let mut lru = lru(3);
        let spot = lru.spot(id(1));
        lru.remove(id(1));
        for part in [3, 4] {
            lru.add(id(part), Order::new(2), INACTIVE);
            lru.settle(id(part), spot);
        }
        check(&lru, &[0, 2, 3, 4], &[0, 4, 3, 2]);
    }
}
