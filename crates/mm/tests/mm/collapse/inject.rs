//! Makes every step fail in turn, and checks that the state is unchanged, byte for byte.

use std::collections::BTreeSet;

use largefolio_mm::core::inject::FailAfter;
use largefolio_mm::counters::collapse::CollapseRefusal;
use largefolio_mm::map::Map;
use largefolio_mm::ram::stored_byte;
use largefolio_mm::units::Order;
use largefolio_mm::vma::Prot;

use crate::collapse::world::{N, PAGE, World, addr, mark, new_rules, old_rules};

fn nr_steps(make: fn() -> World, collapse: fn(&mut World) -> bool) -> u64 {
    let mut world = make();
    world.memory.fail_collapse(FailAfter::NEVER);
    assert!(collapse(&mut world));
    world.memory.nr_collapse_steps()
}

fn each_step(
    make: fn() -> World,
    collapse: fn(&mut World) -> bool,
    check: impl Fn(&mut World, &World, u64),
) -> BTreeSet<CollapseRefusal> {
    let mut refused = BTreeSet::new();
    for step in 0..nr_steps(make, collapse) {
        let (mut world, untouched) = (make(), make());
        world.memory.fail_collapse(FailAfter::steps(step));
        let _ = collapse(&mut world);
        world.memory.validate().unwrap();
        let counted = world.memory.counters().collapse.refused;
        refused.extend(CollapseRefusal::ALL.into_iter().filter(|&r| counted[r as usize] > 0));
        check(&mut world, &untouched, step);
        world.memory.fail_collapse(FailAfter::NEVER);
        assert!(collapse(&mut world), "step {step}: again");
    }
    refused
}

fn anon() -> World {
    let mut world = World::new(old_rules()).mapped(N);
    world.write([0, 1, 2, 200, 511]);
    world.read([9]);
    let _ = world.memory.fork(world.mm).unwrap();
    world.write([1, 200]);
    world
}

#[test]
fn an_anonymous_collapse_that_fails_leaves_everything_as_it_was() {
    let collapse = |world: &mut World| world.collapse(0, N).is_ok();
    let refused = each_step(anon, collapse, |world, untouched, step| {
        assert!(world.content(world.mm, N) == untouched.content(untouched.mm, N), "step {step}");
        let free = |world: &World| world.memory.core().buddy.nr_free_pages();
        assert_eq!(free(world), free(untouched), "step {step}");
        let tables = |world: &World| world.memory.space(world.mm).table.stats();
        assert_eq!(tables(world), tables(untouched), "step {step}");
    });
    let expected = [
        CollapseRefusal::AllocHugePageFail,
        CollapseRefusal::CgroupChargeFail,
        CollapseRefusal::VmaCheck,
        CollapseRefusal::AnyProcess,
        CollapseRefusal::PageLock,
        CollapseRefusal::DelPageLru,
        CollapseRefusal::CopyMc,
    ];
    assert_eq!(refused, expected.into());
}

#[test]
fn a_smaller_anonymous_collapse_that_fails_does_too() {
    let collapse = |world: &mut World| {
        world.memory.madvise_collapse_to(world.mm, addr(0), 16 * PAGE, Order::new(4)).is_ok()
    };
    let refused = each_step(anon, collapse, |world, untouched, step| {
        assert!(world.content(world.mm, N) == untouched.content(untouched.mm, N), "step {step}");
    });
    assert!(refused.contains(&CollapseRefusal::CopyMc));
}

fn file() -> World {
    let (mut world, _, _) = World::new(old_rules()).with_file("vfat", N, Prot::READ_EXEC);
    world.read((0..400).chain([411]));
    world
}

#[test]
fn a_collapse_of_a_file_that_fails_leaves_the_cache_as_it_was() {
    let collapse = |world: &mut World| world.collapse(0, N).is_ok();
    let mut tried = Vec::new();
    let steps = nr_steps(file, collapse);
    // Every 37th step, and all steps around phase boundaries.
    let chosen = (0..steps).filter(|step| step % 37 == 0 || *step < 12 || steps - step < 8);
    for step in chosen {
        let (mut world, untouched) = (file(), file());
        let id = world.memory.core().mappings().next().unwrap().0;
        world.memory.fail_collapse(FailAfter::steps(step));
        let error = world.collapse(0, N).err();
        tried.extend(error.map(|error| error.refusal));
        // Pages read for the collapse stay; the others are unchanged.
        let before = untouched.cached(id);
        let after = world.cached(id);
        let is_done = after.len() == 1;
        assert!(is_done || before.iter().all(|folio| after.contains(folio)), "step {step}");
        let nr_thps = world.memory.core().mapping(id).gate.nr_thps();
        assert_eq!(nr_thps, u32::from(is_done), "step {step}: nr_thps is rolled back");
        let used = world.memory.core().buddy.nr_allocated_pages();
        let cached = world.memory.core().mapping(id).tree.nr_pages();
        assert_eq!(used, cached + 1, "step {step}: nothing leaks");
        for page in [0, 10, 399, 411, 500] {
            assert_eq!(world.byte(world.mm, page), stored_byte(id, page * PAGE), "step {step}");
        }
        world.memory.validate().unwrap();
        world.memory.fail_collapse(FailAfter::NEVER);
        assert!(collapse(&mut world), "step {step}: again");
    }
    for refusal in [
        CollapseRefusal::AllocHugePageFail,
        CollapseRefusal::CgroupChargeFail,
        CollapseRefusal::Fail,
        CollapseRefusal::CopyMc,
        CollapseRefusal::StoreFailed,
    ] {
        assert!(tried.contains(&refusal), "{refusal:?} was not among {tried:?}");
    }
}

fn shmem() -> World {
    let mut world = World::new(new_rules());
    let map = Map::anon(N * PAGE, Prot::READ_WRITE).at(addr(0)).shared();
    world.memory.mmap(world.mm, map).unwrap();
    world.write([0, 3, 500]);
    world
}

#[test]
fn a_collapse_of_shared_memory_that_fails_keeps_pages_and_holes() {
    let collapse = |world: &mut World| world.collapse(0, N).is_ok();
    let refused = each_step(shmem, collapse, |world, untouched, step| {
        let id = world.memory.core().mappings().next().unwrap().0;
        let is_done = world.memory.folios(id).count() == 1;
        assert!(is_done || world.cached(id) == untouched.cached(id), "step {step}");
        for page in [0, 1, 3, 500] {
            let expected = if [0, 3, 500].contains(&page) { mark(page) } else { 0 };
            assert_eq!(world.byte(world.mm, page), expected, "step {step}");
        }
    });
    let expected = [
        CollapseRefusal::Fail,
        CollapseRefusal::AnyProcess,
        CollapseRefusal::VmaCheck,
        CollapseRefusal::AllocHugePageFail,
        CollapseRefusal::CgroupChargeFail,
        CollapseRefusal::PageLock,
        CollapseRefusal::Truncated,
        CollapseRefusal::DelPageLru,
        CollapseRefusal::PageHasPrivate,
        CollapseRefusal::PageCount,
        CollapseRefusal::CopyMc,
        CollapseRefusal::PageFilled,
        CollapseRefusal::StoreFailed,
    ];
    assert_eq!(refused.difference(&expected.into()).count(), 0, "{refused:?}");
    assert!(refused.len() + 1 >= expected.len(), "{refused:?}");
}
