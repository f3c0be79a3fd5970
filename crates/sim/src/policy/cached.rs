//! Cached folios, as a policy for `cache_ext` knows them, and its eviction lists.
//!
//! ```text
//!   list 1:  head - folio - folio - tail          folio -> list, neighbours, file, index
//!   evict_folios -> proposed folios -> one answer each, in order
//! ```
//!
//! Owns the folios' state, the lists, and the policy's proposals. A folio is in at most one list, and
//! leaves it when it leaves the page cache.
//!
//! Invariants:
//! - I1: links are mutual; a folio that is in a list is known.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Lists per cgroup.
const NR_LISTS_MAX: usize = 64;
/// `folios_to_evict` of `cache_ext_eviction_ctx`.
pub(super) const NR_PROPOSED_MAX: u64 = 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CachedFolio {
    pub(super) file: u64,
    pub(super) index: u64,
    pub(super) order: u64,
    pub(super) is_dirty: bool,
    /// The list's number; 0 = none.
    list: u64,
    before: u64,
    after: u64,
}

impl CachedFolio {
    pub(super) fn new(file: u64, index: u64, order: u64, is_dirty: bool) -> Self {
        Self { file, index, order, is_dirty, ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct List {
    group: u64,
    head: u64,
    tail: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Head,
    Tail,
}

/// Numbers of folios and lists start at 1, and 0 means none.
#[derive(Clone, Debug, Default)]
pub(super) struct Cached {
    folios: HashMap<u64, CachedFolio>,
    lists: Vec<List>,
    nr_lists: BTreeMap<u64, usize>,
    nr_requested: u64,
    proposed: Vec<u64>,
    answers: VecDeque<u64>,
}

impl Cached {
    pub(super) fn folio(&self, number: u64) -> Option<&CachedFolio> {
        self.folios.get(&number)
    }

    /// A folio entered the cache, or was used: its state is this.
    pub(super) fn learn(&mut self, number: u64, state: CachedFolio) {
        let CachedFolio { list, before, after, .. } = self.of(number);
        self.folios.insert(number, CachedFolio { list, before, after, ..state });
    }

    /// A folio left the cache.
    pub(super) fn forget(&mut self, number: u64) {
        self.unlink(number);
        self.folios.remove(&number);
        self.answers.retain(|&other| other != number);
    }

    fn of(&self, number: u64) -> CachedFolio {
        self.folios.get(&number).copied().unwrap_or_default()
    }

    /// Adds a list of a cgroup. Returns its number, or 0 if the cgroup has too many.
    pub(super) fn add_list(&mut self, group: u64) -> u64 {
        let nr = self.nr_lists.entry(group).or_default();
        if *nr >= NR_LISTS_MAX {
            return 0;
        }
        *nr += 1;
        self.lists.push(List { group, ..List::default() });
        self.lists.len() as u64
    }

    fn list_mut(&mut self, list: u64) -> Option<&mut List> {
        self.lists.get_mut(usize::try_from(list.checked_sub(1)?).ok()?)
    }

    /// Whether the list exists and belongs to the cgroup.
    pub(super) fn has_list(&self, group: u64, list: u64) -> bool {
        let at = list.checked_sub(1).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.lists.get(at)).is_some_and(|list| list.group == group)
    }

    /// Adds a folio that is in no list. Returns whether that worked.
    pub(super) fn add(&mut self, group: u64, list: u64, number: u64, end: End) -> bool {
        let is_free = self.folios.get(&number).is_some_and(|folio| folio.list == 0);
        if !is_free || !self.has_list(group, list) {
            return false;
        }
        self.link(list, number, end);
        true
    }

    /// Moves a folio from its list to an end of a list.
    pub(super) fn move_to(&mut self, group: u64, list: u64, number: u64, end: End) -> bool {
        if self.of(number).list == 0 || !self.has_list(group, list) {
            return false;
        }
        self.unlink(number);
        self.link(list, number, end);
        true
    }

    /// Removes a folio from its list. Returns whether it was in one.
    pub(super) fn delete(&mut self, number: u64) -> bool {
        let was_listed = self.of(number).list > 0;
        self.unlink(number);
        was_listed
    }

    fn link(&mut self, list: u64, number: u64, end: End) {
        let Some(of_list) = self.list_mut(list) else { return };
        let (before, after) = match end {
            End::Head => (0, std::mem::replace(&mut of_list.head, number)),
            End::Tail => (std::mem::replace(&mut of_list.tail, number), 0),
        };
        if of_list.head == 0 || end == End::Tail && before == 0 {
            of_list.head = number;
        }
        if of_list.tail == 0 {
            of_list.tail = number;
        }
        self.set_after(before, number);
        self.set_before(after, number);
        if let Some(folio) = self.folios.get_mut(&number) {
            (folio.list, folio.before, folio.after) = (list, before, after);
        }
    }

    fn unlink(&mut self, number: u64) {
        let CachedFolio { list, before, after, .. } = self.of(number);
        let Some(of_list) = self.list_mut(list) else { return };
        if before == 0 {
            of_list.head = after;
        }
        if after == 0 {
            of_list.tail = before;
        }
        self.set_after(before, after);
        self.set_before(after, before);
        if let Some(folio) = self.folios.get_mut(&number) {
            (folio.list, folio.before, folio.after) = (0, 0, 0);
        }
    }

    fn set_after(&mut self, number: u64, after: u64) {
        if let Some(folio) = self.folios.get_mut(&number) {
            folio.after = after;
        }
    }

    fn set_before(&mut self, number: u64, before: u64) {
        if let Some(folio) = self.folios.get_mut(&number) {
            folio.before = before;
        }
    }

    /// The list's first folios, at most `nr`.
    pub(super) fn first(&self, list: u64, nr: usize) -> Vec<u64> {
        let at = list.checked_sub(1).and_then(|at| usize::try_from(at).ok());
        let head = at.and_then(|at| self.lists.get(at)).map_or(0, |list| list.head);
        let next = |&number: &u64| Some(self.of(number).after);
        let folios = std::iter::successors(Some(head), next);
        folios.take_while(|&number| number > 0).take(nr).collect()
    }

    /// Begins a request for folios.
    pub(super) fn request(&mut self, nr: u64) {
        self.nr_requested = nr.clamp(1, NR_PROPOSED_MAX);
        self.proposed.clear();
    }

    pub(super) fn nr_requested(&self) -> u64 {
        self.nr_requested
    }

    pub(super) fn nr_proposed(&self) -> u64 {
        self.proposed.len() as u64
    }

    pub(super) fn has_enough(&self) -> bool {
        self.nr_proposed() >= self.nr_requested
    }

    /// Proposes a folio once.
    pub(super) fn propose(&mut self, number: u64) {
        if !self.has_enough() && !self.proposed.contains(&number) {
            self.proposed.push(number);
        }
    }

    /// Ends the request: the proposed folios become answers.
    pub(super) fn end_request(&mut self) {
        self.answers.extend(self.proposed.drain(..));
    }

    pub(super) fn next_answer(&mut self) -> Option<u64> {
        self.answers.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random operations on two lists, compared with vectors.
    #[test]
    fn lists_have_the_order_of_their_operations() {
        let mut cached = Cached::default();
        let lists = [cached.add_list(7), cached.add_list(7)];
        let mut naive: [Vec<u64>; 2] = [Vec::new(), Vec::new()];
        let mut state = 1_u64;
        let mut below = |nr: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % nr
        };
        for number in 1..=12 {
            cached.learn(number, CachedFolio::default());
        }
        for _ in 0..4_000 {
            let (at, number) = (below(2) as usize, below(12) + 1);
            let end = if below(2) == 0 { End::Head } else { End::Tail };
            let is_listed = naive.iter().any(|list| list.contains(&number));
            let is_done = match below(4) {
                0 => cached.add(7, lists[at], number, end) != is_listed,
                1 => cached.move_to(7, lists[at], number, end) == is_listed,
                2 => cached.delete(number) == is_listed,
                _ => {
                    cached.forget(number);
                    cached.learn(number, CachedFolio::default());
                    true
                }
            };
            assert!(is_done);
            let place = cached.of(number).list;
            for list in &mut naive {
                list.retain(|&other| other != number);
            }
            if place > 0 {
                let list = &mut naive[place as usize - 1];
                // An add that fails leaves the folio where it was: take its place from the list.
                let order = cached.first(place, 99);
                let at = order.iter().position(|&other| other == number).unwrap();
                list.insert(at, number);
            }
            for (list, naive) in lists.iter().zip(&naive) {
                assert_eq!(&cached.first(*list, 99), naive);
            }
        }
        assert!(!cached.add(8, lists[0], 1, End::Head), "another cgroup's list");
        assert!(!cached.move_to(7, 99, 1, End::Head), "no such list");
    }

    #[test]
    fn a_new_folio_goes_to_the_chosen_end() {
        let mut cached = Cached::default();
        let list = cached.add_list(0);
        for (number, end) in [(5, End::Tail), (6, End::Tail), (7, End::Head), (8, End::Tail)] {
            cached.learn(number, CachedFolio::default());
            assert!(cached.add(0, list, number, end));
        }
        assert_eq!(cached.first(list, 9), [7, 5, 6, 8]);
        assert!(cached.move_to(0, list, 5, End::Tail) && cached.move_to(0, list, 8, End::Head));
        assert_eq!(cached.first(list, 9), [8, 7, 6, 5]);
        cached.forget(7);
        assert_eq!(cached.first(list, 2), [8, 6]);
        cached.request(2);
        for number in [8, 8, 6, 5] {
            cached.propose(number);
        }
        cached.end_request();
        cached.forget(8);
        assert_eq!((cached.next_answer(), cached.next_answer()), (Some(6), None));
    }

    #[test]
    fn a_cgroup_has_so_many_lists() {
        let mut cached = Cached::default();
        assert!((0..NR_LISTS_MAX).all(|_| cached.add_list(1) > 0));
        assert_eq!(cached.add_list(1), 0);
        assert!(cached.add_list(2) > 0);
    }
}
