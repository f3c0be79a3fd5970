//! Unmap, deferred split, truncation, hole punch and split (docs/behaviour G, L.11).

use largefolio_mm::core::NewFolio;
use largefolio_mm::counters::split::SplitRefusal;
use largefolio_mm::fault::Access;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::rules::anon::{
    AnonRules, Mapcount, NonePtes, SplitZeroPages, TruncateSplit, Unsplittable,
};
use largefolio_mm::units::AddrRange;
use largefolio_mm::units::{MappingId, Order, PageIndex};
use largefolio_mm::vma::{OpenId, Prot};

use crate::anon::world::{PAGE, World, addr, sizes, thp};

#[test]
fn a_folio_that_loses_a_page_is_queued_once_g_2_1() {
    let mut world = World::new(sizes(&[64])).mapped(64);
    let mm = world.mm;
    world.write(mm, 3);
    world.unmap(mm, 5, 1);
    assert!(world.page(mm, 3).unwrap().is_partially_mapped);
    world.unmap(mm, 6, 2);
    assert_eq!((world.size(4).split_deferred, world.size(4).nr_anon_partially_mapped), (1, 1));
    // The shrinker frees unmapped pages by splitting the folio (G.2.5).
    let free = world.memory.core().buddy.nr_free_pages();
    let freed = world.memory.shrink_deferred(1);
    world.check();
    // Page 3 was stored to, the others were replaced by the zero page.
    assert_eq!((freed, world.memory.core().buddy.nr_free_pages() - free), (15, 15));
    assert_eq!((world.order(mm, 3), world.page(mm, 4).unwrap().owner), (0, None));
    assert_eq!((world.byte(mm, 3), world.byte(mm, 4)), (0x83, 0));
    assert_eq!(world.size(4).split, 1);
}

#[test]
fn before_6_12_a_split_keeps_zero_filled_pages() {
    let rules = AnonRules { split_zero_pages: SplitZeroPages::Kept, ..sizes(&[64]) };
    let mut world = World::new(rules).mapped(64);
    let mm = world.mm;
    world.write(mm, 3);
    world.unmap(mm, 5, 1);
    assert_eq!(world.memory.shrink_deferred(1), 1);
    assert!(world.page(mm, 4).unwrap().owner.is_some());
}

#[test]
fn l11_without_page_counts_a_shared_loss_is_seen_late() {
    for (mapcount, is_noticed) in [(Mapcount::PerPage, true), (Mapcount::PerFolio, false)] {
        let mut world = World::new(AnonRules { mapcount, ..sizes(&[64]) }).mapped(64);
        let mm = world.mm;
        world.write(mm, 3);
        let child = world.fork(mm);
        world.unmap(mm, 5, 1);
        assert_eq!(world.size(4).split_deferred, 0, "the child still maps it");
        world.unmap(child, 5, 1);
        assert_eq!(world.size(4).split_deferred, u64::from(is_noticed), "{mapcount:?}");
        world.exit(child);
        assert_eq!(world.size(4).split_deferred, 1);
    }
}

#[test]
fn partially_mapped_is_seen_through_a_split_pmd_mapping() {
    let mut world = World::new(thp()).mapped(512);
    let mm = world.mm;
    world.write(mm, 3);
    world.unmap(mm, 500, 12);
    assert_eq!(world.memory.counters().thp_split_pmd, 1);
    assert!(world.page(mm, 3).unwrap().is_partially_mapped);
    assert_eq!(world.memory.shrink_deferred(10), 511);
}

#[test]
fn the_shrinker_splits_nearly_empty_folios_if_told_to_g_2_4() {
    for (none, is_split) in [(NonePtes::AllButOne, false), (NonePtes::Exactly(500), true)] {
        let mut world = World::new(AnonRules { max_ptes_none: none, ..thp() }).mapped(1024);
        let mm = world.mm;
        world.write_all(mm, 0..8);
        world.write_all(mm, 512..532);
        let freed = world.memory.shrink_deferred(10);
        world.check();
        assert_eq!(freed, if is_split { 504 } else { 0 });
        assert_eq!(world.order(mm, 512), 9, "20 pages are stored to: 492 are empty");
        assert_eq!((world.byte(mm, 7), world.byte(mm, 8)), (0x87, 0));
        assert!(world.memory.core().deferred.is_empty(), "the others are forgotten");
    }
}

#[test]
fn a_split_keeps_the_mappings_of_all_processes() {
    let mut world = World::new(thp()).mapped(512);
    let mm = world.mm;
    (0..512).for_each(|page| world.memory.store(mm, addr(page), &[page as u8 | 1]).unwrap());
    let child = world.fork(mm);
    world.unmap(mm, 100, 50);
    world.unmap(child, 120, 60);
    let id = world.memory.core().folios.of_pfn(world.pfn(mm, 0)).unwrap();
    let pfns: Vec<_> = (0..512).map(|page| world.page(mm, page).map(|page| page.pfn)).collect();
    world.memory.split(id, Order::new(4)).unwrap();
    world.check();
    let after: Vec<_> = (0..512).map(|page| world.page(mm, page).map(|page| page.pfn)).collect();
    assert_eq!(pfns, after);
    assert_eq!((world.order(mm, 0), world.order(child, 511)), (4, 4));
    for page in [0, 99, 150, 511] {
        assert_eq!(world.byte(mm, page), page as u8 | 1);
    }
    assert_eq!(world.byte(child, 110), 111);
}

#[test]
fn exclusive_pages_stay_exclusive_when_their_folio_is_split() {
    let mut world = World::new(thp()).mapped(512);
    let mm = world.mm;
    let pfn = world.write(mm, 10).pfn;
    let id = world.memory.core().folios.of_pfn(pfn).unwrap();
    world.memory.split(id, Order::ZERO).unwrap();
    let after = world.write(mm, 10);
    assert_eq!((after.pfn, after.order.get(), after.is_anon_exclusive), (pfn, 0, true));
}

#[test]
fn refusals_are_named_counted_and_change_nothing() {
    let mut world = World::new(sizes(&[64])).mapped(64);
    let mm = world.mm;
    let pfn = world.write(mm, 3).pfn;
    let id = world.memory.core().folios.of_pfn(pfn).unwrap();
    let before = world.memory.core().buddy.nr_free_pages();
    assert_eq!(world.memory.split(id, Order::new(4)), Err(SplitRefusal::NotLarger));
    assert_eq!(world.memory.split(id, Order::new(1)), Err(SplitRefusal::AnonOrderOne));
    let pin = world.memory.pin(mm, addr(3), Access::Write).unwrap();
    assert_eq!(world.memory.split(id, Order::ZERO), Err(SplitRefusal::ExtraReference));
    world.unmap(mm, 5, 1);
    assert_eq!(world.memory.shrink_deferred(5), 0);
    assert_eq!(world.memory.core().deferred.len(), 1, "it stays queued");
    assert_eq!(world.memory.core().buddy.nr_free_pages(), before);
    assert_eq!(world.size(4).split_failed, 4);
    let refused = world.memory.counters().split_refused;
    assert_eq!(refused[SplitRefusal::ExtraReference as usize], 2);
    world.memory.unpin(pin);
    assert_eq!(world.memory.shrink_deferred(5), 15);
    world.check();
}

#[test]
fn memory_pressure_splits_before_it_fails() {
    use largefolio_mm::rules::Arch;
    let mut world = World::on(thp(), Arch::X86_64, 4 << 20).mapped(2048);
    let mm = world.mm;
    world.write(mm, 0);
    world.unmap(mm, 2, 510);
    for page in 1024..1024 + 900 {
        world.memory.store(mm, addr(page), &[7]).unwrap();
    }
    world.check();
    assert_eq!(world.size(9).split, 1);
    assert_eq!((world.byte(mm, 0), world.byte(mm, 1)), (0x80, 0));
}

fn with_file(rules: AnonRules) -> (World, MappingId, OpenId) {
    let mut world = World::new(rules);
    let file = world.memory.add_file(4 << 20, "xfs");
    let open = world.memory.open(file);
    world.memory.cache_folio(NewFolio::new(file, PageIndex(0), Order::new(9))).unwrap();
    (world, file, open)
}

fn folios(world: &World, file: MappingId) -> Vec<String> {
    world.memory.folios(file).map(|f| format!("{}@{}", f.order, f.index)).collect()
}

#[test]
fn n28_a_hole_splits_around_itself_or_uniformly() {
    let (mut world, file, _) = with_file(AnonRules::stock());
    world.memory.punch_hole(file, 100 * PAGE, PAGE);
    world.check();
    let expected = "o6@0 o5@64 o2@96 o0@101 o1@102 o3@104 o4@112 o7@128 o8@256";
    assert_eq!(folios(&world, file).join(" "), expected);

    let rules = AnonRules { truncate_split: TruncateSplit::Uniform, ..AnonRules::stock() };
    let (mut world, file, _) = with_file(rules);
    world.memory.punch_hole(file, 100 * PAGE, PAGE);
    world.check();
    assert_eq!(folios(&world, file).len(), 511);
}

#[test]
fn a_hole_of_several_pages_is_split_at_both_ends() {
    let (mut world, file, open) = with_file(AnonRules::stock());
    world.memory.punch_hole(file, 100 * PAGE + 7, 100 * PAGE);
    world.check();
    let all: u64 = world.memory.folios(file).map(|f| f.order.nr_pages()).sum();
    assert_eq!(all, 512 - 99);
    let mut bytes = vec![1; 102 * PAGE as usize];
    world.memory.read_file(open, 100 * PAGE, &mut bytes).unwrap();
    let (before, rest) = bytes.split_at(7);
    let (hole, after) = rest.split_at(100 * PAGE as usize);
    assert!(hole.iter().all(|&byte| byte == 0));
    assert!(before.iter().chain(after).all(|&byte| byte != 0), "only the hole is zeroed");
}

#[test]
fn truncation_within_a_page_zeroes_what_lies_behind() {
    let (mut world, file, open) = with_file(AnonRules::stock());
    let mm = world.mm;
    let map = Map::file(open, 0, 2 << 20, Prot::READ).at(addr(0));
    world.memory.mmap(mm, map).unwrap();
    world.memory.touch(mm, addr(5), Access::Read).unwrap();
    world.memory.truncate(file, 10 * PAGE + 1);
    world.check();
    // XFS zeroes the rest of the last page before it truncates; the dirtied folio stays whole.
    assert_eq!(folios(&world, file), ["o9@0"]);
    let mut byte = [0];
    world.memory.load(mm, addr(10), &mut byte).unwrap();
    assert!(world.memory.load(mm, addr(11), &mut byte).is_err());
    world.memory.truncate(file, 12 * PAGE);
    let mut bytes = vec![1; 2 * PAGE as usize];
    world.memory.read_file(open, 10 * PAGE, &mut bytes).unwrap();
    assert!(bytes[0] != 0 && bytes[1..].iter().all(|&byte| byte == 0));
}

#[test]
fn truncation_between_pages_splits_the_folio_at_the_new_end() {
    let (mut world, file, _) = with_file(AnonRules::stock());
    world.memory.truncate(file, 10 * PAGE);
    world.check();
    assert_eq!(folios(&world, file), ["o3@0", "o1@8"]);
}

#[test]
fn a_pinned_folio_is_dropped_clean_and_kept_dirty_g_3_3() {
    for is_dirty in [false, true] {
        for unsplittable in [Unsplittable::Kept, Unsplittable::KeptUnmapped] {
            let rules = AnonRules { unsplittable, ..AnonRules::stock() };
            let (mut world, file, open) = with_file(rules);
            let mm = world.mm;
            let prot = Prot::READ_WRITE;
            // Not congruent: mapped by PTEs, so the hole unmaps only its own pages.
            let map = Map::file(open, 0, 2 << 20, prot).shared().at(addr(1));
            world.memory.mmap(mm, map).unwrap();
            let access = if is_dirty { Access::Write } else { Access::Read };
            let pin = world.memory.pin(mm, addr(5), access).unwrap();
            world.memory.punch_hole(file, 100 * PAGE, PAGE);
            world.check();
            assert_eq!(folios(&world, file), if is_dirty { vec!["o9@0"] } else { vec![] });
            let is_mapped = world.page(mm, 5).is_some();
            assert_eq!(is_mapped, is_dirty && unsplittable == Unsplittable::Kept);
            world.memory.unpin(pin);
            world.check();
        }
    }
}

#[test]
fn madv_free_of_part_of_a_folio_splits_it_unless_it_is_shared_g_2_5() {
    let mut world = World::new(sizes(&[64])).mapped(64);
    let mm = world.mm;
    world.write(mm, 3);
    world.advise(mm, 0, 16, Madvice::Free);
    assert_eq!(world.order(mm, 3), 4, "covered as a whole: kept");
    assert_eq!(world.byte(mm, 3), 0x83);
    world.advise(mm, 0, 4, Madvice::Free);
    assert_eq!(world.order(mm, 3), 0);
    world.write(mm, 20);
    let child = world.fork(mm);
    world.advise(mm, 16, 4, Madvice::Free);
    assert_eq!(world.order(mm, 20), 4);
    world.exit(child);
}

#[test]
fn madv_dontneed_of_part_of_a_folio_reads_as_zero_again() {
    let mut world = World::new(sizes(&[64])).mapped(64);
    let mm = world.mm;
    world.write(mm, 3);
    world.write(mm, 4);
    world.advise(mm, 4, 1, Madvice::Dontneed);
    assert_eq!((world.byte(mm, 3), world.byte(mm, 4)), (0x83, 0));
    assert!(world.page(mm, 3).unwrap().is_partially_mapped);
}

#[test]
fn mremap_takes_folios_along_and_the_reverse_map_follows() {
    let mut world = World::new(thp()).mapped(1024);
    let mm = world.mm;
    let pfn = world.write(mm, 10).pfn;
    world
        .memory
        .mremap(
            mm,
            AddrRange { addr: addr(0), len_bytes: 512 * PAGE },
            AddrRange { addr: addr(4096), len_bytes: 512 * PAGE },
        )
        .unwrap();
    world.check();
    assert_eq!(world.pfn(mm, 4096 + 10), pfn);
    assert_eq!(world.order(mm, 4096 + 10), 9);
    // Not congruent: the mapping is split, the folio is not.
    let to = addr(6000 + 3);
    world
        .memory
        .mremap(
            mm,
            AddrRange { addr: addr(4096), len_bytes: 512 * PAGE },
            AddrRange { addr: to, len_bytes: 512 * PAGE },
        )
        .unwrap();
    world.check();
    assert_eq!((world.pfn(mm, 6013), world.order(mm, 6013)), (pfn, 9));
    let id = world.memory.core().folios.of_pfn(pfn).unwrap();
    world.memory.split(id, Order::ZERO).unwrap();
    world.check();
    assert_eq!((world.byte(mm, 6013), world.order(mm, 6013)), (0x8a, 0));
}

#[test]
fn bad_ranges_are_named_and_change_nothing() {
    let mut world = World::new(thp()).mapped(512);
    let mm = world.mm;
    world.write(mm, 3);
    let odd = largefolio_mm::units::Vaddr(addr(0).0 + 1);
    let far = largefolio_mm::units::Vaddr((1 << 48) - PAGE);
    assert!(world.memory.munmap(mm, odd, PAGE).is_err());
    assert!(world.memory.munmap(mm, far, 2 * PAGE).is_err());
    assert!(world.memory.munmap(mm, addr(0), 0).is_err());
    assert!(world.memory.madvise(mm, odd, PAGE, Madvice::Free).is_err());
    let file = world.memory.add_file(1 << 20, "xfs");
    let open = world.memory.open(file);
    world.memory.mmap(mm, Map::file(open, 0, 1 << 20, Prot::READ).at(addr(2048))).unwrap();
    let error = world.memory.madvise(mm, addr(2048), PAGE, Madvice::Free).unwrap_err();
    assert!(error.to_string().contains("not private anonymous memory"));
    world.check();
    assert_eq!(world.order(mm, 3), 9);
}
