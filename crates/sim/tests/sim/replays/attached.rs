//! Recordings of processes that ran before: earlier pages are memory, but their faults do not
//! count.

use std::collections::BTreeMap;

use largefolio_sim::cost::BaseSource;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CacheState, CellSpec, Outcome, replay};
use largefolio_trace::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use largefolio_trace::event::{ExitKind, SHARES_MEMORY, mmap_flags};
use largefolio_trace::{Attached, Event, FileInfo, Meta, Op, PlainRun};
use proptest::prelude::*;
use serde_json::Value;

use super::{ADDR, HUGE, program_of, store};

const NR_PAGES: u64 = 3 * HUGE / 4096;
const OF_FILE: u64 = ADDR + (1 << 32);
const KERNELS: [&str; 5] =
    ["6.1", "6.12+thp=always", "6.18+thp=never+anon-64K=always", "7.2", "7.2+page=64K"];

fn private() -> u32 {
    mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
}

fn mapped() -> Vec<Event> {
    let map = |addr, flags, file| {
        let len = NR_PAGES * 4096;
        Event { addr, len, flags, file, ..Event::new(0, Op::Mmap) }
    };
    let of_file = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE);
    vec![map(ADDR, private(), None), map(OF_FILE, of_file, Some(1))]
}

/// An action of a process, before the attach or later.
fn any_event() -> impl Strategy<Value = Vec<Event>> {
    let page = || 0..NR_PAGES;
    let range = || (page(), 1..NR_PAGES / 4);
    let at = |op, page: u64| Event { addr: ADDR + page * 4096, ..Event::new(0, op) };
    let of_range = move |op, (page, nr): (u64, u64)| Event {
        len: nr.min(NR_PAGES - page) * 4096,
        ..at(op, page)
    };
    prop_oneof![
        6 => range().prop_map(|(page, nr)| {
            (page..(page + nr).min(NR_PAGES)).map(|page| store(0, page)).collect()
        }),
        3 => range().prop_map(|(page, nr)| {
            let pages = page..(page + nr).min(NR_PAGES);
            let load = |page| Event::references(0, Op::Read, OF_FILE + page * 4096, 1);
            pages.map(load).collect()
        }),
        1 => page().prop_map(|page| vec![Event::references(0, Op::Write, OF_FILE + page * 4096, 1)]),
        2 => (range(), prop_oneof![Just(4_u64), Just(14), Just(15), Just(25)]).prop_map(
            move |(range, advice)| vec![Event { aux: advice, ..of_range(Op::Madvise, range) }]
        ),
        1 => range().prop_map(move |range| vec![
            of_range(Op::Munmap, range),
            Event { flags: private(), ..of_range(Op::Mmap, range) },
        ]),
        1 => range().prop_map(|(page, nr)| vec![Event {
            pos: page * 4096, len: nr * 4096, aux: 4, file: Some(1), ..Event::new(0, Op::Pread)
        }]),
    ]
}

/// Children that store and exit; threads have other numbers.
fn any_child() -> impl Strategy<Value = Vec<Event>> {
    (0..NR_PAGES, any::<bool>(), any::<bool>()).prop_map(|(page, is_thread, ends)| {
        let flags = if is_thread { SHARES_MEMORY } else { 0 };
        let fork = Event { aux: 0, flags, ..Event::new(0, Op::Fork) };
        let kind = if is_thread { ExitKind::Thread } else { ExitKind::Process };
        let exit = Event { flags: kind as u32, ..Event::new(1, Op::Exit) };
        let all = [fork, store(1, page), exit];
        all[..if ends { 3 } else { 2 }].to_vec()
    })
}

fn any_events() -> impl Strategy<Value = Vec<Event>> {
    let one = prop_oneof![8 => any_event(), 1 => any_child()];
    prop::collection::vec(one, 0..12).prop_map(|all| all.into_iter().flatten().collect())
}

fn numbered(mut events: Vec<Event>) -> Vec<Event> {
    let mut nr = 0;
    for event in &mut events {
        if event.op == Op::Fork {
            nr += 1;
            event.aux = u64::from(nr);
        } else if event.thread > 0 {
            event.thread = nr;
        }
    }
    events
}

fn outcomes(events: &[Event], nr_before: Option<usize>, cache: CacheState) -> Vec<Outcome> {
    let file = |path: &str, size_bytes| FileInfo {
        path: path.into(),
        size_bytes,
        filesystem: "xfs".into(),
        ..FileInfo::default()
    };
    let attached = nr_before.map(|nr| Attached {
        nr_rows: nr as u64,
        nr_pages: events[..nr].iter().filter(|one| one.op.is_reference()).count() as u64,
        run: PlainRun { wall_ns: 3_000_000_000, user_ns: 40_000_000, ..PlainRun::default() },
    });
    // Without bytes that an execve reads: a process that is attached to has had its execve.
    let files = vec![file("/bin/p", 0), file("/data", NR_PAGES * 4096)];
    let meta = Meta { files, faults_only: true, attached, ..Meta::default() };
    let (_dir, path) = program_of(meta, events);
    let spec = |kernel: &&str| {
        let machine = Machine::named("cascadelake").unwrap();
        let machine =
            if kernel.contains("page=64K") { Machine::named("altra").unwrap() } else { machine };
        CellSpec { cache, ..CellSpec::new(Kernel::parse(kernel).unwrap(), machine) }
    };
    let specs: Vec<CellSpec> = KERNELS.iter().map(spec).collect();
    replay(&path, &specs, &mut |_| {}).unwrap().1
}

fn counts(outcome: &Outcome) -> BTreeMap<String, i128> {
    let Value::Object(all) = serde_json::to_value(outcome).unwrap() else { panic!("an object") };
    let counted = [
        "faults",
        "reads",
        "anon_sizes",
        "asked",
        "pmd_refused",
        "writers",
        "collapse",
        "pressure",
        "zeroed_pages",
        "copied_pages",
        "entries",
        "mapcounts",
        "cleared_bytes",
        "copied_bytes",
    ];
    let mut counts = BTreeMap::new();
    for name in counted {
        add(&mut counts, name, &all[name]);
    }
    // These depend on the first page that was read in a file.
    counts.retain(|name, _| name != "reads/used_bytes" && name != "reads/amplification");
    counts
}

fn add(counts: &mut BTreeMap<String, i128>, name: &str, value: &Value) {
    match value {
        Value::Object(parts) => {
            parts.iter().for_each(|(part, value)| add(counts, &format!("{name}/{part}"), value));
        }
        value => {
            counts.insert(name.to_owned(), value.as_u64().map_or(0, i128::from));
        }
    }
}

fn less(all: &BTreeMap<String, i128>, before: &BTreeMap<String, i128>) -> BTreeMap<String, i128> {
    let of =
        |counts: &BTreeMap<String, i128>, name: &String| counts.get(name).copied().unwrap_or(0);
    let names = all.keys().chain(before.keys());
    let all = names.map(|name| (name.clone(), of(all, name) - of(before, name)));
    all.filter(|&(_, count)| count != 0).collect()
}

fn state(outcome: &Outcome) -> (&BTreeMap<u64, u64>, u64, u64) {
    let folios = &outcome.folios;
    (&outcome.cached_bytes, folios.anon.mapped_bytes, folios.data.mapped_bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(60)))]

    #[test]
    fn what_counts_is_what_the_events_add_to_the_memory_of_before(
        before in any_events(),
        later in any_events(),
        is_warm in any::<bool>(),
    ) {
        let cache = if is_warm { CacheState::Warm } else { CacheState::Cold };
        let has_only_living = before.iter().all(|event| event.op != Op::Exit);
        let nr_before = mapped().len() + before.len();
        let all = numbered(mapped().into_iter().chain(before).chain(later).collect());
        let attached = outcomes(&all, Some(nr_before), cache);
        let whole = outcomes(&all, None, cache);
        let idle = outcomes(&all[..nr_before], Some(nr_before), cache);
        // An earlier run with the same events filled the page cache for both.
        let first = if is_warm { None } else { Some(outcomes(&all[..nr_before], None, cache)) };
        for nr in 0..KERNELS.len() {
            prop_assert_eq!(&attached[nr].cached_bytes, &whole[nr].cached_bytes);
            if has_only_living {
                prop_assert_eq!(state(&attached[nr]), state(&whole[nr]), "{}", KERNELS[nr]);
            }
            prop_assert_eq!(attached[nr].strays, whole[nr].strays);
            if let Some(first) = &first {
                let added = less(&counts(&whole[nr]), &counts(&first[nr]));
                prop_assert_eq!(less(&counts(&attached[nr]), &BTreeMap::new()), added, "{}", KERNELS[nr]);
            }
            prop_assert_eq!(less(&counts(&idle[nr]), &BTreeMap::new()), BTreeMap::new());
            let estimate = &idle[nr].estimate;
            prop_assert_eq!((estimate.known_ns, estimate.total_ns), (0, Some(0)), "{}", KERNELS[nr]);
            prop_assert_eq!(estimate.run.source, BaseSource::Cpu);
            prop_assert_eq!(estimate.run_change_from(&idle[0].estimate).map(|change| change.mid), Some(0.0));
            prop_assert!(idle[nr].asked_tenths.values().all(BTreeMap::is_empty));
        }
    }
}

/// Two CPUs and several processes: earlier actions of children do not count either.
#[test]
fn programs_count_what_they_did_while_they_were_recorded() {
    let child = Event { aux: 1, ..Event::new(0, Op::Fork) };
    let before = [child, store(0, 1), store(1, 2), store(1, 3)];
    let later = [store(1, 7), store(0, 9)];
    let all: Vec<Event> = mapped().into_iter().chain(before).chain(later).collect();
    let outcome = &outcomes(&all, Some(all.len() - later.len()), CacheState::Cold)[0];
    let processes = outcome.processes.as_ref().unwrap();
    assert_eq!((processes.nr_started, processes.programs.len()), (2, 1));
    let program = &processes.programs[0];
    assert_eq!((program.faults, program.references), (2, 2));
    assert_eq!(outcome.faults.total, 2);
}
