//! Settings that change during a replay.

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CacheState, CellSpec, Changed, Outcome, replay};
use largefolio_trace::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, FileInfo, Op};

use super::{ADDR, HUGE, program};

const NR_PAGES: u64 = HUGE / 4096;

fn spec(kernel: &str, changes: &[&str]) -> CellSpec {
    let changes = changes.iter().map(|text| text.parse().unwrap()).collect();
    let (kernel, machine) = (Kernel::parse(kernel).unwrap(), Machine::named("altra").unwrap());
    CellSpec { changes, ns_per_reference: 0, ..CellSpec::new(kernel, machine) }
}

fn run(spec: CellSpec, events: &[Event]) -> Outcome {
    let file = |path: &str, size_bytes| FileInfo {
        path: path.into(),
        size_bytes,
        filesystem: "ext4".into(),
        disk: "vda".into(),
        ..FileInfo::default()
    };
    let files = vec![file("/bin/p", 0x1000), file("/a", 8 * HUGE), file("/b", 8 * HUGE)];
    let (_dir, path) = program(files, events);
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

fn map() -> Event {
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    Event { addr: ADDR, len: 2 * HUGE, flags, ..Event::new(0, Op::Mmap) }
}

/// Two PMD ranges, one after the other. The rows are the mapping and a store per page.
fn two_halves() -> Vec<Event> {
    let store = |page| Event::references(0, Op::Write, ADDR + page * 4096, 1);
    std::iter::once(map()).chain((0..2 * NR_PAGES).map(store)).collect()
}

fn pmds(kernel: &str, changes: &[&str]) -> u64 {
    run(spec(kernel, changes), &two_halves()).folios.anon.pmd_bytes / HUGE
}

#[test]
fn memory_touched_after_the_change_follows_the_new_setting() {
    assert_eq!(pmds("6.18+thp=never", &[]), 0);
    assert_eq!(pmds("6.18+thp=never", &["50%:thp=always"]), 1);
    assert_eq!(pmds("6.18+thp=always", &["50%:thp=never"]), 1);
    assert_eq!(pmds("6.18+thp=never", &["0%:thp=always"]), 2);
    assert_eq!(pmds("6.18+thp=never", &["0%:thp=always", "50%:thp=never"]), 1);
    // In the order of their rows, whatever the order on the command line.
    assert_eq!(pmds("6.18+thp=never", &["50%:thp=never", "0%:thp=always"]), 1);
    // A block with a base page stays in base pages.
    assert_eq!(pmds("6.18+thp=never", &["51%:thp=always"]), 0);
}

#[test]
fn the_outcome_says_when_a_setting_changed() {
    let changed = |kernel| run(spec(kernel, &["50%:thp=always"]), &two_halves()).changes;
    let expected = Changed {
        at: "50%".to_owned(),
        edits: "thp=always".to_owned(),
        row: NR_PAGES,
        references: NR_PAGES - 1,
        has_effect: true,
    };
    assert_eq!(changed("6.18+thp=never"), std::slice::from_ref(&expected));
    assert_eq!(changed("6.18+thp=always"), [Changed { has_effect: false, ..expected }]);
}

#[test]
fn khugepaged_starts_when_a_setting_lets_it_run() {
    let other = ADDR + (1 << 30);
    let mut events = two_halves();
    // A fault in new memory registers the process with khugepaged, if it is on by then.
    events.push(Event { addr: other, ..map() });
    events.push(Event::references(0, Op::Write, other, 1));
    // Two milliseconds.
    events.extend([0, 4096].map(|at| Event::references(0, Op::Read, ADDR + at, 1_000_000)));
    let collapsed = |changes: &[&str]| {
        let spec = CellSpec { ns_per_reference: 1, ..spec("6.18+thp=never", changes) };
        run(spec, &events).collapse.pages_collapsed
    };
    assert_eq!(collapsed(&[]), 0);
    assert_eq!(collapsed(&["99%:thp=always+khugepaged-scan-sleep=1"]), 2);
    assert_eq!(collapsed(&["99%:thp=always"]), 2, "it wakes when the process joins its list");
    let asleep = spec("6.18+thp=madvise+anon-64K=always", &["99%:thp=always"]);
    let asleep = run(CellSpec { ns_per_reference: 1, ..asleep }, &events);
    assert_eq!(asleep.collapse.pages_collapsed, 0, "it ran before, and sleeps ten seconds");
    assert_eq!(collapsed(&["99.9%:thp=always"]), 0, "no fault registered the process");
}

#[test]
fn a_file_keeps_the_window_with_which_it_was_opened() {
    let flags = mmap_flags(PROT_READ, MAP_PRIVATE);
    let map = |nr: u64| Event {
        addr: ADDR + nr * (1 << 30),
        len: 8 * HUGE,
        flags,
        file: Some(1 + u32::try_from(nr).unwrap()),
        ..Event::new(0, Op::Mmap)
    };
    let touch = |nr: u64| Event::references(0, Op::Read, ADDR + nr * (1 << 30), 1);
    let both = [map(0), touch(0), map(1), touch(1)];
    let bytes = |kernel: &str, changes: &[&str], events: &[Event]| {
        run(spec(kernel, changes), events).reads.bytes
    };
    let (small, large) = ("6.18+readahead=64K", "6.18+readahead=1M");
    let one = |kernel| bytes(kernel, &[], &both[..2]);
    let two = |kernel| bytes(kernel, &[], &both);
    assert!(one(small) < one(large) && two(small) < two(large));
    for change in ["50%:readahead=1M", "50%:readahead-vda=1M"] {
        let changed = bytes(small, &[change], &both);
        assert_eq!(changed - one(small), two(large) - one(large), "{change}");
    }
    let early = [map(0), map(1), touch(0), touch(1)];
    assert_eq!(bytes(small, &["75%:readahead=1M"], &early), two(small));
}

#[test]
fn the_run_that_fills_the_page_cache_keeps_the_first_settings() {
    let flags = mmap_flags(PROT_READ, MAP_PRIVATE);
    let map = Event { addr: ADDR, len: 8 * HUGE, flags, file: Some(1), ..Event::new(0, Op::Mmap) };
    let touch = Event::references(0, Op::Read, ADDR, 1);
    let cached = |cache, changes: &[&str]| {
        let spec = CellSpec { cache, ..spec("6.18+readahead=64K", changes) };
        run(spec, &[map, touch]).cached_bytes.values().sum::<u64>()
    };
    let change = ["0%:readahead=1M"];
    assert!(cached(CacheState::Cold, &change) > cached(CacheState::Cold, &[]));
    assert_eq!(cached(CacheState::Warm, &change), cached(CacheState::Warm, &[]));
}
