//! Cgroups: limits, charging, and reclaim inside a cgroup (docs/behaviour P.1).

use largefolio_mm::core::groups::{GroupEvents, GroupLimits};
use largefolio_mm::fault::{Access, FaultError};
use largefolio_mm::io::{Fadvice, Short};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::ram::Ram;
use largefolio_mm::rules::anon::AnonRules;
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{ByteRange, GroupId, MappingId, MmId, PageIndex, PageSize};
use largefolio_mm::vma::OpenId;

use crate::anon::world::{PAGE, World, addr, thp};

fn world(anon: AnonRules, nr_pages: u64, nr_slots: u64) -> World {
    world_of(Rules { anon, ..Rules::example() }, nr_pages, nr_slots)
}

fn world_of(rules: Rules, nr_pages: u64, nr_slots: u64) -> World {
    let (ram_bytes, swap_bytes) = (nr_pages * PAGE, nr_slots * PAGE);
    let config = Config { ram_bytes, swap_bytes, ..Config::new(Arch::X86_64) };
    let ram = Ram::new(PageSize::K4, ram_bytes);
    let mut memory = Memory::with_ram(rules, &config, ram).unwrap();
    let mm = memory.new_space();
    World { memory, mm }
}

fn file(world: &mut World, nr_pages: u64) -> (MappingId, OpenId) {
    let file = world.memory.add_file(nr_pages * PAGE, "ext4");
    let open = world.memory.open(file);
    world.memory.fadvise(open, ByteRange { pos: 0, len_bytes: 0 }, Fadvice::Random);
    (file, open)
}

fn group(world: &mut World, limits: GroupLimits) -> GroupId {
    let group = world.memory.add_group(limits);
    world.memory.join_group(world.mm, group);
    world.memory.enter_group(group);
    group
}

fn read(world: &mut World, open: OpenId, pages: std::ops::Range<u64>) {
    for index in pages {
        world.memory.pread(open, index * PAGE, PAGE).unwrap();
    }
}

fn is_cached(world: &World, file: MappingId, index: u64) -> bool {
    world.memory.core().find(file, PageIndex(index)).is_some()
}

fn events(world: &World, group: GroupId) -> GroupEvents {
    world.memory.group(group).group.events
}

#[test]
fn a_file_larger_than_the_limit_is_read_to_its_end_and_memory_stays_free() {
    let mut world = world(AnonRules::stock(), 16_384, 0);
    let (file, open) = file(&mut world, 4096);
    let group = group(&mut world, GroupLimits::max(1024));
    for index in 0..4096 {
        world.memory.pread(open, index * PAGE, PAGE).unwrap();
        assert!(world.memory.group_usage(group) <= 1024, "page {index}");
    }
    world.check();
    assert!(!is_cached(&world, file, 0) && is_cached(&world, file, 4095));
    assert!(!is_cached(&world, file, 2048), "folios read first are evicted first");
    let view = world.memory.group(group);
    assert!(view.vec.peak() > 900 && view.vec.nr_charged() > 900);
    assert_eq!(view.vec.counters.pgscan, view.vec.counters.pgsteal, "nothing was used twice");
    assert!(view.group.events.max > 30 && view.group.events.oom == 0);
    let counts = world.memory.counters().reclaim;
    assert_eq!((counts.kswapd_runs, counts.allocstall), (0, 0), "the machine was not short");
}

#[test]
fn reads_that_were_requested_end_while_reclaim_fails() {
    // Advice reads chunks of 512 pages: the limit holds part of one.
    let device_bytes = 8 << 20;
    let rules = Rules { readahead_bytes: device_bytes, ..Rules::example() };
    let mut world = world_of(rules, 16_384, 0);
    let (file, open) = file(&mut world, 1024);
    let group = group(&mut world, GroupLimits::max(300));
    let all = ByteRange { pos: 0, len_bytes: 1024 * PAGE };
    world.memory.fadvise(open, all, Fadvice::Willneed);
    world.check();
    assert!(world.memory.group_usage(group) <= 300);
    // A chunk that is being filled keeps its own folios, so the limit ends it.
    assert!(!is_cached(&world, file, 300) && !is_cached(&world, file, 511));
    assert!(is_cached(&world, file, 512), "the first chunk's folios made room");
    assert!(!is_cached(&world, file, 0), "the oldest went first");
    assert!(!is_cached(&world, file, 1023));
}

#[test]
fn a_limit_below_what_is_needed_ends_in_a_sentence() {
    let mut world = world(AnonRules::stock(), 16_384, 0).mapped(512);
    let group = group(&mut world, GroupLimits::max(128));
    let mm = world.mm;
    let mut touched = 0;
    let error = loop {
        match world.memory.touch(mm, addr(touched), Access::Write) {
            Ok(_) => touched += 1,
            Err(error) => break error,
        }
    };
    world.check();
    assert_eq!((touched, error), (128, FaultError::GroupOutOfMemory(addr(128).0)));
    assert!(error.to_string().contains("the control group is at its limit"), "{error}");
    assert_eq!(events(&world, group).oom, 1);
    let (_, open) = file(&mut world, 16);
    let error = world.memory.pread(open, 0, PAGE).unwrap_err();
    assert_eq!(error.short, Short::Group);
    world.check();
    world.memory.set_group_limits(group, GroupLimits::max(200));
    world.memory.touch(mm, addr(128), Access::Write).unwrap();
}

#[test]
fn a_large_folio_that_the_limit_has_no_room_for_falls_back() {
    let mut world = world(thp(), 16_384, 0).mapped(1024);
    let group = group(&mut world, GroupLimits::max(500));
    world.write(world.mm, 3);
    assert_eq!(world.order(world.mm, 3), 0, "2 MiB are more than the limit");
    assert_eq!(events(&world, group).oom, 0);
    world.memory.set_group_limits(group, GroupLimits::max(1000));
    world.write(world.mm, 600);
    assert_eq!(world.order(world.mm, 600), 9);
    world.check();
}

#[test]
fn who_reads_pays_and_a_group_takes_from_nobody_else() {
    let mut world = world(AnonRules::stock(), 16_384, 0);
    let (shared, open) = file(&mut world, 512);
    let first = group(&mut world, GroupLimits::max(1024));
    for index in 0..512 {
        world.memory.pread(open, index * PAGE, PAGE).unwrap();
    }
    let second = group(&mut world, GroupLimits::max(256));
    let (_, other) = file(&mut world, 2048);
    for index in 0..2048 {
        world.memory.pread(open, index % 512 * PAGE, PAGE).unwrap();
        world.memory.pread(other, index * PAGE, PAGE).unwrap();
    }
    world.check();
    assert!((0..512).all(|index| is_cached(&world, shared, index)));
    assert_eq!(world.memory.group(first).vec.nr_charged(), 512);
    assert!(world.memory.group(second).vec.nr_charged() <= 256);
    assert_eq!(events(&world, first).max, 0);
    let child = world.fork(world.mm);
    assert_eq!(world.memory.space(child).group, second);
}

#[test]
fn above_high_the_call_reclaims_and_goes_on() {
    let mut world = world(AnonRules::stock(), 16_384, 0);
    let (_, open) = file(&mut world, 4096);
    let limits = GroupLimits { high: 512, ..GroupLimits::default() };
    let group = group(&mut world, limits);
    for index in 0..4096 {
        world.memory.pread(open, index * PAGE, PAGE).unwrap();
        assert!(world.memory.group(group).vec.nr_charged() <= 512 + 64, "page {index}");
    }
    let events = events(&world, group);
    assert!(events.high > 30 && events.max == 0, "{events:?}");
    world.check();
}

#[test]
fn others_pressure_leaves_what_min_and_low_protect() {
    let left_of = |limits: GroupLimits| {
        let mut world = world(AnonRules::stock(), 4096, 0);
        let (_, open) = file(&mut world, 1000);
        let quiet = group(&mut world, limits);
        for index in 0..1000 {
            world.memory.pread(open, index * PAGE, PAGE).unwrap();
        }
        let loud = world.memory.add_group(GroupLimits::default());
        world.memory.enter_group(loud);
        let (_, open) = file(&mut world, 20_000);
        for index in 0..20_000 {
            world.memory.pread(open, index * PAGE, PAGE).unwrap();
        }
        world.check();
        world.memory.group(quiet).vec.nr_charged()
    };
    assert!(left_of(GroupLimits::default()) < 200);
    assert_eq!(left_of(GroupLimits { min: 1000, ..GroupLimits::default() }), 1000);
    assert_eq!(left_of(GroupLimits { low: 1000, ..GroupLimits::default() }), 1000);
    let half = left_of(GroupLimits { low: 500, ..GroupLimits::default() });
    assert!((400..=600).contains(&half), "{half}");
}

#[test]
fn low_gives_way_when_nothing_else_is_left_and_min_does_not() {
    let taken = |limits: GroupLimits| {
        let mut world = world(AnonRules::stock(), 2048, 0);
        let (_, open) = file(&mut world, 1000);
        let group = group(&mut world, limits);
        for index in 0..1000 {
            world.memory.pread(open, index * PAGE, PAGE).unwrap();
        }
        let nr_freed = world.memory.reclaim_pages(100);
        (nr_freed >= 100, events(&world, group).low > 0)
    };
    assert_eq!(taken(GroupLimits { low: 2000, ..GroupLimits::default() }), (true, true));
    assert_eq!(taken(GroupLimits { min: 2000, ..GroupLimits::default() }), (false, false));
}

#[test]
fn what_comes_back_is_measured_against_the_group_that_was_short() {
    let mut world = world(AnonRules::stock(), 16_384, 0);
    let (hot, open) = file(&mut world, 3000);
    let group = group(&mut world, GroupLimits::max(600));
    for pages in [0..300, 0..300, 300..600, 1000..1200, 300..350] {
        for index in pages {
            world.memory.pread(open, index * PAGE, PAGE).unwrap();
        }
    }
    let view = world.memory.group(group);
    let counters = view.vec.counters;
    assert!(counters.refaults[1] > 0 && counters.activated[1] > 0, "{counters:?}");
    assert!(is_cached(&world, hot, 0), "active");
    world.check();
}

#[test]
fn work_of_a_charge_does_not_grow_with_the_number_of_groups() {
    let work_of = |nr_groups: u32| {
        let mut world = world(AnonRules::stock(), 8192, 0);
        let (_, open) = file(&mut world, 40_000);
        for _ in 0..nr_groups {
            group(&mut world, GroupLimits::max(256));
        }
        read(&mut world, open, 0..2000);
        let before = world.memory.work().nr_steps();
        read(&mut world, open, 2000..4000);
        world.memory.work().nr_steps() - before
    };
    let (one, many) = (work_of(1), work_of(10_000));
    assert!(many <= one + one / 10, "{one} {many}");
}

#[test]
fn what_was_charged_stays_where_it_was() {
    let mut world = world(AnonRules::stock(), 16_384, 0).mapped(64);
    let first = group(&mut world, GroupLimits::max(512));
    let mm: MmId = world.mm;
    world.write_all(mm, 0..32);
    let second = group(&mut world, GroupLimits::max(512));
    world.write_all(mm, 32..64);
    let charged = [first, second].map(|group| world.memory.group(group).vec.nr_charged());
    assert_eq!(charged, [32, 32]);
    world.memory.exit(mm);
    let charged = [first, second].map(|group| world.memory.group(group).vec.nr_charged());
    assert_eq!(charged, [0, 0]);
}

/// A task that waits for memory writes to swap itself; background reclaim does it for the machine.
#[test]
fn what_background_reclaim_writes_to_swap_space_is_counted_apart() {
    let counts = |is_limited: bool| {
        let mut world = world(AnonRules::stock(), 4096, 8192).mapped(6000);
        if is_limited {
            group(&mut world, GroupLimits::max(512));
        }
        let mm = world.mm;
        for page in (0..6000).chain(0..10) {
            world.memory.touch(mm, addr(page), Access::Write).unwrap();
        }
        world.memory.counters().reclaim
    };
    let (limited, machine) = (counts(true), counts(false));
    assert!(limited.pswpout > 5000 && limited.nr_swpout_kswapd == 0, "{limited:?}");
    assert!(machine.pswpout > 1900 && machine.nr_swpout_kswapd == machine.pswpout, "{machine:?}");
    assert_eq!((limited.nr_swap_waits, machine.nr_swap_waits), (10, 10));
}
