//! What the program waits for at level-2 hits and walks.

use largefolio_sim::cost::{Cause, Term};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::detail::AreaKind;
use largefolio_sim::replay::regions::Block;
use largefolio_sim::replay::{CellSpec, Outcome, replay};
use largefolio_sim::tlb::EntrySize;
use largefolio_trace::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, FileInfo, Meta, Op};

use super::{ADDR, program_of};

/// Stores to `nr_pages` pages and then loads from them, one after the other, `nr_passes` times. Each
/// load has the `link`. The order of the loads jumps through memory.
fn outcome(machine: Machine, kernel: &str, nr_pages: u64, nr_passes: u64, link: u32) -> Outcome {
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    let page =
        |op, nr: u64, flags| Event { flags, ..Event::references(0, op, ADDR + nr * 4096, 1) };
    let mut events =
        vec![Event { addr: ADDR, len: nr_pages * 4096, flags, ..Event::new(0, Op::Mmap) }];
    events.extend((0..nr_pages).map(|nr| page(Op::Write, nr, 0)));
    for _ in 0..nr_passes {
        events.extend((0..nr_pages).map(|nr| page(Op::Read, nr * 1_009 % nr_pages, link)));
    }
    let file = FileInfo { path: "/bin/p".into(), size_bytes: 0x1000, ..FileInfo::default() };
    let meta = Meta { files: vec![file], links: true, ..Meta::default() };
    let (_dir, path) = program_of(meta, &events);
    let spec = CellSpec::new(Kernel::parse(kernel).unwrap(), machine);
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

fn term<'a>(outcome: &'a Outcome, cause: Cause, of: &str) -> &'a Term {
    let terms = &outcome.estimate.causes[&cause].terms;
    terms.iter().find(|term| term.of == of).unwrap_or_else(|| panic!("{of}: {terms:?}"))
}

#[test]
fn a_level_2_hit_of_a_loaded_address_costs_its_whole_time() {
    let machine = Machine::named("cascadelake").unwrap();
    let pass = |link| outcome(machine.clone(), "6.12+thp=never", 401, 10, link);
    let (chained, apart) = (pass(1), pass(0));
    let whole = term(&chained, Cause::Tlb, "level-2 hits");
    let part = term(&apart, Cause::Tlb, "overlapping level-2 hits");
    assert!(whole.events >= 9 * 401 && part.events >= 9 * 401, "{whole:?} {part:?}");
    #[expect(clippy::cast_precision_loss, reason = "a time of a few thousand hits")]
    let each = |term: &Term| term.ns.unwrap() as f64 / term.events as f64;
    let share = machine.costs.walk_beside.as_ref().unwrap().value;
    assert!((each(part) / each(whole) - share).abs() < 0.01, "{part:?} {whole:?}");
}

#[test]
fn base_pages_that_are_spread_take_more_of_the_hosts_lines_than_large_folios() {
    let lines = |host_lines, kernel: &str| {
        let mut machine = Machine::named("zen5").unwrap();
        let walker = &mut machine.tlb.walker;
        (walker.is_virtual, walker.host_lines) = (true, host_lines);
        walker.host_page = EntrySize::parse("4K").unwrap();
        let walks = outcome(machine, kernel, 16_411, 3, 1).tlb.walk_kinds;
        let far = |lines: largefolio_sim::tlb::Lines| lines.llc + lines.memory;
        (walks.chained.walks, far(walks.chained.host_lines))
    };
    let (base, large) = ("6.18+thp=never", "6.18+thp=never+anon-64K=always");
    let (nr_walks, in_order) = lines(None, base);
    let (nr_spread, spread) = lines(Some(900), base);
    assert_eq!(nr_walks, nr_spread);
    assert!(nr_walks > 3 * 12_000 && spread > in_order + nr_walks / 4, "{in_order} {spread}");
    // Only the few lines of the guest's tables differ.
    let ((nr_walks, in_order), (_, spread)) = (lines(None, large), lines(Some(900), large));
    assert!(spread - in_order < nr_walks / 1_000, "{in_order} {spread}");
}

#[test]
fn walks_are_attributed_to_the_addresses_that_need_them() {
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    // Four blocks of 2M: the first is used over and over in random order, the others once.
    let (nr_blocks, nr_pages, nr_passes) = (4, 512, 40);
    let page = |op, nr: u64| Event::references(0, op, ADDR + nr * 4096, 1);
    let mut events =
        vec![Event { addr: ADDR, len: nr_blocks << 21, flags, ..Event::new(0, Op::Mmap) }];
    events.extend((0..nr_blocks * nr_pages).map(|nr| page(Op::Write, nr)));
    for pass in 0..nr_passes {
        events.extend((0..nr_pages).map(|nr| page(Op::Read, (nr * 109 + pass) % nr_pages)));
    }
    let file = FileInfo { path: "/bin/p".into(), size_bytes: 0x1000, ..FileInfo::default() };
    let (_dir, path) = program_of(Meta { files: vec![file], ..Meta::default() }, &events);
    let spec = |kernel: &str, has_regions| {
        let mut machine = Machine::named("icelake").unwrap();
        // So small that each pass misses.
        machine.tlb.l2.iter_mut().for_each(|level| level.entries = 96);
        CellSpec { has_regions, ..CellSpec::new(Kernel::parse(kernel).unwrap(), machine) }
    };
    let specs = [spec("6.18+thp=never", true), spec("6.18+thp=always", true), spec("6.18", false)];
    let [base, huge, without] = replay(&path, &specs, &mut |_| {}).unwrap().1.try_into().unwrap();
    assert_eq!(without.regions, None);
    for outcome in [&base, &huge] {
        let regions = outcome.regions.as_ref().unwrap();
        let sides = [outcome.tlb.data, outcome.tlb.instruction];
        assert_eq!(regions.walks, sides.iter().map(|side| side.l2_misses).sum::<u64>());
        assert_eq!(regions.walks, regions.blocks.iter().map(Block::walks).sum::<u64>());
        assert_eq!(
            regions.blocks.iter().map(|block| block.faults).sum::<u64>(),
            outcome.faults.total
        );
        assert!(regions.blocks.is_sorted_by_key(|block| u64::MAX - block.walks()));
    }
    let regions = base.regions.unwrap();
    let first = &regions.blocks[0];
    assert_eq!((first.start, first.kind, first.faults), (ADDR, AreaKind::Private, 512));
    assert!(first.data_walks > nr_passes * nr_pages * 9 / 10, "{first:?}");
    assert_eq!((regions.nr_blocks, regions.nr_for_three_quarters), (4, 1), "{regions:?}");
    let huge = huge.regions.unwrap();
    let same = huge.blocks.iter().find(|block| block.start == ADDR).unwrap();
    assert!(same.walks() < 10 && same.faults == 1, "{same:?}");
}

#[test]
fn walks_and_faults_are_attributed_to_the_code_that_causes_them() {
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    let (code, nr_pages) = (0x50_0000, 300);
    let exec = |nr: u64| Event::references(0, Op::Exec, code + nr * 4096, 3);
    let store = |nr: u64| Event::references(0, Op::Write, ADDR + nr * 4096, 1);
    let text = mmap_flags(PROT_READ | PROT_EXEC, MAP_PRIVATE);
    let map = |addr, len, flags| Event { addr, len, flags, ..Event::new(0, Op::Mmap) };
    let mut events = vec![
        map(ADDR, nr_pages * 4096, flags),
        Event { file: Some(0), pos: 0x1000, ..map(code, 0x2000, text) },
    ];
    // The second page of the code touches three of four pages of memory, its first the others.
    for nr in 0..nr_pages {
        events.extend([exec(u64::from(nr % 4 > 0)), store(nr)]);
    }
    let file = FileInfo { path: "/bin/p".into(), size_bytes: 0x3000, ..FileInfo::default() };
    let (_dir, path) = program_of(Meta { files: vec![file], ..Meta::default() }, &events);
    let machine = Machine::named("icelake").unwrap();
    let spec = CellSpec {
        has_regions: true,
        ..CellSpec::new(Kernel::parse("6.18+thp=never").unwrap(), machine)
    };
    let outcome = replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0);
    let regions = outcome.regions.unwrap();
    let walks: u64 = regions.code.iter().map(|it| it.data_walks + it.instruction_walks).sum();
    assert_eq!(walks, regions.walks);
    assert_eq!(regions.code.iter().map(|it| it.faults).sum::<u64>(), outcome.faults.total);
    let [second, first] = regions.code.as_slice() else { panic!("{:?}", regions.code) };
    assert_eq!((second.start, second.pos, second.path.as_str()), (code + 4096, 0x2000, "/bin/p"));
    assert_eq!((second.data_walks, first.data_walks), (225, 75));
    assert_eq!((first.start, first.pos, first.instruction_walks), (code, 0x1000, 1));
}
