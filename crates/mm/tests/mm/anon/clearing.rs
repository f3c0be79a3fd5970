//! Zeroing and copying by the kernel's plan (docs/behaviour D.2.6, D.4).

use largefolio_mm::ram::{Moved, Ram};
use largefolio_mm::rules::Arch;
use largefolio_mm::rules::anon::AnonRules;
use largefolio_mm::rules::clear::{ClearOrder, ClearRules, Preemption};
use largefolio_mm::units::{Order, PageSize, Pfn};

use crate::anon::world::{PAGE, World, clear_rules, sizes, thp};

fn dirty_world(anon: AnonRules, rules: ClearRules) -> World {
    let mut world = World::new(anon);
    for pfn in (0..(64 << 20) / PAGE).map(Pfn) {
        world.memory.frame_mut(pfn).fill(0xa5);
    }
    world.memory.change_rules(|of_kernel| of_kernel.clear = rules);
    world.mapped(512)
}

fn cleared(world: &World) -> Moved {
    world.memory.core().ram.counted.cleared
}

fn extents(world: &World) -> Vec<(u64, u64)> {
    let (_, plan) = cleared(world).last.unwrap();
    plan.units().map(|unit| (unit.first, unit.first + unit.nr - 1)).collect()
}

fn merged(preemption: Preemption) -> ClearRules {
    ClearRules { order: ClearOrder::Merged, preemption, ..ClearRules::stock() }
}

#[test]
fn a_fault_clears_the_extents_of_d_4_3_the_near_one_last() {
    for preemption in [Preemption::Voluntary, Preemption::Lazy] {
        for (page, expected) in [
            (0, vec![(3, 511), (0, 2)]),
            (1, vec![(4, 511), (0, 3)]),
            (255, vec![(258, 511), (0, 252), (253, 257)]),
            (510, vec![(0, 507), (508, 511)]),
            (511, vec![(0, 508), (509, 511)]),
        ] {
            let mut world = dirty_world(thp(), merged(preemption));
            let mm = world.mm;
            world.write(mm, page);
            assert_eq!(extents(&world), expected, "page {page}");
            let of = cleared(&world);
            assert_eq!(
                (of.nr_folios, of.nr_units, of.nr_bytes),
                (1, expected.len() as u64, 2 << 20)
            );
            let is_cooperative = preemption == Preemption::Voluntary;
            assert_eq!(of.nr_points, if is_cooperative { of.nr_units } else { 0 });
            assert_eq!(of.last.unwrap().0, Pfn(world.pfn(mm, page).0 - page));
        }
    }
}

#[test]
fn a_folio_below_the_pmd_size_is_cleared_around_the_page_within_it() {
    let mut world = dirty_world(sizes(&[64]), merged(Preemption::Lazy));
    let mm = world.mm;
    assert_eq!(world.write(mm, 5 * 16 + 7).order.get(), 4);
    assert_eq!(extents(&world), [(10, 15), (0, 4), (5, 9)]); // D.4.3, N = 16, n = 7
    let mut world = dirty_world(sizes(&[32]), ClearRules::stock());
    let mm = world.mm;
    assert_eq!(world.write(mm, 8 + 3).order.get(), 3);
    let pages = [7, 6, 0, 5, 1, 4, 2, 3].map(|page| (page, page)); // D.4.1, N = 8, n = 3
    assert_eq!(extents(&world), pages);
}

#[test]
fn a_base_page_is_one_unit_under_every_rule() {
    for rules in clear_rules() {
        let mut world = dirty_world(AnonRules::stock(), rules);
        let mm = world.mm;
        world.write(mm, 9);
        assert_eq!(extents(&world), [(0, 0)], "{rules:?}");
    }
}

#[test]
fn every_byte_of_a_fault_is_zero_but_those_stored_under_every_rule() {
    for rules in clear_rules() {
        for anon in [thp(), sizes(&[64]), AnonRules::stock()] {
            let mut world = dirty_world(anon, rules);
            let mm = world.mm;
            let order = world.write(mm, 300).order;
            let first = order.round_down(300);
            for page in first..first + order.nr_pages() {
                let frame = world.memory.core().ram.frame(world.pfn(mm, page));
                let nr_stored = if page == 300 { 8 } else { 0 };
                assert!(frame[nr_stored..].iter().all(|&byte| byte == 0), "{page}, {rules:?}");
            }
            let nr_zero = world.memory.core().ram.counted.nr_zeroed;
            assert_eq!(nr_zero, order.nr_pages());
            let all = (0..(64 << 20) / PAGE).map(Pfn);
            let ram = &world.memory.core().ram;
            let nr_dirty = all.filter(|&pfn| ram.frame(pfn)[PAGE as usize - 1] == 0xa5).count();
            assert_eq!(nr_dirty as u64, (64 << 20) / PAGE - order.nr_pages(), "{rules:?}");
        }
    }
}

#[test]
fn the_huge_zero_folio_is_for_nobodys_page_and_has_no_plan() {
    let mut world = dirty_world(thp(), merged(Preemption::Lazy));
    let mm = world.mm;
    world.read(mm, 255);
    let counted = world.memory.core().ram.counted;
    assert_eq!((counted.nr_zeroed, counted.cleared.nr_folios), (512, 0));
    assert_eq!(world.byte(mm, 77), 0);
}

#[test]
fn a_huge_page_is_copied_as_a_naive_loop_would_in_either_direction() {
    let rules = ClearRules::stock();
    for (from, to) in [(Pfn(512), Pfn(1024)), (Pfn(1024), Pfn(512)), (Pfn(0), Pfn(1536))] {
        let mut ram = Ram::new(PageSize::K4, 8 << 20);
        for nr in 0..2048 {
            let text = |by: usize| (nr as usize * 7 + by) as u8;
            ram.frame_mut(Pfn(nr)).iter_mut().enumerate().for_each(|(by, byte)| *byte = text(by));
        }
        let mut naive = ram.clone();
        for nr in 0..512 {
            let page = naive.frame(from.plus(nr)).to_vec();
            naive.frame_mut(to.plus(nr)).copy_from_slice(&page);
        }
        let plan = rules.copy_plan(Arch::X86_64, PageSize::K4, Order::new(9), 77);
        ram.copy_folio(from, to, &plan);
        assert!((0..2048).map(Pfn).all(|pfn| ram.frame(pfn) == naive.frame(pfn)));
        let mut counting = Ram::default();
        counting.copy_folio(from, to, &plan);
        let counted = counting.counted;
        assert_eq!(ram.counted, counted);
        assert_eq!((counted.nr_copied, counted.copied.nr_units), (512, 512));
        assert_eq!(counted.copied.last.map(|(pfn, _)| pfn), Some(to));
        assert_eq!(plan.units().last().map(|unit| unit.first), Some(77));
    }
}

#[test]
fn arm64_clears_page_by_page_unless_it_may_be_preempted() {
    for (preemption, nr_units) in [(Preemption::Voluntary, 512), (Preemption::Lazy, 3)] {
        let mut world = World::on(thp(), Arch::Arm64, 64 << 20).mapped(512);
        world.memory.change_rules(|rules| rules.clear = merged(preemption));
        let mm = world.mm;
        world.write(mm, 255);
        assert_eq!(cleared(&world).nr_units, nr_units);
    }
}
