//! Dirty file folios: their writeback, and their treatment by reclaim (docs/behaviour P.6).

use largefolio_mm::core::groups::GroupLimits;
use largefolio_mm::core::watermarks::Watermarks;
use largefolio_mm::fault::Access;
use largefolio_mm::io::Fadvice;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::ram::{Ram, stored_byte};
use largefolio_mm::rules::reclaim::{GenerationRule, LruRule, ReclaimRules};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{ByteRange, MappingId, PageIndex, PageSize};
use largefolio_mm::vma::{OpenId, Prot};

use crate::anon::world::{PAGE, World, addr};

const NR_PAGES: u64 = 16_384;

fn world(reclaim: ReclaimRules) -> World {
    let rules = Rules { reclaim, ..Rules::example() };
    let ram_bytes = NR_PAGES * PAGE;
    let config = Config { ram_bytes, ..Config::new(Arch::X86_64) };
    let ram = Ram::new(PageSize::K4, ram_bytes);
    let mut memory = Memory::with_ram(rules, &config, ram).unwrap();
    let mm = memory.new_space();
    World { memory, mm }
}

fn generations(rule: GenerationRule) -> ReclaimRules {
    ReclaimRules { lru: LruRule::Generations, generations: rule, ..ReclaimRules::stock() }
}

fn file(world: &mut World, nr_pages: u64) -> (MappingId, OpenId) {
    let file = world.memory.add_file(nr_pages * PAGE, "ext4");
    let open = world.memory.open(file);
    world.memory.fadvise(open, ByteRange { pos: 0, len_bytes: 0 }, Fadvice::Random);
    (file, open)
}

fn is_dirty(world: &World, file: MappingId, index: u64) -> Option<bool> {
    let entry = world.memory.core().find(file, PageIndex(index))?;
    Some(world.memory.core().folios.get(entry.folio).is_dirty)
}

fn write(world: &mut World, open: OpenId, pages: std::ops::Range<u64>) {
    for index in pages {
        world.memory.pwrite(open, index * PAGE, PAGE).unwrap();
    }
}

fn read(world: &mut World, open: OpenId, pages: std::ops::Range<u64>) {
    for index in pages {
        world.memory.pread(open, index * PAGE, PAGE).unwrap();
    }
}

fn nr_dirty(world: &World, file: MappingId, nr_pages: u64) -> u64 {
    (0..nr_pages).filter(|&index| is_dirty(world, file, index) == Some(true)).count() as u64
}

#[test]
fn what_was_dirty_first_is_written_down_to_the_background_limit_p_6_1() {
    let mut world = world(ReclaimRules::stock());
    let (first, open_first) = file(&mut world, 4096);
    let (second, open_second) = file(&mut world, 4096);
    write(&mut world, open_first, 0..600);
    write(&mut world, open_second, 0..600);
    assert_eq!((nr_dirty(&world, first, 600), nr_dirty(&world, second, 600)), (600, 600));
    // A tenth of the free memory above the reserve plus the cache, which compete for pages.
    let marks = Watermarks::new(PageSize::K4, NR_PAGES, true);
    let free = world.memory.core().buddy.nr_free_pages();
    let limit = (free - marks.high + 1200) / 10;
    write(&mut world, open_second, 600..1000);
    world.check();
    let (of_first, of_second) = (nr_dirty(&world, first, 600), nr_dirty(&world, second, 1000));
    assert_eq!(of_second, 1000);
    assert!((limit - 5..=limit).contains(&(of_first + of_second)), "{of_first} {limit}");
    assert_eq!(is_dirty(&world, first, 0), Some(false));
    assert_eq!(is_dirty(&world, first, 599), Some(true));
}

#[test]
fn a_group_has_a_limit_of_its_own_p_6_1() {
    let mut world = world(ReclaimRules::stock());
    let group = world.memory.add_group(GroupLimits::max(1000));
    let (file, open) = file(&mut world, 4096);
    world.memory.enter_group(group);
    write(&mut world, open, 0..300);
    world.check();
    // A tenth of 1000, less the processor's stock.
    assert!((93..=100).contains(&nr_dirty(&world, file, 300)));
    assert_eq!(is_dirty(&world, file, 250), Some(true));
}

#[test]
fn reclaim_takes_what_is_clean_and_leaves_what_is_dirty_p_6_2() {
    let rules = [
        ReclaimRules::stock(),
        generations(GenerationRule::First),
        generations(GenerationRule::Protected),
        generations(GenerationRule::Reworked),
        generations(GenerationRule::FirstUse),
    ];
    for rules in rules {
        let mut world = world(rules);
        let (file, open) = file(&mut world, 4096);
        let group = world.memory.add_group(GroupLimits::max(1000));
        world.memory.enter_group(group);
        write(&mut world, open, 0..20);
        read(&mut world, open, 20..400);
        assert!(world.memory.reclaim_group(group, 40) >= 40);
        world.check();
        let is_left = |world: &World, index| is_dirty(world, file, index).is_some();
        assert!((0..20).all(|index| is_left(&world, index)), "{rules:?}");
        assert!((20..60).all(|index| !is_left(&world, index)), "{rules:?}");
        let left = world.memory.counters().reclaim.nr_vmscan_immediate_reclaim;
        world.memory.sync_file(file);
        assert_eq!(nr_dirty(&world, file, 400), 0);
        world.memory.reclaim_group(group, 20);
        world.check();
        assert!((0..20).all(|index| !is_left(&world, index)), "{rules:?} {left}");
    }
}

#[test]
fn who_finds_nothing_but_dirty_folios_has_them_written_p_6_3() {
    let lazy = |rules| ReclaimRules { dirty_background_ratio: 1000, ..rules };
    for (rules, nr_flushes) in [
        (ReclaimRules::stock(), 1),
        (generations(GenerationRule::Protected), 0),
        (generations(GenerationRule::Reworked), 1),
        (generations(GenerationRule::FirstUse), 1),
    ] {
        let mut world = world(lazy(rules));
        let (_, open) = file(&mut world, 4096);
        let group = world.memory.add_group(GroupLimits::max(512));
        world.memory.enter_group(group);
        write(&mut world, open, 0..400);
        world.memory.reclaim_group(group, 32);
        assert_eq!(world.memory.counters().reclaim.nr_flushes, nr_flushes, "{rules:?}");
        // Without a wake-up, the flusher runs only as a last resort.
        write(&mut world, open, 400..2000);
        world.check();
        let events = world.memory.group(group).group.events;
        let nr_flushes = world.memory.counters().reclaim.nr_flushes;
        assert!(nr_flushes > 0 && events.oom == 0, "{rules:?} {events:?}");
    }
}

#[test]
fn a_mapped_folio_that_was_only_moved_loses_its_mark_when_it_is_written_p_6_3() {
    for (rule, is_next) in [(GenerationRule::Reworked, false), (GenerationRule::FirstUse, true)] {
        let mut world = world(generations(rule));
        let (file, open) = file(&mut world, 4096);
        let group = world.memory.add_group(GroupLimits::max(512));
        world.memory.join_group(world.mm, group);
        let mm = world.mm;
        let map = Map::file(open, 0, 4096 * PAGE, Prot::READ_WRITE).shared().at(addr(0));
        world.memory.mmap(mm, map).unwrap();
        world.advise(mm, 0, 4096, Madvice::Random);
        world.memory.touch(mm, addr(0), Access::Write).unwrap();
        // Two requests: the first skips it and starts its writeback.
        for page in (1..512).chain(1000..1100) {
            world.memory.touch(mm, addr(page), Access::Read).unwrap();
        }
        world.check();
        assert!(is_dirty(&world, file, 1).is_none() && is_dirty(&world, file, 1000).is_some());
        assert_eq!(world.memory.counters().reclaim.nr_flushes, 1, "{rule:?}");
        assert_eq!(is_dirty(&world, file, 0).is_none(), is_next, "{rule:?}");
    }
}

#[test]
fn a_store_through_a_mapping_is_written_and_noticed_again() {
    let mut world = world(ReclaimRules { dirty_background_ratio: 0, ..ReclaimRules::stock() });
    let (file, open) = file(&mut world, 64);
    let mm = world.mm;
    let map = Map::file(open, 0, 64 * PAGE, Prot::READ_WRITE).shared().at(addr(0));
    world.memory.mmap(mm, map).unwrap();
    world.memory.store(mm, addr(3), &[9]).unwrap();
    assert_eq!(is_dirty(&world, file, 3), Some(true));
    world.memory.touch(mm, addr(9), Access::Read).unwrap();
    assert_eq!(is_dirty(&world, file, 3), Some(false));
    let nr_faults = world.memory.counters().pgfault;
    world.memory.store(mm, addr(3), &[8]).unwrap();
    assert_eq!(world.memory.counters().pgfault, nr_faults + 1);
    assert_eq!(is_dirty(&world, file, 3), Some(true));
    world.check();
    let mut bytes = [0; 2];
    world.memory.load(mm, addr(3), &mut bytes).unwrap();
    assert_eq!(bytes, [8, stored_byte(file, 3 * PAGE + 1)]);
}
