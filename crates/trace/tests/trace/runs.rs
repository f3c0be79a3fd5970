//! Compares [`RunBuffer`]'s output with its input.

use std::collections::BTreeMap;

use largefolio_trace::runs::{RunBuffer, WINDOW_ROWS};
use largefolio_trace::{Event, Op};
use proptest::prelude::*;

fn collapse(events: &[Event]) -> Vec<Event> {
    let (mut runs, mut rows) = (RunBuffer::default(), Vec::new());
    for &event in events {
        runs.push(event, &mut rows);
    }
    runs.flush(&mut rows);
    rows
}

type Key = (u32, Op, u64);

fn key(event: &Event) -> Key {
    (event.thread, event.op, event.addr & !4095)
}

fn totals(events: &[Event]) -> BTreeMap<Key, u64> {
    let mut totals = BTreeMap::new();
    for event in events.iter().filter(|event| event.op.is_reference()) {
        *totals.entry(key(event)).or_default() += event.len;
    }
    totals
}

fn first_touches(events: &[Event]) -> Vec<Key> {
    let mut keys = Vec::new();
    for event in events {
        if !keys.contains(&key(event)) {
            keys.push(key(event));
        }
    }
    keys
}

/// Generates a reference to one of few pages by one of few threads, or rarely another event.
fn any_input() -> impl Strategy<Value = Event> {
    let reference = (0..3_u32, 0..3_usize, 0..12 * 4096_u64, 1..4_u64)
        .prop_map(|(thread, op, addr, len)| Event::references(thread, Op::ALL[op], addr, len));
    let other = (0..3_u32).prop_map(|thread| Event::new(thread, Op::Fork));
    prop_oneof![19 => reference, 1 => other]
}

fn segments(events: &[Event]) -> Vec<&[Event]> {
    events.split(|event| !event.op.is_reference()).collect()
}

proptest! {
    #[test]
    fn counts_first_touches_and_barriers_are_kept(
        events in proptest::collection::vec(any_input(), 0..400),
    ) {
        let rows = collapse(&events);
        let (before, after) = (segments(&events), segments(&rows));
        prop_assert_eq!(before.len(), after.len());
        for (before, after) in before.into_iter().zip(after) {
            prop_assert_eq!(totals(before), totals(after));
            prop_assert_eq!(first_touches(before), first_touches(after));
        }
    }

    #[test]
    fn a_collapsed_trace_does_not_collapse_further_by_one_thread(
        pages in proptest::collection::vec(0..30_u64, 0..300),
    ) {
        let events: Vec<_> =
            pages.iter().map(|page| Event::references(0, Op::Read, page << 12, 1)).collect();
        let rows = collapse(&events);
        for (i, row) in rows.iter().enumerate() {
            let window = &rows[i.saturating_sub(WINDOW_ROWS)..i];
            prop_assert!(window.iter().all(|earlier| earlier.addr != row.addr));
        }
    }

    #[test]
    fn rows_never_pile_up(events in proptest::collection::vec(any_input(), 0..400)) {
        let (mut runs, mut rows) = (RunBuffer::default(), Vec::new());
        let mut nr_most = 0;
        for event in events {
            runs.push(event, &mut rows);
            let mut waiting = Vec::new();
            runs.clone().flush(&mut waiting);
            nr_most = nr_most.max(waiting.len());
        }
        prop_assert!(nr_most <= 8 * WINDOW_ROWS);
    }
}

#[test]
fn the_window_is_eight_rows_of_a_thread() {
    let read = |page: u64| Event::references(0, Op::Read, page << 12, 1);
    let pages_back: Vec<_> = (0..8).chain([0]).map(read).collect();
    assert_eq!(collapse(&pages_back)[0].len, 2);
    let too_far: Vec<_> = (0..9).chain([0]).map(read).collect();
    assert_eq!(collapse(&too_far).len(), 10);
}

#[test]
fn another_thread_does_not_shrink_the_window() {
    let read = |thread, page: u64| Event::references(thread, Op::Read, page << 12, 1);
    let mut events = vec![read(0, 99)];
    events.extend((0..20).map(|page| read(1, page)));
    events.push(read(0, 99));
    assert_eq!(collapse(&events)[0], Event::references(0, Op::Read, 99 << 12, 2));
}

#[test]
fn counts_that_would_overflow_start_a_new_row() {
    let run = Event::references(0, Op::Read, 0x1000, u64::MAX);
    assert_eq!(collapse(&[run, run]), [run, run]);
}
