//! Answers for stalls that no machine has to have.

use std::collections::BTreeSet;

use largefolio_linux::stalls::{GroupPressure, Sum};

use super::*;
use crate::Forms as _;

fn sum(all_ns: &[u64]) -> Sum {
    let mut sum = Sum::default();
    for ns in all_ns {
        sum.waits.add(*ns);
    }
    sum
}

fn owner(pid: u32, name: &str) -> Owner {
    Owner { pid, name: name.to_owned(), ..Owner::default() }
}

fn sums(kind: Kind, order: Option<u32>, all_ns: &[u64]) -> Sums {
    Sums {
        by_kind: BTreeMap::from([((kind, order), sum(all_ns))]),
        threads: BTreeSet::from([1]),
        ..Sums::default()
    }
}

fn stalls(waiters: Vec<(Owner, Sums)>) -> Stalls {
    let elapsed = Duration::from_secs(30);
    let (defrag, thp_orders) = (Some("always".to_owned()), [4, 9].into());
    Stalls { elapsed, waiters, defrag, thp_orders, ..Stalls::default() }
}

fn result(stalls: Stalls) -> StallsResult {
    StallsResult { page_bytes: 4096, ..StallsResult::new(Vec::new(), stalls) }
}

#[test]
fn the_answer_names_who_waited_most_and_for_what() {
    let mut db = sums(Kind::Compaction, Some(9), &[700_000_000, 400_000_000]);
    db.by_kind.insert((Kind::Reclaim, Some(0)), sum(&[100_000_000]));
    let result = result(stalls(vec![
        (owner(42, "postgres"), db),
        (owner(43, "a\u{1b}[2Jb"), sums(Kind::GroupReclaim, Some(0), &[5_000])),
    ]));
    let text = result.text();
    let first = "postgres (42) waited 1.20 s of 30.0 s, mostly in direct compaction for 2M folios.";
    assert_eq!(text.lines().next(), Some(first));
    assert!(text.contains("2 processes waited 1.20 s in total."), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(text.contains("thp.defrag=defer+madvise"), "{text}");
    assert!(text.contains("psi=1"), "{text}");
    // The longest waits come first, so does what would help against them.
    let helps: Vec<&str> = result.remedies.iter().map(|one| one.command.as_str()).collect();
    assert!(helps[0].contains("tune") && helps[2].contains("--waste"), "{helps:?}");
}

#[test]
fn nothing_is_an_answer_too() {
    let text = result(stalls(Vec::new())).text();
    assert!(text.starts_with("Nothing waited for memory in 30.0 s.\n"), "{text}");
    assert!(!text.contains("What would help"), "{text}");
}

#[test]
fn a_setting_is_named_only_if_it_would_change_something() {
    for (defrag, expected) in [
        ("always", Some("thp.defrag=defer+madvise")),
        ("madvise", Some("thp.defrag=defer ")),
        ("defer", None),
        ("never", None),
    ] {
        let waiters = vec![(owner(1, "x"), sums(Kind::Compaction, Some(4), &[1_000]))];
        let stalls = Stalls { defrag: Some(defrag.to_owned()), ..stalls(waiters) };
        let result = result(stalls);
        let found = result
            .remedies
            .iter()
            .any(|one| expected.is_some_and(|expected| one.command.contains(expected)));
        let tunes = result.remedies.iter().any(|one| one.command.contains("tune"));
        assert_eq!((found, tunes), (expected.is_some(), expected.is_some()), "{defrag}");
    }
}

#[test]
fn a_group_near_its_limit_is_named() {
    let limit = |group: &str, used_bytes| MemoryLimit {
        group: group.to_owned(),
        max_bytes: 100 << 20,
        used_bytes,
        cold_file_bytes: 0,
    };
    let waiters = vec![(owner(1, "x"), sums(Kind::GroupReclaim, Some(0), &[1_000]))];
    let limits = vec![limit("/full", 99 << 20), limit("/empty", 1 << 20)];
    let result = result(Stalls { limits, ..stalls(waiters) });
    assert_eq!(result.remedies.len(), 1);
    assert!(result.remedies[0].what.contains("/full uses 99 MiB of its limit of 100 MiB"));
}

#[test]
fn what_was_cut_or_missed_is_said() {
    let mut cut = sums(Kind::Reclaim, Some(0), &[9_000_000]);
    cut.by_kind.values_mut().for_each(|sum| sum.nr_cut = 1);
    let pressure = largefolio_linux::proc::counters::Pressure { some_us: 2_000, full_us: 10 };
    let result = result(Stalls {
        nr_lost: 7,
        nr_headless: 2,
        missing_events: vec!["compaction/mm_compaction_begin"],
        pressures: vec![GroupPressure { group: None, pressure }],
        others: sums(Kind::Reclaim, Some(0), &[3_000_000]),
        ..stalls(vec![(owner(1, "x"), cut)])
    });
    let text = result.text();
    for expected in [
        "1 wait had not ended",
        "2 waits began before tracing",
        "does not report compaction",
        "some task waited for 2.00 ms",
        "not selected waited 3.00 ms",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(
        matches!(&result.remarks()[..], [Remark::Warning(text)] if text.starts_with("7 events"))
    );
}

#[test]
fn a_size_that_is_off_is_not_blamed_on_defrag() {
    let of = |order| {
        let waiters = vec![(owner(1, "x"), sums(Kind::Compaction, Some(order), &[1_000]))];
        result(stalls(waiters)).text()
    };
    assert!(of(4).contains("thp.defrag") && !of(4).contains("network buffers"), "{}", of(4));
    assert!(!of(2).contains("thp.defrag") && of(2).contains("network buffers"), "{}", of(2));
    assert!(!of(0).contains("network buffers"), "{}", of(0));
}

#[test]
fn threads_that_ended_and_waits_without_an_end_are_named() {
    let ended = sums(Kind::Reclaim, Some(0), &[2_000_000]);
    let lossy = Stalls { ended, nr_lost: 5, nr_without_end: 3, ..stalls(Vec::new()) };
    let result = result(lossy);
    let text = result.text();
    assert!(text.contains("find their process waited 2.00 ms"), "{text}");
    assert!(!text.contains("not selected"), "{text}");
    let remarks = format!("{:?}", result.remarks());
    assert!(remarks.contains("among them 3 waits whose end may be lost"), "{remarks}");
}
