//! Worked examples of docs/behaviour F.4 and L.21, in both layouts, with and without the lock.

use super::super::{
    Layout, MapcountOverflow, MmOwnerId, Narrow, NotExclusive, Owners, Slot, State, Wide,
};

const A: MmOwnerId = MmOwnerId::new(1).unwrap();
const B: MmOwnerId = MmOwnerId::new(2).unwrap();
const C: MmOwnerId = MmOwnerId::new(3).unwrap();
const FREE: (Option<MmOwnerId>, i32) = (None, -1);

/// The same folio with and without the lock. Both must reach the same state after every step.
struct Pair<L: Layout> {
    shared: Owners<L>,
    alone: Owners<L>,
}

impl<L: Layout> Pair<L> {
    fn new_anon(mm: MmOwnerId, nr: u32) -> Self {
        let make = || Owners::new_anon(mm, nr, None).unwrap();
        Self { shared: make(), alone: make() }
    }

    fn step(&mut self, mm: MmOwnerId, d: i32) -> State {
        let nr = d.unsigned_abs();
        let (left, same) = if d > 0 {
            (self.shared.add(mm, nr).unwrap(), self.alone.add_mut(mm, nr).unwrap())
        } else {
            (self.shared.remove(mm, nr), self.alone.remove_mut(mm, nr))
        };
        assert_eq!(left, same);
        assert_eq!(self.shared, self.alone);
        self.shared.validate().unwrap();
        assert_eq!(self.shared.mapcount(), left);
        self.shared.snapshot()
    }

    fn is_shared(&self) -> bool {
        self.shared.maybe_mapped_shared()
    }
}

fn slots(state: &State) -> [(Option<MmOwnerId>, i32); 2] {
    state.slots.map(|Slot { owner, mapcount }| (owner, mapcount))
}

fn table_of_l_21<L: Layout>() {
    let mut folio = Pair::<L>::new_anon(A, 4);
    let (a, b, c) = (Some(A), Some(B), Some(C));
    let new = folio.shared.snapshot();
    assert_eq!((slots(&new), new.large_mapcount, new.is_shared), ([(a, 3), FREE], 3, false));
    let rows = [
        (B, 4, [(a, 3), (b, 3)], 7, true, true),
        (B, -1, [(a, 3), (b, 2)], 6, true, true),
        (B, -3, [(a, 3), FREE], 3, false, false),
        (B, 1, [(a, 3), (b, 0)], 4, true, true),
        (C, 2, [(a, 3), (b, 0)], 6, true, true),
        (A, -4, [FREE, (b, 0)], 2, true, true),
        (C, 1, [(c, 0), (b, 0)], 3, true, true),
        (B, -1, [(c, 0), FREE], 2, true, true),
        (C, -1, [FREE, FREE], 1, true, true),
        (C, -1, [FREE, FREE], 0, true, false),
        (C, -1, [FREE, FREE], -1, false, false),
    ];
    for (row, (mm, d, expected, large_mapcount, is_shared, maybe_shared)) in
        rows.into_iter().enumerate()
    {
        let state = folio.step(mm, d);
        let got = (slots(&state), state.large_mapcount, state.is_shared);
        assert_eq!(got, (expected, large_mapcount, is_shared), "row {row}");
        assert_eq!(folio.is_shared(), maybe_shared, "row {row}");
    }
}

#[test]
fn the_slot_machine_follows_the_table_of_l_21() {
    table_of_l_21::<Wide>();
    table_of_l_21::<Narrow>();
}

#[test]
fn an_untracked_survivor_stays_maybe_shared_until_one_mapping_is_left_f_4_2() {
    let mut folio = Pair::<Wide>::new_anon(A, 4);
    folio.step(B, 4);
    folio.step(C, 4);
    assert_eq!(slots(&folio.step(A, -4)), [FREE, (Some(B), 3)]);
    assert!(folio.is_shared());
    assert_eq!(slots(&folio.step(B, -4)), [FREE, FREE]);
    assert!(folio.is_shared());
    assert_eq!(slots(&folio.step(C, 1)), [(Some(C), 0), FREE]);
    assert!(folio.is_shared());
    folio.step(C, -1);
    assert!(folio.is_shared());
    folio.step(C, -3);
    assert!(!folio.is_shared());
}

#[test]
fn two_owners_are_exact_f_4_3() {
    for (leaver, survivor) in [(A, B), (B, A)] {
        let mut folio = Pair::<Narrow>::new_anon(A, 4);
        folio.step(B, 4);
        folio.step(leaver, -2);
        assert!(folio.is_shared());
        folio.step(leaver, -2);
        assert!(!folio.is_shared());
        assert_eq!(folio.shared.try_exclusive(survivor, || 4), Ok(()));
        assert_eq!(folio.shared.try_exclusive(leaver, || 4), Err(NotExclusive::Shared));
    }
}

#[test]
fn a_third_mm_takes_a_slot_that_became_free_f_4_4() {
    let mut folio = Pair::<Wide>::new_anon(A, 4);
    folio.step(B, 4);
    folio.step(C, 4);
    folio.step(B, -4);
    assert_eq!(slots(&folio.step(C, 2)), [(Some(A), 3), (Some(C), 1)]);
}

#[test]
fn a_parent_writes_in_place_after_its_child_f_4_7() {
    let mut folio = Pair::<Wide>::new_anon(A, 16);
    let state = folio.step(B, 16);
    assert_eq!((slots(&state), state.large_mapcount), ([(Some(A), 15), (Some(B), 15)], 31));
    assert_eq!(folio.shared.try_exclusive(A, || 32), Err(NotExclusive::Shared));
    folio.step(B, -16);
    assert_eq!(folio.shared.try_exclusive(A, || 17), Err(NotExclusive::Referenced));
    assert_eq!(folio.shared.try_exclusive(A, || 16), Ok(()));
    folio.step(A, -15);
    assert_eq!(folio.shared.try_exclusive(A, || 1), Err(NotExclusive::LastMapping));
}

#[test]
fn the_tracked_survivor_of_three_is_recognised_f_4_8() {
    let mut folio = Pair::<Wide>::new_anon(A, 16);
    folio.step(B, 16);
    assert_eq!(folio.step(C, 16).large_mapcount, 47);
    folio.step(C, -16);
    assert!(folio.is_shared(), "parent and first child share");
    folio.step(C, 16);
    folio.step(B, -16);
    assert!(folio.is_shared());
    folio.step(C, -16);
    assert!(!folio.is_shared());
}

#[test]
fn a_narrow_slot_that_overflows_is_freed_and_the_folio_counts_as_shared() {
    for slot in [A, B] {
        let mut folio = Pair::<Narrow>::new_anon(A, 1);
        folio.step(B, 1);
        folio.step(slot, 32767);
        assert!(folio.shared.snapshot().slots.iter().any(|slot| slot.mapcount == 32767));
        let state = folio.step(slot, 1);
        assert_eq!(state.slot_of(Some(slot)), None);
        assert!(state.is_shared);
        assert_eq!(state.large_mapcount, 32769);
        // Its mappings are now untracked: removing them changes only the total.
        folio.step(slot, -32768);
        folio.step(slot, -1);
    }
}

#[test]
fn a_single_owner_that_overflows_becomes_a_false_shared_and_never_the_reverse() {
    let mut folio = Pair::<Narrow>::new_anon(A, 32768);
    assert!(!folio.is_shared());
    assert!(folio.step(A, 1).is_shared);
    folio.step(A, -32768);
    assert!(!folio.is_shared(), "one mapping left");
    assert_eq!(folio.step(A, -1), State::UNMAPPED);
}

fn mapcount_overflow_is_refused<L: Layout>(stop_above: Option<u32>) {
    let mut folio = Owners::<L>::new_anon(A, 1 << 15, stop_above).unwrap();
    for _ in 1..1 << 16 {
        folio.add_mut(A, 1 << 15).unwrap();
    }
    assert_eq!(folio.mapcount(), 1 << 31);
    let (before, refused) =
        (folio.snapshot(), MapcountOverflow { large_mapcount: i32::MAX, nr: 1 });
    assert_eq!(folio.add_mut(B, 1), Err(refused));
    assert_eq!(folio.add(B, 1), Err(refused));
    assert_eq!(folio.snapshot(), before);
    folio.validate().unwrap();
    assert_eq!(folio.remove(A, 1), i32::MAX.cast_unsigned());
}

#[test]
fn a_mapcount_that_would_overflow_is_refused_and_nothing_changes() {
    mapcount_overflow_is_refused::<Wide>(None);
    mapcount_overflow_is_refused::<Narrow>(None);
    mapcount_overflow_is_refused::<Wide>(Some(64));
}

#[test]
fn tracking_stops_above_the_limit_and_stays_stopped() {
    let folio = Owners::<Wide>::new_anon(A, 4, Some(8)).unwrap();
    folio.add(B, 4).unwrap();
    assert!(!folio.snapshot().is_stopped, "8 mappings are not above 8");
    folio.add(C, 1).unwrap();
    assert_eq!(folio.snapshot(), State::stopped(8));
    folio.remove(C, 1);
    folio.remove(B, 4);
    assert!(folio.maybe_mapped_shared(), "only A maps it, but the kernel does not know");
    assert_eq!(folio.try_exclusive(A, || 4), Err(NotExclusive::Shared));
    folio.remove(A, 3);
    assert!(!folio.maybe_mapped_shared(), "one mapping belongs to one process");
    folio.remove(A, 1);
    folio.add(B, 2).unwrap();
    assert_eq!(folio.snapshot(), State::stopped(1));
    folio.validate().unwrap();
}

#[test]
#[should_panic(expected = "5 mappings are removed of 4")]
fn more_than_there_is_cannot_be_removed() {
    Owners::<Wide>::new_anon(A, 4, None).unwrap().remove(A, 5);
}

#[test]
#[should_panic(expected = "does not fit the layout")]
fn an_id_of_a_wider_layout_is_refused() {
    let _ = Owners::<Narrow>::new(None).add(MmOwnerId::new(1 << 15).unwrap(), 1);
}

#[test]
fn the_words_fit_where_the_kernel_keeps_them() {
    assert_eq!(size_of::<Owners<Wide>>(), 24);
    assert_eq!(size_of::<Owners<Narrow>>(), 16);
}

#[test]
fn threads_keep_the_counts() {
    let folio = Owners::<Wide>::new_anon(A, 1, Some(1 << 20)).unwrap();
    std::thread::scope(|scope| {
        for mm in [A, B, C] {
            let folio = &folio;
            scope.spawn(move || {
                for nr in (1..=4).cycle().take(20_000) {
                    folio.add(mm, nr).unwrap();
                    folio.remove(mm, nr);
                }
            });
        }
    });
    assert_eq!(folio.mapcount(), 1);
    folio.validate().unwrap();
}
