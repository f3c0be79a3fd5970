//! Memory pressure: vectors of docs/behaviour B.5.8, D.5, G.5 and I.

use largefolio_mm::core::NewFolio;
use largefolio_mm::counters::reclaim::ReclaimCounters;
use largefolio_mm::fault::Access;
use largefolio_mm::folio::lru::{Age, ListId, LruKind};
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::ram::{Ram, stored_byte};
use largefolio_mm::reclaim::compact::CompactRefusal;
use largefolio_mm::rules::anon::{AnonRules, Defrag};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::AddrRange;
use largefolio_mm::units::{MappingId, Order, PageIndex, PageSize};
use largefolio_mm::vma::{OpenId, Prot};

use crate::anon::world::{PAGE, World, addr, sizes, thp};

const ACTIVE_FILE: ListId = ListId::new(LruKind::File, Age::Active);

fn world(anon: AnonRules, nr_pages: u64, nr_slots: u64) -> World {
    world_of(Arch::X86_64, anon, nr_pages, nr_slots)
}

fn world_of(arch: Arch, anon: AnonRules, nr_pages: u64, nr_slots: u64) -> World {
    let rules = Rules { anon, ..Rules::example() };
    let (ram_bytes, swap_bytes) = (nr_pages * PAGE, nr_slots * PAGE);
    let config = Config { ram_bytes, swap_bytes, ..Config::new(arch) };
    let ram = Ram::new(PageSize::K4, ram_bytes);
    let mut memory = Memory::with_ram(rules, &config, ram).unwrap();
    let mm = memory.new_space();
    World { memory, mm }
}

fn counts(world: &World) -> ReclaimCounters {
    world.memory.counters().reclaim
}

fn file(world: &mut World, nr_pages: u64) -> (MappingId, OpenId) {
    let file = world.memory.add_file(nr_pages * PAGE, "xfs");
    let open = world.memory.open(file);
    (file, open)
}

fn is_cached(world: &World, file: MappingId, index: u64) -> bool {
    world.memory.core().find(file, PageIndex(index)).is_some()
}

fn insert(world: &mut World, file: MappingId, index: u64, order: u8) {
    world.memory.cache_folio(NewFolio::new(file, PageIndex(index), Order::new(order))).unwrap();
}

#[test]
fn a_file_larger_than_memory_is_read_to_its_end() {
    let mut world = world(AnonRules::stock(), 1000, 0);
    let (file, open) = file(&mut world, 5000);
    let mut page = vec![0; PAGE as usize];
    for index in 0..5000 {
        assert_eq!(world.memory.read_file(open, index * PAGE, &mut page).unwrap(), page.len());
        assert_eq!(page[7], stored_byte(file, index * PAGE + 7), "page {index}");
    }
    world.check();
    assert!(!is_cached(&world, file, 0) && is_cached(&world, file, 4999));
    let counts = counts(&world);
    assert!(counts.pgsteal_kswapd > 3900, "{counts:?}");
    assert_eq!((counts.allocstall, counts.workingset_refault_file), (0, 0));
}

#[test]
fn background_reclaim_ends_at_the_high_mark() {
    let mut world = world(AnonRules::stock(), 16_384, 0);
    let (_, open) = file(&mut world, 40_000);
    for index in 0..40_000 {
        world.memory.pread(open, index * PAGE, PAGE).unwrap();
        // Between min and high watermark of 64 MiB, plus the last pass's overshoot.
        let nr_free = world.memory.core().buddy.nr_free_pages();
        assert!(index < 15_300 || (819..1227 + 256).contains(&nr_free), "{index}: {nr_free}");
    }
}

#[test]
fn a_dirty_folio_is_written_back_as_a_whole_and_comes_back_as_it_was_g_5_2() {
    let mut world = world(AnonRules::stock(), 2000, 0);
    let (file, open) = file(&mut world, 64);
    insert(&mut world, file, 16, 4);
    let mm = world.mm;
    let map = Map::file(open, 0, 64 * PAGE, Prot::READ_WRITE).shared().at(addr(0));
    world.memory.mmap(mm, map).unwrap();
    world.memory.store(mm, addr(20), &[9, 8, 7]).unwrap();
    for _ in 0..3 {
        world.memory.reclaim_pages(2000);
    }
    world.check();
    assert!(!is_cached(&world, file, 16) && world.page(mm, 20).is_none());
    assert_eq!((counts(&world).nr_dirtied, counts(&world).nr_flushes), (16, 1));
    assert_eq!(world.memory.counters().nr_written, 16);
    let mut bytes = [0; 4];
    world.memory.load(mm, addr(20), &mut bytes).unwrap();
    assert_eq!(bytes, [9, 8, 7, stored_byte(file, 20 * PAGE + 3)]);
}

#[test]
fn a_folio_in_use_gets_another_round_and_an_executable_one_becomes_active() {
    let nr_activated = |arch: Arch, prot: Prot, access: Access, nr_areas: u64| {
        let mut world = world_of(arch, AnonRules::stock(), 2000, 0);
        let (file, open) = file(&mut world, 64);
        insert(&mut world, file, 0, 4);
        insert(&mut world, file, 32, 5);
        let mm = world.mm;
        for area in 0..nr_areas {
            let at = addr(area * 512);
            world.memory.mmap(mm, Map::file(open, 0, 64 * PAGE, prot).at(at)).unwrap();
            world.memory.touch(mm, addr(area * 512 + 3), access).unwrap();
        }
        // Of the two folios, the unused one, although it is older.
        world.memory.reclaim_pages(1);
        world.check();
        assert_eq!([0, 32].map(|index| is_cached(&world, file, index)), [true, false]);
        while world.memory.reclaim_pages(2000) > 0 {}
        assert!(!is_cached(&world, file, 0), "unused folios are evicted");
        counts(&world).pgactivate
    };
    assert_eq!(nr_activated(Arch::Arm64, Prot::READ, Access::Read, 1), 0);
    assert_eq!(nr_activated(Arch::Arm64, Prot::READ_EXEC, Access::Exec, 1), 16);
    // Fault-around marks mapped pages as accessed; one area is not enough, two mean in use.
    assert_eq!(nr_activated(Arch::X86_64, Prot::READ, Access::Read, 1), 0);
    assert_eq!(nr_activated(Arch::X86_64, Prot::READ, Access::Read, 2), 16);
}

#[test]
fn what_comes_back_soon_was_hot_and_earns_no_credit_b_5_8() {
    let mut world = world(AnonRules::stock(), 2000, 0);
    let (file, open) = file(&mut world, 3000);
    for pages in [0..1, 0..1, 1000..1600, 1000..1600] {
        for index in pages {
            world.memory.pread(open, index * PAGE, 1).unwrap();
            world.memory.pread(open, 2990 * PAGE, 1).unwrap();
        }
    }
    assert!(world.memory.core().folios.lru().nr_pages(ACTIVE_FILE) >= 600 - 31);
    let id = world.memory.core().find(file, PageIndex(0)).unwrap().folio;
    assert!(!world.memory.core().folios.get(id).is_workingset);
    while is_cached(&world, file, 0) {
        assert!(world.memory.reclaim_pages(32) > 0);
    }
    // Fewer were evicted since than are active, so it becomes active immediately.
    let active = world.memory.core().folios.lru().nr_pages(ACTIVE_FILE);
    assert!(active > 100, "{active} {:?}", counts(&world));
    world.memory.pread(open, 0, 1).unwrap();
    world.check();
    world.memory.reclaim_pages(1);
    let folios = &world.memory.core().folios;
    let id = world.memory.core().find(file, PageIndex(0)).unwrap().folio;
    assert!(folios.get(id).is_workingset);
    assert_eq!(folios.lru().list_of(id), Some(ACTIVE_FILE));
    let counts = counts(&world);
    let of_file = [counts.workingset_refault_file, counts.workingset_activate_file];
    assert!(of_file[0] >= of_file[1] && of_file[1] >= counts.workingset_restore_file);
    assert!(counts.workingset_restore_file > 0, "{counts:?}");
}

#[test]
fn swapped_pages_come_back_one_by_one_with_their_bytes() {
    let mut world = world(thp(), 4096, 4096).mapped(1024);
    let mm = world.mm;
    for page in (0..512).step_by(7) {
        world.write(mm, page);
    }
    assert_eq!(world.order(mm, 0), 9);
    for _ in 0..4 {
        world.memory.reclaim_pages(4096);
    }
    world.check();
    assert!(world.page(mm, 0).is_none());
    let before = counts(&world);
    assert_eq!((before.thp_swpout, before.pswpout, before.pswpin), (1, 512, 0));
    assert_eq!((world.byte(mm, 7), world.byte(mm, 8)), (0x87, 0));
    world.check();
    let page = world.page(mm, 7).unwrap();
    assert!(page.order == Order::ZERO && page.is_anon_exclusive && page.is_writable);
    assert_eq!(counts(&world).pswpin, 2);
    // A PMD folio never covers swapped pages.
    assert_eq!(world.write(mm, 9).order.get(), 0);
    assert!(world.page(mm, 10).is_none());
}

#[test]
fn a_child_finds_what_its_parent_had_swapped() {
    let mut world = world(AnonRules::stock(), 4096, 4096).mapped(64);
    let mm = world.mm;
    world.write_all(mm, 0..64);
    for _ in 0..4 {
        world.memory.reclaim_pages(64);
    }
    assert!(world.page(mm, 5).is_none());
    let child = world.fork(mm);
    world.memory.store(mm, addr(5), &[1]).unwrap();
    world.check();
    assert_eq!((world.byte(mm, 5), world.byte(child, 5)), (1, 0x85));
    world
        .memory
        .mremap(
            mm,
            AddrRange { addr: addr(0), len_bytes: 64 * PAGE },
            AddrRange { addr: addr(128), len_bytes: 64 * PAGE },
        )
        .unwrap();
    world.check();
    assert_eq!((world.byte(mm, 134), world.byte(child, 6)), (0x86, 0x86));
    world.advise(mm, 128, 64, Madvice::Dontneed);
    assert_eq!((world.byte(mm, 135), world.byte(child, 7)), (0, 0x87));
    world.exit(child);
    world.exit(mm);
}

#[test]
fn a_partially_mapped_folio_is_split_before_it_is_swapped_g_5_1() {
    let mut world = world(sizes(&[64]), 4096, 4096).mapped(16);
    let mm = world.mm;
    world.write_all(mm, 0..16);
    world.unmap(mm, 4, 12);
    assert!(world.page(mm, 0).unwrap().is_partially_mapped);
    for _ in 0..4 {
        world.memory.reclaim_pages(64);
    }
    world.check();
    let counts = counts(&world);
    assert_eq!((counts.pswpout, counts.swpout_large, world.size(4).split), (4, 0, 1));
    assert_eq!(world.byte(mm, 3), 0x83);
}

#[test]
fn without_contiguous_slots_a_folio_is_split_and_its_pages_go_one_by_one_g_5_1() {
    // The header of the swap space is in the first 512 slots, so only the second 512 are free.
    let mut world = world(thp(), 8192, 1112).mapped(1536);
    let mm = world.mm;
    for page in (0..1536).step_by(512) {
        (page..page + 512).for_each(|page| {
            world.memory.store(mm, addr(page), &[page as u8 | 1]).unwrap();
        });
    }
    for _ in 0..6 {
        world.memory.reclaim_pages(8192);
    }
    world.check();
    let counts = counts(&world);
    assert_eq!((counts.thp_swpout, counts.pswpout), (1, 1112));
    assert!(counts.thp_swpout_fallback >= 1);
    for page in 0..1536 {
        assert_eq!(world.byte(mm, page), page as u8 | 1);
    }
    world.check();
}

#[test]
fn without_swap_space_private_memory_stays_and_memory_runs_out() {
    let mut world = world(AnonRules::stock(), 600, 0).mapped(1024);
    let mm = world.mm;
    let stored =
        (0..1024).take_while(|&page| world.memory.touch(mm, addr(page), Access::Write).is_ok());
    assert_eq!(stored.count(), 599);
    world.check();
    let error = world.memory.touch(mm, addr(600), Access::Write).unwrap_err();
    assert!(error.to_string().contains("give the model more memory"), "{error}");
    assert_eq!(counts(&world).pswpout, 0);
}

#[test]
fn with_swap_space_twice_the_memory_can_be_used() {
    let mut world = world(AnonRules::stock(), 600, 1000).mapped(1024);
    let mm = world.mm;
    for page in 0..1024 {
        world.memory.store(mm, addr(page), &[page as u8 ^ 0x5a]).unwrap();
    }
    world.check();
    for page in (0..1024).rev() {
        assert_eq!(world.byte(mm, page), page as u8 ^ 0x5a, "page {page}");
    }
    world.check();
    assert!(counts(&world).pswpin >= 400);
}

#[test]
fn what_madv_free_gave_up_is_thrown_away_unless_it_was_stored_to() {
    let mut world = world(AnonRules::stock(), 4096, 0).mapped(64);
    let mm = world.mm;
    world.write_all(mm, 0..64);
    world.advise(mm, 0, 32, Madvice::Free);
    world.memory.store(mm, addr(9), &[77]).unwrap();
    for _ in 0..4 {
        world.memory.reclaim_pages(64);
    }
    world.check();
    assert_eq!((world.byte(mm, 8), world.byte(mm, 9), world.byte(mm, 40)), (0, 77, 0xa8));
    assert_eq!(counts(&world).pglazyfreed, 31);
}

#[test]
fn shared_memory_needs_swap_space_too() {
    let mut world = world(AnonRules::stock(), 4096, 64);
    let mm = world.mm;
    let map = Map::anon(32 * PAGE, Prot::READ_WRITE).shared().at(addr(0));
    world.memory.mmap(mm, map).unwrap();
    world.write_all(mm, 0..32);
    for _ in 0..4 {
        world.memory.reclaim_pages(64);
    }
    world.check();
    assert!(world.page(mm, 3).is_none());
    assert_eq!(counts(&world).pswpout, 32);
    assert_eq!(world.byte(mm, 3), 0x83);
    assert_eq!(counts(&world).pswpin, 1);
    world.exit(mm);
}

fn sprinkled(anon: AnonRules) -> (World, MappingId) {
    let mut world = world(anon, 16_384, 0);
    let (file, open) = file(&mut world, 16_384);
    let mut nr = 0;
    while world.memory.core().buddy.nr_free_pages() > 0 {
        insert(&mut world, file, nr, 0);
        nr += 1;
    }
    for index in (0..nr).filter(|index| index % 16 != 0) {
        world.memory.drop_folio(file, PageIndex(index)).unwrap();
    }
    let mm = world.mm;
    let map = Map::file(open, 0, 16_384 * PAGE, Prot::READ).at(addr(16_384));
    world.memory.mmap(mm, map).unwrap();
    world.check();
    (world, file)
}

#[test]
fn fragmentation_index_decides_whether_compaction_is_tried_i_9() {
    let (mut world, _) = sprinkled(AnonRules::stock());
    let buddy = &world.memory.core().buddy;
    let order = Order::new(9);
    let nr_free = buddy.nr_free_pages();
    let nr_blocks: u64 = (0..=10).map(|order| buddy.nr_free_of(Order::new(order))).sum();
    let expected = 1000 - ((1000 + nr_free * 1000 / 512) / nr_blocks) as i32;
    assert_eq!(buddy.fragmentation_index(order), expected);
    assert!(expected > 900);
    assert_eq!(buddy.unusable_index(order), 1000);
    assert_eq!(world.memory.can_compact(order), Ok(()));
    assert!(world.memory.compact(order));
    assert_eq!(world.memory.core().buddy.fragmentation_index(order), -1000);
    while world.memory.core().buddy.nr_free_pages() > 1500 {
        world.memory.take_block(Order::ZERO).unwrap();
    }
    assert_eq!(world.memory.can_compact(order), Err(CompactRefusal::TooLittleFree));
}

#[test]
fn compaction_moves_folios_with_their_bytes_and_mappings_i_11() {
    let advised = AnonRules { defrag: Defrag::Madvise, ..AnonRules::stock() };
    let (mut world, file) = sprinkled(advised);
    let mm = world.mm;
    let pages: Vec<u64> = (0..16_000).step_by(16).collect();
    for &page in &pages {
        world.memory.touch(mm, addr(16_384 + page), Access::Read).unwrap();
    }
    let before: Vec<_> = pages.iter().map(|&page| world.pfn(mm, 16_384 + page)).collect();
    world.map(0, 1024);
    // Without advice, the kernel makes no effort (D.5).
    assert_eq!(world.write(mm, 5).order.get(), 0);
    world.advise(mm, 512, 512, Madvice::Hugepage);
    let pmd = world.write(mm, 600);
    assert_eq!(pmd.order.get(), 9);
    world.check();
    let counts = counts(&world);
    assert_eq!((counts.compact_stall, counts.compact_success, counts.compact_fail), (1, 1, 0));
    assert!(counts.pgmigrate_success >= 32 && counts.compact_migrate_scanned >= 512);
    let mut nr_moved = 0;
    for (&page, &before) in pages.iter().zip(&before) {
        let after = world.pfn(mm, 16_384 + page);
        nr_moved += u64::from(after != before);
        assert!(before.0 >> 9 != pmd.pfn.0 >> 9 || after != before, "it made room");
        assert_eq!(world.byte(mm, 16_384 + page), stored_byte(file, page * PAGE));
    }
    assert!((1..=counts.pgmigrate_success).contains(&nr_moved), "{nr_moved} {counts:?}");
}

#[test]
fn kcompactd_compacts_in_advance_where_most_of_memory_is_in_pieces_i_11() {
    let (mut world, _) = sprinkled(AnonRules::stock());
    let score = |world: &World| world.memory.core().buddy.unusable_index(Order::new(9)) / 10;
    assert_eq!(score(&world), 100);
    world.memory.compact_in_advance();
    world.check();
    assert_eq!(counts(&world).nr_compact_proactive, 1);
    // The target is 100 less 20; the remaining fragments are left alone.
    assert!((75..=80).contains(&score(&world)), "{}", score(&world));
    world.memory.compact_in_advance();
    assert_eq!(counts(&world).nr_compact_proactive, 1);
}

#[test]
fn a_compaction_in_advance_that_gains_nothing_is_not_repeated_for_64_looks_i_11() {
    let (mut world, _) = sprinkled(AnonRules::stock());
    while world.memory.core().buddy.nr_free_pages() > 100 {
        world.memory.take_block(Order::ZERO).unwrap();
    }
    for nr in 0..66 {
        world.memory.compact_in_advance();
        assert_eq!(counts(&world).nr_compact_proactive, 1 + nr / 65, "{nr}");
    }
}

#[test]
fn a_large_folio_leaves_the_lowest_mark_alone_i_6() {
    let mut world = world(sizes(&[64]), 16_384, 0).mapped(64);
    let mm = world.mm;
    while world.memory.core().buddy.nr_free_pages() >= 819 + 16 {
        world.memory.take_block(Order::ZERO).unwrap();
    }
    assert_eq!(world.memory.touch(mm, addr(3), Access::Write).map(|t| t.leaf.order.get()), Ok(0));
    assert_eq!(world.order(mm, 3), 0);
    assert_eq!(world.size(4).anon_fault_fallback, 1);
}

#[test]
fn an_isolated_folio_is_left_alone_until_it_is_put_back() {
    let mut world = world(AnonRules::stock(), 2000, 0);
    let (file, _) = file(&mut world, 64);
    insert(&mut world, file, 0, 4);
    let id = world.memory.core().find(file, PageIndex(0)).unwrap().folio;
    assert!(world.memory.isolate(id));
    world.memory.reclaim_pages(2000);
    world.check();
    assert!(is_cached(&world, file, 0));
    world.memory.putback(id);
    world.memory.reclaim_pages(2000);
    assert!(!is_cached(&world, file, 0));
}
