//! Exhausts a small world: every sequence of additions and removals by three mms on a folio of four
//! pages, compared with the true mappings.

use std::collections::BTreeSet;

use super::super::words::Words;
use super::super::{Layout, MmOwnerId, Narrow, Owners, State, Wide};

/// Mappings per mm: each page twice.
const NR_MAX: u32 = 8;

/// The words, each mm's true mappings, and whether three mms mapped the folio at once since it was
/// last unmapped: "shared" may then be false.
type World = ([u32; 3], [u64; 2], bool);

fn check(state: &State, truth: [u32; 3], is_crowded: bool) {
    state.validate().unwrap();
    assert_eq!(state.mapcount(), truth.iter().sum::<u32>());
    let nr_mms = truth.iter().filter(|&&nr| nr > 0).count();
    for slot in state.slots {
        let Some(owner) = slot.owner else { continue };
        assert!(slot.mapcount < truth[owner.get() as usize - 1].cast_signed(), "{state:?}");
    }
    let is_shared = state.mapcount() > 1 && state.is_shared;
    assert!(is_shared || nr_mms <= 1, "false exclusive: {state:?} {truth:?}");
    if !is_crowded && !state.is_stopped {
        assert_eq!(is_shared, nr_mms == 2, "two are exact: {state:?} {truth:?}");
    }
}

fn explore<L: Layout>(stop_above: u32) -> usize {
    let mms = [1, 2, 3].map(|id| MmOwnerId::new(id).unwrap());
    let mut seen: BTreeSet<World> = BTreeSet::new();
    let mut todo = vec![(Words::unmapped::<L>(), [0; 3], false)];
    while let Some((words, truth, is_crowded)) = todo.pop() {
        if !seen.insert((truth, [words.word, words.counts], is_crowded)) {
            continue;
        }
        check(&words.state::<L>(), truth, is_crowded);
        for (which, &mm) in mms.iter().enumerate() {
            for nr in 1..=4 {
                if truth[which] + nr <= NR_MAX {
                    let new = words.add::<L>(mm, nr, stop_above).unwrap();
                    let mut truth = truth;
                    truth[which] += nr;
                    let crowd = truth.iter().all(|&nr| nr > 0);
                    todo.push((new, truth, is_crowded || crowd));
                }
                if truth[which] >= nr {
                    let mut truth = truth;
                    truth[which] -= nr;
                    let new = words.remove::<L>(mm, nr);
                    todo.push((new, truth, is_crowded && truth != [0; 3]));
                }
            }
        }
    }
    seen.len()
}

#[test]
fn three_mms_never_give_a_false_exclusive_and_two_are_exact() {
    // 729 combinations of mappings, with several histories each.
    assert!(explore::<Wide>(u32::MAX) > 1_000);
}

#[test]
fn stopping_keeps_every_answer_on_the_safe_side() {
    for stop_above in [0, 1, 4, 9] {
        assert!(explore::<Narrow>(stop_above) >= 729);
    }
}

fn walk<L: Layout>(folio: &Owners<L>, truth: [u32; 3], depth: u32) -> u64 {
    if depth == 0 {
        return 1;
    }
    let mut nr_walks = 0;
    for which in 0..3 {
        let mm = MmOwnerId::new(which as u32 + 1).unwrap();
        for (is_add, nr) in [(true, 1), (true, 4), (false, 1), (false, 4)] {
            let mut truth = truth;
            let mut folio = folio.clone();
            if is_add {
                truth[which] += nr;
                folio.add_mut(mm, nr).unwrap();
            } else if truth[which] >= nr {
                truth[which] -= nr;
                folio.remove_mut(mm, nr);
            } else {
                continue;
            }
            check(&folio.snapshot(), truth, true);
            nr_walks += walk(&folio, truth, depth - 1);
        }
    }
    nr_walks
}

#[test]
fn every_walk_of_six_steps_keeps_the_words_sound() {
    let walks = [
        walk(&Owners::<Wide>::new(None), [0; 3], 6),
        walk(&Owners::<Narrow>::new(None), [0; 3], 6),
    ];
    assert_eq!(walks[0], walks[1]);
    assert!(walks[0] > 100_000);
}
